import { z } from "@hono/zod-openapi";
import { type Column, eq, type SQL, sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import type { Database } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { isCancelledLazily, PENDING } from "../db/states.ts";
import { sendableAt, subscriptionsWithPending } from "../delivery/due.ts";
import { livesHere } from "../workspaces/workspaces.ts";

/*
 * Delivery reconciliation: compares the deliveries by state with the number of deliveries that events have created.
 * Both are counted independently, so they differ if a delivery was lost or created twice.
 */

/** How long a delivery must have been due to count as overdue. */
const OVERDUE_AFTER_MS = 300_000;

export const Backlog = z.object({
  pending: z.int(),
  overdue: z.int().describe("those that have been due for more than 5 min"),
  oldestPendingSeconds: z
    .int()
    .nullable()
    .describe("age of the oldest event with a pending delivery; null if there is none"),
  oldestWebhookId: z.string().nullable().describe("the webhook of that delivery"),
});
export type Backlog = z.infer<typeof Backlog>;

export function sumBacklogs(backlogs: Backlog[]): Backlog {
  const age = ({ oldestPendingSeconds }: Backlog) => oldestPendingSeconds ?? -1;
  const [oldest] = backlogs.toSorted((a, b) => age(b) - age(a));
  return {
    pending: backlogs.reduce((total, { pending }) => total + pending, 0),
    overdue: backlogs.reduce((total, { overdue }) => total + overdue, 0),
    oldestPendingSeconds: oldest?.oldestPendingSeconds ?? null,
    oldestWebhookId: oldest?.oldestWebhookId ?? null,
  };
}

/** SQL condition: the row is of this workspace, or of any that lives here. */
function isOf(workspaceId: string | undefined, table: { workspaceId: Column }): SQL {
  return workspaceId === undefined
    ? livesHere(table.workspaceId)
    : eq(table.workspaceId, workspaceId);
}

/**
 * Reads the backlog of one workspace, or of all of them. Reads the pending deliveries of that workspace, and one row
 * for each other subscription that has some.
 */
export async function findBacklog(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Backlog> {
  const { id } = subscriptions;
  const [row] = await db.all<{
    pending: number;
    overdue: number;
    oldestAt: number | null;
    oldestWebhookId: string | null;
  }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending("")}
    SELECT count(*) AS pending,
      coalesce(sum(${sendableAt()} < ${now - OVERDUE_AFTER_MS}), 0) AS overdue,
      -- The id is that of the row with the minimum.
      min(${events.createdAt}) AS oldestAt, ${id} AS oldestWebhookId
    FROM with_pending CROSS JOIN ${subscriptions} ON ${id} = with_pending.id AND ${isOf(workspaceId, subscriptions)}
      CROSS JOIN ${PENDING}
        ON ${deliveries.subscriptionId} = ${id} AND ${deliveries.state} = 'pending' AND NOT ${isCancelledLazily()}
      JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}`);
  if (!row) throw new Error("the backlog query returned no row");
  const { pending, overdue, oldestAt, oldestWebhookId } = row;
  const ageMs = oldestAt === null ? null : Math.max(0, now - oldestAt);
  return {
    pending,
    overdue,
    oldestPendingSeconds: ageMs === null ? null : Math.floor(ageMs / 1000),
    oldestWebhookId,
  };
}

export const Ledger = Backlog.extend({
  created: z.int().describe("counted independently, from the events"),
  delivered: z.int(),
  exhausted: z.int(),
  cancelled: z.int(),
  addsUp: z.boolean().describe("created = pending + delivered + exhausted + cancelled"),
});
export type Ledger = z.infer<typeof Ledger>;

/** Adds up the ledgers of several databases. `addsUp` is true if it is true for each of them. */
export function sumLedgers(ledgers: Ledger[]): Ledger {
  const sum = (field: "created" | "delivered" | "exhausted" | "cancelled") =>
    ledgers.reduce((total, ledger) => total + ledger[field], 0);
  return {
    created: sum("created"),
    delivered: sum("delivered"),
    exhausted: sum("exhausted"),
    cancelled: sum("cancelled"),
    ...sumBacklogs(ledgers),
    addsUp: ledgers.every(({ addsUp }) => addsUp),
  };
}

/**
 * Reads the ledger of one workspace, or of all of them, from every stored delivery. A cancelled delivery whose row
 * still says `pending` counts as cancelled.
 */
export async function findLedger(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Ledger> {
  const countOf = (state: DeliveryState) =>
    sql<number>`coalesce(sum(${deliveries.state} = ${state}), 0)`.as(state);
  const [row] = await db
    .select({
      created: sql<number>`(SELECT coalesce(sum(json_array_length(${events.owed})), 0)
          FROM ${events} WHERE ${isOf(workspaceId, events)} AND NOT ${events.test})`,
      pending: countOf("pending"),
      delivered: countOf("delivered"),
      exhausted: countOf("exhausted"),
      cancelled: countOf("cancelled"),
      cancelledLazily: sql<number>`(
        SELECT count(*) FROM ${subscriptions}
          CROSS JOIN ${PENDING}
            ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${isCancelledLazily()}
        WHERE ${subscriptions.hasToEnd} AND ${isOf(workspaceId, subscriptions)})`.as(
        "cancelled_lazily",
      ),
    })
    .from(deliveries)
    .where(isOf(workspaceId, deliveries));
  if (!row) throw new Error("the ledger query returned no row");
  const { cancelledLazily, ...counts } = row;
  const pending = row.pending - cancelledLazily;
  const cancelled = row.cancelled + cancelledLazily;
  const addsUp = row.created === pending + row.delivered + row.exhausted + cancelled;
  const backlog = await findBacklog(db, workspaceId, now);
  return { ...backlog, ...counts, pending, cancelled, addsUp };
}

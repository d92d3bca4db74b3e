import { z } from "@hono/zod-openapi";
import { eq, sql } from "drizzle-orm";
import type { DeliveryState } from "../contract/enumerations.ts";
import type { Database } from "../db/client.ts";
import { deliveries, events } from "../db/schema.ts";
import { livesHere } from "../workspaces/workspaces.ts";
import { Backlog, findBacklog, sumBacklogs } from "./dispatch/due.ts";

/** Counts of deliveries. */
export const Ledger = Backlog.extend({
  created: z.int().describe("counted independently, from the events"),
  delivered: z.int(),
  exhausted: z.int(),
  cancelled: z.int(),
  addsUp: z.boolean().describe("created = pending + delivered + exhausted + cancelled"),
});
export type Ledger = z.infer<typeof Ledger>;

/** The ledger of several databases together: it adds up when each of theirs does. */
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

/** The ledger of one workspace, or of all: it reads every delivery that is kept. */
export async function findLedger(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Ledger> {
  const isWithin = (table: typeof events | typeof deliveries) =>
    workspaceId === undefined ? livesHere(table.workspaceId) : eq(table.workspaceId, workspaceId);
  const countOf = (state: DeliveryState) =>
    sql<number>`coalesce(sum(${deliveries.state} = ${state}), 0)`;
  const [row] = await db
    .select({
      created: sql<number>`(SELECT coalesce(sum(json_array_length(${events.owed})), 0)
          FROM ${events} WHERE ${isWithin(events)})`,
      pending: countOf("pending"),
      delivered: countOf("delivered"),
      exhausted: countOf("exhausted"),
      cancelled: countOf("cancelled"),
    })
    .from(deliveries)
    .where(isWithin(deliveries));
  if (!row) throw new Error("the ledger query gave no row");
  const { overdue, oldestPendingSeconds } = await findBacklog(db, workspaceId, now);
  const addsUp = row.created === row.pending + row.delivered + row.exhausted + row.cancelled;
  return { ...row, overdue, oldestPendingSeconds, addsUp };
}

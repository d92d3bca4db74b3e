import { z } from "@hono/zod-openapi";
import { and, eq, isNull, lte, type Placeholder, type SQL, sql } from "drizzle-orm";
import { OVERDUE_AFTER_MS, SWEEP_GRACE_MS, SWEEP_MAX } from "../../contract/limits.ts";
import { qb } from "../../db/builder.ts";
import {
  type Database,
  prepared,
  query,
  readAs,
  type Statements,
  type Stored,
} from "../../db/client.ts";
import { deliveries, events, subscriptions } from "../../db/schema.ts";
import { livesHere } from "../../workspaces/workspaces.ts";
import { type Lane, laneOf } from "../pace.ts";
import { IS_SETTLED_HERE } from "./holds.ts";

/** A subscription with deliveries to send, and the lane to send them in. */
export interface Wake {
  subscriptionId: string;
  lane: Lane;
}

type WakeRow = { subscriptionId: string } & Pick<
  typeof subscriptions.$inferSelect,
  "slow" | "backoff"
>;

function toWake({ subscriptionId, ...pace }: WakeRow): Wake {
  return { subscriptionId, lane: laneOf(pace) };
}

const WAKE = {
  subscriptionId: subscriptions.id,
  slow: subscriptions.slow,
  backoff: subscriptions.backoff,
};

/** Subscriptions of a workspace that may be posted to and have something due now. */
export function listDue(workspaceId: string, now: number): Statements<Wake[]> {
  return readAs(due({ workspaceId, now }), (found) => found.map(toWake));
}

const PENDING = sql`${deliveries} WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'`;

const due = prepared(
  qb
    .select(WAKE)
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        lte(subscriptions.nextAt, sql.placeholder("now")),
        sql`EXISTS (SELECT 1 FROM ${PENDING} AND ${deliveries.dueAt} <= ${sql.placeholder("now")})`,
      ),
    ),
);

/**
 * Jumps from one subscription to the next in the index, however many pending deliveries each has.
 */
function subscriptionsWithPending(after: string | Placeholder): SQL {
  const { subscriptionId, state } = deliveries;
  // Raw SQL: Drizzle has no recursive queries.
  return sql`waiting (id) AS (
      SELECT min(${subscriptionId}) FROM ${deliveries}
        WHERE ${state} = 'pending' AND ${subscriptionId} > ${after}
      UNION ALL
      SELECT (SELECT min(${subscriptionId}) FROM ${deliveries}
        WHERE ${state} = 'pending' AND ${subscriptionId} > waiting.id)
      FROM waiting WHERE waiting.id IS NOT NULL)`;
}

const overdue = prepared<Stored<WakeRow>>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow, ${subscriptions.backoff} AS backoff
  FROM waiting JOIN ${subscriptions} ON ${subscriptions.id} = waiting.id
  WHERE ${subscriptions.heldUntil} <= ${sql.placeholder("now")} AND ${IS_SETTLED_HERE}
    AND (${subscriptions.cancelling} OR max(${subscriptions.nextAt}, (
      SELECT min(${deliveries.dueAt}) FROM ${PENDING})) <= ${sql.placeholder("now")} - ${SWEEP_GRACE_MS})
  LIMIT ${SWEEP_MAX}`);

/**
 * Up to `SWEEP_MAX` subscriptions of all workspaces that no dispatch has handled: with overdue
 * deliveries, or with withdrawn ones that are not cancelled.
 *
 * @param after where the last call stopped; "" to start over.
 */
export async function findOverdue(
  db: Database,
  after: string,
  now: number,
): Promise<{ wakes: Wake[]; after: string }> {
  const found = await query(db, overdue({ after, now }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  return { wakes: found.map((row) => toWake({ ...row, slow: row.slow === 1 })), after: last ?? "" };
}

/** Pending deliveries. */
export const Backlog = z.object({
  pending: z.int(),
  overdue: z.int().describe("those that could have been posted for more than five minutes"),
  oldestPendingSeconds: z
    .int()
    .nullable()
    .describe("age of the oldest event with a pending delivery; null if there is none"),
});
export type Backlog = z.infer<typeof Backlog>;

/** The backlog of several databases together. */
export function sumBacklogs(backlogs: Backlog[]): Backlog {
  const ages = backlogs.flatMap(({ oldestPendingSeconds }) => oldestPendingSeconds ?? []);
  return {
    pending: backlogs.reduce((total, { pending }) => total + pending, 0),
    overdue: backlogs.reduce((total, { overdue }) => total + overdue, 0),
    oldestPendingSeconds: ages.length === 0 ? null : Math.max(...ages),
  };
}

/**
 * The backlog of one workspace, or of all. Reads that workspace's pending deliveries, plus one row
 * for each other subscription that has any.
 */
export async function findBacklog(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Backlog> {
  const { id, nextAt } = subscriptions;
  const { subscriptionId, eventId, state, dueAt } = deliveries;
  const isWithin =
    workspaceId === undefined
      ? livesHere(subscriptions.workspaceId)
      : sql`${subscriptions.workspaceId} = ${workspaceId}`;
  const [row] = await db.all<{ pending: number; overdue: number; oldestAt: number | null }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending("")}
    SELECT count(*) AS pending,
      coalesce(sum(max(${dueAt}, ${nextAt}) < ${now - OVERDUE_AFTER_MS}), 0) AS overdue,
      min(${events.createdAt}) AS oldestAt
    FROM waiting CROSS JOIN ${subscriptions} ON ${id} = waiting.id AND ${isWithin}
      CROSS JOIN ${deliveries} INDEXED BY deliveries_due_of_subscription
        ON ${subscriptionId} = ${id} AND ${state} = 'pending'
      JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${eventId}`);
  if (!row) throw new Error("the backlog query gave no row");
  const { pending, overdue, oldestAt } = row;
  const ageMs = oldestAt === null ? null : Math.max(0, now - oldestAt);
  return {
    pending,
    overdue,
    oldestPendingSeconds: ageMs === null ? null : Math.floor(ageMs / 1000),
  };
}

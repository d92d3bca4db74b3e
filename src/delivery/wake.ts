import { z } from "@hono/zod-openapi";
import { and, eq, isNull, type Placeholder, type SQL, sql } from "drizzle-orm";
import { chunk } from "../chunk.ts";
import { isId } from "../contract/ids.ts";
import { SWEEP_MAX } from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, prepared, query, readAs, type Statements } from "../db/client.ts";
import { DIRECTORY, isBound } from "../db/databases.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { logError } from "../log.ts";
import { IS_LEASABLE } from "./lease.ts";
import { readyAt } from "./order.ts";
import { type Lane, laneOf } from "./policy.ts";

/** A subscription with deliveries to send, and the lane to send them in. */
export interface Wake {
  subscriptionId: string;
  lane: Lane;
}

/**
 * A message of the delivery queues: a hint to look in the database for this subscription's deliveries.
 * It names its lane because a deployment may rename its queues.
 */
const WakeMessage = z.strictObject({
  subscriptionId: z.string().refine((id) => isId("webhook", id)),
  lane: z.enum(["fast", "slow"]),
  /** The name of the subscription's database; absent means the directory's. */
  database: z.string().optional(),
});
export type WakeMessage = z.infer<typeof WakeMessage>;

/**
 * Whether a queue message is exactly what `wake` sends, for a database that is bound. Anything else is
 * dropped: the sweep finds what was to be woken.
 */
export function isWake(message: Message, env: Env): message is Message<WakeMessage> {
  const { success, data } = WakeMessage.safeParse(message.body);
  return success && isBound(env, data.database ?? DIRECTORY);
}

const LONGEST_DELAY_SECONDS = 86_400;
const MESSAGES_AT_ONCE = 100;

/**
 * Wakes the consumer for each subscription, in its lane. If a queue refuses a message, nothing is
 * lost: the sweep finds what is overdue.
 *
 * @param database the name of the subscriptions' database.
 * @returns whether the queues accepted every message.
 */
export async function wake(
  env: Env,
  database: string,
  wakes: Wake[],
  delaySeconds = 0,
): Promise<boolean> {
  const queues = { fast: env.DELIVERIES, slow: env.REDELIVERIES };
  const delay = Math.min(delaySeconds, LONGEST_DELAY_SECONDS);
  const lanes = Map.groupBy(wakes, ({ lane }) => lane);
  const sent = await Promise.all(
    [...lanes].flatMap(([lane, hints]) => {
      const ids = [...new Set(hints.map(({ subscriptionId }) => subscriptionId))];
      const elsewhere = database === DIRECTORY ? {} : { database };
      const hintsOf = (chunk: string[]): WakeMessage[] =>
        chunk.map((subscriptionId) => ({ subscriptionId, lane, ...elsewhere }));
      return chunk(ids, MESSAGES_AT_ONCE).map((chunk) => send(queues[lane], hintsOf(chunk), delay));
    }),
  );
  return sent.every(Boolean);
}

async function send(queue: Queue, hints: WakeMessage[], delaySeconds: number): Promise<boolean> {
  try {
    await queue.sendBatch(hints.map((body) => ({ body, delaySeconds })));
    return true;
  } catch (error) {
    logError("wake_refused", error, { messages: hints.length });
    return false;
  }
}

/** The sweep wakes subscriptions with deliveries overdue by more than this. */
export const SWEEP_GRACE_MS = MINUTE_MS;

type WakeRow = { subscriptionId: string } & Pick<
  typeof subscriptions.$inferSelect,
  "slow" | "nextAt"
>;

function toWake({ subscriptionId, ...pace }: WakeRow): Wake {
  return { subscriptionId, lane: laneOf(pace) };
}

const WAKE = {
  subscriptionId: subscriptions.id,
  slow: subscriptions.slow,
  nextAt: subscriptions.nextAt,
};

/** Subscriptions of a workspace that may be posted to and have something due now. */
export function listDue(workspaceId: string, now: number): Statements<Wake[]> {
  return readAs(due({ workspaceId, now }), (found) => found.map(toWake));
}

const due = prepared(
  qb
    .select(WAKE)
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        sql`${readyAt()} <= ${sql.placeholder("now")}`,
      ),
    ),
);

/**
 * A table expression, `waiting`, of the subscriptions with pending deliveries. It jumps from one
 * subscription to the next in the index, however many pending deliveries each has.
 */
export function subscriptionsWithPending(after: string | Placeholder): SQL {
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

const overdue = prepared(
  qb.all<Omit<WakeRow, "slow"> & { slow: 0 | 1 }>(sql`
  WITH RECURSIVE ${subscriptionsWithPending(sql.placeholder("after"))}
  SELECT ${subscriptions.id} AS subscriptionId, ${subscriptions.slow} AS slow, ${subscriptions.nextAt} AS nextAt
  FROM waiting JOIN ${subscriptions} ON ${subscriptions.id} = waiting.id
  WHERE ${subscriptions.leasedUntil} <= ${sql.placeholder("now")} AND ${IS_LEASABLE}
    AND (${subscriptions.cancelling} AND ${sql.placeholder("isSweep")} OR ${readyAt()} <= ${sql.placeholder("now")} - ${SWEEP_GRACE_MS})
  LIMIT ${SWEEP_MAX}`),
);

/**
 * Up to `SWEEP_MAX` subscriptions of all workspaces that no dispatch has handled: with overdue
 * deliveries, or, for the sweep, with void ones that are not cancelled, however long they have been void.
 *
 * @param after where the last call stopped; "" to start over.
 */
export async function findOverdue(
  db: Database,
  after: string,
  now: number,
  isSweep = false,
): Promise<{ wakes: Wake[]; after: string }> {
  const found = await query(db, overdue({ after, now, isSweep: isSweep ? 1 : 0 }));
  const last = found.length === SWEEP_MAX ? found.at(-1)?.subscriptionId : undefined;
  return { wakes: found.map((row) => toWake({ ...row, slow: row.slow === 1 })), after: last ?? "" };
}

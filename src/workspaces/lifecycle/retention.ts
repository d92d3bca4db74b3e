import { and, eq, exists, gt, lt, type SQL, sql } from "drizzle-orm";
import { eventIdAt } from "../../contract/ids.ts";
import { DAY_MS, HOUR_MS } from "../../contract/time.ts";
import { qb } from "../../db/builder.ts";
import { CLEANUP_MAX, commit, type Database, type Executable, inOrder } from "../../db/client.ts";
import { deliveries, events, workspaces } from "../../db/schema.ts";
import { resize, WHOLE_BYTES } from "../../webhooks/event-size.ts";
import { ownedTable } from "../manifest.ts";
import { isWritable } from "../moves.ts";
import { deleteRows } from "./erase.ts";
import { roundRobin } from "./round-robin.ts";

/** An event that is settled later than this after its creation gets an expiry of its own. */
const EXPIRY_SLACK_MS = HOUR_MS;

/** How long settled events are kept: milliseconds after they were settled. */
export interface Retention {
  deliveredMs: number;
  /** For events with an exhausted or cancelled delivery, or none at all. */
  undeliveredMs: number;
}

/** When to check an event again that is still pending. */
const LOOK_AGAIN_MS = DAY_MS;

/**
 * Parses the deployment's retention variables, in days.
 *
 * @throws Error that names the variable that is not a number of days.
 */
export function parseRetention(env: Env): Retention {
  const days = (name: "DELIVERED_KEPT_DAYS" | "UNDELIVERED_KEPT_DAYS") => {
    const value = Number(env[name]);
    if (!(value > 0)) throw new Error(`${name} is not a number of days`);
    return value * DAY_MS;
  };
  return { deliveredMs: days("DELIVERED_KEPT_DAYS"), undeliveredMs: days("UNDELIVERED_KEPT_DAYS") };
}

/**
 * Deletes expired events until there are none or `hasTime` returns false; the next call continues. Each
 * event is checked once it is old enough to have expired; ids sort by time, so this needs no index. One
 * that was settled late, or not delivered to everyone, then gets an expiry of its own.
 *
 * @returns how many events were deleted.
 */
export async function deleteExpired(
  db: Database,
  retention: Retention,
  now: number,
  hasTime: () => boolean,
): Promise<number> {
  let deleted = 0;
  const expiring = sql`FROM ${events} WHERE ${events.expiresAt} <= ${now}
    AND ${isWritable(events.workspaceId)} ORDER BY ${events.expiresAt}`;
  for (let looked = CLEANUP_MAX; looked === CLEANUP_MAX && hasTime(); ) {
    const old = await findOld(db, expiring, retention, now);
    deleted += await expire(db, old, now);
    looked = old.length;
  }
  const before = eventIdAt(
    now - Math.min(retention.deliveredMs, retention.undeliveredMs) - EXPIRY_SLACK_MS,
  );
  const { id, sweptTo } = workspaces;
  const unseen = qb
    .select({ id: events.id })
    .from(events)
    .where(and(eq(events.workspaceId, id), gt(events.id, sweptTo), lt(events.id, before)));
  const sweep = async (workspace: typeof workspaces.$inferSelect) => {
    deleted += await sweepWorkspace(db, workspace, before, retention, now, hasTime);
  };
  await roundRobin(db, "retention", exists(unseen), sweep, hasTime);
  return deleted;
}

async function sweepWorkspace(
  db: Database,
  { id, sweptTo }: { id: string; sweptTo: string },
  before: string,
  retention: Retention,
  now: number,
  hasTime: () => boolean,
): Promise<number> {
  let deleted = 0;
  let after = sweptTo;
  while (hasTime()) {
    const unseen = sql`FROM ${events} WHERE ${events.workspaceId} = ${id}
      AND ${events.id} > ${after} AND ${events.id} < ${before} ORDER BY ${events.id}`;
    const old = await findOld(db, unseen, retention, now);
    const last = old.at(-1);
    if (!last) break;
    after = last.id;
    const looked = qb
      .update(workspaces)
      .set({ sweptTo: after })
      .where(and(eq(workspaces.id, id), lt(workspaces.sweptTo, after)));
    deleted += await expire(db, old, now, looked);
    if (old.length < CLEANUP_MAX) break;
  }
  return deleted;
}

export const OF_EVENT = sql`FROM json_each(${events.owed}) AS o JOIN ${deliveries}
  ON ${deliveries.subscriptionId} = o.value AND ${deliveries.eventId} = ${events.id}`;

/** An event that has been checked, and when it expires. */
export interface OldEvent extends Pick<typeof events.$inferSelect, "workspaceId" | "id"> {
  expiresAt: number;
}

/** Up to `CLEANUP_MAX` of the events that `source` selects, and when each expires. */
async function findOld(db: Database, source: SQL, retention: Retention, now: number) {
  const { deliveredMs, undeliveredMs } = retention;
  const { state, settledAt } = deliveries;
  // Raw SQL: the caller gives the source and its order.
  return db.all<OldEvent>(sql`
    SELECT ${events.workspaceId} AS workspaceId, ${events.id} AS id, coalesce((
      SELECT CASE WHEN sum(${state} = 'pending') > 0 THEN ${now + LOOK_AGAIN_MS}
        ELSE max(${settledAt}) + CASE WHEN sum(${state} <> 'delivered') > 0
          THEN ${undeliveredMs} ELSE ${deliveredMs} END END ${OF_EVENT}),
      ${events.createdAt} + ${undeliveredMs}) AS expiresAt
    ${source} LIMIT ${CLEANUP_MAX}`);
}

/**
 * Deletes the expired events among those given, with their deliveries, and sets the expiry of the
 * others. Events that have become pending again are kept.
 *
 * @param looked records, in the same transaction, that they have been checked.
 * @returns how many events were deleted.
 */
export async function expire(
  db: Database,
  old: OldEvent[],
  now: number,
  looked: Executable = inOrder([]),
): Promise<number> {
  if (old.length === 0) {
    await commit(db, looked);
    return 0;
  }
  const seen = sql`json_each(${JSON.stringify(old)}) AS x`;
  const isSeen = sql`${events.workspaceId} = x.value->>'workspaceId' AND ${events.id} = x.value->>'id'`;
  const settled = sql`FROM ${seen} JOIN ${events} ON ${isSeen}
    WHERE x.value->>'expiresAt' <= ${now} AND NOT EXISTS (SELECT 1 ${OF_EVENT} WHERE ${deliveries.state} = 'pending')`;
  const isSettled = sql`(${events.workspaceId}, ${events.id}) IN (SELECT ${events.workspaceId}, ${events.id} ${settled})`;
  const [, deleted] = await commit(
    db,
    inOrder([
      resize(-1, settled, WHOLE_BYTES),
      deleteRows(ownedTable(events), isSettled),
      qb
        .update(events)
        .set({ expiresAt: sql`max(x.value->>'expiresAt', ${now + 1})` })
        .from(seen)
        .where(isSeen),
      looked,
    ]),
  );
  return deleted;
}

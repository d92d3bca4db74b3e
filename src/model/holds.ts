import { sql } from "drizzle-orm";
import { HOLD_MS } from "../contract/limits.ts";
import { deliveries, moves, subscriptions, workspaces } from "../db/schema.ts";

/** The right to post to a subscription: one dispatch at a time has it, for `HOLD_MS` at most. */
export interface Hold {
  holder: string;
  /** Unix milliseconds; another one for each round trip. */
  until: number;
}

/** A hold for the next `HOLD_MS`, later than the one before it. */
export function holdFrom(now: number, { holder, until }: Hold): Hold {
  return { holder, until: Math.max(now + HOLD_MS, until + 1) };
}

/** The values of a prepared statement that asks who holds a subscription. */
export type HoldValues = {
  /** "" for nobody. */
  holder: string;
  /** Unix milliseconds. */
  now: number;
  /** The `Request`s of the holder, as JSON. */
  asked: string;
};

/** Of those who end what nobody holds. */
export const NOBODY = { holder: "", asked: "[]" };

const [HOLDER, NOW, ASKED] = ["holder", "now", "asked"].map((name) => sql.placeholder(name));

/** True in SQL where a subscription is held by nobody but `HoldValues` say. */
export const IS_FREE = sql`(${subscriptions.heldBy} = ${HOLDER} OR ${subscriptions.heldUntil} <= ${NOW} OR NOT EXISTS (
    SELECT 1 FROM ${deliveries} WHERE ${deliveries.subscriptionId} = ${subscriptions.id}
      AND ${deliveries.state} = 'pending' AND ${deliveries.dueAt} <= ${subscriptions.heldThrough}))`;

/** True in SQL where events are owed to a subscription. */
export const IS_OWED = sql`(${subscriptions.disabledAt} IS NULL AND ${subscriptions.deletedAt} IS NULL
  AND EXISTS (SELECT 1 FROM ${workspaces} WHERE ${workspaces.id} = ${subscriptions.workspaceId} AND ${workspaces.accessGranted}))`;

/** True in SQL where a subscription may be dispatched to: its workspace is not changing its database. */
export const IS_SETTLED_HERE = sql`NOT EXISTS (SELECT 1 FROM ${moves}
  WHERE ${moves.workspaceId} = ${subscriptions.workspaceId} AND ${moves.state} <> 'copying')`;

/** What a dispatch wants of a subscription. */
export interface Request {
  subscriptionId: string;
  /** Whether more is to be claimed. */
  claim: boolean;
  /** Events under way, which neither are claimed again nor cancelled. */
  underWay: string[];
}

/**
 * True in SQL where a delivery is under way, as `HoldValues` say. By one text for each: SQLite then
 * makes a set of them once, and looks them up. A pair, or a condition on the delivery, is compared with
 * every one of them.
 */
export const IS_UNDER_WAY = sql`${deliveries.subscriptionId} || ${deliveries.eventId} IN (
  SELECT (a.value->>'subscriptionId') || e.value
  FROM json_each(${ASKED}) AS a, json_each(a.value, '$.underWay') AS e)`;

import { and, eq, sql } from "drizzle-orm";
import { HOLD_MS } from "../../contract/limits.ts";
import { qb } from "../../db/builder.ts";
import { prepared, readAs, type Statements } from "../../db/client.ts";
import { deliveries, subscriptions, workspaces } from "../../db/schema.ts";
import { isMovingOnlyIn } from "../../workspaces/moves.ts";

/**
 * The right to post to a subscription. One dispatch at a time has it, until it releases it, and for at
 * most `HOLD_MS` after its last claim.
 */
export interface Hold {
  holder: string;
  /** Unix milliseconds; different for each round trip. */
  until: number;
}

/** A hold for the next `HOLD_MS`, ending later than the previous one. */
export function holdFrom(now: number, { holder, until }: Hold): Hold {
  return { holder, until: Math.max(now + HOLD_MS, until + 1) };
}

/** The parameters of a prepared statement that checks who holds a subscription. */
export type HoldValues = {
  /** "" for nobody. */
  holder: string;
  /** Unix milliseconds. */
  now: number;
  /** The holder's `Request`s, as JSON. */
  asked: string;
};

/** For callers without a hold: they may only end what nobody holds. */
export const NOBODY = { holder: "", asked: "[]" };

const [HOLDER, NOW, ASKED] = ["holder", "now", "asked"].map((name) => sql.placeholder(name));

/** SQL condition: the subscription is not held by anyone other than `holder`. */
export const IS_FREE = sql`(${subscriptions.heldBy} = ${HOLDER} OR ${subscriptions.heldUntil} <= ${NOW})`;

/** SQL condition: events are owed to the subscription. */
export const IS_OWED = sql`(${subscriptions.disabledAt} IS NULL AND ${subscriptions.deletedAt} IS NULL
  AND EXISTS (SELECT 1 FROM ${workspaces} WHERE ${workspaces.id} = ${subscriptions.workspaceId} AND ${workspaces.accessGranted}))`;

/** SQL condition: the subscription may be dispatched to. Its workspace is not changing its database. */
export const IS_SETTLED_HERE = isMovingOnlyIn(["copying"], subscriptions.workspaceId);

/** What a dispatch wants of a subscription. */
export interface Request {
  subscriptionId: string;
  /** Whether to claim more. */
  claim: boolean;
  /** Events in progress, which are neither claimed again nor cancelled. */
  underWay: string[];
}

/**
 * SQL condition: the delivery is in progress, according to `asked`. Compared as one concatenated
 * string: SQLite then builds a set once and looks each delivery up in it. A pair of columns, or a
 * correlated condition, would be compared with every entry.
 */
export const IS_UNDER_WAY = sql`${deliveries.subscriptionId} || ${deliveries.eventId} IN (
  SELECT (a.value->>'subscriptionId') || e.value
  FROM json_each(${ASKED}) AS a, json_each(a.value, '$.underWay') AS e)`;

const held = prepared(
  qb
    .select({ id: subscriptions.id })
    .from(subscriptions)
    .where(and(eq(subscriptions.workspaceId, sql.placeholder("workspaceId")), sql`NOT ${IS_FREE}`))
    .limit(1),
);

/** Whether a dispatch holds any subscription of the workspace. */
export function isHeld(workspaceId: string, now: number): Statements<boolean> {
  return readAs(held({ workspaceId, now, ...NOBODY }), ([one]) => one !== undefined);
}

import { type SQL, sql } from "drizzle-orm";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { deliveries, subscriptions } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";

/**
 * A lease is a dispatch's exclusive right to post to a subscription: `subscriptions.leasedBy` and
 * `leasedUntil`. It lasts until the dispatch releases it, and for at most this long after its last claim,
 * should it die. A post begins only if it will have ended before the lease does.
 */
export const LEASE_MS = POST_TIMEOUT_MS + 10_000;

/** The parameters of a prepared statement that checks who leases a subscription. */
export type LeaseValues = {
  holder: string;
  /** Unix milliseconds. */
  now: number;
  /** The holder's `ClaimRequest`s, as JSON. */
  requests: string;
};

export const HOLDER = sql.placeholder("holder");
export const NOW = sql.placeholder("now");
const REQUESTED = sql.placeholder("requests");

/** A table expression: the holder's requests. */
export const REQUESTS = sql`json_each(${REQUESTED}) AS r`;

/** SQL condition: the subscription is the one that `r` asks for. */
export const IS_REQUESTED = sql`${subscriptions.id} = r.value->>'subscriptionId'`;

/** SQL condition: nobody but `holder` leases the subscription. */
export const IS_FREE = sql`(${subscriptions.leasedBy} = ${HOLDER} OR ${subscriptions.leasedUntil} <= ${NOW})`;

/** SQL condition: its workspace is not about to change its database, so it may be leased. */
export const IS_LEASABLE = isWritable(subscriptions.workspaceId);

/** What an exchange asks for one subscription. */
export interface ClaimRequest {
  subscriptionId: string;
  /** Whether to claim more. */
  claim: boolean;
  /** Events that are claimed and not settled: they are neither claimed again nor cancelled. */
  inProgress: string[];
}

/**
 * SQL condition: the delivery is in progress, according to `requests`. Compared as one concatenated
 * string: SQLite then builds a set once and looks each delivery up in it. A pair of columns, or a
 * correlated condition, would be compared with every entry.
 */
export const IS_IN_PROGRESS = sql`${deliveries.subscriptionId} || ${deliveries.eventId} IN (
  SELECT (q.value->>'subscriptionId') || e.value
  FROM json_each(${REQUESTED}) AS q, json_each(q.value, '$.inProgress') AS e)`;

/** SQL condition: a dispatch leases a subscription of the workspace. */
export function isLeased(workspaceId: string, now: number): SQL {
  const { workspaceId: owner, leasedUntil } = subscriptions;
  return sql`EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${owner} = ${workspaceId} AND ${leasedUntil} > ${now})`;
}

import { sql } from "drizzle-orm";
import type { WebhookEvent } from "../../contract/enumerations.ts";
import { inJson, qb, toTexts } from "../../db/builder.ts";
import { prepared, readAs, type Statements, transaction } from "../../db/client.ts";
import { deliveries, events, subscriptions } from "../../db/schema.ts";
import { dataKeyOf } from "../../workspaces/data-keys.ts";
import { isWritable } from "../../workspaces/moves.ts";
import { BODY, type BodyRow, type Owner } from "../bodies.ts";
import { IS_ACTIVE, IS_ITS_EVENT, IS_PENDING } from "../conditions.ts";
import { cancelVoid, exhaustOverdue, OVERDUE_SINCE } from "../endings.ts";
import { earlierSecretsAt } from "../secrets.ts";
import { type ClaimRequest, IS_FREE, IS_IN_PROGRESS, IS_LEASABLE, type Lease } from "./lease.ts";
import type { Lane, Pace } from "./policy.ts";
import { type Change, type Settlement, settle, updateSubscriptions } from "./settle.ts";

/** A subscription as a round trip left it. */
export interface Snapshot extends Pace, Owner {
  subscriptionId: string;
  url: string;
  sealedSecret: string;
  sealedHeaders: string | null;
  /** Sealed secrets that were rotated out and still sign. */
  earlierSecrets: string[];
  /** Events in progress whose deliveries no longer exist, because they were erased. */
  erased: string[];
  /** Incremented whenever all its pending deliveries become void. */
  cancellations: number;
  /** Whether deliveries remain to be ended here without a post: void ones, or those overdue for too long. */
  needsCleanup: boolean;
  /** Whether it may be posted to: it is active, and its workspace is not changing its database. */
  mayPost: boolean;
  /** Whether this dispatch leases it. */
  leased: boolean;
  /** When another dispatch's lease ends; null if no other has one. */
  leasedElsewhereUntil: number | null;
  /** When the first of its pending deliveries that are not in progress is due; null if there is none. */
  dueAt: number | null;
}

/** A delivery that this dispatch may post. */
export interface Claimed {
  subscriptionId: string;
  eventId: string;
  /** The kind of its event. */
  type: WebhookEvent;
  /** Number of attempts with a recorded outcome. */
  attempts: number;
  /** What its body is made from. */
  event: BodyRow;
}

/** The result of one round trip. */
export interface RoundTrip {
  found: Snapshot[];
  claimed: Claimed[];
}

/** What one round trip records and asks for. */
interface RoundTripInput {
  lease: Lease;
  lane: Lane;
  changes: Change[];
  settlements: Settlement[];
  requests: ClaimRequest[];
  /** Maximum number of deliveries to claim per subscription. */
  limit: number;
  /** Whether to end what `needsCleanup`. */
  cleanUp: boolean;
}

/**
 * Settles deliveries, claims what is due next, and releases the subscriptions for which there is
 * nothing, in one transaction: what is committed before it is claimed, and what is committed after it
 * finds them free. It only affects subscriptions that the dispatch still leases.
 */
export function settleAndClaim(
  { lease, lane, changes, settlements, requests, limit, cleanUp }: RoundTripInput,
  now: number,
): Statements<RoundTrip> {
  const ids = requests.map(({ subscriptionId }) => subscriptionId);
  const claiming = requests.filter((one) => one.claim).map((one) => one.subscriptionId);
  const isSlow = lane === "slow" ? 1 : 0;
  const values = { ...lease, requests: JSON.stringify(requests), now, limit, isSlow };
  const whose = inJson(subscriptions.id, ids);
  const isClaiming = claiming.length > 0;
  const statements = transaction({
    settled: settlements.length > 0 ? settle(lease, settlements) : undefined,
    cancelled: cleanUp ? cancelVoid(whose, values) : undefined,
    exhausted: cleanUp ? exhaustOverdue(values) : undefined,
    leased: isClaiming ? claim(values) : undefined,
    updated: changes.length > 0 ? updateSubscriptions(lease, changes, now) : undefined,
    found: snapshots(values),
    claimed: isClaiming ? claimed(values) : undefined,
  });
  return readAs(statements, ({ found, claimed = [] }) => ({
    found,
    claimed: claimed.map(({ subscriptionId, type, attempts, ...event }) => ({
      subscriptionId,
      type,
      eventId: event.eventId,
      attempts,
      event,
    })),
  }));
}

const HOLDER = sql.placeholder("holder");
const UNTIL = sql`${sql.placeholder("until")}`;
const NOW = sql.placeholder("now");
const REQUESTS = sql`json_each(${sql.placeholder("requests")}) AS r`;
const IS_REQUESTED = sql`${subscriptions.id} = r.value->>'subscriptionId'`;
const IS_OWN = sql`${subscriptions.leasedBy} = ${HOLDER}`;
const ITS_PENDING = sql`FROM ${deliveries} WHERE ${IS_PENDING} AND NOT ${IS_IN_PROGRESS}`;

/** Deliveries of a subscription to post now. */
const ITS_DUE = sql`${ITS_PENDING} AND ${deliveries.dueAt} <= ${NOW} AND ${deliveries.dueAt} > ${OVERDUE_SINCE}`;

/** Leases the subscriptions that have deliveries due and may be posted to in this lane. */
const claim = prepared(
  qb
    .update(subscriptions)
    .set({ leasedBy: sql`${HOLDER}`, leasedUntil: UNTIL })
    .from(REQUESTS)
    .where(
      sql`${IS_REQUESTED} AND r.value->>'claim' AND ${subscriptions.nextAt} <= ${NOW}
        AND (${subscriptions.slow} OR ${subscriptions.backoff} > 0) = ${sql.placeholder("isSlow")}
        AND NOT ${subscriptions.cancelling} AND ${IS_ACTIVE} AND ${IS_LEASABLE} AND ${IS_FREE} AND EXISTS (SELECT 1 ${ITS_DUE})`,
    ),
);

/** The requested subscriptions that exist, as this transaction leaves them. */
const snapshots = prepared(
  qb
    .select({
      subscriptionId: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      dataKey: dataKeyOf(subscriptions.workspaceId),
      url: subscriptions.url,
      sealedSecret: subscriptions.sealedSecret,
      sealedHeaders: subscriptions.sealedHeaders,
      earlierSecrets: earlierSecretsAt(NOW),
      postsAtOnce: subscriptions.postsAtOnce,
      backoff: subscriptions.backoff,
      nextAt: subscriptions.nextAt,
      slow: subscriptions.slow,
      failures: subscriptions.failures,
      failingSince: subscriptions.failingSince,
      rejections: subscriptions.rejections,
      cancellations: subscriptions.cancellations,
      needsCleanup:
        sql`((${subscriptions.cancelling} OR EXISTS (SELECT 1 ${ITS_PENDING} AND ${deliveries.dueAt} <= ${OVERDUE_SINCE}))
        AND ${isWritable(subscriptions.workspaceId)})`.mapWith(Boolean),
      mayPost: sql`(${IS_ACTIVE} AND ${IS_LEASABLE})`.mapWith(Boolean),
      leased: sql`coalesce(${IS_OWN} AND ${subscriptions.leasedUntil} > 0, 0)`.mapWith(Boolean),
      leasedElsewhereUntil: sql<
        number | null
      >`CASE WHEN NOT ${IS_FREE} THEN ${subscriptions.leasedUntil} END`,
      erased: sql`(SELECT json_group_array(e.value) FROM json_each(r.value, '$.inProgress') AS e
      WHERE NOT EXISTS (SELECT 1 FROM ${deliveries}
        WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = e.value))`.mapWith(
        toTexts,
      ),
      dueAt: sql<number | null>`(SELECT min(${deliveries.dueAt}) ${ITS_PENDING})`,
    })
    .from(REQUESTS)
    .innerJoin(subscriptions, IS_REQUESTED),
);

/**
 * The deliveries claimed in this round trip, longest due first. The limit is an expression because SQLite
 * would compile a statement whose limit is a parameter anew for each value.
 */
const claimed = prepared(
  qb
    .select({
      subscriptionId: deliveries.subscriptionId,
      type: events.type,
      attempts: deliveries.attempts,
      ...BODY,
    })
    .from(REQUESTS)
    .innerJoin(
      subscriptions,
      sql`${IS_REQUESTED} AND ${IS_OWN} AND ${subscriptions.leasedUntil} = ${UNTIL}`,
    )
    .innerJoin(
      deliveries,
      sql`${deliveries.subscriptionId} = ${subscriptions.id}
        AND ${deliveries.eventId} IN (SELECT ${deliveries.eventId} ${ITS_DUE}
          ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT 0 + ${sql.placeholder("limit")})`,
    )
    .innerJoin(events, IS_ITS_EVENT)
    .orderBy(deliveries.dueAt, deliveries.eventId),
);

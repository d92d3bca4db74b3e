import { sql } from "drizzle-orm";
import { qb, toTexts } from "../db/builder.ts";
import { prepared, transaction } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";
import { BODY, type BodyRow, type Owner } from "../events/bodies.ts";
import { IS_ACTIVE, IS_ITS_EVENT } from "../subscriptions/conditions.ts";
import { earlierSecretsAt } from "../subscriptions/secrets.ts";
import { dataKeyOf } from "../workspaces/data-keys.ts";
import { cancelVoid } from "./endings.ts";
import {
  type ClaimRequest,
  HOLDER,
  IS_FREE,
  IS_IN_PROGRESS,
  IS_LEASABLE,
  IS_REQUESTED,
  NOW,
  REQUESTS,
} from "./lease.ts";
import { dueBy, HELD_UNTIL, IS_PROBED, IS_QUEUED, QUEUES, readyAt } from "./order.ts";
import type { Lane, Pace, Post } from "./policy.ts";
import { type Change, PACE, type Settlement, settle, updateSubscriptions } from "./settle.ts";

/** A subscription as an exchange left it. */
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
  /** Whether void deliveries remain to be cancelled, and may be. */
  cancelling: boolean;
  /** Whether it may be posted to: it is active, and its workspace is not changing its database. */
  mayPost: boolean;
  /** When this dispatch's lease ends; 0 if it has none. */
  leasedUntil: number;
  /** When another dispatch's lease ends; null if no other has one. */
  leasedElsewhereUntil: number | null;
  /** When the next of its pending deliveries may be posted that are not in progress; null if there is none. */
  readyAt: number | null;
}

/** A delivery that an exchange claimed, with what its body is made from. */
export interface ClaimedRow extends Post, BodyRow {
  subscriptionId: string;
}

/** What an exchange records of a subscription, and asks for it. */
export interface Asked {
  request: ClaimRequest;
  settlements: Settlement[];
  change: Change | null;
  /** The pace that is recorded, if it has changed. */
  pace: Pace;
  /** Whether to cancel what is void. */
  cancel: boolean;
}

interface Terms {
  /** The dispatch, and until when it leases what it claims. */
  holder: string;
  until: number;
  lane: Lane;
  /** Maximum number of deliveries to claim per subscription. */
  limit: number;
  now: number;
}

/**
 * Settles deliveries, releases subscriptions, and claims what is due next, by the pace that their attempts
 * have left, in one transaction: what is committed before it is claimed, and what is committed after it
 * finds them free. It only affects subscriptions that the dispatch still leases.
 */
export function settleAndClaim(asked: Asked[], { lane, ...terms }: Terms) {
  const { holder, now } = terms;
  const requests = asked.map(({ request }) => request);
  const settlements = asked.flatMap((each) => each.settlements);
  const changes = asked.flatMap(({ change }) => change ?? []);
  const isClaiming = requests.some(({ claim }) => claim);
  const isSlow = lane === "slow" ? 1 : 0;
  const values = { ...terms, requests: JSON.stringify(requests), isSlow };
  return transaction({
    settled: settlements.length > 0 ? settle(holder, settlements) : undefined,
    cancelled: asked.some(({ cancel }) => cancel) ? cancelVoid(values) : undefined,
    updated: changes.length > 0 ? updateSubscriptions(holder, changes, now) : undefined,
    leased: isClaiming ? claim(values) : undefined,
    found: snapshots(values),
    claimed: isClaiming ? claimed(values) : undefined,
  });
}

const IS_LEASED = sql`(${subscriptions.leasedBy} = ${HOLDER} AND ${subscriptions.leasedUntil} > 0)`;
const IS_FREE_IN_QUEUE = sql`FROM ${deliveries} WHERE ${IS_QUEUED} AND NOT ${IS_IN_PROGRESS}`;

/** Deliveries in a queue of a subscription that are due. */
const DUE_IN_QUEUE = sql`${IS_FREE_IN_QUEUE} AND ${deliveries.dueAt} <= ${dueBy(sql`${NOW}`)}`;

/** SQL condition: more of it may be claimed, in this lane. While it is cancelling, what is pending may be void. */
const IS_CLAIMABLE = sql`${IS_REQUESTED} AND r.value->>'claim'
  AND (${subscriptions.slow} OR ${subscriptions.nextAt} > 0) = ${sql.placeholder("isSlow")}
  AND NOT ${subscriptions.cancelling} AND ${IS_ACTIVE} AND ${IS_LEASABLE}`;

/** Leases the subscriptions that have deliveries due and may be posted to in this lane. */
const claim = prepared(
  qb
    .update(subscriptions)
    .set({ leasedBy: sql`${HOLDER}`, leasedUntil: sql`${sql.placeholder("until")}` })
    .from(REQUESTS)
    .where(
      sql`${IS_CLAIMABLE} AND ${IS_FREE} AND EXISTS (SELECT 1 FROM ${QUEUES} WHERE ${HELD_UNTIL} <= ${NOW} AND EXISTS (SELECT 1 ${DUE_IN_QUEUE}))`,
    ),
);

const ORDER = sql`${deliveries.priority}, ${deliveries.dueAt}, ${deliveries.eventId}`;

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
      ...(Object.fromEntries(PACE.map((name) => [name, subscriptions[name]])) as Pick<
        typeof subscriptions,
        keyof Pace
      >),
      cancellations: subscriptions.cancellations,
      cancelling: sql`(${subscriptions.cancelling} AND ${IS_LEASABLE})`.mapWith(Boolean),
      mayPost: sql`(${IS_ACTIVE} AND ${IS_LEASABLE})`.mapWith(Boolean),
      leasedUntil: sql<number>`iif(${IS_LEASED}, ${subscriptions.leasedUntil}, 0)`,
      leasedElsewhereUntil: sql<
        number | null
      >`CASE WHEN NOT ${IS_FREE} THEN ${subscriptions.leasedUntil} END`,
      erased: sql`(SELECT json_group_array(e.value) FROM json_each(r.value, '$.inProgress') AS e
      WHERE NOT EXISTS (SELECT 1 FROM ${deliveries}
        WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = e.value))`.mapWith(
        toTexts,
      ),
      readyAt: readyAt(sql`NOT ${IS_IN_PROGRESS}`),
    })
    .from(REQUESTS)
    .innerJoin(subscriptions, IS_REQUESTED),
);

/**
 * What is due first in the queues of a subscription that is leased; a single one of those that are
 * probed. The limit is an expression because SQLite would compile a statement whose limit is a parameter
 * anew for each value.
 */
const LIMIT = sql`0 + ${sql.placeholder("limit")}`;
const CHOSEN = sql`(SELECT ${deliveries.subscriptionId} AS subscription_id, ${deliveries.eventId} AS event_id,
      row_number() OVER (PARTITION BY ${subscriptions.id}, ${IS_PROBED} ORDER BY ${ORDER}) <= iif(${IS_PROBED}, 1, ${LIMIT}) AS is_first
    FROM ${REQUESTS} JOIN ${subscriptions} ON ${IS_CLAIMABLE} AND ${IS_LEASED}
      CROSS JOIN ${QUEUES} ON ${HELD_UNTIL} <= ${NOW}
      CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
        SELECT ${deliveries.eventId} ${DUE_IN_QUEUE} ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT})
  ) AS chosen`;

/** The deliveries claimed in this exchange, in the order in which to post them. */
const claimed = prepared(
  qb
    .select({
      subscriptionId: deliveries.subscriptionId,
      type: deliveries.type,
      priority: deliveries.priority,
      attempts: deliveries.attempts,
      dueAt: deliveries.dueAt,
      turnAt: deliveries.turnAt,
      ...BODY,
    })
    .from(CHOSEN)
    .innerJoin(
      deliveries,
      sql`chosen.is_first AND ${deliveries.subscriptionId} = chosen.subscription_id AND ${deliveries.eventId} = chosen.event_id`,
    )
    .innerJoin(events, IS_ITS_EVENT)
    .orderBy(ORDER),
);

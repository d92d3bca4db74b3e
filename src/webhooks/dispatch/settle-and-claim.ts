import { and, type Column, eq, type SQL, sql } from "drizzle-orm";
import { INLINE_BODY_MAX } from "../../contract/limits.ts";
import { qb, toTexts } from "../../db/builder.ts";
import {
  type Database,
  inOrder,
  prepared,
  preparedWrite,
  query,
  readAs,
  type Statements,
} from "../../db/client.ts";
import { deliveries, events, subscriptions } from "../../db/schema.ts";
import { dataKeyOf } from "../../workspaces/data-keys.ts";
import { isWritable } from "../../workspaces/moves.ts";
import { findKeysOfSubscriptions } from "../../workspaces/workspaces.ts";
import { BODY, type BodyRow, type Owner } from "../bodies.ts";
import { cancelWithdrawn, exhaustOverdue } from "../endings.ts";
import type { Lane, Pace } from "../pace.ts";
import { earlierSecretsAt } from "../secrets.ts";
import {
  type Hold,
  IS_FREE,
  IS_OWED,
  IS_SETTLED_HERE,
  IS_UNDER_WAY,
  type Request,
} from "./holds.ts";
import { type Change, type Settlement, settle, updateSubscriptions } from "./outcomes.ts";

/** A subscription as a round trip found it. */
export interface Found extends Pace, Owner {
  subscriptionId: string;
  url: string;
  sealedSecret: string;
  /** Sealed secrets that were rotated out and still sign. */
  earlierSecrets: string[];
  /** Events in progress whose deliveries no longer exist, because they were erased. */
  erased: string[];
  generation: number;
  /** Whether withdrawn deliveries are still pending here. */
  cancelling: boolean;
  /** Whether it may be posted to: neither deleted nor disabled, nor without access, nor on the move. */
  owed: boolean;
  /** Whether this dispatch holds it, and has not released it. */
  held: boolean;
  /** Whether deliveries were claimed in this round trip. */
  claimed: boolean;
  /** When another dispatch's hold ends; null if no other holds it. */
  heldUntil: number | null;
  /** When its first pending delivery is due; null if none is pending. */
  dueAt: number | null;
}

/** A delivery that this dispatch may post. */
export interface Claimed {
  subscriptionId: string;
  eventId: string;
  /** Number of attempts with a recorded outcome. */
  attempts: number;
  generation: number;
  /** What its body is made from. What is too long is null here, and `findEvent` reads it when needed. */
  event: BodyRow;
}

/** The result of one round trip of a dispatch. */
export interface RoundTrip {
  found: Found[];
  claimed: Claimed[];
  /** Hashes of the API keys that may read what was claimed. */
  keyHashes: string[];
}

/** What one round trip of a dispatch records and asks for. */
export interface Exchange {
  hold: Hold;
  lane: Lane;
  changes: Change[];
  settlements: Settlement[];
  requests: Request[];
  /**
   * Maximum number of deliveries to claim per subscription; one that backs off posts only the
   * first.
   */
  limit: number;
  /** Whether to end withdrawn deliveries and those overdue for too long. */
  clean: boolean;
}

/**
 * Records what a dispatch has learnt, claims what is next, and releases subscriptions for which there
 * is nothing, in one transaction: whatever is committed before it is claimed, and whatever is committed
 * after it finds them free. It only affects subscriptions that the dispatch still holds.
 */
export function exchange(
  { hold, lane, changes, settlements, requests, limit, clean }: Exchange,
  now: number,
): Statements<RoundTrip> {
  const asked = JSON.stringify(requests);
  const ids = requests.map(({ subscriptionId }) => subscriptionId);
  const claiming = requests.filter((request) => request.claim).map((each) => each.subscriptionId);
  const isSlow = lane === "slow" ? 1 : 0;
  const values = { ...hold, asked, now, limit, isSlow };
  const statements = inOrder([
    settlements.length > 0 ? settle(hold, settlements) : inOrder([]),
    clean ? cancelWithdrawn(ids, now, values) : inOrder([]),
    clean ? exhaustOverdue(values) : inOrder([]),
    claiming.length > 0 ? claim(values) : inOrder([]),
    changes.length > 0 ? updateSubscriptions(hold, changes, now) : inOrder([]),
    subscriptionsAsked(values),
    claiming.length > 0 ? claimed(values) : inOrder([]),
    claiming.length > 0 ? findKeysOfSubscriptions(claiming, now) : inOrder([]),
  ]);
  return readAs(statements, ([, , , , , found, deliverable, keys]) => ({
    found,
    claimed: deliverable.map(({ subscriptionId, attempts, generation, ...event }) => ({
      subscriptionId,
      eventId: event.eventId,
      attempts,
      generation,
      event,
    })),
    keyHashes: keys.map(({ keyHash }) => keyHash),
  }));
}

const HOLDER = sql.placeholder("holder");
const UNTIL = sql`${sql.placeholder("until")}`;
const NOW = sql.placeholder("now");
const ASKED = sql`json_each(${sql.placeholder("asked")}) AS r`;
const IS_ASKED = sql`${subscriptions.id} = r.value->>'subscriptionId'`;
const IS_OWN = sql`${subscriptions.heldBy} = ${HOLDER}`;
const ITS_PENDING = sql`FROM ${deliveries}
  WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'
    AND NOT ${IS_UNDER_WAY}`;

/** Deliveries of a subscription that are due and not in progress, longest due first. */
const DUE = sql`(SELECT ${deliveries.eventId} AS event_id, ${deliveries.dueAt} AS due_at ${ITS_PENDING}
    AND ${deliveries.dueAt} <= ${NOW}
  ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${sql.placeholder("limit")})`;

/** Takes hold of the subscriptions that have deliveries due and may be posted to in this lane. */
const claim = preparedWrite(
  qb
    .update(subscriptions)
    .set({
      heldBy: sql`${HOLDER}`,
      heldUntil: UNTIL,
    })
    .from(ASKED)
    .where(
      sql`${IS_ASKED} AND r.value->>'claim' AND ${subscriptions.nextAt} <= ${NOW}
        AND (${subscriptions.slow} OR ${subscriptions.backoff} > 0) = ${sql.placeholder("isSlow")}
        AND NOT ${subscriptions.cancelling} AND ${IS_OWED} AND ${IS_SETTLED_HERE} AND ${IS_FREE} AND EXISTS (SELECT 1 FROM ${DUE})`,
    ),
);

/** The requested subscriptions that exist, as this transaction leaves them. */
const subscriptionsAsked = prepared<Found>(
  qb
    .select({
      subscriptionId: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      dataKey: dataKeyOf(subscriptions.workspaceId),
      url: subscriptions.url,
      sealedSecret: subscriptions.sealedSecret,
      earlierSecrets: earlierSecretsAt(NOW),
      postsAtOnce: subscriptions.postsAtOnce,
      backoff: subscriptions.backoff,
      nextAt: subscriptions.nextAt,
      slow: subscriptions.slow,
      failures: subscriptions.failures,
      failingSince: subscriptions.failingSince,
      generation: subscriptions.generation,
      cancelling:
        sql`(${subscriptions.cancelling} AND ${isWritable(subscriptions.workspaceId)})`.mapWith(
          Boolean,
        ),
      owed: sql`(${IS_OWED} AND ${IS_SETTLED_HERE})`.mapWith(Boolean),
      held: sql`coalesce(${IS_OWN} AND ${subscriptions.heldUntil} > 0, 0)`.mapWith(Boolean),
      claimed: sql`coalesce(${IS_OWN} AND ${subscriptions.heldUntil} = ${UNTIL}, 0)`.mapWith(
        Boolean,
      ),
      heldUntil: sql<number | null>`CASE WHEN NOT ${IS_FREE} THEN ${subscriptions.heldUntil} END`,
      erased: sql`(SELECT json_group_array(e.value) FROM json_each(r.value, '$.underWay') AS e
      WHERE NOT EXISTS (SELECT 1 FROM ${deliveries}
        WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} = e.value))`.mapWith(
        toTexts,
      ),
      dueAt: sql<number | null>`(SELECT min(${deliveries.dueAt}) ${ITS_PENDING})`,
    })
    .from(ASKED)
    .innerJoin(subscriptions, IS_ASKED),
);

/** Null for what is too long to be read with the claim. */
function inline(text: SQL | Column): SQL<string | null> {
  return sql`(SELECT CASE WHEN length(text) <= ${INLINE_BODY_MAX} THEN text END FROM (SELECT ${text} AS text))`;
}

/** The deliveries claimed in this round trip. */
const claimed = prepared(
  qb
    .select({
      subscriptionId: deliveries.subscriptionId,
      attempts: deliveries.attempts,
      generation: deliveries.generation,
      ...BODY,
      storedBody: inline(BODY.storedBody),
      lead: inline(BODY.lead),
    })
    .from(ASKED)
    .innerJoin(
      subscriptions,
      sql`${IS_ASKED} AND ${IS_OWN} AND ${subscriptions.heldUntil} = ${UNTIL}`,
    )
    .innerJoin(
      deliveries,
      sql`${deliveries.subscriptionId} = ${subscriptions.id}
        AND ${deliveries.eventId} IN (SELECT event_id FROM ${DUE})`,
    )
    .innerJoin(
      events,
      and(eq(events.workspaceId, deliveries.workspaceId), eq(events.id, deliveries.eventId)),
    )
    .orderBy(deliveries.dueAt, deliveries.eventId),
);

const event = prepared(
  qb
    .select(BODY)
    .from(events)
    .where(
      and(
        eq(events.workspaceId, sql.placeholder("workspaceId")),
        eq(events.id, sql.placeholder("eventId")),
      ),
    ),
);

/** What the body of an event is made from; null if the event does not exist or no longer does. */
export async function findEvent(
  db: Database,
  workspaceId: string,
  eventId: string,
): Promise<BodyRow | null> {
  const [row = null] = await query(db, event({ workspaceId, eventId }));
  return row;
}

import { and, eq, type SQL, sql } from "drizzle-orm";
import {
  CLEANUP_MAX,
  HOLD_MS,
  INLINE_BODY_MAX,
  OVERDUE_MAX_MS,
  TELL_AFTER_MS,
} from "../contract/limits.ts";
import type { Lane, Pace } from "../contract/pace.ts";
import {
  type Database,
  inOrder,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import {
  attempts,
  type DeliveryState,
  deliveries,
  events,
  type LastAttempt,
  notices,
  subscriptions,
} from "../db/schema.ts";
import { earlierSecretsOf } from "./secrets.ts";
import { keysOfSubscribers } from "./workspaces.ts";

/** The right to post to a subscription: one dispatch at a time has it, for `HOLD_MS` at most. */
export interface Hold {
  holder: string;
  /** Unix milliseconds; another one for each round trip. */
  until: number;
}

/** What a dispatch wants of a subscription. */
export interface Request {
  subscriptionId: string;
  /** Whether more is to be claimed. */
  claim: boolean;
  /** Events under way, which neither are claimed again nor cancelled. */
  underWay: string[];
}

/** How an attempt ended. */
export interface Settlement {
  subscriptionId: string;
  eventId: string;
  /** Attempts before this one. */
  attempts: number;
  state: DeliveryState;
  /** When it is due again, if it is pending. */
  dueAt: number;
  outcome: string;
  status: number | null;
  /** When the attempt began: Unix milliseconds. */
  startedAt: number;
  durationMs: number;
  settledAt: number | null;
}

/** What a dispatch has learnt about a subscription. */
export interface Change extends Pace {
  subscriptionId: string;
  /** Whether it has failed for too long. */
  disable: boolean;
  host: string;
  /** The last outcome, for the e-mail about it. */
  outcome: string | null;
  status: number | null;
  /** The last attempt, whatever came of it; null when there was none since the last change. */
  last: LastAttempt | null;
  /** Whether to let go of deliveries that were claimed and not posted. */
  letGo: boolean;
}

/** A subscription as a round trip finds it. */
export interface Found extends Pace {
  subscriptionId: string;
  workspaceId: string;
  url: string;
  sealedSecret: string;
  /** Secrets that were replaced and still sign, sealed. */
  earlierSecrets: string[];
  /** Events of those under way whose deliveries are there no more: they were erased. */
  erased: string[];
  generation: number;
  /** Whether withdrawn deliveries are still pending. */
  cancelling: boolean;
  /** Whether it is owed anything: neither deleted nor disabled, nor without access. */
  owed: boolean;
  /** Whether the dispatch holds it. */
  held: boolean;
  /** Whether deliveries were claimed in this round trip. */
  claimed: boolean;
  /** When somebody else's hold ends; null when nobody else has one. */
  heldUntil: number | null;
  /** When the first of its pending deliveries is due; null when none is pending. */
  dueAt: number | null;
}

/** A delivery that may be posted. */
export interface Claimed {
  subscriptionId: string;
  eventId: string;
  /** Attempts whose outcome is recorded. */
  attempts: number;
  generation: number;
  /** The exact text to post; null for a long one, which `readBody` reads when its turn comes. */
  body: string | null;
}

/** What one round trip of a dispatch gives. */
export interface RoundTrip {
  found: Found[];
  claimed: Claimed[];
  /** Hashes of the API keys that may read what was claimed. */
  keyHashes: string[];
}

/** What a dispatch tells the database and asks of it in one round trip. */
export interface Exchange {
  hold: Hold;
  lane: Lane;
  changes: Change[];
  settlements: Settlement[];
  requests: Request[];
  /** Deliveries to be claimed of each subscription, at the most; of one that is probed, the first counts. */
  limit: number;
  /** Whether to end what is withdrawn or has been due for too long. */
  clean: boolean;
}

/**
 * Records what a dispatch has learnt and claims what is next, in one transaction, so that nothing
 * that comes between the two is overlooked. All of it applies to what the dispatch still holds.
 */
export function exchange(
  { hold, lane, changes, settlements, requests, limit, clean }: Exchange,
  now: number,
): Statements<RoundTrip> {
  const asked = JSON.stringify(requests);
  const ids = sql`SELECT value->>'subscriptionId' FROM json_each(${asked})`;
  const claiming = requests.filter(({ claim }) => claim).map((request) => request.subscriptionId);
  const statements = inOrder([
    changes.length > 0 ? recordChanges(hold, changes, now) : inOrder([]),
    settlements.length > 0 ? settle(hold, settlements) : inOrder([]),
    clean ? cancelWithdrawn(ids, now, hold, asked) : inOrder([]),
    clean ? exhaustOverdue(hold, asked, now) : inOrder([]),
    claim(hold, lane, asked, limit, now),
    find(hold, asked, now),
    listClaimed(hold, asked, limit, now),
    keysOfSubscribers(claiming, now),
  ]);
  return readAs(statements, ([, , , , , found, claimed, keys]) => ({
    found: found.map((row) => ({
      ...row,
      earlierSecrets: JSON.parse(row.earlierSecrets),
      erased: JSON.parse(row.erased),
      slow: row.slow === 1,
      cancelling: row.cancelling === 1,
      owed: row.owed === 1,
      held: row.held === 1,
      claimed: row.claimed === 1,
    })),
    claimed,
    keyHashes: keys.map(({ keyHash }) => keyHash),
  }));
}

/** A hold that no dispatch has: for those who cancel what nobody holds. */
const NOBODY: Hold = { holder: "", until: 0 };

/** True in SQL where events are owed to the subscription `s`. */
export const IS_OWED = sql`(s.disabled_at IS NULL AND s.deleted_at IS NULL
  AND EXISTS (SELECT 1 FROM workspaces AS w WHERE w.id = s.workspace_id AND w.access_granted))`;

/** A hold for the next `HOLD_MS`, later than the one before it. */
export function holdFrom(now: number, { holder, until }: Hold): Hold {
  return { holder, until: Math.max(now + HOLD_MS, until + 1) };
}

/** True in SQL where the subscription `s` is held by nobody but `hold`. */
function isFree({ holder }: Hold, now: number): SQL {
  return sql`(s.held_by = ${holder} OR s.held_until <= ${now} OR NOT EXISTS (
    SELECT 1 FROM ${deliveries} AS h
    WHERE h.subscription_id = s.id AND h.state = 'pending' AND h.due_at <= s.held_through))`;
}

/**
 * Brings subscriptions up to date, disables those that have failed for too long, and notes what
 * their administrators are to be told. Of those in good health it writes no notice, and reads none.
 */
function recordChanges({ holder }: Hold, changes: Change[], now: number): Statements<unknown> {
  const learnt = JSON.stringify(changes);
  const isActive = sql`s.id = c.value->>'subscriptionId' AND s.held_by = ${holder}
    AND s.disabled_at IS NULL AND s.deleted_at IS NULL`;
  const toDisable = sql`${isActive} AND c.value->>'disable'`;
  const toldAt = sql`c.value->>'failingSince' + ${TELL_AFTER_MS}`;
  // Of a subscription that fails, the next news may come hours after administrators are to be told:
  // the notice is written by the last failure before that, and dropped if it does not hold by then.
  return inOrder([
    write(sql`
      INSERT INTO ${notices} (kind, workspace_id, subscription_id, host, events, failing_since, last_outcome, last_status, created_at, due_at)
      SELECT CASE WHEN c.value->>'disable' THEN 'disabled' ELSE 'failing' END, s.workspace_id, s.id,
        c.value->>'host', s.events, c.value->>'failingSince', c.value->>'outcome',
        c.value->>'status', ${now}, CASE WHEN c.value->>'disable' THEN ${now} ELSE max(${now}, ${toldAt}) END
      FROM json_each(${learnt}) AS c JOIN ${subscriptions} AS s ON ${isActive}
      WHERE c.value->>'disable'
        OR c.value->>'outcome' IS NOT NULL AND ${toldAt} <= max(${now}, c.value->>'nextAt')
      ON CONFLICT DO NOTHING`),
    changes.some(({ disable }) => disable)
      ? write(sql`
      UPDATE ${subscriptions} AS s SET disabled_at = ${now}, ${WITHDRAWN}
      FROM json_each(${learnt}) AS c WHERE ${toDisable}`)
      : inOrder([]),
    write(sql`
      UPDATE ${subscriptions} AS s SET
        posts_at_once = c.value->>'postsAtOnce', backoff = c.value->>'backoff',
        next_at = c.value->>'nextAt', slow = c.value->>'slow', failures = c.value->>'failures',
        failing_since = c.value->>'failingSince',
        last_attempt = coalesce(c.value->>'last', last_attempt),
        held_until = CASE WHEN c.value->>'letGo' THEN 0 ELSE held_until END
      FROM json_each(${learnt}) AS c
      WHERE s.id = c.value->>'subscriptionId' AND s.held_by = ${holder}`),
  ]);
}

/** Records outcomes: each once, whether or not the reply to it is lost. */
function settle({ holder }: Hold, settlements: Settlement[]): Statements<unknown> {
  const outcomes = JSON.stringify(settlements);
  const isHeld = sql`d.subscription_id = o.value->>'subscriptionId' AND d.event_id = o.value->>'eventId'
      AND d.state = 'pending' AND d.attempts = o.value->>'attempts'
      AND EXISTS (SELECT 1 FROM ${subscriptions} AS s
        WHERE s.id = d.subscription_id AND s.held_by = ${holder})`;
  const failed = settlements.some(({ state }) => state !== "delivered");
  return inOrder([
    // First: once it is settled, a second try finds nothing to note.
    failed
      ? write(sql`
      INSERT INTO ${attempts} (subscription_id, event_id, attempt, at, outcome, status, duration_ms)
      SELECT d.subscription_id, d.event_id, 1 + coalesce((SELECT max(a.attempt) FROM ${attempts} AS a
          WHERE a.subscription_id = d.subscription_id AND a.event_id = d.event_id), 0),
        o.value->>'startedAt', o.value->>'outcome', o.value->>'status', o.value->>'durationMs'
      FROM json_each(${outcomes}) AS o JOIN ${deliveries} AS d ON ${isHeld}
      WHERE o.value->>'state' <> 'delivered'`)
      : inOrder([]),
    write(sql`
    UPDATE ${deliveries} AS d SET
      state = o.value->>'state', attempts = d.attempts + 1, due_at = o.value->>'dueAt',
      settled_at = o.value->>'settledAt', last_outcome = o.value->>'outcome',
      last_status = o.value->>'status', last_at = o.value->>'startedAt',
      last_duration_ms = o.value->>'durationMs'
    FROM json_each(${outcomes}) AS o WHERE ${isHeld}`),
  ]);
}

/** What withdrawing the pending deliveries of a subscription sets; they are cancelled in pieces. */
export const WITHDRAWN = sql`generation = generation + 1, cancelling = 1`;

/**
 * Cancels up to `CLEANUP_MAX` withdrawn deliveries of the subscriptions in `ids`, if nobody but
 * `hold` holds them, and notes which of them have none left. An attempt under way keeps its delivery:
 * nothing is posted after it has been cancelled.
 *
 * @param asked the `Request`s of the holder, as JSON.
 */
export function cancelWithdrawn(
  ids: SQL,
  now: number,
  hold: Hold = NOBODY,
  asked = "[]",
): Statements<unknown> {
  // The time is always past 0: by it, SQLite takes the index of what is pending, and not all of them.
  const withdrawn = sql`d.subscription_id = s.id AND d.state = 'pending' AND d.due_at >= 0
    AND d.generation < s.generation`;
  return inOrder([
    write(sql`
      UPDATE ${deliveries} SET state = 'cancelled', settled_at = ${now}
      WHERE (subscription_id, event_id) IN (
        SELECT d.subscription_id, d.event_id
        FROM ${subscriptions} AS s JOIN ${deliveries} AS d ON ${withdrawn}
        WHERE s.id IN (${ids}) AND s.cancelling AND ${isFree(hold, now)}
          AND NOT ${isUnderWay(asked)}
        LIMIT ${CLEANUP_MAX})`),
    write(sql`
      UPDATE ${subscriptions} AS s SET cancelling = 0
      WHERE s.id IN (${ids}) AND s.cancelling
        AND NOT EXISTS (SELECT 1 FROM ${deliveries} AS d WHERE ${withdrawn})`),
    // A subscription that its client deleted is kept for these alone.
    write(
      sql`DELETE FROM ${subscriptions} WHERE id IN (${ids}) AND deleted_at IS NOT NULL AND NOT cancelling`,
    ),
  ]);
}

/**
 * True in SQL where the delivery `d` is under way. By one text for each: SQLite then makes a set of
 * them once, and looks them up. A pair, or a condition on `d`, is compared with every one of them.
 */
function isUnderWay(asked: string): SQL {
  return sql`d.subscription_id || d.event_id IN (SELECT (a.value->>'subscriptionId') || e.value
    FROM json_each(${asked}) AS a, json_each(a.value, '$.underWay') AS e)`;
}

/** Ends what has been due for too long, because the subscription fails whenever its turn could come. */
function exhaustOverdue(hold: Hold, asked: string, now: number): Statements<number> {
  return write(sql`
    UPDATE ${deliveries} SET state = 'exhausted', settled_at = ${now}
    WHERE (subscription_id, event_id) IN (
      SELECT d.subscription_id, d.event_id
      FROM json_each(${asked}) AS r JOIN ${subscriptions} AS s ON s.id = r.value->>'subscriptionId'
        JOIN ${deliveries} AS d ON d.subscription_id = s.id AND d.state = 'pending'
          AND d.due_at <= ${now - OVERDUE_MAX_MS}
      WHERE r.value->>'claim' AND ${isFree(hold, now)} AND NOT ${isUnderWay(asked)}
      LIMIT ${CLEANUP_MAX})`);
}

/**
 * Ends what is pending of the events of a workspace, but for subscriptions that somebody holds. CROSS:
 * from event to event, whatever the planner thinks of all those of the workspace.
 */
export function exhaustEvents(
  workspaceId: string,
  eventIds: string[],
  now: number,
): Statements<number> {
  return write(sql`
    UPDATE ${deliveries} SET state = 'exhausted', settled_at = ${now}
    WHERE (subscription_id, event_id) IN (
      SELECT d.subscription_id, d.event_id
      FROM json_each(${JSON.stringify(eventIds)}) AS old
        CROSS JOIN ${events} AS e ON e.workspace_id = ${workspaceId} AND e.id = old.value
        JOIN json_each(e.owed) AS o
        JOIN ${deliveries} AS d ON d.subscription_id = o.value AND d.event_id = e.id AND d.state = 'pending'
        JOIN ${subscriptions} AS s ON s.id = d.subscription_id
      WHERE ${isFree(NOBODY, now)})`);
}

/** Deliveries of the subscription `s`, due and not under way, the longest due first. */
function dueOf(asked: string, limit: number, now: number): SQL {
  return sql`(SELECT d.event_id, d.due_at FROM ${deliveries} AS d
    WHERE d.subscription_id = s.id AND d.state = 'pending' AND d.due_at <= ${now}
      AND NOT ${isUnderWay(asked)}
    ORDER BY d.due_at, d.event_id LIMIT ${limit})`;
}

/** Takes hold of the subscriptions that have something due and may be posted to in this lane. */
function claim(
  hold: Hold,
  lane: Lane,
  asked: string,
  limit: number,
  now: number,
): Statements<number> {
  const due = dueOf(asked, limit, now);
  return write(sql`
    UPDATE ${subscriptions} AS s SET
      held_through = max(
        CASE WHEN s.held_by = ${hold.holder} THEN s.held_through ELSE 0 END,
        (SELECT CASE WHEN s.backoff > 0 THEN min(due_at) ELSE max(due_at) END FROM ${due})),
      held_by = ${hold.holder}, held_until = ${hold.until}
    FROM json_each(${asked}) AS r
    WHERE s.id = r.value->>'subscriptionId' AND r.value->>'claim'
      AND s.next_at <= ${now} AND (s.slow OR s.backoff > 0) = ${lane === "slow" ? 1 : 0}
      AND NOT s.cancelling AND ${IS_OWED} AND ${isFree(hold, now)} AND EXISTS (SELECT 1 FROM ${due})`);
}

type Flag = "slow" | "cancelling" | "owed" | "held" | "claimed";
type List = "earlierSecrets" | "erased";
type FoundRow = Omit<Found, Flag | List> & Record<Flag, 0 | 1> & Record<List, string>;

/** The subscriptions that there are, as this transaction leaves them. */
function find(hold: Hold, asked: string, now: number): Statements<FoundRow[]> {
  return rows<FoundRow>(sql`
    SELECT s.id AS subscriptionId, s.workspace_id AS workspaceId, s.url AS url,
      s.sealed_secret AS sealedSecret, ${earlierSecretsOf(now)} AS earlierSecrets, s.posts_at_once AS postsAtOnce, s.backoff AS backoff,
      s.next_at AS nextAt, s.slow AS slow, s.failures AS failures, s.failing_since AS failingSince,
      s.generation AS generation, s.cancelling AS cancelling, ${IS_OWED} AS owed,
      coalesce(s.held_by = ${hold.holder}, 0) AS held,
      coalesce(s.held_by = ${hold.holder} AND s.held_until = ${hold.until}, 0) AS claimed,
      CASE WHEN NOT ${isFree(hold, now)} THEN s.held_until END AS heldUntil,
      (SELECT json_group_array(e.value) FROM json_each(r.value, '$.underWay') AS e
        WHERE NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
          WHERE d.subscription_id = s.id AND d.event_id = e.value)) AS erased,
      (SELECT min(d.due_at) FROM ${deliveries} AS d
        WHERE d.subscription_id = s.id AND d.state = 'pending' AND NOT ${isUnderWay(asked)}) AS dueAt
    FROM json_each(${asked}) AS r JOIN ${subscriptions} AS s ON s.id = r.value->>'subscriptionId'`);
}

/** What this round trip has claimed. */
function listClaimed(hold: Hold, asked: string, limit: number, now: number): Statements<Claimed[]> {
  return rows<Claimed>(sql`
    SELECT d.subscription_id AS subscriptionId, d.event_id AS eventId, d.attempts AS attempts,
      d.generation AS generation, CASE WHEN length(e.body) <= ${INLINE_BODY_MAX} THEN e.body END AS body
    FROM json_each(${asked}) AS r
      JOIN ${subscriptions} AS s ON s.id = r.value->>'subscriptionId'
        AND s.held_by = ${hold.holder} AND s.held_until = ${hold.until}
      JOIN ${deliveries} AS d ON d.subscription_id = s.id AND d.event_id IN (SELECT event_id FROM ${dueOf(asked, limit, now)})
      JOIN ${events} AS e ON e.workspace_id = d.workspace_id AND e.id = d.event_id
    ORDER BY d.due_at, d.event_id`);
}

/** The body of an event; null when there is no such event, or no more. */
export async function readBody(
  db: Database,
  workspaceId: string,
  eventId: string,
): Promise<string | null> {
  const [row] = await retrying(() =>
    db
      .select({ body: events.body })
      .from(events)
      .where(and(eq(events.workspaceId, workspaceId), eq(events.id, eventId))),
  );
  return row?.body ?? null;
}

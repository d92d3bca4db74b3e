import { POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
import type { Outcome } from "../../../src/delivery/outcome.ts";
import { CONCURRENCY_MAX, SLOW_RESPONSE_MS } from "../../../src/delivery/policy.ts";
import { LEASE_MS } from "../../../src/delivery/round.ts";
import type { Store } from "./store.ts";
import { type Isolate, Violation } from "./world.ts";

/** A post to a subscriber, as seen by the network. */
export interface Post {
  eventId: string;
  subscriptionId: string;
  url: string;
  body: string;
  /** True time in Unix milliseconds. */
  startedAt: number;
  endedAt: number | null;
  /** Who sends it. */
  isolate: Isolate;
  acknowledged: boolean;
  /** Whether somebody resent the event by its id. */
  isManual: boolean;
  /** Null while it is under way. */
  outcome: Outcome | null;
}

const checked = new WeakMap<Store, Set<string>>();

/** After each commit: a new event is owed to exactly the active subscriptions that list it. */
export function checkCommit(store: Store): void {
  const known = checked.get(store) ?? new Set();
  checked.set(store, known);
  const events = store
    .rows<{ id: string; type: string; workspace_id: string; owed: string }>(
      "SELECT id, type, workspace_id, owed FROM events",
    )
    .filter(({ id }) => !known.has(id));
  for (const event of events) {
    known.add(event.id);
    store.committedAt.set(event.id, store.world.now);
    const listing = store
      .rows<{ id: string; events: string; active: 0 | 1 }>(
        `SELECT s.id, s.events, w.access_granted AND s.disabled_at IS NULL AS active
         FROM subscriptions s JOIN workspaces w ON w.id = s.workspace_id
         WHERE w.id = ? AND s.deleted_at IS NULL ORDER BY s.id`,
        event.workspace_id,
      )
      .filter(({ events }) => JSON.parse(events).includes(event.type));
    if (listing.length === 0) throw new Violation(`${event.id} is kept, and nobody lists it`);
    const active = listing.filter(({ active }) => active === 1).map(({ id }) => id);
    const owed = store
      .rows<{ subscription_id: string }>(
        "SELECT subscription_id FROM deliveries WHERE event_id = ? ORDER BY subscription_id",
        event.id,
      )
      .map(({ subscription_id }) => subscription_id);
    if (`${active}` !== `${owed}` || `${JSON.parse(event.owed).toSorted()}` !== `${owed}`)
      throw new Violation(`${event.id} is owed to [${owed}] (${event.owed}), not to [${active}]`);
  }
  checkAnnounced(store, known, "leads", "lead.created");
  checkAnnounced(store, known, "runs", "run.completed");
  const [ledger] = store.rows<{ created: number; rows: number }>(
    "SELECT (SELECT coalesce(sum(json_array_length(owed)), 0) FROM events) AS created, (SELECT count(*) FROM deliveries) AS rows",
  );
  if (ledger?.created !== ledger?.rows)
    throw new Violation(`the ledger does not add up: ${JSON.stringify(ledger)}`);
}

/** A new record has its event if any subscription lists its kind. */
function checkAnnounced(store: Store, known: Set<string>, table: string, kind: string): void {
  const records = store
    .rows<{ id: string; workspace_id: string }>(`SELECT id, workspace_id FROM ${table}`)
    .filter(({ id }) => !known.has(id));
  for (const { id, workspace_id } of records) {
    known.add(id);
    const [unannounced] = store.rows(
      `SELECT 1 FROM subscriptions s WHERE s.workspace_id = ? AND s.deleted_at IS NULL
        AND EXISTS (SELECT 1 FROM json_each(s.events) k WHERE k.value = ?)
        AND NOT EXISTS (SELECT 1 FROM events e WHERE e.workspace_id = s.workspace_id AND coalesce(e.lead_id, e.body ->> '$.data.id') = ?)`,
      workspace_id,
      kind,
      id,
    );
    if (unannounced) throw new Violation(`${id} is recorded, and not announced`);
  }
}

/**
 * Before each post: the delivery is pending, its subscription has no more concurrent posts than
 * allowed, and the post does not start long after a withdrawal. A lease written before the clocks
 * were changed is not reliable, so nothing is promised of posts under it.
 *
 * @param posts the earlier posts.
 * @param withdrawnAt when subscriptions were withdrawn, or event types or URLs of them (`id type`, `id URL`), in true time.
 */
export function checkPost(
  store: Store,
  { eventId, subscriptionId, url }: Post,
  posts: Post[],
  withdrawnAt: Map<string, number>,
): void {
  const { now, skewedAt } = store.world;
  if (now - skewedAt < LEASE_MS + POST_TIMEOUT_MS) return;
  const [row] = store.rows<{ state: string; type: string }>(
    "SELECT state, type FROM deliveries WHERE event_id = ? AND subscription_id = ?",
    eventId,
    subscriptionId,
  );
  const erasedAt = store.erasedAt.get(eventId);
  if (row === undefined && erasedAt !== undefined && now - erasedAt <= WITHDRAWN_WITHIN_MS) return;
  if (row?.state !== "pending")
    throw new Violation(`${eventId} is posted to ${subscriptionId} after it was ${row?.state}`);
  // Posts of a dead isolate died with it, and no post outlives its timeout.
  const underWay = posts.filter(
    (post) =>
      post.subscriptionId === subscriptionId &&
      post.endedAt === null &&
      !post.isolate.dead &&
      now - post.startedAt <= POST_TIMEOUT_MS,
  );
  // It starts with one post at a time, and each success allows one more.
  const earned =
    1 + posts.filter((post) => post.subscriptionId === subscriptionId && post.acknowledged).length;
  if (underWay.length + 1 > Math.min(CONCURRENCY_MAX, earned))
    throw new Violation(`${subscriptionId} has ${underWay.length + 1} posts under way at once`);
  const probes = underWay.filter(({ eventId: other }) => other !== eventId);
  // A success ends the probes before it is recorded.
  const hasRecovered = posts.some(
    (post) =>
      post.subscriptionId === subscriptionId &&
      post.acknowledged &&
      now - (post.endedAt ?? 0) < SETTLED_WITHIN_MS,
  );
  const isAwayNow = isAway(store, subscriptionId) && !hasRecovered;
  if (isAwayNow && probes.some(({ startedAt }) => startedAt > skewedAt))
    checkProbes(subscriptionId, probes, now);
  for (const name of [
    subscriptionId,
    `${subscriptionId} ${row.type}`,
    `${subscriptionId} ${url}`,
  ]) {
    const withdrawn = withdrawnAt.get(name);
    if (withdrawn !== undefined && now - withdrawn > WITHDRAWN_WITHIN_MS)
      throw new Violation(`${name} is posted to ${now - withdrawn} ms after it was withdrawn`);
  }
}

/** Unless its dispatch dies, an outcome is recorded within this time. */
const SETTLED_WITHIN_MS = 2_000;
/** No post starts later than this after a subscription, or its event type, was withdrawn. */
const WITHDRAWN_WITHIN_MS = 2_000;

function isAway(store: Store, subscriptionId: string): boolean {
  const sql = "SELECT 1 FROM subscriptions WHERE id = ? AND blocked_until > 0";
  return store.rows(sql, subscriptionId).length > 0;
}

/**
 * A subscription that is away is probed with one post; posts of the wave that caused it are
 * older.
 */
function checkProbes(subscriptionId: string, underWay: Post[], now: number): void {
  const fresh = underWay.filter(({ startedAt }) => now - startedAt < 1_000);
  if (fresh.length > 0) throw new Violation(`${subscriptionId} is probed by several posts at once`);
}

/**
 * The consumers' writes are in proportion to their work. A turn, in which one consumer posts to one
 * subscription, costs a claim, an outcome for each post, a row for each change of pace, and a release,
 * which the only change of a single post includes. What failed may be brought forward once. What is
 * redelivered becomes due one by one, and may be claimed like that. A cancelled delivery costs a row; a
 * hundred more are for the claims of those that crashed, or handed their work on.
 */
export function checkWrites(store: Store, posts: Post[]): void {
  const created = new Map(
    store
      .rows<{ id: string; created_at: number }>("SELECT id, created_at FROM events")
      .map((event) => [event.id, event.created_at]),
  );
  let most = 100 + store.rows("SELECT 1 FROM deliveries WHERE state = 'cancelled'").length;
  const turns = new Map<string, { posts: number; changes: number; old: number }>();
  const streaks = new Map<string, number>();
  for (const { eventId, subscriptionId, isolate, acknowledged, startedAt, endedAt } of posts) {
    const name = `${subscriptionId} ${isolate.id}`;
    const turn = turns.get(name) ?? { posts: 0, changes: 0, old: 0 };
    turns.set(name, turn);
    turn.posts++;
    if (!acknowledged) most++;
    if (startedAt - (created.get(eventId) ?? 0) > 3_600_000) turn.old++;
    const isFast = acknowledged && (endedAt ?? startedAt) - startedAt < SLOW_RESPONSE_MS;
    const streak = isFast ? (streaks.get(subscriptionId) ?? 0) + 1 : 0;
    streaks.set(subscriptionId, streak);
    if (streak <= CONCURRENCY_MAX) turn.changes++;
  }
  for (const { posts, changes, old } of turns.values())
    most += posts === 1 ? 5 : 4 + 2 * posts + changes + Math.max(0, old - 1);
  // In a harsh world, more dispatches die, or find nothing, than these hundred rows are for.
  if (store.consumerWrites > most && !store.world.isHarsh)
    throw new Violation(
      `${store.consumerWrites} rows were written for ${posts.length} posts, more than ${most}`,
    );
}

/**
 * A subscriber that answers immediately is posted to without a pause, and gets its share of the
 * connections.
 *
 * @param posts those to one subscriber, of events since its consumers were idle.
 * @param pauseMs the longest that none of its posts may be in progress while an event waits for it.
 * @param saturatedMs for how long, between two times, no consumer was free because of other fast ones:
 *   some of these are only then found to be slow.
 */
export function checkPauses(
  store: Store,
  posts: Post[],
  pauseMs: number,
  saturatedMs: (from: number, to: number) => number,
): void {
  let busyUntil = 0;
  for (const [i, { eventId, subscriptionId, startedAt, endedAt }] of posts.entries()) {
    const committedAt = store.committedAt.get(eventId) ?? startedAt;
    const since = Math.max(committedAt, busyUntil);
    const pausedMs = startedAt - since - saturatedMs(since, startedAt);
    if (pausedMs > pauseMs)
      throw new Violation(`${subscriptionId} answers immediately, and waited ${pausedMs} ms`);
    const waitedMs = startedAt - committedAt - saturatedMs(committedAt, startedAt);
    if (waitedMs > pauseMs + i * SHARE_MS)
      throw new Violation(
        `${subscriptionId} answers immediately, and got its event ${i} after ${waitedMs} ms`,
      );
    busyUntil = Math.max(busyUntil, endedAt ?? startedAt);
  }
}

/**
 * How long a fast subscriber's next post may take on average, if those who share its dispatch take all
 * connections: each post takes up to half a second, and ten subscribers share five connections.
 */
const SHARE_MS = 1_000;

/** The longest that an event may wait which its subscriber would accept: three minutes for each event type. */
const ACCEPTED_WITHIN_MS = 3 * 180_000;

/**
 * A subscriber that rejects some events at once gets those that it accepts within minutes.
 *
 * @param accepted the events that it would accept.
 */
export function checkAccepted(
  store: Store,
  subscriptionId: string,
  accepted: string[],
  posts: Post[],
  saturatedMs: (from: number, to: number) => number,
): void {
  for (const eventId of accepted) {
    const post = posts.find((one) => one.eventId === eventId);
    const committedAt = store.committedAt.get(eventId) ?? 0;
    const postedAt = post?.startedAt ?? store.world.now;
    const waitedMs = postedAt - committedAt - saturatedMs(committedAt, postedAt);
    if (waitedMs > ACCEPTED_WITHIN_MS)
      throw new Violation(`${subscriptionId} accepts ${eventId}, and waited ${waitedMs} ms for it`);
  }
}

const overdueSince = new WeakMap<Store, Map<string, number>>();

/** Once all has been well for an hour, nothing that could be posted has been left for an hour. */
export function checkOverdue(store: Store, healthyForMs: number): void {
  const hourMs = 3_600_000;
  const { now } = store.world;
  const before = overdueSince.get(store);
  const postable = store.rows<{ name: string }>(
    `SELECT d.event_id || ' ' || d.subscription_id AS name
      FROM deliveries AS d LEFT JOIN subscriptions AS s ON s.id = d.subscription_id
      WHERE d.state = 'pending' AND max(iif(d.priority = 2, min(d.due_at, s.streak_retry_at), d.due_at), iif(d.priority = 0, 0, s.blocked_until)) < ?`,
    now,
  );
  // A subscription that has just ended its backoff has overdue deliveries that could not be posted.
  const since = new Map(postable.map(({ name }) => [name, before?.get(name) ?? now]));
  overdueSince.set(store, since);
  if (healthyForMs < hourMs) return;
  for (const [name, at] of since)
    if (now - at > hourMs) throw new Violation(`${name} is overdue by more than an hour`);
}

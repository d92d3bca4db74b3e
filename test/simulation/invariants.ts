import { LEASE_MS } from "../../src/contract/limits.ts";
import type { Store } from "./store.ts";

/** A post to a subscriber, as the network saw it. */
export interface Post {
  eventId: string;
  subscriptionId: string;
  body: string;
  /** True Unix milliseconds. */
  startedAt: number;
  acknowledged: boolean;
}

/** An invariant that did not hold. */
export class Violation extends Error {}

const checked = new WeakMap<Store, number>();

/** After each commit: a new event is owed to exactly the subscriptions that list it and are active. */
export function checkCommit(store: Store): void {
  const since = checked.get(store) ?? 0;
  const events = store.rows<{
    rowid: number;
    id: string;
    type: string;
    workspace_id: string;
    owed: number;
  }>(
    "SELECT rowid, id, type, workspace_id, owed FROM events WHERE rowid > ? ORDER BY rowid",
    since,
  );
  for (const event of events) {
    checked.set(store, event.rowid);
    const active = store
      .rows<{ id: string; events: string }>(
        `SELECT s.id, s.events FROM subscriptions s JOIN workspaces w ON w.id = s.workspace_id
         WHERE w.id = ? AND w.access_granted AND s.disabled_at IS NULL ORDER BY s.id`,
        event.workspace_id,
      )
      .filter(({ events }) => JSON.parse(events).includes(event.type))
      .map(({ id }) => id);
    const owed = store
      .rows<{ subscription_id: string }>(
        "SELECT subscription_id FROM deliveries WHERE event_id = ? ORDER BY subscription_id",
        event.id,
      )
      .map(({ subscription_id }) => subscription_id);
    if (`${active}` !== `${owed}` || event.owed !== owed.length)
      throw new Violation(`${event.id} is owed to [${owed}] (${event.owed}), not to [${active}]`);
  }
  const [ledger] = store.rows<{ created: number; rows: number }>(
    "SELECT (SELECT coalesce(sum(owed), 0) FROM events) AS created, (SELECT count(*) FROM deliveries) AS rows",
  );
  if (ledger?.created !== ledger?.rows)
    throw new Violation(`the ledger does not add up: ${JSON.stringify(ledger)}`);
}

/**
 * Before each post: what is posted is pending. A lease that was written before the clocks were set
 * cannot be relied on, and nothing is promised of the posts under it.
 */
export function checkPost(store: Store, { eventId, subscriptionId }: Post): void {
  if (store.world.now - store.world.skewedAt < LEASE_MS) return;
  const [row] = store.rows<{ state: string }>(
    "SELECT state FROM deliveries WHERE event_id = ? AND subscription_id = ?",
    eventId,
    subscriptionId,
  );
  if (row?.state !== "pending")
    throw new Violation(`${eventId} is posted to ${subscriptionId} after it was ${row?.state}`);
}

/** Once all is well for an hour, nothing that is due has been left lying for an hour. */
export function checkOverdue(store: Store, healthyForMs: number): void {
  const hourMs = 3_600_000;
  if (healthyForMs < hourMs) return;
  const [row] = store.rows<{ name: string }>(
    `SELECT event_id || ' ' || subscription_id AS name FROM deliveries
      WHERE state = 'pending' AND due_at < ?`,
    store.world.now - hourMs,
  );
  if (row) throw new Violation(`${row.name} is overdue by more than an hour`);
}

/** When all is over: everything is settled, as it should be, and nothing was made up or lost. */
export function checkEnd(store: Store, posts: Post[]): void {
  checkRecords(store);
  checkBodies(store, posts);
  const rows = store.rows<{
    event_id: string;
    subscription_id: string;
    state: string;
    attempts: number;
    due_at: number;
  }>("SELECT event_id, subscription_id, state, attempts, due_at FROM deliveries");
  const acknowledged = new Set(
    posts
      .filter((post) => post.acknowledged)
      .map((post) => `${post.eventId} ${post.subscriptionId}`),
  );
  const tried = Map.groupBy(posts, (post) => `${post.eventId} ${post.subscriptionId}`);
  for (const { event_id, subscription_id, state, attempts, due_at } of rows) {
    const name = `${event_id} ${subscription_id}`;
    if (state === "pending")
      throw new Violation(`${name} is still pending, due ${new Date(due_at).toISOString()}`);
    if (state === "delivered" && !acknowledged.has(name))
      throw new Violation(`${name} is delivered, but nobody acknowledged it`);
    if (state === "exhausted" && attempts !== 11)
      throw new Violation(`${name} is exhausted after ${attempts} attempts`);
    if (attempts > (tried.get(name)?.length ?? 0))
      throw new Violation(`${name} counts ${attempts} attempts, more than were made`);
  }
  checkDisabled(store, posts);
}

/** Each new record has its event, and each event its record. */
function checkRecords(store: Store): void {
  const [leads] = store.rows<{ records: number; events: number }>(
    `SELECT (SELECT count(*) FROM leads) AS records,
      (SELECT count(DISTINCT l.id) FROM leads l JOIN events e ON e.body ->> '$.data.id' = l.id) AS events`,
  );
  const [events] = store.rows<{ leads: number; runs: number; runRecords: number; refused: number }>(
    `SELECT (SELECT count(*) FROM events WHERE type = 'lead.created') AS leads,
      (SELECT count(*) FROM events WHERE type = 'run.completed') AS runs,
      (SELECT count(*) FROM runs) AS runRecords,
      (SELECT count(*) FROM runs WHERE reference LIKE 'refused-%') AS refused`,
  );
  if (leads?.records !== leads?.events || leads?.records !== events?.leads)
    throw new Violation(
      `${leads?.records} leads, but ${events?.leads} events about ${leads?.events}`,
    );
  if (events?.runs !== events?.runRecords || events?.refused !== 0)
    throw new Violation(`runs and their events differ: ${JSON.stringify(events)}`);
}

/** Every post of an event had the bytes that were stored with it. */
function checkBodies(store: Store, posts: Post[]): void {
  const bodies = new Map(
    store
      .rows<{ id: string; body: string }>("SELECT id, body FROM events")
      .map(({ id, body }) => [id, body]),
  );
  for (const { eventId, body } of posts)
    if (bodies.get(eventId) !== body) throw new Violation(`${eventId} was posted with other bytes`);
}

/** What was disabled had failed for 72 h and 10 times, without a success that was recorded. */
function checkDisabled(store: Store, posts: Post[]): void {
  const notices = store.rows<{
    subscription_id: string;
    failing_since: number;
    created_at: number;
    sent_at: number | null;
  }>("SELECT subscription_id, failing_since, created_at, sent_at FROM notices");
  for (const { subscription_id, failing_since, created_at, sent_at } of notices) {
    if (sent_at === null) throw new Violation(`the e-mail about ${subscription_id} was never sent`);
    if (created_at - failing_since < 72 * 3_600_000)
      throw new Violation(`${subscription_id} was disabled too early`);
    const slackMs = 20 * 60_000;
    const failures = posts.filter(
      (post) =>
        post.subscriptionId === subscription_id &&
        !post.acknowledged &&
        post.startedAt >= failing_since - slackMs &&
        post.startedAt <= created_at + slackMs,
    );
    if (failures.length < 10)
      throw new Violation(`${subscription_id} was disabled after ${failures.length} failures`);
    const [success] = store.rows(
      `SELECT 1 FROM deliveries WHERE subscription_id = ? AND state = 'delivered'
        AND settled_at > ? AND settled_at < ?`,
      subscription_id,
      failing_since + slackMs,
      created_at - slackMs,
    );
    if (success) throw new Violation(`${subscription_id} was disabled though it had succeeded`);
  }
}

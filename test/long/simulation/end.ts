import {
  DELIVERY_COUNTS_KEPT_DAYS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  EXPIRES_AFTER_MS,
  RETRY_WAITS_SECONDS,
  TELL_AFTER_MS,
} from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "../../support/stored-bodies.ts";
import type { Post } from "./invariants.ts";
import type { Store } from "./store.ts";
import { Violation } from "./world.ts";

/** At the end: everything is settled correctly, and nothing was invented or lost. */
export async function checkEnd(store: Store, keys: string, posts: Post[]): Promise<void> {
  checkRecords(store);
  await checkBodies(store, keys, posts);
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
  const logged = store.rows<{ name: string; attempts: number }>(
    "SELECT event_id || ' ' || subscription_id AS name, count(*) AS attempts FROM attempts GROUP BY 1",
  );
  for (const { name, attempts } of logged)
    if (attempts > (tried.get(name)?.length ?? 0))
      throw new Violation(`${name} has a log of ${attempts} attempts, more than were made`);
  for (const { event_id, subscription_id, state, attempts, due_at } of rows) {
    const name = `${event_id} ${subscription_id}`;
    if (state === "pending")
      throw new Violation(`${name} is still pending, due ${new Date(due_at).toISOString()}`);
    if (state === "delivered" && !acknowledged.has(name))
      throw new Violation(`${name} is delivered, but nobody acknowledged it`);
    if (state === "exhausted" && attempts > RETRY_WAITS_SECONDS.length + 1)
      throw new Violation(`${name} is exhausted after ${attempts} attempts`);
    if (attempts > (tried.get(name)?.length ?? 0))
      throw new Violation(`${name} counts ${attempts} attempts, more than were made`);
  }
  checkDisabled(store, posts);
  checkCounts(store, posts);
  checkExhausted(store);
}

/** The daily counts have each recorded attempt once. */
function checkCounts(store: Store, posts: Post[]): void {
  const counted = countsOf(store);
  const recorded = store.rows<{ id: string; made: number }>(
    "SELECT subscription_id AS id, sum(attempts_made) AS made FROM deliveries GROUP BY 1",
  );
  const sent = Map.groupBy(posts, ({ subscriptionId }) => subscriptionId);
  for (const { id, made } of recorded) {
    const total = counted.get(id) ?? 0;
    // Counts are deleted after a month, and with their subscription.
    const isWhole = store.world.now - store.createdAt < (DELIVERY_COUNTS_KEPT_DAYS - 1) * DAY_MS;
    const [row] = store.rows("SELECT 1 FROM subscriptions WHERE id = ?", id);
    if ((isWhole && row && total < made) || total > (sent.get(id)?.length ?? 0))
      throw new Violation(
        `${id} has ${total} attempts in its counts, ${made} in its deliveries, and was sent ${sent.get(id)?.length}`,
      );
  }
}

function countsOf(store: Store): Map<string, number> {
  const rows = store.rows<{ id: string; n: number }>(
    `SELECT subscription_id AS id, sum(value) AS n FROM delivery_counts, json_each(counts)
      WHERE key NOT LIKE 'ms %' AND key <> 'responses' GROUP BY 1`,
  );
  return new Map(rows.map(({ id, n }) => [id, n]));
}

/** Nothing is given up before its time. */
function checkExhausted(store: Store): void {
  const [early] = store.rows<{ event_id: string; subscription_id: string }>(
    `SELECT event_id, subscription_id FROM deliveries WHERE state = 'exhausted' AND attempts <= ? AND last_outcome <> 'overflow'
      AND settled_at < due_at + ?`,
    RETRY_WAITS_SECONDS.length,
    EXPIRES_AFTER_MS - 2 * store.world.odds.clockJumpMs,
  );
  if (early)
    throw new Violation(`${early.event_id} ${early.subscription_id} was exhausted too early`);
}

/**
 * Each event announces a record, and no two announce the same one. That each listed record has its
 * event is checked by what is owed after each commit.
 */
function checkRecords(store: Store): void {
  const [row] = store.rows<{ unrecorded: number; doubled: number; refused: number }>(
    `SELECT
      (SELECT count(*) FROM events e WHERE type <> 'automation.status_changed' AND NOT EXISTS
        (SELECT 1 FROM leads l WHERE l.id = coalesce(e.lead_id, e.body ->> '$.data.id')) AND NOT EXISTS
        (SELECT 1 FROM runs r WHERE r.id = coalesce(e.lead_id, e.body ->> '$.data.id')) AND NOT EXISTS
        (SELECT 1 FROM json_each(?) a WHERE a.value = e.body ->> '$.data.automation_id')) AS unrecorded,
      (SELECT count(*) - count(DISTINCT coalesce(lead_id, body ->> '$.data.id')) FROM events
        WHERE type <> 'automation.status_changed') AS doubled,
      (SELECT count(*) FROM runs WHERE reference LIKE 'refused-%') AS refused`,
    JSON.stringify([...store.removedAutomations]),
  );
  if (row?.unrecorded !== 0 || row.doubled !== 0 || row.refused !== 0)
    throw new Violation(`records and their events differ: ${JSON.stringify(row)}`);
}

/** Every post of an event had exactly the stored bytes. */
async function checkBodies(store: Store, keys: string, posts: Post[]): Promise<void> {
  const events = store.rows<EventWithBody>(EVENTS_WITH_BODIES);
  const bodies = new Map(
    await Promise.all(
      events.map(async (event) => [event.eventId, await bodyOf(keys, event)] as const),
    ),
  );
  for (const { eventId, body } of posts)
    if (bodies.get(eventId) !== body && !store.erasedAt.has(eventId))
      throw new Violation(`${eventId} was posted with other bytes`);
}

/**
 * A disabled subscription had failed for long enough, and often enough, without a recorded success;
 * administrators were told only what was true, and everything they should be told.
 */
function checkDisabled(store: Store, posts: Post[]): void {
  const [untold] = store.rows<{ id: string }>(
    `SELECT s.id FROM subscriptions AS s JOIN workspaces AS w ON w.id = s.workspace_id
      WHERE s.disabled_by_failures AND s.disabled_at <= ? AND s.deleted_at IS NULL
        AND w.access_granted AND w.database IS NULL
        AND s.announced ->> '$.disabled.since' IS NOT s.disabled_at`,
    store.world.now - 4 * 3_600_000,
  );
  if (untold) throw new Violation(`nobody was told that ${untold.id} was disabled`);
  const [early] = store.rows<{ id: string }>(
    "SELECT id FROM subscriptions WHERE announced ->> '$.failing.announcedAt' < announced ->> '$.failing.since' + ?",
    TELL_AFTER_MS,
  );
  if (early) throw new Violation(`${early.id} was told of too early`);
  const disabled = store.rows<{ subscription_id: string; since: number; disabled_at: number }>(
    `SELECT id AS subscription_id, failing_since AS since, disabled_at FROM subscriptions
      WHERE disabled_by_failures AND disabled_at IS NOT NULL`,
  );
  for (const { subscription_id, since, disabled_at } of disabled) {
    if (disabled_at - since < DISABLE_AFTER_MS)
      throw new Violation(`${subscription_id} was disabled too early`);
    const slackMs = 20 * 60_000;
    const failures = posts.filter(
      (post) =>
        post.subscriptionId === subscription_id &&
        !post.acknowledged &&
        post.startedAt >= since - slackMs &&
        post.startedAt <= disabled_at + slackMs,
    );
    if (failures.length < DISABLE_AFTER_FAILURES)
      throw new Violation(`${subscription_id} was disabled after ${failures.length} failures`);
    const [success] = store.rows(
      `SELECT 1 FROM deliveries WHERE subscription_id = ? AND state = 'delivered'
        AND settled_at > ? AND settled_at < ?`,
      subscription_id,
      since + slackMs,
      disabled_at - slackMs,
    );
    if (success) throw new Violation(`${subscription_id} was disabled though it had succeeded`);
  }
}

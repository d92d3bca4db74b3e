import { createHmac } from "node:crypto";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  POST_TIMEOUT_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_WAITS_SECONDS,
  STOPS_WITHIN_MS,
  TELL_AFTER_MS,
  TRIED_FOR_MAX_MS,
} from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../src/contract/time.ts";
import { ATTEMPTS_KEPT, DAYS_COUNTED } from "../../../src/delivery/attempts.ts";
import { CONCURRENCY_MAX } from "../../../src/delivery/policy.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "../../support/stored-bodies.ts";
import { isAccepted, type Sent } from "./endpoints.ts";
import type { Store } from "./store.ts";
import { Violation } from "./world.ts";

/*
 * What must hold in every world, whatever fails: after each commit, before each request, while nothing but endpoints
 * fails, when an e-mail is sent, and at the end.
 */

/** The longest that a lease and a request under it last. After clocks jumped, leases are not reliable for so long. */
const LEASE_UNRELIABLE_MS = 20_000 + POST_TIMEOUT_MS;

const checkedRecords = new WeakMap<Store, Set<string>>();

/**
 * After each commit: a record, its event and its deliveries commit together. An event is owed to exactly the active
 * subscriptions that list its type, each owed delivery has one row, and the ledger adds up.
 */
export function checkCommit(store: Store): void {
  const known = checkedRecords.get(store) ?? new Set<string>();
  checkedRecords.set(store, known);
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
    if (listing.length === 0) throw new Violation(`${event.id} is stored, and nobody lists it`);
    const active = listing.filter(({ active }) => active === 1).map(({ id }) => id);
    const owed = store
      .rows<{ id: string }>(
        "SELECT subscription_id AS id FROM deliveries WHERE event_id = ? ORDER BY 1",
        event.id,
      )
      .map(({ id }) => id);
    if (`${active}` !== `${owed}` || `${JSON.parse(event.owed).toSorted()}` !== `${owed}`)
      throw new Violation(`${event.id} is owed to [${owed}] (${event.owed}), not to [${active}]`);
  }
  checkAnnounced(store, known, "leads", "lead.created");
  checkAnnounced(store, known, "runs", "run.completed");
  const [ledger] = store.rows<{ created: number; rows: number }>(
    `SELECT (SELECT coalesce(sum(json_array_length(owed)), 0) FROM events) AS created,
      (SELECT count(*) FROM deliveries) AS rows`,
  );
  if (ledger?.created !== ledger?.rows)
    throw new Violation(`the ledger does not add up: ${JSON.stringify(ledger)}`);
}

/** A new record has its event if any subscription lists its type. */
function checkAnnounced(store: Store, known: Set<string>, table: string, type: string): void {
  const records = store
    .rows<{ id: string; workspace_id: string }>(`SELECT id, workspace_id FROM ${table}`)
    .filter(({ id }) => !known.has(id));
  for (const { id, workspace_id } of records) {
    known.add(id);
    const [unannounced] = store.rows(
      `SELECT 1 FROM subscriptions s WHERE s.workspace_id = ? AND s.deleted_at IS NULL
        AND EXISTS (SELECT 1 FROM json_each(s.events) k WHERE k.value = ?)
        AND NOT EXISTS (SELECT 1 FROM events e WHERE e.workspace_id = s.workspace_id
          AND coalesce(e.lead_id, e.body ->> '$.data.id') = ?)`,
      ...[workspace_id, type, id],
    );
    if (unannounced) throw new Violation(`${id} is recorded, and not announced`);
  }
}

/**
 * Before each request: the delivery is pending, one process at a time sends to its subscription, nothing has ended more
 * than two seconds ago, the request is signed afresh, and an open circuit lets one probe through, in its time.
 *
 * @param earned how many requests may be under way at once: it begins with one, and each success allows one more.
 * @param endedAt when subscriptions, event types (`id type`) and URLs (`id URL`) ended, in true time.
 */
export function checkRequest(
  store: Store,
  request: Sent,
  underWay: ReadonlySet<Sent>,
  earned: number,
  endedAt: ReadonlyMap<string, number>,
): void {
  const { eventId, subscriptionId, type, url, isolate, byHand } = request;
  const { world } = store;
  const { now } = world;
  checkSignature(store, request);
  if (now - world.skewedAt < LEASE_UNRELIABLE_MS) return;
  const [row] = store.rows<{ state: string; probeAt: number | null }>(
    `SELECT d.state, s.circuits -> ? ->> 'probeAt' AS probeAt
      FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
      WHERE event_id = ? AND subscription_id = ?`,
    ...[type, eventId, subscriptionId],
  );
  const erasedAt = store.erasedAt.get(eventId);
  if (row === undefined && erasedAt !== undefined && now - erasedAt <= STOPS_WITHIN_MS) return;
  if (row?.state !== "pending")
    throw new Violation(`${eventId} is sent to ${subscriptionId} after it was ${row?.state}`);
  // A dead process has no requests under way.
  const others = [...underWay].filter(
    (one) => one.subscriptionId === subscriptionId && !one.isolate.isDead,
  );
  if (others.some((one) => one.isolate !== isolate))
    throw new Violation(`two processes send to ${subscriptionId} at once`);
  if (others.length + 1 > Math.min(CONCURRENCY_MAX, earned))
    throw new Violation(`${subscriptionId} has ${others.length + 1} requests under way at once`);
  if ((row.probeAt ?? 0) > 0 && byHand !== "resend") {
    if (others.some((one) => one.type === type && one.byHand !== "resend"))
      throw new Violation(`the ${type} of ${subscriptionId} are probed twice at once`);
    const earlyMs = (row.probeAt as number) - isolate.run(Date.now);
    if (earlyMs > 0)
      throw new Violation(`the ${type} of ${subscriptionId} are probed ${earlyMs} ms too early`);
  }
  for (const name of [subscriptionId, `${subscriptionId} ${type}`, `${subscriptionId} ${url}`]) {
    const agoMs = now - (endedAt.get(name) ?? now);
    if (agoMs > STOPS_WITHIN_MS)
      throw new Violation(`${name} is sent to ${agoMs} ms after it ended`);
  }
}

/** The signature is of this body, and of the second in which the attempt started, by the clock of its process. */
function checkSignature(store: Store, { subscriptionId, body, signature, isolate }: Sent): void {
  const [, t, v1] = /^t=(\d+),v1=([0-9a-f]{64})/.exec(signature) ?? [];
  const key = store.secrets.get(subscriptionId) ?? "";
  const expected = createHmac("sha256", key).update(`${t}.${body}`).digest("hex");
  if (v1 !== expected)
    throw new Violation(`${subscriptionId} is sent another signature: ${signature}`);
  const ageMs = isolate.run(Date.now) - Number(t) * 1000;
  // A clock that jumps during the attempt makes its signature older.
  if (store.world.now - store.world.skewedAt > MINUTE_MS && ageMs > SIGNED_WITHIN_MS)
    throw new Violation(`${subscriptionId} is sent a signature that is ${ageMs} ms old`);
}

/** It has the second in which the attempt started, and the request may wait for a connection. */
const SIGNED_WITHIN_MS = 12_000;

const couldBeSent = new WeakMap<Store, Map<string, number>>();

/** How long a subscription may have something to send before a request starts. */
const STARTS_WITHIN_MS = 5 * MINUTE_MS;

/**
 * While nothing but endpoints fails: no pending delivery is left behind. A subscription that has something to send, which
 * no circuit holds, and that no dispatch leases, is sent a request within minutes.
 */
export function checkNotLeftBehind(store: Store, sent: readonly Sent[]): void {
  const { now } = store.world;
  const before = couldBeSent.get(store);
  const waiting = store.rows<{ id: string }>(
    `SELECT DISTINCT subscription_id AS id FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
      WHERE d.state = 'pending' AND max(${SENDABLE_AT}, s.leased_until) < ?`,
    now,
  );
  const lastSent = new Map(sent.slice(-300).map((one) => [one.subscriptionId, one.startedAt]));
  const since = new Map(
    waiting.map(({ id }) => [id, Math.max(before?.get(id) ?? now, lastSent.get(id) ?? 0)]),
  );
  couldBeSent.set(store, since);
  for (const [id, at] of since)
    if (now - at > STARTS_WITHIN_MS)
      throw new Violation(
        `${id} has had something to send for ${now - at} ms, and was sent nothing`,
      );
}

/** SQL expression: when a delivery `d` of a subscription `s` may be sent. A circuit holds all but what was resent. */
export const SENDABLE_AT = `max(d.due_at, iif(d.priority = 0, 0, coalesce(s.circuits -> d.type ->> 'probeAt', 0)))`;

/** At the end: everything is settled as it should be, and nothing was invented or lost. */
export async function checkEnd(store: Store, keys: string, sent: readonly Sent[]): Promise<void> {
  checkRecords(store);
  await checkBodies(store, keys, sent);
  checkDeliveries(store, sent);
  checkCounts(store, sent);
  checkDisabled(store, sent);
  checkAdministrators(store);
}

function checkDeliveries(store: Store, sent: readonly Sent[]): void {
  const rows = store.rows<{
    name: string;
    state: string;
    stepsUsed: number;
    made: number;
    logged: number;
    triedForMs: number;
    outcome: string | null;
  }>(
    `SELECT event_id || ' ' || subscription_id AS name, state, steps_used AS stepsUsed, attempts_made AS made,
      (SELECT count(*) FROM attempts a WHERE a.event_id = d.event_id AND a.subscription_id = d.subscription_id) AS logged,
      settled_at - first_at AS triedForMs, last_outcome AS outcome FROM deliveries d`,
  );
  const tried = Map.groupBy(sent, (one) => `${one.eventId} ${one.subscriptionId}`);
  for (const { name, state, stepsUsed, made, logged, triedForMs, outcome } of rows) {
    const own = tried.get(name) ?? [];
    if (state === "pending") throw new Violation(`${name} is still pending`);
    if (state === "delivered" && !own.some(isAccepted))
      throw new Violation(`${name} is delivered, but nobody accepted it`);
    if (Math.max(made, logged) > own.length)
      throw new Violation(
        `${name} has ${made} attempts, ${logged} stored ones, and ${own.length} were made`,
      );
    const isOver = stepsUsed === RETRY_WAITS_SECONDS.length || outcome === "overflow";
    // 2 × because the first attempt and the last one may each be recorded by a clock that has jumped.
    const atLeastMs = TRIED_FOR_MAX_MS - 2 * store.world.clockJumpMaxMs;
    if (state === "exhausted" && !isOver && triedForMs < atLeastMs)
      throw new Violation(
        `${name} was exhausted after ${stepsUsed} steps of its schedule in ${triedForMs} ms`,
      );
  }
}

/** The daily counts have each recorded attempt once. */
function checkCounts(store: Store, sent: readonly Sent[]): void {
  const rows = store.rows<{ id: string; made: number; counted: number }>(
    `SELECT s.id, (SELECT coalesce(sum(attempts_made), 0) FROM deliveries WHERE subscription_id = s.id) AS made,
      (SELECT coalesce(sum(count.value), 0) FROM json_each(daily_counts) day, json_each(day.value) count
        WHERE count.key NOT LIKE 'ms %' AND count.key <> 'responses') AS counted FROM subscriptions s`,
  );
  const isWhole = store.world.now - store.createdAt < (DAYS_COUNTED - 1) * DAY_MS;
  for (const { id, made, counted } of rows) {
    const all = sent.filter(({ subscriptionId }) => subscriptionId === id).length;
    if ((isWhole && counted < made) || counted > all)
      throw new Violation(
        `${id} counts ${counted} attempts, has recorded ${made}, and was sent ${all}`,
      );
  }
}

/** Each event announces a record, and no two announce the same one. A refused call has recorded nothing. */
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

/** Every request of an event had exactly the stored bytes. */
async function checkBodies(store: Store, keys: string, sent: readonly Sent[]): Promise<void> {
  const bodies = new Map<string, string>();
  for (const event of store.rows<EventWithBody>(EVENTS_WITH_BODIES))
    bodies.set(event.eventId, await bodyOf(keys, event));
  for (const { eventId, body } of sent)
    if (bodies.get(eventId) !== body && !store.erasedAt.has(eventId))
      throw new Violation(`${eventId} was sent with other bytes`);
}

/** Only a subscription is disabled to which nothing succeeded for 72 hours, with ten failed attempts at two events or more. */
export function checkDisabled(store: Store, sent: readonly Sent[]): void {
  const disabled = store.rows<{ id: string; at: number }>(
    "SELECT id, disabled_at AS at FROM subscriptions WHERE disabled_by_failures AND disabled_at IS NOT NULL",
  );
  const slackMs = 2 * store.world.clockJumpMaxMs + MINUTE_MS;
  for (const { id, at } of disabled) {
    const own = sent.filter(
      ({ subscriptionId, byHand }) => subscriptionId === id && byHand !== "resend",
    );
    // A success whose process has died may not be recorded, and then the failures before it count.
    const last = own.findLast(
      (one) => isAccepted(one) && !one.isolate.isDead && (one.endedAt ?? 0) < at - slackMs,
    );
    // Attempts overlap: one that has failed after the success may have started before it.
    const failed = own.filter(
      (one) =>
        !isAccepted(one) &&
        (one.endedAt ?? one.startedAt) >= (last?.endedAt ?? 0) &&
        one.startedAt < at + slackMs,
    );
    const lastedMs = at - (failed[0]?.startedAt ?? at);
    const events = new Set(failed.map(({ eventId }) => eventId)).size;
    if (
      lastedMs < DISABLE_AFTER_MS - slackMs ||
      failed.length < DISABLE_AFTER_FAILURES ||
      events < 2
    )
      throw new Violation(
        `${id} was disabled after ${failed.length} failed attempts at ${events} events in ${lastedMs} ms`,
      );
  }
}

/** Administrators were notified of everything that they should be, and of nothing too early. */
function checkAdministrators(store: Store): void {
  const [unaware] = store.rows<{ id: string }>(
    `SELECT s.id FROM subscriptions AS s JOIN workspaces AS w ON w.id = s.workspace_id
      WHERE s.disabled_by_failures AND s.disabled_at <= ? AND s.deleted_at IS NULL
        AND w.access_granted AND w.database IS NULL
        AND s.announced ->> '$.disabled.since' IS NOT s.disabled_at`,
    store.world.now - 4 * HOUR_MS,
  );
  if (unaware) throw new Violation(`nobody was notified that ${unaware.id} was disabled`);
  const [early] = store.rows<{ id: string }>(
    "SELECT id FROM subscriptions WHERE announced ->> '$.failing.announcedAt' < announced ->> '$.failing.since' + ?",
    TELL_AFTER_MS,
  );
  if (early) throw new Violation(`an e-mail about ${early.id} was sent too early`);
}

/** An e-mail to administrators. */
export interface Email {
  subject: string;
  text: string;
}

/** How long ago the facts of an e-mail may have been read, and how long an outcome may take to be recorded. */
const EMAIL_SLACK_MS = 5 * MINUTE_MS;

/** When an e-mail is sent, it is true of the subscriptions that it names: they have failed, or rejected a type, for a day. */
export function checkEmail(store: Store, { subject, text }: Email): void {
  const ids = new Set(text.match(/whk_\d+/g));
  if (ids.size === 0) throw new Violation(`an e-mail names no subscription: ${subject}`);
  for (const id of ids) {
    store.world.note(`an e-mail is sent about ${id}: ${subject}`);
    const [row] = store.rows<{ failing: number | null; circuits: string }>(
      "SELECT failing_since AS failing, circuits FROM subscriptions WHERE id = ?",
      id,
    );
    if (!row) throw new Violation(`an e-mail is about ${id}, which does not exist`);
    const circuits = Object.values(JSON.parse(row.circuits) as Record<string, { since: number }>);
    const since = /en échec/.test(subject)
      ? row.failing
      : /refuse certains/.test(subject)
        ? Math.min(...circuits.map(({ since }) => since))
        : null;
    // Null or infinite: it has just recovered.
    const atLeastMs = TELL_AFTER_MS - 2 * store.world.clockJumpMaxMs - EMAIL_SLACK_MS;
    if (since !== null && Number.isFinite(since) && store.world.now - since < atLeastMs)
      throw new Violation(`an e-mail says too early of ${id}: ${subject}`);
  }
}

/*
 * What also holds in a day in which nothing but the endpoint fails: no outcome is lost, and nothing is sent in vain.
 */

/** Something is pending, so a message is underway, or a dispatch is at work. No scheduled job is needed. */
export function checkWoken(store: Store, areQueuesIdle: boolean): void {
  if (!areQueuesIdle) return;
  const [left] = store.rows<{ id: string }>(
    "SELECT event_id AS id FROM deliveries WHERE state = 'pending'",
  );
  if (left) throw new Violation(`${left.id} is pending, and no message is underway`);
}

/** Wake-up messages are in proportion to what is recorded and sent: dispatches do not wake each other. */
export function checkMessages(consumed: number, recorded: number, sent: readonly Sent[]): void {
  const most = 2 * (recorded + sent.length) + 50;
  if (consumed > most)
    throw new Violation(
      `${consumed} batches were consumed for ${sent.length} requests, more than ${most}`,
    );
}

/**
 * No request but a resend starts before the time for which the endpoint asked in `Retry-After`, unless one succeeded that
 * started after it asked.
 */
export function checkRetryAfter(sent: readonly Sent[], skewMs: number): void {
  for (const { answer, retryAfter, startedAt, endedAt, byHand, type, url } of sent) {
    if ((answer !== 429 && answer !== 503) || endedAt === null || byHand === "resend") continue;
    const askedMs = Math.min(retryAfter, RETRY_AFTER_MAX_SECONDS) * 1000;
    const later = sent.filter(
      (one) => one.startedAt > endedAt && one.url === url && one.type === type,
    );
    const freedAt = Math.min(
      ...later.filter(isAccepted).map((one) => one.endedAt ?? Number.POSITIVE_INFINITY),
    );
    const early = later.find(
      (one) =>
        one.byHand !== "resend" && one.startedAt < Math.min(endedAt + askedMs - skewMs, freedAt),
    );
    if (early)
      throw new Violation(
        `a request starts ${early.startedAt - endedAt} ms after one of ${endedAt - startedAt} ms asked for ${askedMs} ms`,
      );
  }
}

/** Nothing is sent again that was accepted, unless a person asks for it. What is stored of the attempts is what was sent. */
export function checkHistory(store: Store, sent: readonly Sent[], resends: number): void {
  const settledBy = store.world.now - MINUTE_MS;
  const rows = store.rows<{ id: string; state: string; made: number; times: string }>(
    `SELECT event_id AS id, state, attempts_made AS made, (SELECT json_group_array(at) FROM (SELECT at FROM attempts a
      WHERE a.subscription_id = d.subscription_id AND a.event_id = d.event_id ORDER BY attempt)) AS times FROM deliveries d`,
  );
  const byEvent = Map.groupBy(sent, ({ eventId }) => eventId);
  for (const { id, state, made, times } of rows) {
    const own = byEvent.get(id) ?? [];
    const recorded = own.filter(
      ({ endedAt }) => (endedAt ?? Number.POSITIVE_INFINITY) < settledBy,
    ).length;
    if (made < recorded || made > own.length)
      throw new Violation(`${id} has ${made} recorded attempts, and was sent ${own.length} times`);
    if (own.filter(isAccepted).length > 1 + resends)
      throw new Violation(`${id} was accepted, and sent again`);
    // A success is stored with its delivery alone.
    const stored = JSON.parse(times) as number[];
    const expected = Math.min(ATTEMPTS_KEPT, state === "delivered" ? made - 1 : made);
    if (stored.length !== expected)
      throw new Violation(`${id} has ${stored.length} stored attempts of ${made}, and is ${state}`);
    for (const [i, at] of stored.slice(0, ATTEMPTS_KEPT - 1).entries())
      if (Math.abs(at - (own[i]?.startedAt ?? 0)) > store.world.isolateSkewMs + 1_000)
        throw new Violation(`attempt ${i + 1} at ${id} is stored with another time`);
  }
  checkCounts(store, sent);
}

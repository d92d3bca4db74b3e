import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  FAILING_SPACING_SECONDS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SPACED_FROM_EVENTS,
} from "../../../src/contract/limits.ts";
import { MINUTE_MS } from "../../../src/contract/time.ts";
import { CONCURRENCY_MAX } from "../../../src/delivery/policy.ts";
import type { Post } from "./invariants.ts";
import type { Store } from "./store.ts";
import { KINDS } from "./subscribers.ts";
import { Violation } from "./world.ts";

/*
 * What holds in a world with one endpoint, in which nothing else fails: no outcome is lost, and nothing is sent twice.
 */

/** How long a call that replays a range may take. It ends the wait of a subscription. */
const REPLAY_MAX_MS = 10_000;
/** For what queues and dispatches take. */
const TOLERANCE_MS = MINUTE_MS;

/**
 * While an endpoint fails, requests are spaced, and made one at a time. Up to five that were in flight when this
 * began count for the streak, but not for the spacing.
 *
 * @param replayedAt when ranges were replayed, which ends a wait.
 * @param skewMs how far the clocks of two dispatches may differ.
 */
export function checkSpacing(
  posts: readonly Post[],
  replayedAt: readonly number[],
  skewMs: number,
): void {
  const ended = posts.toSorted((a, b) => (a.endedAt ?? 0) - (b.endedAt ?? 0));
  const failed = new Set<string>();
  /** Also those of manual sends, which lengthen nothing; nor do their events when they fail again. */
  const known = new Set<string>();
  let lastAt = 0;
  let next = 0;
  for (const { startedAt, isManual, url } of posts) {
    for (; (ended[next]?.endedAt ?? Number.POSITIVE_INFINITY) <= startedAt; next++) {
      const { acknowledged, eventId, endedAt, isManual: wasManual } = ended[next] as Post;
      if (acknowledged) for (const set of [failed, known]) set.clear();
      else if (!wasManual && !known.has(eventId)) failed.add(eventId);
      known.add(eventId);
      if (acknowledged || !wasManual) lastAt = endedAt ?? 0;
    }
    const step = failed.size - SPACED_FROM_EVENTS - (CONCURRENCY_MAX - 1);
    if (step < 0) continue;
    const spacingMs =
      1000 * (FAILING_SPACING_SECONDS[step] ?? (FAILING_SPACING_SECONDS.at(-1) as number));
    const isFreed = replayedAt.some((at) => startedAt >= at && lastAt <= at + REPLAY_MAX_MS);
    if (
      !isManual &&
      !isFreed &&
      url === ended[next - 1]?.url &&
      startedAt - lastAt < spacingMs - skewMs
    )
      throw new Violation(
        `a post started ${startedAt - lastAt} ms after ${failed.size} events failed`,
      );
    if (
      posts.some((other) => other.startedAt < startedAt && (other.endedAt ?? startedAt) > startedAt)
    )
      throw new Violation(`two posts are under way after ${failed.size} events failed`);
  }
}

/**
 * Nothing but a manual send starts before the time for which an endpoint asked in `Retry-After`. A success ends that,
 * unless it was in flight then.
 */
export function checkRetryAfter(
  posts: readonly Post[],
  replayedAt: readonly number[],
  skewMs: number,
): void {
  for (const { outcome, startedAt, endedAt, isManual, url } of posts) {
    if (outcome?.kind !== "answered" || endedAt === null || isManual) continue;
    if (outcome.status !== 429 && outcome.status !== 503) continue;
    const askedMs = Math.min(outcome.retryAfterSeconds ?? 0, RETRY_AFTER_MAX_SECONDS) * 1000;
    const later = posts.filter((post) => post.startedAt > endedAt && post.url === url);
    const freedAt = Math.min(
      ...later.map((post) => (post.acknowledged && post.endedAt) || Number.POSITIVE_INFINITY),
    );
    const early = later.find(
      (post) =>
        !post.isManual &&
        !replayedAt.some((at) => post.startedAt >= at && endedAt <= at + REPLAY_MAX_MS) &&
        post.startedAt < endedAt + askedMs - skewMs &&
        post.startedAt < freedAt,
    );
    if (early)
      throw new Violation(
        `a post starts ${early.startedAt - endedAt} ms after one that began ${endedAt - startedAt} ms earlier asked for ${askedMs} ms`,
      );
  }
}

/** Nothing is sent again that was accepted, unless somebody asks for it. */
export function checkOnce(posts: readonly Post[], resends: ReadonlyMap<string, number>): void {
  const accepted = Map.groupBy(
    posts.filter(({ acknowledged }) => acknowledged),
    ({ eventId }) => eventId,
  );
  for (const [eventId, own] of accepted)
    if (own.length > 1 + (resends.get(eventId) ?? 0))
      throw new Violation(`${eventId} was accepted, and sent again`);
}

/** What is stored of the attempts, and counted, is what was sent. Their outcomes are recorded within seconds. */
export function checkHistory(store: Store, posts: readonly Post[]): void {
  const { now } = store.world;
  const typeOf = new Map(
    store
      .rows<{ id: string; type: string }>("SELECT id, type FROM events")
      .map((one) => [one.id, one.type]),
  );
  const counts = new Map(
    store
      .rows<{ key: string; n: number }>(
        "SELECT key, sum(value) AS n FROM delivery_counts, json_each(counts) GROUP BY key",
      )
      .map(({ key, n }) => [key, n]),
  );
  const isRecorded = ({ endedAt }: Post) => endedAt !== null && endedAt < now - 10_000;
  for (const type of KINDS) {
    const own = posts.filter(({ eventId }) => typeOf.get(eventId) === type);
    const succeeded = own.filter(({ acknowledged }) => acknowledged);
    const failed = own.filter(({ acknowledged }) => !acknowledged);
    expectBetween(`${type} delivered`, succeeded, counts.get(`${type} delivered`) ?? 0);
    expectBetween(
      `${type} failed`,
      failed,
      (counts.get(`${type} failed`) ?? 0) + (counts.get(`${type} exhausted`) ?? 0),
    );
  }
  const timed = [...counts].filter(([key]) => key.startsWith("ms "));
  expectBetween(
    "response times",
    posts.filter(({ outcome }) => outcome === null || outcome.kind === "answered"),
    timed.reduce((sum, [, n]) => sum + n, 0),
  );
  const log = store.rows<{ event_id: string; times: string; made: number; state: string }>(
    `SELECT event_id, attempts_made AS made, state, (SELECT json_group_array(at) FROM (SELECT at FROM attempts a
      WHERE a.subscription_id = d.subscription_id AND a.event_id = d.event_id ORDER BY attempt)) AS times FROM deliveries d`,
  );
  const sent = Map.groupBy(posts, ({ eventId }) => eventId);
  for (const { event_id, times, made, state } of log) {
    const own = sent.get(event_id) ?? [];
    expectBetween(`attempts at ${event_id}`, own, made);
    const logged = JSON.parse(times) as number[];
    const expected = state === "delivered" ? made - 1 : made;
    if (logged.length !== Math.min(expected, 100))
      throw new Violation(`${event_id} has ${logged.length} logged attempts, and had ${made}`);
    for (const [i, at] of logged.entries())
      if (i < 99 && Math.abs(at - (own[i]?.startedAt ?? 0)) > store.world.isolateSkewMs + 1_000)
        throw new Violation(`attempt ${i + 1} at ${event_id} is logged at the wrong time`);
  }

  function expectBetween(name: string, own: readonly Post[], counted: number): void {
    const least = own.filter(isRecorded).length;
    if (counted < least || counted > own.length)
      throw new Violation(`${name}: ${counted} are counted, and ${own.length} were sent`);
  }
}

/** Only an endpoint is disabled that accepted nothing for days. */
export function checkDisabled(store: Store, posts: readonly Post[]): void {
  const [row] = store.rows<{ at: number; events: string }>(
    "SELECT disabled_at AS at, events FROM subscriptions WHERE disabled_at IS NOT NULL",
  );
  if (!row) return;
  const before = posts.filter(({ endedAt }) => endedAt !== null && endedAt < row.at - 10_000);
  const since = before.findLastIndex(({ acknowledged }) => acknowledged) + 1;
  const failures = before.slice(since).filter(({ isManual }) => !isManual);
  const lastedMs = row.at - (failures[0]?.startedAt ?? row.at);
  if (lastedMs < DISABLE_AFTER_MS - MINUTE_MS || failures.length < DISABLE_AFTER_FAILURES - 1)
    throw new Violation(`it was disabled after ${failures.length} failures in ${lastedMs} ms`);
}

/**
 * The attempts at an event that always fails come when its retry schedule says. One may come early, and does not
 * count: the first success after its first failure ends a streak, and makes it due at once.
 *
 * @param posts those of the event.
 * @param skewMs how far the clocks of two dispatches may differ.
 */
export function checkSchedule(posts: readonly Post[], skewMs: number): void {
  let dueAt = 0;
  let counted = 0;
  let early = 0;
  for (const { startedAt, endedAt } of posts) {
    if (startedAt < dueAt - skewMs) {
      early++;
      continue;
    }
    const waitMs = (RETRY_WAITS_SECONDS[counted - 1] ?? 0) * 1000;
    if (counted > 0 && startedAt > dueAt + waitMs * RETRY_JITTER + TOLERANCE_MS)
      throw new Violation(`attempt ${counted + 1} came ${startedAt - dueAt} ms after it was due`);
    dueAt = (endedAt ?? startedAt) + (RETRY_WAITS_SECONDS[counted] ?? 0) * 1000;
    counted++;
  }
  if (counted !== RETRY_WAITS_SECONDS.length + 1 || early > 1)
    throw new Violation(
      `an event got ${counted} attempts on its schedule, and ${early} early ones`,
    );
}

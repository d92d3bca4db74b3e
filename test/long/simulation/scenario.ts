import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import {
  FAILING_SPACING_SECONDS,
  SPACED_FROM_EVENTS,
  TELL_AFTER_MS,
} from "../../../src/contract/limits.ts";
import type { Fault } from "../../support/service-faults.ts";
import { type Deployment, deploy } from "./deployment.ts";
import { checkEnd } from "./end.ts";
import { liveWithOneEndpoint } from "./flow.ts";
import {
  checkAccepted,
  checkCommit,
  checkOverdue,
  checkPauses,
  checkWrites,
} from "./invariants.ts";
import { SLOW_REPLY_MS, Store } from "./store.ts";
import { openSubscribers } from "./subscribers.ts";
import { openWork } from "./work.ts";
import type { LoadedWorker } from "./worker.ts";
import { Violation, World } from "./world.ts";

/**
 * In an hour: one a minute, and faster ones while the streak has too few events to be spaced by a minute. The retry
 * schedule makes five attempts at each of these events in an hour.
 */
const DEAD_POSTS_AN_HOUR = 60 + 5 * (SPACED_FROM_EVENTS + FAILING_SPACING_SECONDS.length - 2);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** In which everything must settle, once only subscribers fail. */
const SETTLED_MS = 30 * 24 * HOUR_MS;

/** The result of one seed. */
export interface SimulationResult {
  seed: number;
  /** The violation; null if every invariant held. */
  violation: string | null;
  history: string[];
  events: number;
  posts: number;
  crashes: number;
  /** How D1 has failed. */
  injected: Set<Fault>;
  /** True time that passed in the world. */
  simulatedMs: number;
}

/**
 * Simulates one world. Every third has one endpoint, and no fault but what it rejects. The others have some hours
 * of work and faults, then days in which everything must settle. Every seventh of these is harsh.
 */
export async function simulate(seed: number, worker: LoadedWorker): Promise<SimulationResult> {
  const world = new World(seed);
  const restore = world.install();
  const startedAt = world.now;
  // Every fifth world has three databases, and workspaces that go from one to another.
  const store = new Store(world, seed % 5 === 0 && seed % 3 > 0 ? 3 : 1);
  const subscribers = openSubscribers(world, store);
  const deployment = deploy(world, store, subscribers, worker);
  let violation: string | null = null;
  try {
    if (seed % 3 === 0) await liveWithOneEndpoint(deployment, seed / 3);
    else await live(deployment);
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    violation = error.message;
  } finally {
    restore();
  }
  const [count] = store.rows<{ n: number }>("SELECT count(*) AS n FROM events");
  store.close();
  return {
    seed,
    violation,
    history: world.history,
    events: count?.n ?? 0,
    posts: subscribers.posts.length,
    crashes: world.history.filter((line) => line.endsWith("crashes")).length,
    injected: store.injected,
    simulatedMs: world.now - startedAt,
  };
}

/** The life of a world. @throws Violation if an invariant does not hold. */
async function live(deployment: Deployment): Promise<void> {
  const { world, store, subscribers } = deployment;
  const work = openWork(deployment);
  let healthySince = 0;
  /**
   * The longest that a fast subscriber may wait for its next post, once only subscribers fail: the
   * platform's wake follows the reply from D1, and its dispatch may first have to be released by others.
   * What is due in the future, by its consumer's clock, is woken again, in whole seconds.
   */
  const pauseMs =
    4_000 + SLOW_REPLY_MS + (world.isolateSkewMs > 0 ? 2 * world.isolateSkewMs + 1_000 : 0);
  store.onCommit = () => world.guard(() => checkCommit(store));

  let isWorking = true;
  let postsChecked = 0;
  work.happen().then(
    () => (isWorking = false),
    (error) => world.fail(error),
  );
  sweepAgain();
  await world.run(() => !isWorking);
  world.note("— the work is over, faults end —");
  world.faults = false;
  world.skew(0);
  healthySince = world.now;
  subscribers.recover();
  await settle();
  await checkPrompt();
  await checkEnd(store, ENCRYPTION_KEYS, subscribers.posts);
  checkWrites(store, subscribers.posts);
  checkDead();

  /** Lets time pass until everything is settled, and what is still in progress has ended. */
  async function settle(): Promise<void> {
    const settledBy = world.now + SETTLED_MS;
    let seen = -1;
    const isSettled = () => {
      if (seen === store.commits) return false;
      seen = store.commits;
      return pending() === 0;
    };
    await world.run(() => world.now > settledBy || isSettled());
    const quietAt = world.now + 10 * MINUTE_MS;
    await world.run(() => world.now > quietAt);
  }

  /**
   * Events for everyone, once it is known who is fast and who has just rejected a type. A subscriber that responds at
   * once is sent to at once, whoever else there is, and whichever of overlapping recordings is committed first.
   */
  async function checkPrompt(): Promise<void> {
    // Only the third time is checked: by then, it is known who is fast, and who has just rejected a type.
    for (const [i, minutes] of [40, 2, 40].entries()) {
      const [last] = store.rows<{ id: string | null }>("SELECT max(id) AS id FROM events");
      const open = store.rows<{ id: string; url: string }>(
        "SELECT id, url FROM subscriptions WHERE disabled_at IS NULL AND deleted_at IS NULL AND blocked_until = 0 AND streak IS NULL AND NOT slow",
      );
      let recorded = false;
      // So many of a type that requests to those who reject it are still spaced when the last time begins.
      work.recordEverywhere(i === 1 ? 25 : 1).then(
        () => (recorded = true),
        (error) => world.fail(error),
      );
      const until = world.now + minutes * MINUTE_MS;
      await world.run(() => recorded && world.now > until);
      if (i < 2) continue;
      checkChoosy(last?.id ?? "");
      for (const { id } of open.filter(({ url }) => subscribers.isFine(url))) {
        const posts = subscribers.posts.filter(
          ({ subscriptionId, eventId }) => subscriptionId === id && eventId > (last?.id ?? ""),
        );
        checkPauses(store, posts, pauseMs, (from, to) =>
          deployment.lanes.deliveries.saturatedMs(from, to),
        );
      }
    }
    await settle();
  }

  /** Those that reject some events at once get the others within minutes. */
  function checkChoosy(after: string): void {
    const owed = store.rows<{ subscription_id: string; url: string; events: string }>(
      `SELECT d.subscription_id, s.url, json_group_array(d.event_id) AS events
        FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
        WHERE d.event_id > ? AND NOT s.slow AND s.deleted_at IS NULL GROUP BY 1`,
      after,
    );
    for (const { subscription_id: id, url, events } of owed) {
      const posts = subscribers.posts.filter(({ subscriptionId }) => subscriptionId === id);
      const accepted = (JSON.parse(events) as string[]).filter((eventId) =>
        subscribers.isAccepted(url, eventId),
      );
      checkAccepted(store, id, accepted, posts, (from, to) =>
        deployment.lanes.deliveries.saturatedMs(from, to),
      );
    }
  }

  /**
   * A subscriber that has only failed since the faults ended was probed, not flooded. An event that it
   * had rejected while it accepted others says nothing of it, and is tried again at its own pace.
   */
  function checkDead(): void {
    const since = healthySince + MINUTE_MS;
    for (const { id, url } of store.rows<{ id: string; url: string }>(
      "SELECT id, url FROM subscriptions",
    )) {
      const posts = subscribers.posts.filter(({ subscriptionId }) => subscriptionId === id);
      const after = posts.filter(({ startedAt }) => startedAt > since);
      if (after.some(({ acknowledged }) => acknowledged) || subscribers.isChoosy(url)) continue;
      const before = posts.filter(({ startedAt }) => startedAt <= since);
      const rejected = new Set(
        subscribers.wasChoosy(url) ? before.map(({ eventId }) => eventId) : [],
      );
      const late = after.filter(({ eventId }) => !rejected.has(eventId));
      const isTooSoon = late.some(
        ({ startedAt }, i) => startedAt - (late[i - DEAD_POSTS_AN_HOUR]?.startedAt ?? 0) < HOUR_MS,
      );
      if (isTooSoon)
        throw new Violation(`${id} fails always, and got ${DEAD_POSTS_AN_HOUR} posts in an hour`);
    }
  }

  /** How long nothing but subscribers has failed, in milliseconds. */
  function healthyFor(): number {
    return world.faults ? 0 : world.now - healthySince;
  }

  function pending(): number {
    return store.rows("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1").length;
  }

  /** When administrators are to be told something next, in Unix milliseconds. */
  function announcedAt(): number {
    const [next] = store.rows<{ at: number | null }>(
      `SELECT min(at) AS at FROM (
        SELECT failing_since + ? AS at FROM subscriptions WHERE disabled_at IS NULL AND deleted_at IS NULL
          AND announced ->> '$.failing.since' IS NOT failing_since
        UNION ALL SELECT disabled_at FROM subscriptions WHERE disabled_by_failures AND deleted_at IS NULL
          AND announced ->> '$.disabled.since' IS NOT disabled_at
        UNION ALL SELECT 0 FROM subscriptions
          WHERE announced ->> '$.failing' IS NOT NULL AND failing_since IS NULL AND disabled_at IS NULL)`,
      TELL_AFTER_MS,
    );
    return next?.at ?? Number.POSITIVE_INFINITY;
  }

  /** The scheduled job, in the minutes in which it could have something to do. */
  function sweepAgain(): void {
    const [next] = store.rows<{ due: number | null }>(
      `SELECT min(CASE WHEN s.cancelling THEN 0 ELSE max(iif(d.priority = 2, min(d.due_at, s.streak_retry_at), d.due_at), iif(d.priority = 0, 0, s.blocked_until), s.leased_until) END) AS due
        FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
        WHERE d.state = 'pending'`,
    );
    if (!world.faults) world.guard(() => checkOverdue(store, healthyFor()));
    if (subscribers.posts.length >= postsChecked + 100) {
      postsChecked = subscribers.posts.length;
      world.guard(() => checkWrites(store, subscribers.posts));
    }
    const overdueInMs = (next?.due ?? Number.POSITIVE_INFINITY) + MINUTE_MS - Date.now();
    // What is not announced, such as the recovery of a workspace without access, is looked at again later.
    const owedInMs = Math.max(10 * MINUTE_MS, announcedAt() - Date.now());
    const waitMs = Math.min(overdueInMs, owedInMs, world.faults ? 10 * MINUTE_MS : 3 * HOUR_MS);
    const soonMs = store.isAnybodyMoving() ? MINUTE_MS : waitMs;
    world.after(Math.max(MINUTE_MS, Math.ceil(soonMs / MINUTE_MS) * MINUTE_MS), () => {
      deployment.sweep();
      sweepAgain();
    });
  }
}

import type { Fault } from "../../../scripts/shared/faults.ts";
import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import { Deployment } from "./deployment.ts";
import { checkEnd } from "./end.ts";
import { checkCommit, checkOverdue, checkPauses, checkWrites, Violation } from "./invariants.ts";
import { SLOW_REPLY_MS, Store } from "./store.ts";
import { Subscribers } from "./subscribers.ts";
import { Work } from "./work.ts";
import type { LoadedWorker } from "./worker.ts";
import { World } from "./world.ts";

/** Subscriptions with ranges that are being redelivered. */
const IN_RANGES = "SELECT id FROM subscriptions WHERE ranges IS NOT NULL";
/**
 * One wave and the probes of two ladders: a delivery may end after its subscription was re-enabled.
 */
const DEAD_POSTS_MAX = 6 + 22;
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
 * Simulates one world: some hours of work and faults, then days in which everything must settle.
 */
export async function simulate(seed: number, worker: LoadedWorker): Promise<SimulationResult> {
  const world = new World(seed);
  const restore = world.install();
  const startedAt = world.now;
  // Every fifth world has three databases, and workspaces that go from one to another.
  const store = new Store(world, seed % 5 === 0 ? 3 : 1);
  const scenario = new Scenario(world, store, worker);
  let violation: string | null = null;
  try {
    await scenario.live();
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
    posts: scenario.subscribers.posts.length,
    crashes: world.history.filter((line) => line.endsWith("crashes")).length,
    injected: store.injected,
    simulatedMs: world.now - startedAt,
  };
}

class Scenario {
  #healthySince = 0;
  /**
   * The longest that a fast subscriber may wait for its next post, once only subscribers fail: the
   * platform's wake follows the reply from D1, and its dispatch may first have to be released by others.
   */
  #pauseMs = 4_000 + SLOW_REPLY_MS;

  readonly world: World;
  readonly store: Store;
  readonly subscribers: Subscribers;
  readonly deployment: Deployment;
  readonly work: Work;

  constructor(world: World, store: Store, worker: LoadedWorker) {
    this.world = world;
    this.store = store;
    this.subscribers = new Subscribers(world, store);
    this.deployment = new Deployment(world, store, worker, this.subscribers);
    this.work = new Work(world, store, this.deployment, this.subscribers);
    // What is due in the future, by its consumer's clock, is woken again, in whole seconds.
    if (world.isolateSkewMs > 0) this.#pauseMs += 2 * world.isolateSkewMs + 1_000;
    store.onCommit = () => world.guard(() => checkCommit(store));
  }

  async live(): Promise<void> {
    const { world, store, subscribers } = this;
    let isWorking = true;
    this.work.happen().then(
      () => (isWorking = false),
      (error) => world.fail(error),
    );
    this.#sweepAgain();
    await world.run(() => !isWorking);
    world.note("— the work is over, faults end —");
    world.faults = false;
    world.skew(0);
    this.#healthySince = world.now;
    subscribers.recover();
    await this.#settle();
    await this.#checkPrompt();
    await checkEnd(store, ENCRYPTION_KEYS, subscribers.posts);
    checkWrites(store, subscribers.posts);
    this.#checkDead();
  }

  /** Lets time pass until everything is settled, and what is still in progress has ended. */
  async #settle(): Promise<void> {
    const { world } = this;
    const settledBy = world.now + SETTLED_MS;
    await world.run(() => this.#pending() === 0 || world.now > settledBy);
    const quietAt = world.now + 10 * MINUTE_MS;
    await world.run(() => world.now > quietAt);
  }

  /**
   * Events for everyone, twice, once it is known who is fast: a subscriber that answers immediately is
   * posted to immediately, whoever else there is, and whichever of overlapping recordings is committed
   * first.
   */
  async #checkPrompt(): Promise<void> {
    const { world, subscribers } = this;
    for (let i = 0; i < 2; i++) {
      const [last] = this.store.rows<{ id: string | null }>("SELECT max(id) AS id FROM events");
      const open = this.store.rows<{ id: string; url: string }>(
        "SELECT id, url FROM subscriptions WHERE disabled_at IS NULL AND deleted_at IS NULL AND backoff = 0 AND NOT slow",
      );
      let recorded = false;
      this.work.recordEverywhere().then(
        () => (recorded = true),
        (error) => world.fail(error),
      );
      const until = world.now + 10 * MINUTE_MS;
      await world.run(() => recorded && world.now > until);
      if (i === 0) continue;
      for (const { id } of open.filter(({ url }) => subscribers.isFine(url))) {
        const posts = subscribers.posts.filter(
          ({ subscriptionId, eventId }) => subscriptionId === id && eventId > (last?.id ?? ""),
        );
        checkPauses(this.store, posts, this.#pauseMs, (from, to) =>
          this.deployment.lanes.deliveries.saturatedMs(from, to),
        );
      }
    }
    await this.#settle();
  }

  /** A subscriber that has only failed since the faults ended was probed, not flooded. */
  #checkDead(): void {
    const since = this.#healthySince + MINUTE_MS;
    for (const [id, posts] of Map.groupBy(
      this.subscribers.posts,
      ({ subscriptionId }) => subscriptionId,
    )) {
      const late = posts.filter(({ startedAt }) => startedAt > since);
      if (late.length > DEAD_POSTS_MAX && !late.some(({ acknowledged }) => acknowledged))
        throw new Violation(`${id} fails always, and was posted to ${late.length} times`);
    }
  }

  /** How long nothing but subscribers has failed, in milliseconds. */
  #healthyFor(): number {
    return this.world.faults ? 0 : this.world.now - this.#healthySince;
  }

  #pending(): number {
    return this.store.rows("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1").length;
  }

  /** The scheduled job, in the minutes in which it could have something to do. */
  #sweepAgain(): void {
    const { world } = this;
    const [next] = this.store.rows<{ due: number | null; owed: number | null }>(
      `SELECT min(CASE WHEN s.cancelling THEN 0 ELSE max(d.due_at, s.next_at, s.held_until) END) AS due,
          (SELECT min(due_at) FROM (SELECT due_at FROM notices WHERE sent_at IS NULL
            UNION ALL SELECT due_at FROM emails WHERE state = 'owed')) AS owed
        FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
        WHERE d.state = 'pending'`,
    );
    world.guard(() => checkOverdue(this.store, this.#healthyFor()));
    world.guard(() => checkWrites(this.store, this.subscribers.posts));
    const overdueInMs = (next?.due ?? Number.POSITIVE_INFINITY) + MINUTE_MS - Date.now();
    const owedInMs = (next?.owed ?? Number.POSITIVE_INFINITY) - Date.now();
    const waitMs = Math.min(overdueInMs, owedInMs, world.faults ? 10 * MINUTE_MS : 3 * HOUR_MS);
    const isBusy = this.store.isAnybodyMoving() || this.store.rows(IN_RANGES).length > 0;
    const soonMs = isBusy ? MINUTE_MS : waitMs;
    world.after(Math.max(MINUTE_MS, Math.ceil(soonMs / MINUTE_MS) * MINUTE_MS), () => {
      this.deployment.sweep();
      this.#sweepAgain();
    });
  }
}

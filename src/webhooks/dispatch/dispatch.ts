import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { commit, type Database } from "../../db/client.ts";
import { sleep, timeBudget } from "../../timing.ts";
import { UnreadableEvent } from "../bodies.ts";
import { InvocationLimit } from "../outcome.ts";
import { DNS_BEFORE_POST_MS } from "../resolve.ts";
import { extendLease, type Lease } from "./lease.ts";
import { CLAIM_AHEAD, nextPipeline, Pipeline, type Target } from "./pipeline.ts";
import { type Lane, POSTS_AT_ONCE } from "./policy.ts";
import { type Claimed, settleAndClaim } from "./settle-and-claim.ts";
import { type DispatchTools, EventErased } from "./tools.ts";

/**
 * A dispatch starts no post later than this; the rest is left for the next one. The runtime ends
 * background work after 30 s: after a last post that times out, there must be time to record it and
 * to wake its subscription, with retries.
 */
const DISPATCH_MAX_MS = 12_000;
/** When the last post of a dispatch has ended. One that takes even longer is considered lost. */
export const LAST_END_MS = DISPATCH_MAX_MS + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS + 2_000;
/** If no post starts or ends for this long, subscriptions with none in flight are released. */
const STUCK_MS = 500;
const TICK_MS = 100;

/**
 * Maximum deliveries one transaction claims, over all subscriptions. Each round trip costs a few
 * milliseconds, however few it claims.
 */
const CLAIM_MAX = 400;
/** Maximum it claims per subscription in the slow lane, where each may take ten seconds. */
const CLAIM_SLOW_MAX = 6;
/** Maximum time before outcomes are recorded. */
const SETTLE_AFTER_MS = 1_000;
/** The same for a subscription with nothing left to post, because more may have become due. */
const SETTLE_IDLE_AFTER_MS = 100;

/**
 * A dispatch that has executed this many statements leaves the rest to the next one: an invocation, with
 * up to three dispatches, may execute 1,000. Recording what is in flight then takes up to a hundred more.
 */
export const STATEMENTS_MAX = 200;

/**
 * Delivers what is due to the subscriptions. It leases them and posts to all of them concurrently.
 * Each round trip to the database records outcomes and claims more, until nothing is due or time runs
 * out.
 *
 * @param lane subscriptions of the other lane are left alone.
 * @param connections how many requests it may have in flight.
 * @throws the database's error if it is unavailable; deliveries whose outcome could not be recorded
 *   are posted again.
 */
export function dispatch(
  db: Database,
  subscriptionIds: string[],
  lane: Lane,
  tools: DispatchTools,
  connections: number = POSTS_AT_ONCE,
): Promise<void> {
  return new Dispatch(db, subscriptionIds, lane, tools, connections).run();
}

class Dispatch {
  #pipelines: Pipeline[];
  #lease: Lease = { holder: crypto.randomUUID(), until: 0 };
  #statements = 0;
  #isMakingRoundTrip = false;
  #answers = 0;
  /** When a post last started or ended. */
  #progressAt: number;
  /** The error of the round trip that ended the dispatch. */
  #failure: unknown = null;
  /** Continues the loop. */
  #continue: () => void = () => {};
  #tick: Promise<void> | null = null;
  readonly #startedAt: number;
  readonly #hasSteadyTime = timeBudget(DISPATCH_MAX_MS);

  readonly #db: Database;
  readonly #lane: Lane;
  readonly #tools: DispatchTools;
  readonly #connections: number;

  constructor(
    db: Database,
    subscriptionIds: string[],
    lane: Lane,
    tools: DispatchTools,
    connections: number,
  ) {
    this.#db = db;
    this.#lane = lane;
    this.#tools = tools;
    this.#connections = connections;
    this.#pipelines = subscriptionIds.map((id) => new Pipeline(id, lane));
    this.#startedAt = this.#progressAt = tools.now();
  }

  /** Whenever something ends, does whatever can be done next, until nothing is in progress. */
  async run(): Promise<void> {
    await this.#settleAndClaim();
    for (;;) {
      const now = this.#tools.now();
      this.#release(now);
      this.#startPosts(now);
      if (!this.#isMakingRoundTrip && this.#needsRoundTrip(now)) this.#startRoundTrip();
      const isIdle = this.#inFlight === 0 && !this.#isMakingRoundTrip;
      // Everything in progress has a timeout of its own: what exceeds it will never end.
      if (isIdle || Math.abs(now - this.#startedAt) > LAST_END_MS) break;
      await this.#somethingEnds();
    }
    // One more try to record the outcomes: deliveries without one are posted again.
    if (this.#failure !== null && this.#pipelines.some(({ isDirty }) => isDirty))
      await this.#settleAndClaim();
    // It is unknown when those with unrecorded outcomes are due: the caller's retry covers them.
    for (const pipeline of this.#pipelines) if (!pipeline.isDirty) this.#finish(pipeline);
    if (this.#failure !== null) throw this.#failure;
  }

  /** Resolves when a post or a round trip ends, or after a tick. */
  #somethingEnds(): Promise<void> {
    this.#tick ??= sleep(TICK_MS).then(() => {
      this.#tick = null;
      this.#continue();
    });
    return new Promise((resolve) => {
      this.#continue = resolve;
    });
  }

  get #inFlight(): number {
    return this.#pipelines.reduce((sum, { inFlight }) => sum + inFlight, 0);
  }

  /** Releases the subscriptions that have run out of time or get no connection. */
  #release(now: number): void {
    const isLast = !this.#hasTime(now) || this.#failure !== null || this.#isSpent;
    const isStuck = this.#inFlight > 0 && now - this.#progressAt >= STUCK_MS;
    for (const pipeline of this.#pipelines) {
      const getsNoPost = (isStuck && pipeline.inFlight === 0) || !pipeline.isLeasedForPost(now);
      if (isLast || (pipeline.waiting > 0 && getsNoPost)) pipeline.release();
    }
  }

  /**
   * Whether posts may still start, by the wall clock, which leases are written in, and by the
   * monotonic clock, which nobody can set.
   */
  #hasTime(now: number): boolean {
    const elapsedMs = now - this.#startedAt;
    return elapsedMs >= 0 && elapsedMs < DISPATCH_MAX_MS && this.#hasSteadyTime();
  }

  /** Whether it has executed as many statements as it may. */
  get #isSpent(): boolean {
    return this.#statements >= STATEMENTS_MAX;
  }

  /** How many posts may be in flight: one connection is kept free while there are several pipelines. */
  get #postsMax(): number {
    return Math.max(1, this.#pipelines.length > 1 ? this.#connections - 1 : this.#connections);
  }

  #startPosts(now: number): void {
    for (;;) {
      const pipeline = nextPipeline(this.#pipelines, now, this.#postsMax);
      if (!pipeline?.subscription) return;
      this.#progressAt = now;
      const delivery = pipeline.start();
      this.#post(pipeline, delivery, pipeline.subscription).finally(() => {
        this.#progressAt = this.#tools.now();
        this.#continue();
      });
    }
  }

  async #post(pipeline: Pipeline, delivery: Claimed, target: Target): Promise<void> {
    const { now, random, attempt } = this.#tools;
    const startedAt = now();
    try {
      const outcome = await attempt(delivery, target);
      const endedAt = now();
      this.#answers++;
      pipeline.end(delivery, { outcome, startedAt, endedAt }, random(), await outcome.kept);
    } catch (error) {
      // If the limit was hit before any post, another invocation would hit it too.
      if (error instanceof InvocationLimit && this.#answers > 0) {
        pipeline.takeBack(delivery);
        for (const each of this.#pipelines) each.release();
      } else if (error instanceof EventErased) pipeline.drop(delivery);
      else if (error instanceof UnreadableEvent)
        pipeline.settle(
          delivery,
          { outcome: { kind: "unreadable" }, startedAt, endedAt: now() },
          random(),
        );
      else pipeline.postpone(delivery, now());
    }
  }

  #needsRoundTrip(now: number): boolean {
    if (this.#failure !== null) return false;
    const inFlight = this.#inFlight;
    // Summed over all: with many pipelines, each has few deliveries and would ask for more after
    // nearly every post.
    const waiting = this.#pipelines.reduce((sum, pipeline) => sum + pipeline.waiting, 0);
    const unrecorded = this.#pipelines.reduce((sum, pipeline) => sum + pipeline.unrecorded, 0);
    const ageMs = now - Math.min(...this.#pipelines.map((each) => each.unrecordedSince));
    if (unrecorded >= CLAIM_MAX || ageMs >= SETTLE_AFTER_MS) return true;
    return this.#pipelines.some((each) => {
      const runsLow = each.wantsMore && (each.waiting === 0 || waiting < CLAIM_AHEAD);
      const isDone = each.isIdle && (each.isReleasing || each.unrecorded === 0);
      const isSettled = inFlight === 0 || isDone || (each.isIdle && ageMs >= SETTLE_IDLE_AFTER_MS);
      const wantsConfirmation =
        inFlight < this.#postsMax && each.wantsToPost(now) && !each.isConfirmed(now);
      const canCleanUp = each.canCleanUp && !this.#isSpent;
      return runsLow || (each.isDirty && isSettled) || wantsConfirmation || canCleanUp;
    });
  }

  #startRoundTrip(): void {
    this.#isMakingRoundTrip = true;
    this.#settleAndClaim().finally(() => {
      this.#isMakingRoundTrip = false;
      this.#continue();
    });
  }

  /** Records outcomes and claims more, in one round trip. */
  async #settleAndClaim(): Promise<void> {
    const askedAt = this.#tools.now();
    const pipelines = this.#pipelines;
    const cleanUp = pipelines.some((each) => each.subscription?.needsCleanup === true);
    const claiming = pipelines.filter(({ canClaim }) => canClaim).length;
    const share = Math.max(1, Math.floor(CLAIM_MAX / Math.max(1, claiming)));
    const limit = this.#lane === "fast" ? share : Math.min(share, CLAIM_SLOW_MAX);
    const lease = extendLease(askedAt, this.#lease);
    const flushed = pipelines.map((pipeline) => pipeline.flush(askedAt));
    this.#lease = lease;
    try {
      const statements = settleAndClaim(
        {
          lease,
          lane: this.#lane,
          changes: flushed.flatMap(({ change }) => change ?? []),
          settlements: flushed.flatMap(({ settlements }) => settlements),
          requests: flushed.map(({ request }) => request),
          limit,
          cleanUp,
        },
        askedAt,
      );
      this.#statements += statements.queries.length;
      const { found, claimed } = await commit(this.#db, statements);
      const claims = Map.groupBy(claimed, ({ subscriptionId }) => subscriptionId);
      const snapshots = new Map(found.map((row) => [row.subscriptionId, row]));
      for (const [i, pipeline] of pipelines.entries()) {
        const id = pipeline.subscriptionId;
        const wasAsked = flushed[i]?.request.claim === true;
        const asked = { wasAsked, limit, askedAt };
        pipeline.update(snapshots.get(id), claims.get(id) ?? [], lease, asked);
      }
    } catch (error) {
      for (const [i, each] of flushed.entries()) pipelines[i]?.restore(each);
      this.#failure = error;
      for (const pipeline of pipelines) pipeline.release();
      return;
    }
    this.#pipelines = pipelines.filter((pipeline) => {
      if (!pipeline.isIdle || pipeline.isDirty || pipeline.canCleanUp) return true;
      this.#finish(pipeline);
      return false;
    });
  }

  #finish({ subscription, wasLeased }: Pipeline): void {
    if (subscription) this.#tools.finished({ subscription, wasLeased });
  }
}

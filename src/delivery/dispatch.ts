import {
  CLAIM_AHEAD,
  CLAIM_MAX,
  CLAIM_SLOW_MAX,
  DISPATCH_MAX_MS,
  FREE_PLAN,
  GATES_TIMEOUT_MS,
  POST_TIMEOUT_MS,
  POSTS_AT_ONCE,
  SETTLE_AFTER_MS,
  SETTLE_IDLE_AFTER_MS,
  STUCK_MS,
} from "../contract/limits.ts";
import type { Lane } from "../contract/pace.ts";
import { commit, type Database } from "../db/client.ts";
import { type Claimed, exchange, type Found } from "../model/deliveries.ts";
import { type Hold, holdFrom } from "../model/holds.ts";
import { InvocationLimit, type Outcome } from "../webhooks/outcome.ts";
import { nextTurn, type Target, Turn } from "./turn.ts";

/** What a dispatch needs from outside: time, randomness, the key gates, and the post itself. */
export interface DispatchTools {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  sleep(ms: number): Promise<void>;
  /**
   * Makes sure that reads with the workspaces' keys find what was claimed.
   *
   * @param keyHashes their keys, as far as they are in this database.
   */
  tellGates(keyHashes: string[], workspaceIds: string[]): Promise<void>;
  /**
   * Makes one attempt.
   *
   * @param db the database that the event is in.
   * @throws InvocationLimit if this invocation may not make more requests; EventErased if there is
   *   nothing left to post; anything else if the attempt could not be made, through no fault of the
   *   subscriber.
   */
  attempt(delivery: Claimed, target: Target, db: Database): Promise<Outcome>;
  /** Takes a subscription whose turn has ended, and which may have more due, now or later. */
  ended(subscription: EndedTurn): void;
}

/** A subscription the dispatch has finished with. */
export interface EndedTurn {
  found: Found;
  /** Whether this dispatch held it at any time. */
  held: boolean;
}

/** The event was erased after it was claimed. */
export class EventErased extends Error {}

/**
 * Delivers what is due to the subscriptions. It takes hold of them and posts to all of them
 * concurrently. Each round trip to the database records outcomes and claims more, until nothing is
 * due or time runs out.
 *
 * @param lane subscriptions of the other lane are left alone.
 * @throws the database's error if it is unavailable; deliveries whose outcome could not be recorded
 *   are posted again.
 */
export function dispatch(
  db: Database,
  subscriptionIds: string[],
  lane: Lane,
  tools: DispatchTools,
): Promise<void> {
  return new Dispatch(db, subscriptionIds, lane, tools).finish();
}

const TICK_MS = 100;

class Dispatch {
  #turns: Turn[];
  #hold: Hold = { holder: crypto.randomUUID(), until: 0 };
  #resolve: () => void = () => {};
  /** Posts in progress. */
  #posts = 0;
  #isRecording = false;
  #isTicking = false;
  #isFinished = false;
  #roundTrips = 0;
  #begun = 0;
  #answered = 0;
  #failure: unknown = null;
  #waitsForGates = true;
  /** When the oldest unrecorded outcome arrived. */
  #unrecordedSince: number | null = null;
  #lastEndAt: number;
  readonly #startedAt: number;
  readonly #steadyStart = performance.now();

  readonly #db: Database;
  readonly #lane: Lane;
  readonly #tools: DispatchTools;

  constructor(db: Database, subscriptionIds: string[], lane: Lane, tools: DispatchTools) {
    this.#db = db;
    this.#lane = lane;
    this.#tools = tools;
    this.#turns = subscriptionIds.map((id) => new Turn(id, lane));
    this.#startedAt = this.#lastEndAt = tools.now();
  }

  /** Runs until there is nothing left to do or no time left. */
  async finish(): Promise<void> {
    await this.#exchange();
    await new Promise<void>((resolve) => {
      this.#resolve = resolve;
      this.#advance();
    });
    // One more try to record the outcomes: deliveries without one are posted again.
    if (this.#failure !== null && this.#turns.some(({ hasNews }) => hasNews))
      await this.#exchange();
    // A turn with unrecorded outcomes is not handed back: when it is due is unknown. The caller's
    // retry covers it.
    for (const turn of this.#turns) if (!turn.hasNews) this.#handBack(turn);
    if (this.#failure !== null) throw this.#failure;
  }

  /** Does whatever can be done now. Called whenever something finishes, and on every tick. */
  #advance(): void {
    if (this.#isFinished) return;
    const now = this.#tools.now();
    this.#endTurns(now);
    this.#startPosts(now);
    if (!this.#isRecording && this.#needsRoundTrip(now)) {
      this.#isRecording = true;
      this.#exchange().finally(() => {
        this.#isRecording = false;
        this.#advance();
      });
    }
    const idle = this.#posts === 0 && !this.#isRecording;
    // Everything in progress has a timeout of its own: what exceeds it will never finish.
    const hung = Math.abs(now - this.#startedAt) > DISPATCH_MAX_MS + 2 * POST_TIMEOUT_MS;
    if (idle || hung) {
      this.#isFinished = true;
      this.#resolve();
    } else if (!this.#isTicking) {
      this.#isTicking = true;
      this.#tools.sleep(TICK_MS).then(() => {
        this.#isTicking = false;
        this.#advance();
      });
    }
  }

  /** Ends the turns that have run out of time or get no connection. */
  #endTurns(now: number): void {
    const late = !this.#hasTime(now) || this.#failure !== null;
    const spent = this.#isSpent;
    const stuck = this.#posts > 0 && now - this.#lastEndAt >= STUCK_MS;
    for (const turn of this.#turns) {
      if (turn.over || (turn.waiting === 0 && !spent && !late)) continue;
      if (late || spent || (stuck && turn.begun === 0) || !turn.isHeld(now)) turn.letGo();
    }
  }

  /**
   * Whether posts may still start, by the wall clock, which holds are written in, and by the
   * monotonic clock, which nobody can set.
   */
  #hasTime(now: number): boolean {
    const elapsedMs = now - this.#startedAt;
    const steadyMs = performance.now() - this.#steadyStart;
    return elapsedMs >= 0 && elapsedMs < DISPATCH_MAX_MS && steadyMs < DISPATCH_MAX_MS;
  }

  #startPosts(now: number): void {
    for (;;) {
      const turn = nextTurn(this.#turns, now);
      if (!turn?.found) return;
      this.#posts++;
      this.#post(turn, turn.begin(), turn.found).finally(() => {
        this.#posts--;
        this.#advance();
      });
      this.#begun++;
    }
  }

  async #post(turn: Turn, delivery: Claimed, target: Target): Promise<void> {
    const { now, random, attempt } = this.#tools;
    const startedAt = now();
    if (this.#posts === 1) this.#lastEndAt = startedAt;
    try {
      const outcome = await attempt(delivery, target, this.#db);
      this.#answered++;
      turn.end(delivery, { outcome, startedAt, endedAt: now() }, random());
      this.#unrecordedSince ??= now();
    } catch (error) {
      // If the limit was hit before any post, another invocation would hit it too.
      if (error instanceof InvocationLimit && this.#answered > 0) {
        turn.takeBack(delivery);
        for (const each of this.#turns) each.letGo();
      } else if (error instanceof EventErased) turn.drop(delivery);
      else turn.giveUp(delivery, now());
    }
    this.#lastEndAt = now();
  }

  #needsRoundTrip(now: number): boolean {
    if (this.#failure !== null) return false;
    const idle = this.#posts === 0;
    // Summed over all turns: with many, each has few deliveries and would ask for more after nearly
    // every post.
    const waiting = this.#turns.reduce((sum, turn) => sum + turn.waiting, 0);
    const unrecorded = this.#turns.reduce((sum, turn) => sum + turn.unrecorded, 0);
    const ageMs = unrecorded === 0 ? 0 : now - (this.#unrecordedSince ?? now);
    // Once spent, one round trip releases what has not started, and one records everything still in
    // progress.
    if (this.#isSpent && !idle && ageMs < POST_TIMEOUT_MS)
      return (
        this.#roundTrips === FREE_PLAN.roundTrips &&
        this.#turns.some((turn) => turn.hasNews && turn.isOver)
      );
    return (
      unrecorded >= CLAIM_MAX ||
      ageMs >= SETTLE_AFTER_MS ||
      this.#turns.some(
        (turn) =>
          (turn.isHungry && (turn.waiting === 0 || waiting < CLAIM_AHEAD)) ||
          (turn.hasNews && (idle || turn.isOver)) ||
          (turn.hasNews &&
            turn.isIdle &&
            (turn.unrecorded === 0 || ageMs >= SETTLE_IDLE_AFTER_MS)) ||
          (turn.isCancelling && !this.#isSpent) ||
          (this.#posts < POSTS_AT_ONCE && turn.wantsToPost(now) && !turn.isConfirmed(now)),
      )
    );
  }

  /** Whether this invocation has made as many round trips as every plan allows. */
  get #isSpent(): boolean {
    return this.#roundTrips >= FREE_PLAN.roundTrips && this.#begun <= FREE_PLAN.posts;
  }

  /** Records outcomes and claims more, in one round trip. */
  async #exchange(): Promise<void> {
    const askedAt = this.#tools.now();
    const turns = this.#turns;
    const clean = this.#roundTrips === 0 || turns.some(({ found }) => found?.cancelling === true);
    const claiming = turns.filter(({ claims }) => claims).length;
    const share = Math.max(1, Math.floor(CLAIM_MAX / Math.max(1, claiming)));
    const limit = this.#lane === "fast" ? share : Math.min(share, CLAIM_SLOW_MAX);
    this.#hold = holdFrom(askedAt, this.#hold);
    const hold = this.#hold;
    this.#unrecordedSince = null;
    const news = turns.map((turn) => {
      // The request comes first: if taking the news ends the turn, nothing more is claimed for it.
      const request = turn.takeRequest();
      return {
        turn,
        request,
        settlements: turn.takeSettlements(),
        change: turn.takeChange(askedAt),
      };
    });
    this.#roundTrips++;
    try {
      const { found, claimed, keyHashes } = await commit(
        this.#db,
        exchange(
          {
            hold,
            lane: this.#lane,
            changes: news.flatMap(({ change }) => change ?? []),
            settlements: news.flatMap(({ settlements }) => settlements),
            requests: news.map(({ request }) => request),
            limit,
            clean,
          },
          askedAt,
        ),
      );
      const claims = Map.groupBy(claimed, ({ subscriptionId }) => subscriptionId);
      if (claims.size > 0) {
        const served = found.filter(({ subscriptionId }) => claims.has(subscriptionId));
        await this.#tellGates(keyHashes, [...new Set(served.map((each) => each.workspaceId))]);
      }
      const rows = new Map(found.map((row) => [row.subscriptionId, row]));
      for (const turn of turns) {
        const id = turn.subscriptionId;
        turn.update(rows.get(id), claims.get(id) ?? [], limit, hold, askedAt);
      }
    } catch (error) {
      for (const { turn, settlements, change } of news) turn.restore(settlements, change);
      this.#failure = error;
      for (const turn of turns) turn.letGo();
      return;
    }
    this.#turns = turns.filter((turn) => {
      if (!turn.isIdle || turn.hasNews || turn.isCancelling) return true;
      this.#handBack(turn);
      return false;
    });
  }

  /** Gates that hang hold up a dispatch once, and for a bounded time. */
  async #tellGates(keyHashes: string[], workspaceIds: string[]): Promise<void> {
    const told = this.#tools.tellGates(keyHashes, workspaceIds).then(() => true);
    if (!this.#waitsForGates) return;
    const timeout = this.#tools.sleep(GATES_TIMEOUT_MS).then(() => false);
    this.#waitsForGates = await Promise.race([told, timeout]);
  }

  #handBack({ found, held }: Turn): void {
    if (found) this.#tools.ended({ found, held });
  }
}

import {
  CLAIM_AHEAD,
  CLAIM_MAX,
  CLAIM_SLOW_MAX,
  DISPATCH_MAX_MS,
  DNS_BEFORE_POST_MS,
  FREE_PLAN,
  GATES_TIMEOUT_MS,
  POST_LOST_MS,
  POST_TIMEOUT_MS,
  POSTS_AT_ONCE,
  SETTLE_AFTER_MS,
  SETTLE_IDLE_AFTER_MS,
  SPENT_RELEASES_MS,
  STUCK_MS,
} from "../../contract/limits.ts";
import { commit, type Database } from "../../db/client.ts";
import { logError } from "../../log.ts";
import { isTooLong } from "../bodies.ts";
import { InvocationLimit } from "../outcome.ts";
import type { Lane } from "../pace.ts";
import { type Hold, holdFrom } from "./holds.ts";
import { type Claimed, exchange, findEvent } from "./settle-and-claim.ts";
import { type DispatchTools, EventErased } from "./tools.ts";
import { nextTurn, type Target, Turn } from "./turn.ts";

/**
 * Delivers what is due to the subscriptions. It takes hold of them and posts to all of them
 * concurrently. Each round trip to the database records outcomes and claims more, until nothing is
 * due or time runs out.
 *
 * @param lane subscriptions of the other lane are left alone.
 * @param connections how many requests it may have in progress.
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
  return new Dispatch(db, subscriptionIds, lane, tools, connections).finish();
}

const TICK_MS = 100;
/** When the last post of a dispatch has ended, at the latest. */
const LAST_END_MS = DISPATCH_MAX_MS + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS;

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
  #lastBegunAt: number;
  readonly #startedAt: number;
  readonly #steadyStart = performance.now();

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
    this.#turns = subscriptionIds.map((id) => new Turn(id, lane));
    this.#startedAt = this.#lastEndAt = this.#lastBegunAt = tools.now();
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
    const hung = Math.abs(now - this.#startedAt) > LAST_END_MS + POST_LOST_MS;
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
      if (late || spent || (stuck && turn.underWay === 0) || !turn.isHeld(now)) turn.letGo();
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
      const turn = nextTurn(this.#turns, now, this.#postsMax);
      if (!turn?.found) return;
      if (++this.#posts === 1) this.#lastEndAt = now;
      this.#lastBegunAt = now;
      const delivery = turn.begin();
      const work = isTooLong(delivery.event)
        ? this.#readBody(turn, delivery, turn.found)
        : this.#post(turn, delivery, turn.found);
      work.finally(() => {
        this.#posts--;
        this.#lastEndAt = this.#tools.now();
        this.#advance();
      });
    }
  }

  /** How many posts may be in progress: one connection is kept free while there are several turns. */
  get #postsMax(): number {
    return Math.max(1, this.#turns.length > 1 ? this.#connections - 1 : this.#connections);
  }

  /**
   * Reads what was too long to be claimed with its delivery, which then waits for its post again: the
   * read may take long, and the post starts only while it is confirmed.
   */
  async #readBody(turn: Turn, delivery: Claimed, { workspaceId }: Target): Promise<void> {
    try {
      const event = await findEvent(this.#db, workspaceId, delivery.eventId);
      if (event === null) return turn.drop(delivery);
      delivery.event = event;
      turn.takeBack(delivery);
    } catch (error) {
      const { eventId, subscriptionId } = delivery;
      logError("attempt_impossible", error, { delivery: eventId, subscription: subscriptionId });
      turn.giveUp(delivery, this.#tools.now());
    }
  }

  async #post(turn: Turn, delivery: Claimed, target: Target): Promise<void> {
    const { now, random, attempt } = this.#tools;
    const startedAt = now();
    this.#begun++;
    try {
      const outcome = await attempt(delivery, target);
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
  }

  #needsRoundTrip(now: number): boolean {
    if (this.#failure !== null) return false;
    const idle = this.#posts === 0;
    // Summed over all turns: with many, each has few deliveries and would ask for more after nearly
    // every post.
    const waiting = this.#turns.reduce((sum, turn) => sum + turn.waiting, 0);
    const unrecorded = this.#turns.reduce((sum, turn) => sum + turn.unrecorded, 0);
    const ageMs = unrecorded === 0 ? 0 : now - (this.#unrecordedSince ?? now);
    if (this.#isSpent && !idle && ageMs < POST_TIMEOUT_MS) {
      const releaseMs = SPENT_RELEASES_MS[this.#roundTrips - FREE_PLAN.roundTrips];
      if (releaseMs === undefined || now - this.#lastBegunAt < releaseMs) return false;
      return this.#turns.some((turn) => turn.hasNews && turn.isOver);
    }
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
          (this.#posts < this.#postsMax && turn.wantsToPost(now) && !turn.isConfirmed(now)),
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

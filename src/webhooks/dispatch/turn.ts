import {
  CLAIM_AHEAD,
  CONFIRMED_MS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  DNS_BEFORE_POST_MS,
  POST_TIMEOUT_MS,
  POSTS_PER_WORKSPACE,
  UNTRIED_WAIT_MS,
} from "../../contract/limits.ts";
import type { LastAttempt } from "../../db/schema.ts";
import type { Outcome } from "../outcome.ts";
import { type Lane, laneOf, type Pace } from "../pace.ts";
import type { Hold, Request } from "./holds.ts";
import type { Change, Settlement } from "./outcomes.ts";
import { type Attempt, adjustPace, judge } from "./policy.ts";
import type { Claimed, Found } from "./settle-and-claim.ts";

/** What is needed to post a delivery. */
export type Target = Pick<
  Found,
  "workspaceId" | "dataKey" | "url" | "sealedSecret" | "earlierSecrets"
>;

/** One subscription's turn in a dispatch: its claimed deliveries and their outcomes. */
export class Turn {
  readonly subscriptionId: string;
  /** As the last round trip found it, updated by the attempts since; null before the first. */
  found: Found | null = null;
  /** Posts started in this dispatch. */
  begun = 0;
  /** Whether to stop claiming and posting: it was withdrawn, or it must make room for others. */
  over = false;
  /** Whether anything was claimed in this dispatch. */
  held = false;
  /** Whether the dispatch holds the subscription, as far as it knows. */
  #holds = false;
  #waiting: Claimed[] = [];
  #underWay = new Set<Claimed>();
  #settlements: Settlement[] = [];
  /** The last outcome that was not a success. */
  #last: Outcome | null = null;
  #lastAttempt: LastAttempt | null = null;
  #changed = false;
  /** Whether the last round trip was asked to claim more. */
  #asked = false;
  /** Whether more was due than was claimed. */
  #more = false;
  #heldUntil = 0;
  /** When the database last confirmed that its deliveries are still owed. */
  #confirmedAt = Number.NEGATIVE_INFINITY;
  readonly #lane: Lane;

  constructor(subscriptionId: string, lane: Lane) {
    this.subscriptionId = subscriptionId;
    this.#lane = lane;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  get underWay(): number {
    return this.#underWay.size;
  }

  get unrecorded(): number {
    return this.#settlements.length;
  }

  /** Whether its pace allows another post. It must also be confirmed and held. */
  wantsToPost(now: number): boolean {
    return (
      !this.over &&
      this.#waiting.length > 0 &&
      this.found !== null &&
      this.#underWay.size < this.found.postsAtOnce &&
      now >= this.found.nextAt
    );
  }

  /** Whether the last round trip is recent enough for a post to start. */
  isConfirmed(now: number): boolean {
    return now >= this.#confirmedAt && now - this.#confirmedAt < CONFIRMED_MS;
  }

  /** Whether a post that starts now would end before the hold does. */
  isHeld(now: number): boolean {
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS < this.#heldUntil;
  }

  /** Whether the next round trip may claim more. */
  get claims(): boolean {
    return !this.over && this.#waiting.length < (this.#lane === "fast" ? CLAIM_AHEAD : 1);
  }

  /** Whether more is known to be due and little is left to post. */
  get isHungry(): boolean {
    return this.#more && this.claims;
  }

  /** Whether there is anything to record. */
  get hasNews(): boolean {
    return this.#settlements.length > 0 || this.#changed || this.#isDone;
  }

  /** Whether nothing is waiting or in progress. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#underWay.size === 0;
  }

  /** Whether the turn is over and its last post has ended. */
  get isOver(): boolean {
    return this.over && this.#underWay.size === 0;
  }

  /** Whether the next round trip can cancel its withdrawn deliveries. */
  get isCancelling(): boolean {
    return this.found?.cancelling === true && this.found.heldUntil === null && this.isIdle;
  }

  /** Whether the subscription is held for nothing, unless more is due. */
  get #isDone(): boolean {
    return this.#holds && this.isIdle;
  }

  /** Takes the next delivery; it counts as in progress from now on. */
  begin(): Claimed {
    const delivery = this.#waiting.shift();
    if (!delivery) throw new Error("nothing is waiting");
    this.#underWay.add(delivery);
    this.begun++;
    return delivery;
  }

  /** Records how a post ended. */
  end(delivery: Claimed, attempt: Attempt, random: number): void {
    const { outcome, startedAt, endedAt } = attempt;
    const status = statusOf(outcome);
    const durationMs = Math.max(0, endedAt - startedAt);
    const { subscriptionId, eventId, attempts } = delivery;
    this.#underWay.delete(delivery);
    const verdict = judge(outcome, attempts + 1, random);
    const pending = verdict.state === "pending";
    this.#settlements.push({
      subscriptionId,
      eventId,
      attempts,
      state: verdict.state,
      dueAt: pending ? endedAt + verdict.waitMs : endedAt,
      outcome: outcome.kind,
      status,
      startedAt,
      durationMs,
      settledAt: pending ? null : endedAt,
    });
    this.#lastAttempt = { at: startedAt, outcome: outcome.kind, status, durationMs };
    if (verdict.state !== "delivered") this.#last = outcome;
    if (this.found) this.#setPace(adjustPace(this.found, attempt, random));
  }

  /** Records that a post could not be made, through no fault of the subscriber. */
  giveUp(delivery: Claimed, now: number): void {
    this.takeBack(delivery);
    this.letGo();
    if (!this.found) return;
    this.#setPace({ ...this.found, nextAt: Math.max(this.found.nextAt, now + UNTRIED_WAIT_MS) });
  }

  /** Puts back a delivery whose post was not started after all, unless the turn is over. */
  takeBack(delivery: Claimed): void {
    this.#underWay.delete(delivery);
    this.begun--;
    const isOwed = delivery.generation === this.found?.generation;
    if (!this.over && isOwed) this.#waiting.unshift(delivery);
  }

  /** Drops a delivery whose event no longer exists. */
  drop(delivery: Claimed): void {
    this.#underWay.delete(delivery);
  }

  /** Ends the turn; waiting deliveries are left for the next dispatch. */
  letGo(): void {
    this.over = true;
    this.#waiting = [];
  }

  #setPace(pace: Pace): void {
    if (!this.found || isSamePace(this.found, pace)) return;
    Object.assign(this.found, pace);
    this.#changed = true;
    // Its old lane must not post to it any more, and a probe is a single post.
    if (laneOf(pace) !== this.#lane || pace.nextAt > 0) this.letGo();
  }

  /** Takes the outcomes that the next round trip records. */
  takeSettlements(): Settlement[] {
    return this.#settlements.splice(0);
  }

  /** Puts back what a round trip failed to record. */
  restore(settlements: Settlement[], change: Change | null): void {
    this.#settlements.unshift(...settlements);
    this.#changed ||= change?.learnt === true;
  }

  /**
   * Takes the changes to the subscription that the next round trip records; null if there are none.
   *
   * @param now Unix milliseconds.
   */
  takeChange(now: number): Change | null {
    const { found } = this;
    // A subscription that is gone, or that another dispatch has taken, has nothing to record.
    if (!found || !this.#holds) this.#changed = false;
    const learnt = this.#changed;
    const release = this.#isDone;
    if (!found || (!learnt && !release)) return null;
    this.#changed = false;
    const { failures, failingSince, generation } = found;
    const failing = failingSince !== null && failures >= DISABLE_AFTER_FAILURES;
    return {
      subscriptionId: this.subscriptionId,
      generation,
      learnt,
      release,
      ...paceOf(found),
      // Only after a failed attempt, because the e-mail mentions it.
      disable: learnt && this.#last !== null && failing && failingSince <= now - DISABLE_AFTER_MS,
      host: new URL(found.url).host,
      outcome: this.#last?.kind ?? null,
      status: this.#last ? statusOf(this.#last) : null,
      last: learnt ? this.#lastAttempt : null,
    };
  }

  /** Makes the next round trip's request, and remembers whether it claims more. */
  takeRequest(): Request {
    const underWay = [...this.#waiting, ...this.#underWay].map(({ eventId }) => eventId);
    this.#asked = this.claims;
    return { subscriptionId: this.subscriptionId, claim: this.#asked, underWay };
  }

  /**
   * Applies what a round trip found.
   *
   * @param limit maximum number of deliveries it was to claim.
   * @param askedAt when it started: its findings were true then.
   */
  update(
    found: Found | undefined,
    claimed: Claimed[],
    limit: number,
    hold: Hold,
    askedAt: number,
  ): void {
    if (!found) {
      this.found = null;
      this.letGo();
      // There is no row left to record it in.
      this.#holds = false;
      this.#changed = false;
      return;
    }
    const pace = this.#changed && this.found ? paceOf(this.found) : null;
    this.found = found;
    // Attempts that ended during the round trip know more than the database.
    if (pace) Object.assign(found, pace);
    // While backing off, one probe at a time: its outcome decides what comes next.
    if (this.#asked) this.#more = claimed.length >= limit && found.backoff === 0;
    if (found.claimed) {
      this.held = true;
      this.#heldUntil = hold.until;
      const most = found.backoff > 0 ? 1 : claimed.length;
      this.#waiting.push(...claimed.slice(0, most));
      if (this.over) this.letGo();
    }
    // Another dispatch has it. One that this round trip released has nothing left to post anyway.
    if (this.#holds && !found.held && !this.isIdle) this.letGo();
    this.#holds = found.held;
    this.#confirmedAt = askedAt;
    // Withdrawn deliveries are not posted; they are cancelled once nobody holds them.
    const erased = new Set(found.erased);
    this.#waiting = this.#waiting.filter(
      ({ eventId, generation }) => !erased.has(eventId) && generation === found.generation,
    );
    if (!found.owed) this.letGo();
  }
}

/**
 * The turn that posts next: the one with the fewest posts started, in order. Every subscription
 * gets its first post before any gets a second. If several workspaces are served, each is limited
 * to its share of the connections.
 *
 * @param postsMax maximum number of posts in progress.
 */
export function nextTurn(turns: Turn[], now: number, postsMax: number): Turn | null {
  const used = new Map<string, number>();
  let underWay = 0;
  for (const { found, underWay: own } of turns) {
    underWay += own;
    if (found) used.set(found.workspaceId, (used.get(found.workspaceId) ?? 0) + own);
  }
  if (underWay >= postsMax) return null;
  const share = used.size > 1 ? POSTS_PER_WORKSPACE : postsMax;
  let next: Turn | null = null;
  for (const turn of turns) {
    if (!turn.wantsToPost(now) || !turn.isConfirmed(now) || !turn.isHeld(now)) continue;
    if ((used.get(turn.found?.workspaceId ?? "") ?? 0) >= share) continue;
    if (!next || turn.begun < next.begun) next = turn;
  }
  return next;
}

/** The pace fields alone. */
function paceOf({ postsAtOnce, backoff, nextAt, slow, failures, failingSince }: Pace): Pace {
  return { postsAtOnce, backoff, nextAt, slow, failures, failingSince };
}

function isSamePace(a: Pace, b: Pace): boolean {
  return (Object.keys(paceOf(a)) as (keyof Pace)[]).every((key) => a[key] === b[key]);
}

function statusOf(outcome: Outcome): number | null {
  return outcome.kind === "answered" ? outcome.status : null;
}

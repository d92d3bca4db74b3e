import {
  CLAIM_AHEAD,
  CONFIRMED_MS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  DNS_BEFORE_POST_MS,
  POST_TIMEOUT_MS,
  POSTS_AT_ONCE,
  POSTS_PER_WORKSPACE,
  UNTRIED_WAIT_MS,
} from "../contract/limits.ts";
import { type Lane, laneOf, type Pace } from "../contract/pace.ts";
import type { LastAttempt } from "../db/schema.ts";
import type { Claimed, Found } from "../model/deliveries.ts";
import type { Hold, Request } from "../model/holds.ts";
import type { Change, Settlement } from "../model/outcomes.ts";
import type { Outcome } from "../webhooks/outcome.ts";
import { type Attempt, adjustPace, judge } from "./policy.ts";

/** What a delivery is posted with. */
export type Target = Pick<Found, "workspaceId" | "url" | "sealedSecret" | "earlierSecrets">;

/** A subscription's part in a dispatch: what was claimed of it, and what has come of that. */
export class Turn {
  readonly subscriptionId: string;
  /** As the last round trip found it, and as the attempts since have left it; null until then. */
  found: Found | null = null;
  /** Posts begun in this dispatch. */
  begun = 0;
  /** Whether no more is to be claimed or posted: it is withdrawn, or somebody else's turn has come. */
  over = false;
  /** Whether anything was claimed in this dispatch. */
  held = false;
  #waiting: Claimed[] = [];
  #underWay = new Set<Claimed>();
  #settlements: Settlement[] = [];
  /** The last outcome that was a failure. */
  #last: Outcome | null = null;
  #lastAttempt: LastAttempt | null = null;
  #changed = false;
  /** Whether deliveries were claimed that are left to the next dispatch. */
  #leftover = false;
  /** Whether the last round trip was to claim more. */
  #asked = false;
  /** Whether there was more to claim than was claimed. */
  #more = false;
  #heldUntil = 0;
  /** When the database last said that it is still owed. */
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

  /** Whether it has something to post at its pace; it may post once it is confirmed and held, too. */
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

  /** Whether a post that starts now ends under the hold. */
  isHeld(now: number): boolean {
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS < this.#heldUntil;
  }

  /** Whether the next round trip may claim more. */
  get claims(): boolean {
    return !this.over && this.#waiting.length < (this.#lane === "fast" ? CLAIM_AHEAD : 1);
  }

  /** Whether more is known to be due, and little is left to post. */
  get isHungry(): boolean {
    return this.#more && this.claims;
  }

  /** Whether there is something to record. */
  get hasNews(): boolean {
    return this.#settlements.length > 0 || this.#changed || this.#mayLetGo;
  }

  /** Whether nothing of it is waiting or under way. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#underWay.size === 0;
  }

  /** Whether it has ended, and the last of its posts too. */
  get isOver(): boolean {
    return this.over && this.#underWay.size === 0;
  }

  /** Whether the next round trip can cancel what of it is withdrawn. */
  get isCancelling(): boolean {
    return this.found?.cancelling === true && this.found.heldUntil === null && this.isIdle;
  }

  get #mayLetGo(): boolean {
    return this.isOver && this.#leftover;
  }

  /** The next delivery, which is under way from now on. */
  begin(): Claimed {
    const delivery = this.#waiting.shift();
    if (!delivery) throw new Error("nothing is waiting");
    this.#underWay.add(delivery);
    this.begun++;
    return delivery;
  }

  /** Takes note of how a post ended. */
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

  /** Takes note that a post could not be tried, through no fault of the subscriber. */
  giveUp(delivery: Claimed, now: number): void {
    this.takeBack(delivery);
    this.letGo();
    if (!this.found) return;
    this.#setPace({ ...this.found, nextAt: Math.max(this.found.nextAt, now + UNTRIED_WAIT_MS) });
  }

  /** Takes back a post that was not begun after all. */
  takeBack(delivery: Claimed): void {
    this.#underWay.delete(delivery);
    this.#waiting.unshift(delivery);
  }

  /** Takes note that there is nothing to post any more. */
  drop(delivery: Claimed): void {
    this.#underWay.delete(delivery);
  }

  /** Ends the turn: what is waiting is left to the next dispatch. */
  letGo(): void {
    this.over = true;
    this.#leftover ||= this.#waiting.length > 0;
    this.#waiting = [];
  }

  #setPace(pace: Pace): void {
    if (!this.found || isSamePace(this.found, pace)) return;
    Object.assign(this.found, pace);
    this.#changed = true;
    // The lane that it has left posts no more to it, and a probe is one post.
    if (laneOf(pace) !== this.#lane || pace.nextAt > 0) this.letGo();
  }

  /** What the next round trip is to record. */
  takeSettlements(): Settlement[] {
    return this.#settlements.splice(0);
  }

  /** Puts back what a round trip could not record. */
  restore(settlements: Settlement[], change: Change | null): void {
    this.#settlements.unshift(...settlements);
    this.#changed ||= change !== null;
    this.#leftover ||= change?.letGo === true;
  }

  /**
   * What the next round trip is to say of the subscription; null when there is nothing new.
   *
   * @param now Unix milliseconds.
   */
  takeChange(now: number): Change | null {
    // Of a subscription that is gone, there is nothing to say and nothing to let go of.
    if (!this.found || !this.held) {
      this.#changed = this.#leftover = false;
      return null;
    }
    const letGo = this.#mayLetGo;
    if (!this.#changed && !letGo) return null;
    this.#changed = false;
    if (letGo) this.#leftover = false;
    const { failures, failingSince } = this.found;
    const failing = failingSince !== null && failures >= DISABLE_AFTER_FAILURES;
    return {
      subscriptionId: this.subscriptionId,
      ...paceOf(this.found),
      // By an attempt that failed: the e-mail tells of it.
      disable: this.#last !== null && failing && failingSince <= now - DISABLE_AFTER_MS,
      host: new URL(this.found.url).host,
      outcome: this.#last?.kind ?? null,
      status: this.#last ? statusOf(this.#last) : null,
      last: this.#lastAttempt,
      letGo,
    };
  }

  /** What the next round trip is to ask. */
  request(): Request {
    const underWay = [...this.#waiting, ...this.#underWay].map(({ eventId }) => eventId);
    this.#asked = this.claims;
    return { subscriptionId: this.subscriptionId, claim: this.#asked, underWay };
  }

  /**
   * Takes in what a round trip found.
   *
   * @param limit what was to be claimed, at the most.
   * @param askedAt when it was begun: what it says held then.
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
      // There is nobody to record it for.
      this.#leftover = false;
      this.#changed = false;
      return;
    }
    const pace = this.#changed && this.found ? paceOf(this.found) : null;
    this.found = found;
    // Attempts that ended meanwhile have said more than the database knows.
    if (pace) Object.assign(found, pace);
    // What comes after a probe depends on it.
    if (this.#asked) this.#more = claimed.length >= limit && found.backoff === 0;
    if (found.claimed) {
      this.held = true;
      this.#heldUntil = hold.until;
      const most = found.backoff > 0 ? 1 : claimed.length;
      this.#waiting.push(...claimed.slice(0, most));
      this.#leftover ||= claimed.length > most;
      if (this.over) this.letGo();
    }
    if (this.held && !found.held) this.letGo();
    this.#confirmedAt = askedAt;
    // What was withdrawn since is not posted; it is cancelled once nobody holds it.
    const erased = new Set(found.erased);
    const kept = this.#waiting.filter(({ eventId }) => !erased.has(eventId));
    const owed = kept.filter(({ generation }) => generation === found.generation);
    this.#leftover ||= owed.length < kept.length;
    this.#waiting = owed;
    if (!found.owed) this.letGo();
  }
}

/**
 * The turn whose post is next: of those that have begun the fewest, the first that may. Every
 * subscription's first post comes before anybody's second, and where several workspaces are served,
 * none uses more than its share of the connections.
 */
export function nextTurn(turns: Turn[], now: number): Turn | null {
  const used = new Map<string, number>();
  let underWay = 0;
  for (const { found, underWay: own } of turns) {
    underWay += own;
    if (found) used.set(found.workspaceId, (used.get(found.workspaceId) ?? 0) + own);
  }
  if (underWay >= POSTS_AT_ONCE) return null;
  const share = used.size > 1 ? POSTS_PER_WORKSPACE : POSTS_AT_ONCE;
  let next: Turn | null = null;
  for (const turn of turns) {
    if (!turn.wantsToPost(now) || !turn.isConfirmed(now) || !turn.isHeld(now)) continue;
    if ((used.get(turn.found?.workspaceId ?? "") ?? 0) >= share) continue;
    if (!next || turn.begun < next.begun) next = turn;
  }
  return next;
}

/** The pace alone, of what holds more. */
function paceOf({ postsAtOnce, backoff, nextAt, slow, failures, failingSince }: Pace): Pace {
  return { postsAtOnce, backoff, nextAt, slow, failures, failingSince };
}

function isSamePace(a: Pace, b: Pace): boolean {
  return (Object.keys(paceOf(a)) as (keyof Pace)[]).every((key) => a[key] === b[key]);
}

function statusOf(outcome: Outcome): number | null {
  return outcome.kind === "answered" ? outcome.status : null;
}

import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  POST_TIMEOUT_MS,
} from "../../contract/limits.ts";
import type { LastAttempt } from "../../db/schema.ts";
import { NO_EXCHANGE } from "../exchange.ts";
import { statusOf } from "../outcome.ts";
import { DNS_BEFORE_POST_MS } from "../resolve.ts";
import type { ClaimRequest, Lease } from "./lease.ts";
import { type Attempt, adjustPace, decide, type Lane, laneOf, type Pace } from "./policy.ts";
import type { Change, Settlement } from "./settle.ts";
import type { Claimed, Snapshot } from "./settle-and-claim.ts";

/** More is claimed when fewer than this are waiting: enough to post while a round trip is made. */
export const CLAIM_AHEAD = 60;
/** A post starts at most this long after the database was asked whether it is still owed. */
const CONFIRMED_MS = 1_500;
/** Wait of a subscription that could not be posted to through no fault of its own. */
const UNTRIED_WAIT_MS = 300_000;
/** How many connections one workspace may use while others are waiting. */
const POSTS_PER_WORKSPACE = 3;

/** What is needed to post a delivery. */
export type Target = Pick<
  Snapshot,
  "workspaceId" | "dataKey" | "url" | "sealedSecret" | "earlierSecrets"
>;

/** How a post ended. */
type Finish = Omit<Attempt, "type">;

/** What one round trip records of a pipeline and asks for it. */
export interface Flushed {
  request: ClaimRequest;
  settlements: Settlement[];
  change: Change | null;
}

/**
 * One subscription in a dispatch. Its deliveries are claimed and wait, are posted, and are settled
 * until the next round trip records that.
 */
export class Pipeline {
  readonly subscriptionId: string;
  /**
   * As the last round trip found it, with the pace as changed since; null before the first, and once it
   * does not exist.
   */
  subscription: Snapshot | null = null;
  /** Posts started in this dispatch. */
  started = 0;
  /** It claims and posts nothing more, and gives up its lease when its posts have ended. */
  isReleasing = false;
  /** Whether this dispatch has leased the subscription at any time. */
  wasLeased = false;
  #waiting: Claimed[] = [];
  #inFlight = new Set<Claimed>();
  #settlements: Settlement[] = [];
  #lastAttempt: LastAttempt | null = null;
  /** Whether its pace has changed since the last round trip. */
  #paceChanged = false;
  /** Whether more was due than was claimed. */
  #moreIsDue = false;
  #leasedUntil = 0;
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

  get inFlight(): number {
    return this.#inFlight.size;
  }

  get unrecorded(): number {
    return this.#settlements.length;
  }

  /** When its oldest unrecorded attempt ended; infinity if all are recorded. */
  get unrecordedSince(): number {
    const [oldest] = this.#settlements;
    return oldest ? oldest.startedAt + oldest.durationMs : Number.POSITIVE_INFINITY;
  }

  /** Whether nothing is waiting or in flight. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#inFlight.size === 0;
  }

  /** Whether the next round trip may claim more. */
  get canClaim(): boolean {
    return !this.isReleasing && this.#waiting.length < (this.#lane === "fast" ? CLAIM_AHEAD : 1);
  }

  /** Whether more is known to be due and little is left to post. */
  get wantsMore(): boolean {
    return this.#moreIsDue && this.canClaim;
  }

  /** Whether the next round trip can clean it up. */
  get canCleanUp(): boolean {
    return (
      this.subscription?.needsCleanup === true &&
      this.subscription.leasedElsewhereUntil === null &&
      this.isIdle
    );
  }

  /** Whether the next round trip has anything to record. */
  get isDirty(): boolean {
    return this.#settlements.length > 0 || this.#paceChanged || this.#canRelease;
  }

  /** Whether its lease can be released, unless more is due. */
  get #canRelease(): boolean {
    return this.subscription?.leased === true && this.isIdle;
  }

  /** Whether its pace allows another post. It must also be confirmed, and leased for long enough. */
  wantsToPost(now: number): boolean {
    return (
      !this.isReleasing &&
      this.#waiting.length > 0 &&
      this.subscription !== null &&
      this.#inFlight.size < this.subscription.postsAtOnce &&
      now >= this.subscription.nextAt
    );
  }

  /** Whether the last round trip is recent enough for a post to start. */
  isConfirmed(now: number): boolean {
    return now >= this.#confirmedAt && now - this.#confirmedAt < CONFIRMED_MS;
  }

  /** Whether a post that starts now ends before the lease does. */
  isLeasedForPost(now: number): boolean {
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS < this.#leasedUntil;
  }

  /** Takes the next delivery; it is in flight from now on. */
  start(): Claimed {
    const delivery = this.#waiting.shift();
    if (!delivery) throw new Error("nothing is waiting");
    this.#inFlight.add(delivery);
    this.started++;
    return delivery;
  }

  /** Settles a delivery that was posted. */
  end(delivery: Claimed, attempt: Finish, random: number, kept = NO_EXCHANGE): void {
    this.settle(delivery, attempt, random, kept);
    if (this.subscription)
      this.#setPace(adjustPace(this.subscription, { ...attempt, type: delivery.type }, random));
  }

  /** Settles a delivery without learning anything about its subscriber. */
  settle(delivery: Claimed, attempt: Finish, random: number, kept = NO_EXCHANGE): void {
    const { outcome, startedAt, endedAt } = attempt;
    const { subscriptionId, eventId, attempts } = delivery;
    this.#inFlight.delete(delivery);
    const decision = decide(outcome, attempts + 1, random);
    const isPending = decision.state === "pending";
    const status = statusOf(outcome);
    const durationMs = Math.max(0, endedAt - startedAt);
    this.#lastAttempt = { at: startedAt, outcome: outcome.kind, status, durationMs };
    this.#settlements.push({
      subscriptionId,
      eventId,
      attempts,
      state: decision.state,
      dueAt: isPending ? endedAt + decision.waitMs : endedAt,
      outcome: outcome.kind,
      status,
      startedAt,
      durationMs,
      settledAt: isPending ? null : endedAt,
      ...kept,
    });
  }

  /** Puts back a delivery that was not posted after all, unless it is released. */
  takeBack(delivery: Claimed): void {
    this.#inFlight.delete(delivery);
    this.started--;
    if (!this.isReleasing) this.#waiting.unshift(delivery);
  }

  /** Drops a delivery whose event no longer exists. */
  drop(delivery: Claimed): void {
    this.#inFlight.delete(delivery);
  }

  /** Puts back a delivery that could not be posted, through no fault of the subscriber's, and waits. */
  postpone(delivery: Claimed, now: number): void {
    this.drop(delivery);
    this.release();
    const { subscription } = this;
    if (!subscription) return;
    this.#setPace({
      ...subscription,
      nextAt: Math.max(subscription.nextAt, now + UNTRIED_WAIT_MS),
    });
  }

  /** Leaves what is waiting to the next dispatch. */
  release(): void {
    this.isReleasing = true;
    this.#waiting = [];
  }

  #setPace(pace: Pace): void {
    if (!this.subscription || isSamePace(this.subscription, pace)) return;
    const wasProbed = this.subscription.backoff > 0;
    Object.assign(this.subscription, pace);
    this.#paceChanged = true;
    // Its old lane must not post to it any more, and a probe is a single post, whatever its outcome.
    if (laneOf(pace) !== this.#lane || pace.nextAt > 0 || wasProbed) this.release();
  }

  /**
   * Takes what the next round trip records, and makes its request.
   *
   * @param now Unix milliseconds.
   */
  flush(now: number): Flushed {
    const inProgress = [...this.#waiting, ...this.#inFlight].map(({ eventId }) => eventId);
    const request = { subscriptionId: this.subscriptionId, claim: this.canClaim, inProgress };
    const canRelease = this.#canRelease;
    const settlements = this.#settlements.splice(0);
    // Nothing is recorded of the pace of a subscription that is gone, or that another dispatch now leases.
    const paceChanged = this.#paceChanged && this.subscription?.leased === true;
    this.#paceChanged = false;
    if (!this.subscription || !(paceChanged || canRelease))
      return { request, settlements, change: null };
    const { failures, failingSince, cancellations, url } = this.subscription;
    const lastFailure = settlements.findLast(
      ({ state, outcome }) => state !== "delivered" && outcome !== "unreadable",
    );
    const isFailing = failures >= DISABLE_AFTER_FAILURES && failingSince !== null;
    const change = {
      subscriptionId: this.subscriptionId,
      cancellations,
      paceChanged,
      release: canRelease,
      ...paceOf(this.subscription),
      // Only after a failed attempt, because the e-mail mentions it.
      disable: paceChanged && !!lastFailure && isFailing && failingSince <= now - DISABLE_AFTER_MS,
      host: new URL(url).host,
      outcome: lastFailure?.outcome ?? null,
      status: lastFailure?.status ?? null,
      last: this.#lastAttempt,
    };
    return { request, settlements, change };
  }

  /** Puts back what a round trip failed to record. */
  restore({ settlements, change }: Flushed): void {
    this.#settlements.unshift(...settlements);
    this.#paceChanged ||= change?.paceChanged === true;
  }

  /**
   * Applies what a round trip found.
   *
   * @param wasAsked whether it was asked to claim, at most `limit` deliveries.
   * @param askedAt when it started: its findings were true then.
   */
  update(
    found: Snapshot | undefined,
    claimed: Claimed[],
    lease: Lease,
    { wasAsked, limit, askedAt }: { wasAsked: boolean; limit: number; askedAt: number },
  ): void {
    const before = this.subscription;
    this.subscription = found ?? null;
    if (!found) {
      this.#paceChanged = false;
      this.release();
      return;
    }
    // Attempts that ended during the round trip know more than the database.
    if (this.#paceChanged && before) Object.assign(found, paceOf(before));
    // While it backs off, it gets one post at a time, whose outcome decides what comes next.
    if (wasAsked) this.#moreIsDue = claimed.length >= limit && found.backoff === 0;
    if (claimed.length > 0) {
      this.wasLeased = true;
      this.#leasedUntil = lease.until;
      this.#waiting.push(...claimed);
    }
    this.#confirmedAt = askedAt;
    const erased = new Set(found.erased);
    this.#waiting = this.#waiting.filter(({ eventId }) => !erased.has(eventId));
    const isVoid = before !== null && before.cancellations !== found.cancellations;
    // If this round trip released the lease, nothing is left to post anyway.
    const isLost = before?.leased === true && !found.leased && !this.isIdle;
    if (this.isReleasing || !found.mayPost || isVoid || isLost) this.release();
  }
}

/**
 * The pipeline that posts next: the one with the fewest posts started, in order. Every subscription
 * gets its first post before any gets a second. If several workspaces are served, each is limited
 * to its share of the connections.
 *
 * @param postsMax maximum number of posts in flight.
 */
export function nextPipeline(
  pipelines: Pipeline[],
  now: number,
  postsMax: number,
): Pipeline | null {
  const used = new Map<string, number>();
  let inFlight = 0;
  for (const { subscription, inFlight: own } of pipelines) {
    inFlight += own;
    if (subscription)
      used.set(subscription.workspaceId, (used.get(subscription.workspaceId) ?? 0) + own);
  }
  if (inFlight >= postsMax) return null;
  const share = used.size > 1 ? POSTS_PER_WORKSPACE : postsMax;
  let next: Pipeline | null = null;
  for (const one of pipelines) {
    if (!one.wantsToPost(now) || !one.isConfirmed(now) || !one.isLeasedForPost(now)) continue;
    if ((used.get(one.subscription?.workspaceId ?? "") ?? 0) >= share) continue;
    if (!next || one.started < next.started) next = one;
  }
  return next;
}

/** The pace fields alone. */
function paceOf({
  postsAtOnce,
  backoff,
  nextAt,
  slow,
  failures,
  failingSince,
  rejections,
}: Pace): Pace {
  return { postsAtOnce, backoff, nextAt, slow, failures, failingSince, rejections };
}

function isSamePace(a: Pace, b: Pace): boolean {
  return (Object.keys(paceOf(a)) as (keyof Pace)[]).every((key) => a[key] === b[key]);
}

import { POST_TIMEOUT_MS, RESPONSES_PER_DAY } from "../contract/limits.ts";
import { UnreadableEvent } from "../events/bodies.ts";
import { DNS_BEFORE_POST_MS } from "../subscriptions/resolve.ts";
import { type Connections, type Slot, STUCK_MS } from "./connections.ts";
import { type AttemptOutcome, InvocationLimit, statusOf, succeeded } from "./outcome.ts";
import {
  type Attempt,
  adjustPace,
  chooseNext,
  INITIAL_PACE,
  INITIAL_TYPE_RECORD,
  isDead,
  type Pace,
  type QueueName,
  queueOf,
  recordType,
  reschedule,
  type TypeRecord,
} from "./policy.ts";
import type {
  DueDelivery,
  RecordedOutcome,
  RoundRequest,
  RoundSubscription,
  SubscriptionChange,
} from "./round.ts";
import type { Attempted, Claimed, Target } from "./sender.ts";

/** Maximum time before an outcome is recorded. */
const RECORD_WITHIN_MS = 1_000;
/** How long a round may wait for those of other sessions, so that all are one transaction. */
const ROUND_WAIT_MS = 10;
/** The same, for a session that has nothing more to send. */
const LAST_ROUND_WAIT_MS = 100;
/**
 * How long a round's answer that a subscription is active may be trusted. Deleting or disabling a subscription
 * promises that no request starts more than 2 s after the call has returned, so this is checked last, right
 * before sending; the connection is there by then.
 */
const CONFIRMED_MS = 1_500;
/** How long a subscription is blocked that could not be sent to through no fault of its own. */
const NOT_ATTEMPTED_WAIT_MS = 300_000;

/** What the sessions of a dispatch need from outside. */
export interface DispatchPorts {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  /**
   * Gets deliveries ready to be sent.
   *
   * @param targets those of their subscriptions, by id.
   * @param now Unix milliseconds: the targets were read then, or later.
   */
  prepare(
    rows: readonly DueDelivery[],
    targets: ReadonlyMap<string, Target>,
    now: number,
  ): Claimed[];
  /**
   * Makes one attempt.
   *
   * @throws InvocationLimit if this invocation may not make more requests; UnreadableEvent if only this
   *   event cannot be sent; anything else if the attempt could not be made, through no fault of the
   *   subscriber.
   */
  attempt(delivery: Claimed, target: Target): Promise<Attempted>;
  /** Takes a subscription that has been served; `sendsWakeUp` says whether it needs a delayed message. */
  finished(subscription: RoundSubscription, needsWakeUp: boolean): void;
}

/** What the sessions of a dispatch share. */
export interface Dispatch {
  queue: QueueName;
  ports: DispatchPorts;
  connections: Connections;
  /** Makes a round, with those of other sessions that ask within `withinMs`. */
  round(request: RoundRequest, withinMs: number): Promise<RoundAnswer>;
  /** Whether requests may still start. */
  hasTime(): boolean;
}

/** What a round answers to one session. */
export interface RoundAnswer {
  subscription: RoundSubscription | null;
  /** Deliveries that are due; while requests are spaced, the candidates for the next one. */
  due: Claimed[];
  /** Those among them that must not be sent. */
  withdrawn: DueDelivery[];
  /** How many might have been claimed. */
  limit: number;
  /** Whether a delayed wake-up message must be sent. */
  needsWakeUp: boolean;
  /** When the round was asked for: what it says was true then, or became so later. */
  askedAt: number;
}

/**
 * Sends one subscription what is due, in turns of two: a round with the database, which records outcomes, claims
 * what is due and keeps or releases the lease; then requests, until another round is due. It ends when nothing is
 * due, its pace says wait, or time is up.
 *
 * If the process dies, or a round fails, outcomes that are not recorded are lost: these deliveries are sent again
 * once the lease has ended.
 */
export class DeliverySession {
  readonly #subscriptionId: string;
  readonly #dispatch: Dispatch;
  /** As the last round found it; null before the first, and once it does not exist. */
  #subscription: RoundSubscription | null = null;
  #pace: Pace = INITIAL_PACE;
  #types: TypeRecord = INITIAL_TYPE_RECORD;
  /** Incremented with each attempt that ends. */
  #paceVersion = 0;
  /** Whether the last attempt failed, and the subscription has failed for too long. */
  #isDead = false;
  /** Claimed, and not sent yet. */
  #waiting: Claimed[] = [];
  readonly #inFlight = new Set<Claimed>();
  /** Outcomes that are not recorded yet. */
  #outcomes: RecordedOutcome[] = [];
  /** Whether more was due than was claimed. */
  #moreIsDue = false;
  /** Whether it claims and sends nothing more. */
  #isStopped = false;
  #confirmedAt = 0;
  #needsWakeUp = false;
  /** Its place among those who wait for a connection, or the connection. */
  #slot: Slot | null = null;
  #notify = () => {};

  constructor(subscriptionId: string, dispatch: Dispatch) {
    this.#subscriptionId = subscriptionId;
    this.#dispatch = dispatch;
  }

  /** @throws the database's error if a round failed. */
  async run(): Promise<void> {
    try {
      do {
        await this.#makeRound();
        await this.#sendUntilRoundIsDue();
      } while (!this.#isOver());
    } finally {
      this.#leaveConnections();
    }
    if (this.#subscription) this.#dispatch.ports.finished(this.#subscription, this.#needsWakeUp);
  }

  async #makeRound(): Promise<void> {
    const { round, hasTime } = this.#dispatch;
    const request = this.#requestRound(hasTime());
    const version = this.#paceVersion;
    const isLast = this.#isIdle() && !this.#moreIsDue;
    const answer = await round(request, isLast ? LAST_ROUND_WAIT_MS : ROUND_WAIT_MS);
    this.#outcomes.splice(0, request.outcomes.length);
    this.#applyRound(answer, request.claim, version);
  }

  #requestRound(mayClaim: boolean): RoundRequest {
    const claimed = [...this.#waiting, ...this.#inFlight];
    return {
      subscriptionId: this.#subscriptionId,
      claim: mayClaim && !this.#isStopped && this.#waiting.length === 0,
      inProgress: claimed.map(({ eventId }) => eventId),
      outcomes: [...this.#outcomes],
      change: this.#subscription?.leasedUntil ? this.#changeOf(this.#subscription) : null,
      cancel: this.#subscription?.cancelling === true,
    };
  }

  /** What has changed about a subscription that is leased; null if nothing has, and the lease is kept. */
  #changeOf(stored: RoundSubscription): SubscriptionChange | null {
    const pace = this.#pace;
    const paceChanged = !isSame(pace, this.#types, stored);
    // Released, unless the round finds more to claim.
    const release = this.#isIdle();
    if (!paceChanged && !release) return null;
    const last = this.#outcomes.findLast(({ outcome }) => outcome !== null);
    return {
      ...pace,
      ...this.#types,
      subscriptionId: this.#subscriptionId,
      cancelEpoch: stored.cancelEpoch,
      url: stored.url,
      paceChanged,
      failingSince: pace.streak?.startedAt ?? null,
      failures: pace.streak?.attempts ?? 0,
      disable: paceChanged && this.#isDead,
      last: last
        ? {
            at: last.startedAt,
            outcome: last.outcome as string,
            status: last.status,
            durationMs: last.durationMs,
          }
        : null,
      release,
    };
  }

  #applyRound(answer: RoundAnswer, hasClaimed: boolean, version: number): void {
    const before = this.#subscription;
    const { subscription: found } = answer;
    this.#subscription = found;
    this.#confirmedAt = answer.askedAt;
    this.#needsWakeUp = answer.needsWakeUp;
    if (!found) {
      this.#stop();
      return;
    }
    const wasCancelled = before !== null && before.cancelEpoch !== found.cancelEpoch;
    const isElsewhere = before !== null && before.url !== found.url;
    // If attempts ended during the round, the pace in memory is newer; but not than a cancellation or a new URL.
    if (this.#paceVersion === version || wasCancelled || isElsewhere) {
      this.#pace = paceOf(found);
      this.#types = { rejections: found.rejections, acceptedTypes: found.acceptedTypes };
      this.#isDead = false;
    }
    if (hasClaimed) {
      const isSpaced = found.blockedUntil > 0;
      // While requests are spaced, the outcome of the one request decides what comes next.
      this.#moreIsDue = !isSpaced && answer.due.length + answer.withdrawn.length >= answer.limit;
      const next = isSpaced ? chooseNext(found, answer.due, answer.askedAt) : undefined;
      this.#waiting.push(...(isSpaced ? (next ? [next] : []) : answer.due));
      for (const delivery of answer.withdrawn) this.#recordWithdrawn(delivery, answer.askedAt);
    }
    const withdrawn = new Set(found.withdrawn);
    this.#waiting = this.#waiting.filter(({ eventId }) => !withdrawn.has(eventId));
    if (this.#isStopped || !found.maySend || wasCancelled) this.#stop();
  }

  /** Sends what is waiting, at its pace, until another round is due. */
  async #sendUntilRoundIsDue(): Promise<void> {
    const { connections, hasTime, ports } = this.#dispatch;
    for (;;) {
      const now = ports.now();
      if (!hasTime() || (this.#waiting.length > 0 && !this.#isLeasedForRequest(now))) this.#stop();
      if (this.#isRoundDue(now)) return;
      if (!this.#subscription || !this.#maySend()) {
        this.#leaveConnections();
        await this.#waitForSignal(this.#untilOutcomesAreDue(now));
        continue;
      }
      const { workspaceId } = this.#subscription;
      if (!this.#slot) this.#slot = connections.queueUp(workspaceId, () => this.#notify());
      else if (this.#slot.isConnected) this.#start(this.#subscription, this.#slot);
      // Another invocation has connections of its own.
      else if (connections.areStuck && this.#inFlight.size === 0) this.#stop();
      else await this.#waitForSignal(STUCK_MS);
    }
  }

  #isRoundDue(now: number): boolean {
    // All that was claimed has ended.
    if (this.#isIdle()) return true;
    // More can be claimed, to be sent while the last requests are in flight.
    if (this.#waiting.length === 0 && this.#moreIsDue) return true;
    // The next delivery may have been cancelled.
    if (this.#maySend() && this.#slot?.isConnected && !this.#isConfirmed(now)) return true;
    return this.#untilOutcomesAreDue(now) === 0;
  }

  #maySend(): boolean {
    return this.#waiting.length > 0 && this.#inFlight.size < this.#pace.concurrency;
  }

  #isConfirmed(now: number): boolean {
    return now >= this.#confirmedAt && now - this.#confirmedAt < CONFIRMED_MS;
  }

  /** Whether a request that starts now ends before the lease does. */
  #isLeasedForRequest(now: number): boolean {
    const { leasedUntil = 0 } = this.#subscription ?? {};
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS < leasedUntil;
  }

  /** Undefined if there are none. */
  #untilOutcomesAreDue(now: number): number | undefined {
    const [oldest] = this.#outcomes;
    return oldest && Math.max(0, oldest.startedAt + oldest.durationMs + RECORD_WITHIN_MS - now);
  }

  /** Whether nothing is waiting or in flight. */
  #isIdle(): boolean {
    return this.#waiting.length === 0 && this.#inFlight.size === 0;
  }

  /** Claims and sends nothing more: the next dispatch sends what is waiting. */
  #stop(): void {
    this.#isStopped = true;
    this.#moreIsDue = false;
    this.#waiting = [];
  }

  /** Resolves when a request ends, when a connection is free, or after `ms`. */
  #waitForSignal(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? null : setTimeout(resolve, ms);
      this.#notify = () => {
        if (timer !== null) clearTimeout(timer);
        resolve();
      };
    });
  }

  #leaveConnections(): void {
    if (this.#slot) this.#dispatch.connections.leave(this.#slot);
    this.#slot = null;
  }

  #start(target: RoundSubscription, slot: Slot): void {
    const delivery = this.#waiting.shift() as Claimed;
    this.#inFlight.add(delivery);
    this.#slot = null;
    this.#send(delivery, target).finally(() => {
      this.#inFlight.delete(delivery);
      this.#dispatch.connections.leave(slot);
      this.#notify();
    });
  }

  async #send(delivery: Claimed, target: RoundSubscription): Promise<void> {
    const { ports } = this.#dispatch;
    const startedAt = ports.now();
    try {
      const outcome = await ports.attempt(delivery, target);
      const attempt = { delivery, outcome, startedAt, endedAt: ports.now() };
      this.#recordOutcome(attempt, (await outcome.kept) ?? null);
      // The outcome says nothing about another server, nor about event types that are still listed.
      const { url, cancelEpoch } = this.#subscription ?? target;
      if (url === target.url && cancelEpoch === target.cancelEpoch) this.#learnFrom(attempt);
    } catch (error) {
      if (error instanceof InvocationLimit) return this.#stop();
      if (error instanceof UnreadableEvent) {
        const outcome: AttemptOutcome = { kind: "unreadable" };
        return this.#recordOutcome({ delivery, outcome, startedAt, endedAt: ports.now() }, null);
      }
      const blockedUntil = Math.max(this.#pace.blockedUntil, ports.now() + NOT_ATTEMPTED_WAIT_MS);
      this.#setPace({ ...this.#pace, blockedUntil });
    }
  }

  /** Adjusts pace and record of the event type; if the pace says wait, or changes the queue, the session stops. */
  #learnFrom(attempt: Attempt): void {
    this.#types = recordType(this.#types, attempt);
    this.#setPace(adjustPace(this.#pace, attempt));
    this.#isDead =
      !succeeded(attempt.outcome) &&
      isDead(this.#pace, this.#types, attempt, this.#subscription?.events ?? []);
  }

  #setPace(pace: Pace): void {
    this.#pace = pace;
    this.#paceVersion++;
    if (queueOf(pace) !== this.#dispatch.queue || pace.blockedUntil > 0) this.#stop();
  }

  #recordOutcome(attempt: Attempt, response: string | null): void {
    const { delivery, outcome, startedAt, endedAt } = attempt;
    const { eventId, type, attempts, priority, dueAt } = delivery;
    this.#outcomes.push({
      ...reschedule(this.#pace, attempt, this.#dispatch.ports.random()),
      subscriptionId: this.#subscriptionId,
      eventId,
      type,
      claimed: { attempts, priority, dueAt },
      outcome: outcome.kind,
      status: statusOf(outcome),
      startedAt,
      durationMs: Math.max(0, endedAt - startedAt),
      response: this.#mayStoreResponse() ? response : null,
    });
  }

  /** Whether the subscription has not used up the responses that are stored for it in a day. */
  #mayStoreResponse(): boolean {
    const unrecorded = this.#outcomes.filter(({ response }) => response !== null).length;
    return (this.#subscription?.storedResponses ?? 0) + unrecorded < RESPONSES_PER_DAY;
  }

  /** Nothing is sent about an automation that was removed. */
  #recordWithdrawn({ eventId, type, attempts, priority, dueAt }: DueDelivery, now: number): void {
    this.#outcomes.push({
      subscriptionId: this.#subscriptionId,
      eventId,
      type,
      claimed: { attempts, priority, dueAt },
      state: "cancelled",
      attempts,
      priority,
      dueAt: now,
      outcome: null,
      status: null,
      startedAt: now,
      durationMs: 0,
      response: null,
    });
  }

  #isOver(): boolean {
    if (!this.#isIdle() || this.#outcomes.length > 0) return false;
    if (!this.#subscription) return true;
    const { leasedUntil, leasedElsewhereUntil, cancelling } = this.#subscription;
    const mayCancel = cancelling && leasedElsewhereUntil === null && this.#dispatch.hasTime();
    return leasedUntil === 0 && !mayCancel;
  }
}

/** The pace alone. */
function paceOf({ concurrency, slow, streak, blockedUntil, retryFailedAt }: Pace): Pace {
  return { concurrency, slow, streak, blockedUntil, retryFailedAt };
}

function isSame(pace: Pace, { rejections, acceptedTypes }: TypeRecord, stored: RoundSubscription) {
  const now = [paceOf(pace), rejections, acceptedTypes];
  const then = [paceOf(stored), stored.rejections, stored.acceptedTypes];
  return JSON.stringify(now) === JSON.stringify(then);
}

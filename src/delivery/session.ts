import { POST_TIMEOUT_MS, RESPONSES_PER_DAY, STOPS_WITHIN_MS } from "../contract/limits.ts";
import { type LastAttempt, PRIORITY } from "../db/schema.ts";
import { DNS_BEFORE_POST_MS } from "../endpoints/resolve.ts";
import { UnreadableEvent } from "../events/bodies.ts";
import { type Connections, type Place, STUCK_MS } from "./connections.ts";
import { nextWakeUp, type WakeUp } from "./messages.ts";
import {
  type AttemptOutcome,
  InvocationLimit,
  type Outcome,
  statusOf,
  succeeded,
} from "./outcome.ts";
import {
  type Attempt,
  adjustPace,
  INITIAL_PACE,
  INITIAL_TYPE_OUTCOMES,
  isDead,
  isSpaced,
  noteTypeOutcome,
  type Pace,
  type PendingDelivery,
  paceColumns,
  type QueueName,
  queueOf,
  reschedule,
  type TypeOutcomes,
} from "./policy.ts";
import type {
  DeliveryChange,
  DueDelivery,
  RoundRequest,
  RoundSubscription,
  SubscriptionChange,
} from "./round.ts";
import type { OutcomeWithResponse, PreparedDelivery, Target } from "./sender.ts";

/**
 * Time from the end of an attempt until the round is requested that records its outcome, unless another round of the
 * session is running then.
 */
const RECORD_WITHIN_MS = 1_000;
/** How long a round waits for those of other sessions, so that they share one transaction. */
const ROUND_WAIT_MS = 10;
/** The same for a session that has nothing more to send, which no delivery waits for. */
const LAST_ROUND_WAIT_MS = 100;
/** How long it may take, besides the DNS look-up, to make a request that has been decided on. */
const REQUEST_MADE_MS = 100;
/**
 * How long the result of a round proves that a subscription is active. No request may start more than
 * `STOPS_WITHIN_MS` after a call that deletes or disables the subscription has returned. So this is checked last,
 * right before sending, once the session has its connection.
 */
const CONFIRMED_MS = STOPS_WITHIN_MS - DNS_BEFORE_POST_MS - REQUEST_MADE_MS;
/** How long a subscription is blocked after an attempt could not be made through no fault of the endpoint. */
const NOT_ATTEMPTED_WAIT_MS = 300_000;

/** Ports (in the sense of ports and adapters) of a dispatch: clock, randomness, requests and messages. */
export interface DispatchPorts {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
  /**
   * Begins to make and sign the bodies of deliveries.
   *
   * @param targets the targets of their subscriptions, by id.
   * @param now the time of the signatures, in Unix milliseconds. The targets were read after it, so that a secret that
   *   was rotated before this time signs.
   */
  prepare(
    rows: readonly DueDelivery[],
    targets: ReadonlyMap<string, Target>,
    now: number,
  ): PreparedDelivery[];
  /**
   * Makes one attempt.
   *
   * @param startedAt Unix milliseconds; the request is signed for this second.
   * @throws InvocationLimit if this invocation may not make more requests; UnreadableEvent if only this
   *   event cannot be sent; anything else if the attempt could not be made through no fault of the endpoint.
   */
  attempt(
    delivery: PreparedDelivery,
    target: Target,
    startedAt: number,
  ): Promise<OutcomeWithResponse>;
  /**
   * Called when the session of a subscription has ended, with the wake-up message to send; null if none must be sent.
   * Tests read the subscription.
   */
  finished(subscription: RoundSubscription, wakeUp: WakeUp | null): void;
}

/** The part of a dispatch that its sessions share. */
export interface Dispatch {
  queue: QueueName;
  ports: DispatchPorts;
  connections: Connections;
  /** Makes a round, together with other sessions that request one within `withinMs`. */
  round(request: RoundRequest, withinMs: number): Promise<RoundResult>;
  /** Whether requests may still start. */
  mayGoOn(): boolean;
}

/** The result of a round for one session. */
export interface RoundResult {
  subscription: RoundSubscription | null;
  /** Due deliveries, prepared for sending; while requests are spaced, the next one at most. */
  prepared: PreparedDelivery[];
  /** Whether more may be due, because the round found as many deliveries as it may claim. */
  mayHaveMore: boolean;
  /** When the delayed wake-up message is to arrive that the round has noted; null if it has noted none. */
  notedWakeAt: number | null;
  /** When the round was requested. The result is at least as recent as that. */
  requestedAt: number;
}

/**
 * Sends the due deliveries of one subscription, in two steps that alternate. A round with the database records
 * outcomes, claims due deliveries, and extends or releases the lease. Then requests are sent until another round is
 * due. The session ends when nothing is due, when an attempt leaves requests spaced, when it may not send any more, for
 * example because the subscription has ended, or when the time or the connections of its dispatch are used up.
 *
 * If the process dies, or a round fails, the outcomes that are not recorded are lost. These deliveries are sent
 * again once the lease has ended.
 */
export class DeliverySession {
  readonly #subscriptionId: string;
  readonly #arrivedWakeAt: number;
  readonly #dispatch: Dispatch;
  /** The subscription as the last round found it; null before the first round, and once it does not exist. */
  #subscription: RoundSubscription | null = null;
  #pace: Pace = INITIAL_PACE;
  #types: TypeOutcomes = INITIAL_TYPE_OUTCOMES;
  /** Incremented with each change of the pace in memory. */
  #paceVersion = 0;
  /** Whether an attempt since the last success failed after so many failures that the subscription must be disabled. */
  #isDead = false;
  /** The last attempt of this session; null if it has made none. */
  #last: LastAttempt | null = null;
  /** Deliveries that are claimed and not sent yet. */
  #claimed: PreparedDelivery[] = [];
  readonly #inFlight = new Set<PreparedDelivery>();
  /** Changes of deliveries that are not recorded yet: the outcomes of attempts, and changes without an attempt. */
  #changes: DeliveryChange[] = [];
  /** Whether more was due than was claimed. */
  #moreIsDue = false;
  /** Whether it claims and sends nothing more. */
  #isStopped = false;
  #confirmedAt = 0;
  /** When the delayed wake-up message is to arrive that a round has noted; null if none has. It is still to be sent. */
  #notedWakeAt: number | null = null;
  /** The session's place in the queue for a connection, or its connection; null if it needs none. */
  #place: Place | null = null;
  #notify = () => {};

  /** @param arrivedWakeAt the `wakeAt` of the wake-up message that has arrived; 0 if it had none. */
  constructor(subscriptionId: string, arrivedWakeAt: number, dispatch: Dispatch) {
    this.#subscriptionId = subscriptionId;
    this.#arrivedWakeAt = arrivedWakeAt;
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
    if (!this.#subscription) return;
    const { ports } = this.#dispatch;
    const wakeUp = nextWakeUp(this.#subscription, this.#notedWakeAt, ports.now());
    ports.finished(this.#subscription, wakeUp);
  }

  async #makeRound(): Promise<void> {
    const { round, mayGoOn } = this.#dispatch;
    const request = this.#requestRound(mayGoOn());
    const version = this.#paceVersion;
    // The first round does not wait either way: once all sessions have requested one, it is made.
    const isNothingWaiting = this.#isIdle() && !this.#moreIsDue;
    const result = await round(request, isNothingWaiting ? LAST_ROUND_WAIT_MS : ROUND_WAIT_MS);
    this.#changes.splice(0, request.changes.length);
    this.#applyRound(result, request.claim, version);
  }

  #requestRound(mayClaim: boolean): RoundRequest {
    const unfinished = [...this.#claimed, ...this.#inFlight];
    return {
      subscriptionId: this.#subscriptionId,
      arrivedWakeAt: this.#arrivedWakeAt,
      claim: mayClaim && !this.#isStopped && this.#claimed.length === 0,
      inProgress: unfinished.map(({ eventId }) => eventId),
      changes: [...this.#changes],
      // Only the dispatch that leases the subscription may change it. `leasedUntil` is 0 if this one does not. It is not
      // compared with the time: a lease that has run out still counts, until another dispatch leases the subscription.
      subscriptionChange: this.#subscription?.leasedUntil
        ? this.#changeOf(this.#subscription)
        : null,
      cancel: this.#subscription?.cancelling === true,
    };
  }

  /** The change to store for a leased subscription; null if nothing has changed and the lease is kept. */
  #changeOf(stored: RoundSubscription): SubscriptionChange | null {
    const pace = this.#pace;
    const paceChanged = !isSame(pace, this.#types, stored);
    // The round releases the lease first, and leases the subscription again if it finds more to claim.
    const release = this.#isIdle();
    if (!paceChanged && !release) return null;
    return {
      ...paceColumns(pace),
      ...this.#types,
      subscriptionId: this.#subscriptionId,
      cancelEpoch: stored.cancelEpoch,
      url: stored.url,
      paceChanged,
      // A manual send never disables (`isDead`).
      disable: this.#isDead,
      last: this.#last,
      release,
    };
  }

  #applyRound(result: RoundResult, requestedClaim: boolean, version: number): void {
    const before = this.#subscription;
    const { subscription: found } = result;
    this.#subscription = found;
    this.#confirmedAt = result.requestedAt;
    this.#notedWakeAt = result.notedWakeAt ?? this.#notedWakeAt;
    if (!found) {
      this.#stop();
      return;
    }
    const isNewEpoch = before !== null && before.cancelEpoch !== found.cancelEpoch;
    const isElsewhere = before !== null && before.url !== found.url;
    // If attempts ended during the round, the pace in memory is newer than the stored one. After a cancellation, a new
    // URL, or a wait that a replay has ended, the stored pace counts in any case: those attempts say nothing about it.
    if (this.#paceVersion === version || isNewEpoch || isElsewhere) this.#adoptPace(found);
    if (requestedClaim) this.#takeClaim(result);
    // A claimed delivery whose event was erased since is left out.
    const erased = new Set(found.erasedInProgress);
    this.#claimed = this.#claimed.filter(({ eventId }) => !erased.has(eventId));
    // A request that ended during the round may have stopped the session: then, what the round claimed is not sent. After
    // a new epoch, what an earlier round claimed may be cancelled. After a new URL, it is sent there.
    if (this.#isStopped || !found.maySend || isNewEpoch) this.#stop();
  }

  #adoptPace(found: RoundSubscription): void {
    this.#pace = paceOf(found);
    this.#types = { rejections: found.rejections, acceptedTypes: found.acceptedTypes };
    // It was stored with the pace, or was about the pace of an earlier epoch or URL.
    this.#isDead = false;
  }

  /** Takes what a round has claimed, and notes which due deliveries must not be sent. */
  #takeClaim(result: RoundResult): void {
    const { prepared, mayHaveMore } = result;
    // While requests are spaced, the outcome of the one request decides what comes next. Unless it ends the spacing, it
    // ends this session (`#setPace`). After a delivery that cannot be read, the next round claims again.
    this.#claimed = [...prepared];
    this.#moreIsDue = mayHaveMore;
  }

  /** Sends what is waiting, at its pace, until another round is due. */
  async #sendUntilRoundIsDue(): Promise<void> {
    const { connections, mayGoOn, ports } = this.#dispatch;
    for (;;) {
      const now = ports.now();
      if (!mayGoOn() || (this.#claimed.length > 0 && !this.#isLeasedForRequest(now))) this.#stop();
      if (this.#isRoundDue(now)) return;
      if (!this.#subscription || !this.#canStartNext()) {
        this.#leaveConnections();
        await this.#waitForSignal(now);
        continue;
      }
      const { workspaceId } = this.#subscription;
      if (!this.#place) this.#place = connections.queueUp(workspaceId, () => this.#notify());
      else if (this.#place.isConnected) {
        this.#start(this.#subscription, this.#place);
        // The other sessions queue for a connection before this one queues for another.
        await Promise.resolve();
      }
      // The next dispatch sends the rest: another invocation has connections of its own.
      else if (connections.areStuck && this.#inFlight.size === 0) this.#stop();
      // Waits for its turn, and looks again after `STUCK_MS`, when `areStuck` may hold.
      else await this.#waitForSignal(now, STUCK_MS);
    }
  }

  #isRoundDue(now: number): boolean {
    // Every claimed delivery has its outcome.
    if (this.#isIdle()) return true;
    // More is claimed early, so that it can be sent while the last requests are in flight.
    if (this.#claimed.length === 0 && this.#moreIsDue) return true;
    // The next delivery may have been cancelled since the last round.
    if (this.#canStartNext() && this.#place?.isConnected && !this.#isConfirmed(now)) return true;
    return this.#untilOutcomesAreDue(now) === 0;
  }

  #canStartNext(): boolean {
    return this.#claimed.length > 0 && this.#inFlight.size < this.#pace.concurrency;
  }

  #isConfirmed(now: number): boolean {
    return now >= this.#confirmedAt && now - this.#confirmedAt < CONFIRMED_MS;
  }

  /**
   * Whether a round is requested before the lease ends that records a request which starts now. Later, another dispatch
   * may lease the subscription and send the delivery again.
   */
  #isLeasedForRequest(now: number): boolean {
    const { leasedUntil = 0 } = this.#subscription ?? {};
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS + RECORD_WITHIN_MS < leasedUntil;
  }

  /** How long until the oldest outcome must be recorded, in milliseconds; undefined if there is none. */
  #untilOutcomesAreDue(now: number): number | undefined {
    const [oldest] = this.#changes;
    return oldest && Math.max(0, oldest.startedAt + oldest.durationMs + RECORD_WITHIN_MS - now);
  }

  /** Whether nothing is waiting or in flight. */
  #isIdle(): boolean {
    return this.#claimed.length === 0 && this.#inFlight.size === 0;
  }

  /** Stops claiming and sending. The next dispatch sends what is waiting. */
  #stop(): void {
    this.#isStopped = true;
    this.#moreIsDue = false;
    this.#claimed = [];
  }

  /** Resolves when a request ends, when a connection is free, when outcomes must be recorded, or after `atMostMs`. */
  #waitForSignal(now: number, atMostMs = Number.POSITIVE_INFINITY): Promise<void> {
    const ms = Math.min(atMostMs, this.#untilOutcomesAreDue(now) ?? atMostMs);
    return new Promise((resolve) => {
      const timer = Number.isFinite(ms) ? setTimeout(resolve, ms) : null;
      this.#notify = () => {
        if (timer !== null) clearTimeout(timer);
        resolve();
      };
    });
  }

  #leaveConnections(): void {
    if (this.#place) this.#dispatch.connections.leave(this.#place);
    this.#place = null;
  }

  #start(target: RoundSubscription, place: Place): void {
    const delivery = this.#claimed.shift() as PreparedDelivery;
    this.#inFlight.add(delivery);
    this.#place = null;
    this.#send(delivery, target).finally(() => {
      this.#inFlight.delete(delivery);
      this.#dispatch.connections.leave(place);
      this.#notify();
    });
  }

  async #send(delivery: PreparedDelivery, target: RoundSubscription): Promise<void> {
    const { ports } = this.#dispatch;
    const startedAt = ports.now();
    const startedWhileBlocked = startedAt < this.#pace.blockedUntil;
    const toAttempt = <O extends AttemptOutcome>(outcome: O): Attempt<O> => ({
      delivery,
      outcome,
      startedAt,
      startedWhileBlocked,
      endedAt: ports.now(),
    });
    try {
      const outcome = await ports.attempt(delivery, target, startedAt);
      const attempt = toAttempt(outcome);
      const storedResponse = (await outcome.storedResponse) ?? null;
      // The outcome is noted first, because the priority after a failure depends on the streak before `#learnFrom`.
      this.#noteOutcome(attempt, storedResponse);
      // If the URL has changed since, the outcome is about another server. If the epoch has changed, an event type was
      // removed, and the outcome may be about that one, or a replay has ended the wait of an endpoint that was repaired.
      const { url, cancelEpoch } = this.#subscription ?? target;
      if (url === target.url && cancelEpoch === target.cancelEpoch) this.#learnFrom(attempt);
    } catch (error) {
      if (error instanceof InvocationLimit) return this.#stop();
      if (error instanceof UnreadableEvent) {
        return this.#noteOutcome(toAttempt({ kind: "unreadable" }), null);
      }
      const blockedUntil = Math.max(this.#pace.blockedUntil, ports.now() + NOT_ATTEMPTED_WAIT_MS);
      // A manual send is never blocked, so it would be claimed again at once.
      if (delivery.priority === PRIORITY.manual) {
        const waits = { state: "pending", dueAt: blockedUntil, settledAt: null } as const;
        this.#noteUnattempted(delivery, waits, startedAt);
      }
      this.#setPace({ ...this.#pace, concurrency: 1, blockedUntil });
    }
  }

  /** Adjusts the pace and the record of the event type. */
  #learnFrom(attempt: Attempt<Outcome>): void {
    const pace = adjustPace(this.#pace, attempt);
    this.#types = noteTypeOutcome(this.#types, attempt, this.#pace, pace);
    this.#setPace(pace);
    const listed = this.#subscription?.events ?? [];
    if (succeeded(attempt.outcome)) this.#isDead = false;
    else if (isDead(this.#pace, this.#types, attempt, listed)) this.#isDead = true;
  }

  /** Stops the session if requests are spaced, or if the subscription has moved to the other queue. */
  #setPace(pace: Pace): void {
    this.#pace = pace;
    this.#paceVersion++;
    if (queueOf(pace) !== this.#dispatch.queue || isSpaced(pace)) this.#stop();
  }

  #noteOutcome(attempt: Attempt, response: string | null): void {
    const { delivery, outcome, startedAt, endedAt } = attempt;
    const { eventId, type } = delivery;
    const status = statusOf(outcome);
    const durationMs = Math.max(0, endedAt - startedAt);
    // An event that cannot be read says nothing about the endpoint.
    if (outcome.kind !== "unreadable")
      this.#last = { at: startedAt, outcome: outcome.kind, status, durationMs };
    this.#changes.push({
      ...reschedule(this.#pace, attempt, this.#dispatch.ports.random()),
      subscriptionId: this.#subscriptionId,
      eventId,
      type,
      claimed: claimedState(delivery),
      outcome: outcome.kind,
      status,
      startedAt,
      durationMs,
      response: this.#mayStoreResponse() ? response : null,
    });
  }

  /** Whether fewer than `RESPONSES_PER_DAY` responses of the subscription are stored today. */
  #mayStoreResponse(): boolean {
    const unrecorded = this.#changes.filter(({ response }) => response !== null).length;
    return (this.#subscription?.storedResponses ?? 0) + unrecorded < RESPONSES_PER_DAY;
  }

  /** Records a new state of a delivery without an attempt: it waits until `dueAt`, or is cancelled. */
  #noteUnattempted(
    delivery: PendingDelivery,
    ended: Pick<DeliveryChange, "state" | "dueAt" | "settledAt">,
    now: number,
  ): void {
    const { eventId, type, attempts, priority } = delivery;
    this.#changes.push({
      ...ended,
      subscriptionId: this.#subscriptionId,
      eventId,
      type,
      claimed: claimedState(delivery),
      attempts,
      priority,
      outcome: null,
      status: null,
      startedAt: now,
      durationMs: 0,
      response: null,
    });
  }

  #isOver(): boolean {
    if (!this.#isIdle() || this.#changes.length > 0) return false;
    if (!this.#subscription) return true;
    const { leasedUntil, leasedElsewhereUntil, cancelling } = this.#subscription;
    const mayCancel = cancelling && leasedElsewhereUntil === null && this.#dispatch.mayGoOn();
    // An attempt that could not be made leaves no change to record, but another round must still store the pace and
    // release the lease. Not compared with the time: a lease that has run out is to be released, too.
    return leasedUntil === 0 && !mayCancel;
  }
}

/** The fields of a claimed delivery by which a round recognizes that it has changed since. */
function claimedState(delivery: PendingDelivery): DeliveryChange["claimed"] {
  const { attempts, attemptsMade, priority, dueAt, scheduledAt } = delivery;
  return { attempts, attemptsMade, priority, dueAt, scheduledAt };
}

/** The fields of the pace, without those of the object that they were read with. */
function paceOf({ concurrency, slow, streak, blockedUntil, streakRetryAt }: Pace): Pace {
  return { concurrency, slow, streak, blockedUntil, streakRetryAt };
}

function isSame(
  pace: Pace,
  { rejections, acceptedTypes }: TypeOutcomes,
  stored: RoundSubscription,
) {
  const now = [paceOf(pace), rejections, acceptedTypes];
  const then = [paceOf(stored), stored.rejections, stored.acceptedTypes];
  return JSON.stringify(now) === JSON.stringify(then);
}

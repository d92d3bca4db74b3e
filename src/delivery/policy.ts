/*
 * Flow control: when a failed delivery is tried again, and how fast requests are sent to an endpoint. It is in pure
 * functions, whose time and randomness are arguments. `docs/deliveries.md` has the rules with an example.
 *
 * There are two clocks, because a rejection is about one delivery, whereas an outage is about the endpoint:
 *
 * - A delivery has a retry schedule, which a rejection moves, or a failed resend (`afterFailure`).
 * - An event type of a subscription has a circuit, which is closed or open. While it is open, its deliveries wait, and one
 *   request at a time probes the endpoint, less and less often (`circuitAfterFailure`), until a success closes the circuit.
 *   No failure of the endpoint moves a retry schedule in the meantime. So everything is due by itself when it closes.
 *
 * Adaptive concurrency (AIMD) belongs to the whole subscription (`loadAfter`).
 */
import type { WebhookEvent } from "../contract/enumerations.ts";
import {
  CIRCUIT_OPENS_AFTER_EVENTS,
  CIRCUIT_OUTAGE_SECONDS,
  CIRCUIT_REJECTED_SECONDS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  TRIED_FOR_MAX_MS,
} from "../contract/limits.ts";
import { type Circuit, type Circuits, PRIORITY, type Priority } from "../db/schema.ts";

/** The outcome of a request to an endpoint. */
export type Outcome =
  | { kind: "answered"; status: number; retryAfterSeconds: number | null }
  /** No response headers in time. */
  | { kind: "timed_out" }
  /**
   * No connection: a DNS or TLS failure, or a connection that was refused or reset. `status` is set if Cloudflare
   * responded in the endpoint's place, with 520 to 530, or with the text `error code: 1…` and another status.
   */
  | { kind: "unreachable"; status: number | null }
  /** The URL is forbidden, because it leads to a private address. Nothing was sent. */
  | { kind: "refused" };

/** The outcome of an attempt: the outcome of its request, or `unreadable` if the event's lead cannot be decrypted. */
export type AttemptOutcome = Outcome | { kind: "unreadable" };

/** The HTTP status of an attempt; null if there was no response. */
export function statusOf(outcome: AttemptOutcome): number | null {
  return "status" in outcome ? outcome.status : null;
}

/** Whether the endpoint acknowledged the event with a 2xx. */
export function succeeded(outcome: AttemptOutcome): boolean {
  return outcome.kind === "answered" && outcome.status >= 200 && outcome.status < 300;
}

/** Maximum requests in flight for a subscription, which one invocation can make at once. */
export const CONCURRENCY_MAX = 6;
/** A response that takes this long counts as slow. */
export const SLOW_RESPONSE_MS = 2_000;
/** How long a type waits for its next probe after an attempt could not be made through no fault of the endpoint. */
export const NOT_ATTEMPTED_OPEN_MS = 300_000;

/** How a subscription may be sent to; times are Unix milliseconds. */
export interface SendingState {
  /** Maximum requests in flight. */
  concurrency: number;
  /** Whether its wake-up messages go to the slow queue, so that it delays no other subscription. */
  slow: boolean;
  circuits: Circuits;
  /** The start of the first attempt that has failed since the last success of any event type; null if none has. */
  failingSince: number | null;
  /** The number of failed attempts since then. */
  failures: number;
}

/** The state of a subscription that is new, was enabled again, has another URL, or whose workspace has lost access. */
export const INITIAL_STATE: SendingState = {
  concurrency: 1,
  slow: false,
  circuits: {},
  failingSince: null,
  failures: 0,
};

/** Returns the state of a subscription without its other fields. */
export function stateOf(subscription: SendingState): SendingState {
  const { concurrency, slow, circuits, failingSince, failures } = subscription;
  return { concurrency, slow, circuits, failingSince, failures };
}

/** The names of the columns of a subscription that store its state. */
export const STATE_COLUMNS = Object.keys(INITIAL_STATE) as (keyof SendingState)[];

/** The fields of a pending delivery that flow control needs; times are Unix milliseconds. */
export interface PendingDelivery {
  eventId: string;
  type: WebhookEvent;
  /** Resends come first. Then come events that were not tried yet, retries, and replays (`PRIORITY`). */
  priority: Priority;
  /** Steps of its retry schedule that are used up. */
  stepsUsed: number;
  /** All attempts so far, on this schedule and earlier ones. */
  attemptsMade: number;
  /** When its first attempt on this schedule started; null if there was none. */
  firstAt: number | null;
  dueAt: number;
}

/** A finished attempt; times are Unix milliseconds. */
export interface Attempt {
  delivery: PendingDelivery;
  /** Null if no request could be made, through no fault of the endpoint. */
  outcome: AttemptOutcome | null;
  startedAt: number;
  endedAt: number;
  /** Whether the circuit of its event type was closed when it started. */
  startedClosed: boolean;
}

/** A delivery after an attempt. */
export interface DeliveryAfter {
  state: "delivered" | "pending" | "exhausted";
  stepsUsed: number;
  priority: Priority;
  firstAt: number | null;
  /** When it is due; if it is not pending any more, when it last was. */
  dueAt: number;
  /** When it ended, delivered or exhausted; null if it is pending. */
  settledAt: number | null;
}

/** The consequences of an attempt. */
export interface Decision {
  state: SendingState;
  delivery: DeliveryAfter;
  /** Events that are due at once: after a success, those that were rejected since the last one. */
  dueNow: readonly string[];
}

/** Whether requests of this event type are probes, one at a time. A circuit stays open once the time of a probe has come. */
export function isOpen(state: Pick<SendingState, "circuits">, type: WebhookEvent): boolean {
  return (state.circuits[type]?.probeAt ?? 0) > 0;
}

/**
 * Decides the consequences of an attempt.
 *
 * @param random between 0 and 1; sets the jitter.
 */
export function afterAttempt(state: SendingState, attempt: Attempt, random: number): Decision {
  const { delivery, outcome, startedAt, endedAt, startedClosed } = attempt;
  const { type, priority } = delivery;
  if (outcome === null) {
    // No circuit holds a resend, which would be tried again at once. So it becomes a retry, which the circuit holds.
    const { stepsUsed, firstAt, dueAt } = delivery;
    return {
      state: withCircuit(state, type, circuitAfterNoAttempt(state.circuits[type], endedAt)),
      delivery: {
        state: "pending",
        stepsUsed,
        priority: priority === PRIORITY.resend ? PRIORITY.retry : priority,
        firstAt,
        dueAt,
        settledAt: null,
      },
      dueNow: [],
    };
  }
  if (outcome.kind === "unreadable") {
    // It says nothing about the endpoint.
    return { state, delivery: nextStep(attempt, random), dueNow: [] };
  }
  const loaded = { ...state, ...loadAfter(state, outcome, endedAt - startedAt) };
  const openedMeanwhile = startedClosed && isOpen(state, type);
  if (succeeded(outcome)) {
    // If the circuit opened in the meantime, the success may have overtaken the failures, so it does not show that they
    // are over.
    const { [type]: former, ...others } = state.circuits;
    return {
      state: {
        ...loaded,
        circuits: openedMeanwhile ? state.circuits : others,
        failingSince: null,
        failures: 0,
      },
      delivery: ended(attempt, "delivered"),
      dueNow: openedMeanwhile ? [] : (former?.rejected ?? []),
    };
  }
  // A person may resend to an endpoint that is known to fail, so this changes no circuit and counts for nothing. After
  // that, the delivery is one like any other.
  if (priority === PRIORITY.resend)
    return {
      state: loaded,
      delivery: afterFailure(isOpen(state, type), attempt, random),
      dueNow: [],
    };
  const circuit = circuitAfterFailure(state.circuits[type], attempt, outcome, openedMeanwhile);
  const failed: SendingState = {
    ...withCircuit(loaded, type, circuit),
    failingSince: Math.min(state.failingSince ?? startedAt, startedAt),
    failures: state.failures + 1,
  };
  return {
    state: failed,
    delivery: afterFailure(circuit.probeAt > 0, attempt, random),
    dueNow: [],
  };
}

function withCircuit(state: SendingState, type: WebhookEvent, circuit: Circuit): SendingState {
  return { ...state, circuits: { ...state.circuits, [type]: circuit } };
}

/**
 * Classes of failures, by what they show of the endpoint. `rejected` is any status but 429 and 503, even 500: it may
 * concern this event only. `busy` and `unavailable` are outages, which concern all events.
 */
type Failure = "rejected" | "busy" | "unavailable";

function failureOf(outcome: Outcome): Failure {
  // Timed out, unreachable, or blocked because the URL leads to a private address.
  if (outcome.kind !== "answered") return "unavailable";
  return outcome.status === 429 || outcome.status === 503 ? "busy" : "rejected";
}

/** Returns the concurrency and the queue after an attempt. Rejections change neither, because they are no sign of load. */
function loadAfter(
  { concurrency, slow }: SendingState,
  outcome: Outcome,
  durationMs: number,
): Pick<SendingState, "concurrency" | "slow"> {
  const isSlow = durationMs >= SLOW_RESPONSE_MS;
  if (succeeded(outcome) && !isSlow) {
    const increased = Math.min(concurrency + 1, CONCURRENCY_MAX);
    // A slow endpoint returns to the fast queue only at full concurrency. After a single fast response, an endpoint that
    // hangs every other time would hold up that queue.
    return { concurrency: increased, slow: slow && increased < CONCURRENCY_MAX };
  }
  const isLoaded = isSlow || failureOf(outcome) === "busy";
  return {
    concurrency: isLoaded ? Math.max(1, Math.floor(concurrency / 2)) : concurrency,
    slow: slow || isSlow || failureOf(outcome) === "unavailable",
  };
}

const CLOSED = { rejected: [], step: 0, probeAt: 0, outcome: null, status: null } as const;

/** Returns the circuit of an event type after a failure of the endpoint. */
function circuitAfterFailure(
  before: Circuit | undefined,
  { delivery, startedAt, endedAt }: Attempt,
  outcome: Outcome,
  openedMeanwhile: boolean,
): Circuit {
  const { rejected, step, probeAt } = before ?? CLOSED;
  // An error of ours opens a circuit without a step (`circuitAfterNoAttempt`), which counts as closed here.
  const isOpenedByFailures = step > 0;
  // A circuit that only an error of ours has opened has no outcome: its endpoint has not failed yet.
  const since = before?.outcome ? before.since : startedAt;
  const last = { since, outcome: outcome.kind, status: statusOf(outcome) };
  const askedUntil = endedAt + requestedWaitSeconds(outcome) * 1000;
  // A failure that began before the circuit opened only tells how long the endpoint asks to be left alone.
  if (openedMeanwhile) return { rejected, step, ...last, probeAt: Math.max(probeAt, askedUntil) };
  const isOutage = failureOf(outcome) !== "rejected";
  const isMereRejection = !isOpenedByFailures && !isOutage;
  const isListed = isMereRejection && delivery.priority === PRIORITY.untried;
  const listed = isListed ? [...rejected, delivery.eventId] : rejected;
  if (isMereRejection && listed.length < CIRCUIT_OPENS_AFTER_EVENTS)
    return { rejected: listed, step, ...last, probeAt: 0 };
  const waits = isOutage ? CIRCUIT_OUTAGE_SECONDS : CIRCUIT_REJECTED_SECONDS;
  const seconds = waits[Math.min(step, waits.length - 1)] as number;
  return {
    rejected: listed,
    step: step + 1,
    ...last,
    probeAt: Math.max(endedAt + seconds * 1000, askedUntil),
  };
}

function circuitAfterNoAttempt(before: Circuit | undefined, endedAt: number): Circuit {
  const circuit = before ?? { ...CLOSED, since: endedAt };
  const probeAt = Math.max(circuit.probeAt, endedAt + NOT_ATTEMPTED_OPEN_MS);
  return { ...circuit, probeAt };
}

/** The delay that a busy endpoint requests in `Retry-After`, up to a maximum; 0 if there is none. */
function requestedWaitSeconds(outcome: Outcome): number {
  if (outcome.kind !== "answered" || failureOf(outcome) !== "busy") return 0;
  return Math.min(outcome.retryAfterSeconds ?? 0, RETRY_AFTER_MAX_SECONDS);
}

/**
 * Returns a delivery after a failed attempt. If the circuit is open, it uses up no step of its retry schedule: it is due as
 * of now, behind those that were tried before it, and waits for the circuit.
 *
 * @param isOpenNow whether the circuit is open after the attempt.
 */
function afterFailure(isOpenNow: boolean, attempt: Attempt, random: number): DeliveryAfter {
  const { delivery, endedAt } = attempt;
  return isOpenNow ? dueAgain(attempt, endedAt, delivery.stepsUsed) : nextStep(attempt, random);
}

/** Returns a delivery at the next step of its retry schedule. */
function nextStep(attempt: Attempt, random: number): DeliveryAfter {
  const { delivery, endedAt } = attempt;
  const seconds = RETRY_WAITS_SECONDS[delivery.stepsUsed];
  if (seconds === undefined) return ended(attempt, "exhausted");
  // Jitter only lengthens a delay, so that the schedule outlasts the time after which a subscription is disabled.
  const waitMs = Math.round(seconds * 1000 * (1 + RETRY_JITTER * random));
  return dueAgain(attempt, endedAt + waitMs, delivery.stepsUsed + 1);
}

/** Returns a delivery that is tried again, unless it has been tried for too long. */
function dueAgain(attempt: Attempt, dueAt: number, stepsUsed: number): DeliveryAfter {
  const { delivery, startedAt, endedAt } = attempt;
  const firstAt = delivery.firstAt ?? startedAt;
  if (endedAt - firstAt >= TRIED_FOR_MAX_MS) return ended(attempt, "exhausted");
  return {
    state: "pending",
    stepsUsed,
    priority: PRIORITY.retry,
    firstAt,
    dueAt,
    settledAt: null,
  };
}

function ended(
  { delivery, startedAt, endedAt }: Attempt,
  state: "delivered" | "exhausted",
): DeliveryAfter {
  const { stepsUsed, priority, dueAt } = delivery;
  const firstAt = delivery.firstAt ?? startedAt;
  return { state, stepsUsed, priority, firstAt, dueAt, settledAt: endedAt };
}

/**
 * Chooses the delivery that probes an endpoint whose circuit is open. The newest event finds out whether the endpoint
 * accepts again, however long the backlog; the oldest ones work it off.
 *
 * @param heads due deliveries of the event type, in the order of their due times within each priority: at least the first
 *   one of each priority, and the last one that was not tried yet.
 */
export function chooseProbe<D extends Pick<PendingDelivery, "priority">>(
  heads: readonly D[],
  random: number,
): D | undefined {
  const untried = heads.filter(({ priority }) => priority === PRIORITY.untried);
  if (untried.length > 0) return random < 0.5 ? untried.at(-1) : untried[0];
  return (
    heads.find(({ priority }) => priority === PRIORITY.retry) ??
    heads.find(({ priority }) => priority === PRIORITY.replay)
  );
}

/**
 * Whether a subscription has failed for so long that it must be disabled: for three days since its first failure, nothing
 * has succeeded, and ten attempts have failed. They must be at two events or more, so that no single event disables it.
 * The transaction that disables it checks that (`disableFailing` in ending.ts).
 *
 * @param before its state before the last attempts. If none of them counts as a failure, such as a resend, nothing is
 *   disabled.
 * @param now Unix milliseconds.
 */
export function mustDisable(
  before: SendingState,
  { failingSince, failures }: SendingState,
  now: number,
): boolean {
  if (failingSince === null || failures < DISABLE_AFTER_FAILURES) return false;
  return failures > before.failures && now - failingSince >= DISABLE_AFTER_MS;
}

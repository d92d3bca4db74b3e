import type { LastAttempt } from "../../db/schema.ts";
import { NO_EXCHANGE } from "../exchange.ts";
import { statusOf, succeeded } from "../outcome.ts";
import type { ClaimRequest } from "./lease.ts";
import {
  type Attempt,
  adjustPace,
  decide,
  endsOutage,
  FRESH,
  heldUntil,
  isDead,
  isExtra,
  type Lane,
  laneOf,
  type Pace,
} from "./policy.ts";
import { type Change, PACE, type Settlement } from "./settle.ts";
import type { Claimed, Snapshot } from "./settle-and-claim.ts";

/** More is claimed when fewer than this are waiting. */
const CLAIM_AHEAD = 60;

/** What a dispatch knows of one subscription. */
export interface Turn {
  readonly subscriptionId: string;
  readonly lane: Lane;
  /** As the last exchange found it; null before the first, and once it does not exist. */
  subscription: Snapshot | null;
  /** Its pace, which each attempt may change. */
  pace: Pace;
  /** If it has recovered from an outage: since when it had failed. */
  freedSince: number | null;
  /** Claimed, and not posted yet. */
  waiting: Claimed[];
  inFlight: Set<Claimed>;
  /** Outcomes that are not recorded yet. */
  settlements: Settlement[];
  lastAttempt: LastAttempt | null;
  /** Whether more was due than was claimed. */
  moreIsDue: boolean;
  /** Whether it claims and posts nothing more. */
  isStopped: boolean;
  /** Whether this dispatch has leased the subscription at any time. */
  wasLeased: boolean;
  /** When the lease ends, unless more is claimed. */
  leasedUntil: number;
  /** When the last exchange was asked for: its findings were true then, or became so later. */
  askedAt: number;
}

export function startTurn(subscriptionId: string, lane: Lane): Turn {
  return {
    ...{ subscriptionId, lane, subscription: null },
    pace: FRESH,
    freedSince: null,
    ...{ waiting: [], inFlight: new Set(), settlements: [], lastAttempt: null },
    ...{ moreIsDue: false, isStopped: false, wasLeased: false, leasedUntil: 0, askedAt: 0 },
  };
}

/** Claims and posts nothing more: what is waiting is left to the next dispatch. */
export function stop(turn: Turn): void {
  turn.isStopped = true;
  turn.waiting = [];
}

/** Whether nothing is waiting or in flight. */
export function isIdle({ waiting, inFlight }: Turn): boolean {
  return waiting.length === 0 && inFlight.size === 0;
}

/** How a post ended. */
type Finish = Omit<Attempt, "delivery">;

/** What an exchange records of a turn and asks for it. */
export interface Asked {
  request: ClaimRequest;
  settlements: Settlement[];
  change: Change | null;
  /** The pace that was recorded, if it had changed. */
  pace: Pace;
  cancel: boolean;
}

/** What an exchange answers. */
export interface Answered {
  found: Snapshot | null;
  claimed: Claimed[];
  /** How many it might have claimed. */
  limit: number;
  leasedUntil: number;
  askedAt: number;
}

/** @param mayClaim whether there is time to post more. */
export function ask(turn: Turn, mayClaim: boolean, now: number): Asked {
  const { subscriptionId, lane, subscription, pace, waiting, inFlight } = turn;
  const claim = mayClaim && !turn.isStopped && waiting.length < (lane === "fast" ? CLAIM_AHEAD : 1);
  const inProgress = [...waiting, ...inFlight].map(({ eventId }) => eventId);
  const settlements = [...turn.settlements];
  return {
    request: { subscriptionId, claim, inProgress },
    settlements,
    change: subscription?.leased ? toChange(turn, subscription, now) : null,
    pace,
    cancel: subscription?.cancelling === true,
  };
}

/** What has changed about a subscription that is leased; null if nothing has, and it is kept. */
function toChange(turn: Turn, subscription: Snapshot, now: number): Change | null {
  const { pace, settlements, freedSince } = turn;
  const paceChanged = !isSamePace(pace, subscription);
  // Given back, unless the exchange finds more to claim.
  const release = isIdle(turn);
  if (!paceChanged && !release) return null;
  const failed = settlements.some(
    ({ state, outcome }) => state !== "delivered" && outcome !== "unreadable",
  );
  return {
    subscriptionId: turn.subscriptionId,
    cancellations: subscription.cancellations,
    url: subscription.url,
    paceChanged,
    release,
    ...pace,
    // Only after a failed attempt, because the e-mail mentions it.
    disable: paceChanged && failed && isDead(pace, now),
    retryAt: Math.max(pace.nextAt, ...settlements.map(({ dueAt }) => dueAt)),
    freedSince,
    failed,
    last: turn.lastAttempt,
  };
}

/** Goes on from what an exchange has answered. */
export function proceed(turn: Turn, asked: Asked, answered: Answered): void {
  const { found, claimed, limit, leasedUntil, askedAt } = answered;
  const before = turn.subscription;
  turn.settlements.splice(0, asked.settlements.length);
  turn.subscription = found;
  if (asked.change?.freedSince === turn.freedSince) turn.freedSince = null;
  if (!found) {
    stop(turn);
    return;
  }
  const isVoid = before !== null && before.cancellations !== found.cancellations;
  const isMoved = before !== null && before.url !== found.url;
  // Attempts that ended during the exchange know more than the database, unless it was reset since.
  if (turn.pace === asked.pace || isVoid || isMoved) turn.pace = paceOf(found);
  // While it backs off, it gets one post at a time, whose outcome decides what comes next.
  if (asked.request.claim) turn.moreIsDue = claimed.length >= limit && found.nextAt === 0;
  if (claimed.length > 0) {
    turn.wasLeased = true;
    turn.leasedUntil = leasedUntil;
    turn.waiting.push(...claimed);
  }
  turn.askedAt = askedAt;
  const erased = new Set(found.erased);
  turn.waiting = turn.waiting.filter(({ eventId }) => !erased.has(eventId));
  const isLost = before?.leased === true && !found.leased && !isIdle(turn);
  if (turn.isStopped || !found.mayPost || isVoid || isLost) stop(turn);
}

/** Settles a delivery that was posted; what its outcome says about the subscription changes its pace. */
export function end(
  turn: Turn,
  delivery: Claimed,
  attempt: Finish,
  random: number,
  kept = NO_EXCHANGE,
): void {
  settle(turn, delivery, attempt, random, kept);
  setPace(turn, adjustPace(turn.pace, { ...attempt, delivery }, random));
}

/** Settles a delivery without learning anything about its subscriber. */
export function settle(
  turn: Turn,
  delivery: Claimed,
  { outcome, startedAt, endedAt }: Finish,
  random: number,
  kept = NO_EXCHANGE,
): void {
  const { subscriptionId, eventId, attempts, turnAt, dueAt } = delivery;
  const isExtraFailure = isExtra({ delivery, startedAt }) && !succeeded(outcome);
  const attemptsNow = isExtraFailure ? attempts : attempts + 1;
  const decision = isExtraFailure
    ? { state: "pending" as const, waitMs: (turnAt ?? dueAt) - endedAt }
    : decide(outcome, attemptsNow, random);
  const isPending = decision.state === "pending";
  const status = statusOf(outcome);
  const durationMs = Math.max(0, endedAt - startedAt);
  turn.lastAttempt = { at: startedAt, outcome: outcome.kind, status, durationMs };
  turn.settlements.push({
    subscriptionId,
    eventId,
    attempts,
    attemptsNow,
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

/** Changes the pace; if it says wait, or puts the subscription into the other lane, the turn stops. */
export function setPace(turn: Turn, pace: Pace): void {
  if (isSamePace(turn.pace, pace)) return;
  const before = turn.pace;
  if (endsOutage(before, pace)) turn.freedSince = before.failingSince;
  turn.pace = pace;
  // A probe is a single post, whatever its outcome.
  if (laneOf(pace) !== turn.lane || pace.nextAt > 0 || before.nextAt > 0) stop(turn);
  else turn.waiting = turn.waiting.filter((delivery) => heldUntil(pace, delivery) === 0);
}

/** The pace alone. */
function paceOf(pace: Pace): Pace {
  return Object.fromEntries(PACE.map((key) => [key, pace[key]])) as unknown as Pace;
}

function isSamePace(a: Pace, b: Pace): boolean {
  return PACE.every((key) => a[key] === b[key]);
}

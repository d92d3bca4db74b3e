import { statusOf, succeeded } from "./outcome.ts";
import {
  type Attempt,
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
import type { Claimed } from "./sender.ts";
import { type Change, PACE, type Settlement } from "./settle.ts";
import type { Asked, Snapshot } from "./settle-and-claim.ts";

/** What a dispatch knows of one subscription. */
export interface Turn {
  readonly subscriptionId: string;
  readonly lane: Lane;
  /** As the last exchange found it; null before the first, and once it does not exist. */
  subscription: Snapshot | null;
  /** Its pace, which each attempt may change. */
  pace: Pace;
  /** Claimed, and not posted yet. */
  waiting: Claimed[];
  inFlight: Set<Claimed>;
  /** Outcomes that are not recorded yet. */
  settlements: Settlement[];
  /** Whether more was due than was claimed. */
  moreIsDue: boolean;
  /** Whether it claims and posts nothing more. */
  isStopped: boolean;
  /** When the last exchange was asked for: its findings were true then, or became so later. */
  askedAt: number;
}

export function startTurn(subscriptionId: string, lane: Lane): Turn {
  return {
    ...{ subscriptionId, lane, subscription: null, pace: FRESH },
    ...{ waiting: [], inFlight: new Set(), settlements: [] },
    ...{ moreIsDue: false, isStopped: false, askedAt: 0 },
  };
}

/** Claims and posts nothing more: what is waiting is left to the next dispatch. */
export function stop(turn: Turn): void {
  turn.isStopped = true;
  turn.moreIsDue = false;
  turn.waiting = [];
}

/** Whether nothing is waiting or in flight. */
export function isIdle({ waiting, inFlight }: Turn): boolean {
  return waiting.length === 0 && inFlight.size === 0;
}

/** What an exchange answers. */
export interface Answered {
  found: Snapshot | null;
  claimed: Claimed[];
  /** How many it might have claimed. */
  limit: number;
  askedAt: number;
}

/** @param mayClaim whether there is time to post more. */
export function ask(turn: Turn, mayClaim: boolean, now: number): Asked {
  const { subscriptionId, subscription, pace, waiting, inFlight } = turn;
  const claim = mayClaim && !turn.isStopped && waiting.length === 0;
  const inProgress = [...waiting, ...inFlight].map(({ eventId }) => eventId);
  return {
    request: { subscriptionId, claim, inProgress },
    settlements: [...turn.settlements],
    change: subscription?.leasedUntil ? toChange(turn, subscription, now) : null,
    pace,
    cancel: subscription?.cancelling === true,
  };
}

/** What has changed about a subscription that is leased; null if nothing has, and it is kept. */
function toChange(turn: Turn, subscription: Snapshot, now: number): Change | null {
  const { pace, settlements } = turn;
  const paceChanged = !isSamePace(pace, subscription);
  // Given back, unless the exchange finds more to claim.
  const release = isIdle(turn);
  if (!paceChanged && !release) return null;
  const failed = settlements.some(
    ({ state, outcome }) => state !== "delivered" && outcome !== "unreadable",
  );
  const { cancellations, url, failingSince } = subscription;
  return {
    ...{ subscriptionId: turn.subscriptionId, cancellations, url, paceChanged, release },
    ...pace,
    // Only after a failed attempt, because the e-mail mentions it.
    disable: paceChanged && failed && isDead(pace, now),
    freedSince: endsOutage(subscription, pace) ? failingSince : null,
    last: lastOf(settlements),
  };
}

function lastOf(settlements: Settlement[]): Change["last"] {
  const last = settlements.at(-1);
  if (!last) return null;
  const { startedAt: at, outcome, status, durationMs } = last;
  return { at, outcome, status, durationMs };
}

/** Goes on from what an exchange has answered. */
export function proceed(turn: Turn, asked: Asked, answered: Answered): void {
  const { found, claimed, limit, askedAt } = answered;
  const before = turn.subscription;
  turn.settlements.splice(0, asked.settlements.length);
  turn.subscription = found;
  turn.askedAt = askedAt;
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
  turn.waiting.push(...claimed);
  const erased = new Set(found.erased);
  turn.waiting = turn.waiting.filter(({ eventId }) => !erased.has(eventId));
  if (turn.isStopped || !found.mayPost || isVoid) stop(turn);
}

/** Settles a delivery after an attempt. */
export function settle(turn: Turn, attempt: Attempt, random: number, kept?: string | null): void {
  const { delivery, outcome, startedAt, endedAt } = attempt;
  const { eventId, type, attempts, turnAt, dueAt } = delivery;
  const isExtraFailure = isExtra(attempt) && !succeeded(outcome);
  const attemptsNow = isExtraFailure ? attempts : attempts + 1;
  const decision = isExtraFailure
    ? { state: "pending" as const, waitMs: (turnAt ?? dueAt) - endedAt }
    : decide(outcome, attemptsNow, random);
  turn.settlements.push({
    ...{ subscriptionId: turn.subscriptionId, eventId, type, attempts, attemptsNow },
    state: decision.state,
    dueAt: endedAt + decision.waitMs,
    outcome: outcome.kind,
    status: statusOf(outcome),
    startedAt,
    durationMs: Math.max(0, endedAt - startedAt),
    response: kept ?? null,
  });
}

/** Changes the pace; if it says wait, or puts the subscription into the other lane, the turn stops. */
export function setPace(turn: Turn, pace: Pace): void {
  if (pace === turn.pace) return;
  turn.pace = pace;
  if (laneOf(pace) !== turn.lane || pace.nextAt > 0) stop(turn);
  else turn.waiting = turn.waiting.filter((delivery) => heldUntil(pace, delivery) === 0);
}

/** The pace alone. */
function paceOf(pace: Pace): Pace {
  return Object.fromEntries(PACE.map((key) => [key, pace[key]])) as unknown as Pace;
}

function isSamePace(a: Pace, b: Pace): boolean {
  return JSON.stringify(paceOf(a)) === JSON.stringify(paceOf(b));
}

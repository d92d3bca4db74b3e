import { Chance } from "../../../scripts/shared/chance.ts";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
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
} from "../../../src/contract/limits.ts";
import {
  eventsOf,
  type Figures,
  figuresOf,
  openEndpoint,
  RESENT_MAX,
  type Response,
  type Scenario,
  type ScenarioEvent,
} from "./scenarios.ts";

/*
 * A model of flow control: one subscription, without a database, queues or processes. It has the two clocks of
 * docs/deliveries.md, the retry schedule of a delivery and the circuit of an event type. It shows in a second what the
 * rules do to an endpoint in days, and says what the real code must do, within a factor of two (simulation.test.ts).
 *
 * Like the real code, it claims what may be sent, sends it, and settles the outcomes. Times are seconds.
 */

/** What became of the events of a scenario, and of the requests. */
interface Result {
  deliveredAt: Map<ScenarioEvent, number>;
  requests: number;
  /** When the subscription was disabled; null if it was not. */
  disabledAt: number | null;
}

/** How long a request takes at least and at most, unless it times out. */
const RESPONSE_SECONDS = [0.005, 0.5] as const;
const TIMEOUT_SECONDS = 10;
/** No request starts later than this after its claim. */
const CLAIM_VALID_SECONDS = 1;
/** How long the two transactions of a dispatch take, and the message that wakes it. */
const TRANSACTIONS_SECONDS = 0.1;
/** A message that is to arrive within this time counts as arrived. */
const ARRIVED_SECONDS = 1;
/** Points at which a process may die: in a dispatch, and for each of its requests. */
const STEPS = { dispatch: 6, request: 3 };
/** When a process has died: its lease lasts so long, and without a new event, the scheduled job comes after that. */
const LEASE_SECONDS = 20;
const SCHEDULED_JOB_SECONDS = 90;
const CLAIM_MAX = 100;
const CONCURRENCY_MAX = 6;
const SLOW_SECONDS = 2;
const PRIORITY = { resend: 0, untried: 1, retry: 2, replay: 3 };

interface Delivery {
  event: ScenarioEvent;
  priority: number;
  /** Steps of its retry schedule that are used up. */
  stepsUsed: number;
  firstAt: number | null;
  dueAt: number;
}

interface Circuit {
  /** What was rejected at its first attempt, since the last success and before the circuit opened. */
  rejected: Delivery[];
  failures: number;
  /** 0 while it is closed. */
  probeAt: number;
}

interface Attempt {
  delivery: Delivery;
  /** Whether its circuit was closed when it started. */
  startedClosed: boolean;
  response: Response;
  retryAfter: number;
  startedAt: number;
  endedAt: number;
}

function isOpen(circuit: Circuit | undefined): boolean {
  return circuit !== undefined && circuit.probeAt > 0;
}

function simulateModel(scenario: Scenario, seed: number): Result {
  const { hours, clocks = 0, lostReplies = 0, deaths = 0, byHand, movesAt = Infinity } = scenario;
  const chance = new Chance(seed);
  const respond = openEndpoint(scenario);
  const events = eventsOf(scenario);
  const deliveredAt = new Map<ScenarioEvent, number>();
  const circuits = new Map<WebhookEvent, Circuit>();
  const pending: Delivery[] = [];
  let now = 0;
  let recorded = 0;
  let requests = 0;
  let concurrency = 1;
  let failing: { since: number; failures: number; events: Set<ScenarioEvent> } | null = null;
  let disabledAt: number | null = null;
  let isMoved = false;
  let isSentByHand = false;
  /** The delayed message that wakes the subscription: what it is for, and when it arrives. */
  let message = { sendAt: -Infinity, arrivesAt: -Infinity };

  while (now < hours * 3600 && disabledAt === null) {
    happen();
    const clock = now + between(-clocks, clocks);
    const claimed = claim(clock);
    if (claimed.length > 0) dispatch(claimed);
    else now = nextAt(clock);
  }
  return { deliveredAt, requests, disabledAt };

  /** What others do: they record events, send by hand, and change the URL. */
  function happen(): void {
    const from = recorded;
    while ((events[recorded]?.at ?? Infinity) <= now) recorded++;
    // Those that are recorded together have ids, and so an order, at random.
    const added = events.slice(from, recorded).map((event) => ({ event, order: chance.number() }));
    added.sort((a, b) => a.event.at - b.event.at || a.order - b.order);
    const begun = { priority: PRIORITY.untried, stepsUsed: 0, firstAt: null };
    for (const { event } of added) pending.push({ ...begun, event, dueAt: event.at });
    if (byHand && byHand.at <= now && !isSentByHand) {
      isSentByHand = true;
      const begun = { priority: PRIORITY[byHand.what], stepsUsed: 0, firstAt: null, dueAt: now };
      const tried = pending.filter(({ priority }) => priority !== PRIORITY.untried);
      const sent = byHand.what === "resend" ? pending.slice(0, RESENT_MAX) : tried;
      for (const delivery of sent) Object.assign(delivery, begun);
    }
    if (movesAt <= now && !isMoved) {
      isMoved = true;
      circuits.clear();
      for (const delivery of pending) delivery.dueAt = Math.min(delivery.dueAt, now);
    }
  }

  /** Deliveries that may be sent: those of closed circuits, a probe of each open one, and what was resent. */
  function claim(clock: number): Delivery[] {
    const claimed: Delivery[] = [];
    for (const [type, due] of Map.groupBy(pending, ({ event }) => event.type)) {
      const ready = due.filter(({ dueAt }) => dueAt <= clock);
      const circuit = circuits.get(type);
      if (!isOpen(circuit)) claimed.push(...ready);
      else {
        claimed.push(...ready.filter(({ priority }) => priority === PRIORITY.resend));
        const isDue = (circuit?.probeAt ?? 0) <= clock;
        const probe = isDue ? chooseProbe(ready) : undefined;
        if (probe) claimed.push(probe);
      }
    }
    return takeTurns(claimed).slice(0, CLAIM_MAX);
  }

  /** Resends come first. Then event types take turns, so that none waits for the backlog of another. */
  function takeTurns(claimed: Delivery[]): Delivery[] {
    const ordered = claimed.toSorted((a, b) => a.priority - b.priority || a.dueAt - b.dueAt);
    const positions = new Map<WebhookEvent, number>();
    const turns = ordered.map((delivery) => {
      const position = (positions.get(delivery.event.type) ?? 0) + 1;
      positions.set(delivery.event.type, position);
      return { delivery, turn: delivery.priority === PRIORITY.resend ? 0 : position };
    });
    return turns
      .sort((a, b) => a.turn - b.turn || a.delivery.dueAt - b.delivery.dueAt)
      .map(({ delivery }) => delivery);
  }

  /** The oldest or the newest event that was not tried yet, at random; if all were tried, the one that was tried longest ago. */
  function chooseProbe(ready: Delivery[]): Delivery | undefined {
    const untried = ready.filter(({ priority }) => priority === PRIORITY.untried);
    if (untried.length > 0) return chance.happens(0.5) ? untried[0] : untried.at(-1);
    const others = ready.filter(({ priority }) => priority > PRIORITY.untried);
    return others.sort((a, b) => a.priority - b.priority || a.dueAt - b.dueAt)[0];
  }

  /** Sends what was claimed, as long as the claim is valid, and settles the outcomes. */
  function dispatch(claimed: Delivery[]): void {
    const claimedAt = now;
    const probed = new Set(claimed.filter(({ event }) => isOpen(circuits.get(event.type))));
    const steps = STEPS.dispatch + STEPS.request * Math.min(claimed.length, 4 * concurrency);
    const dies = chance.happens(1 - (1 - deaths) ** steps);
    // If the process dies, it makes some of the requests at most, and records no outcome.
    let requestsLeft = dies ? Math.floor(between(0, claimed.length + 1)) : Infinity;
    const inFlight: Attempt[] = [];
    for (const delivery of claimed) {
      while (inFlight.length >= concurrency) awaitOne();
      if (now > claimedAt + CLAIM_VALID_SECONDS) break;
      if (isOpen(circuits.get(delivery.event.type)) && !probed.has(delivery)) continue;
      if (requestsLeft-- <= 0) break;
      inFlight.push(start(delivery));
      inFlight.sort((a, b) => a.endedAt - b.endedAt);
    }
    while (inFlight.length > 0) awaitOne();
    now += TRANSACTIONS_SECONDS;
    if (chance.happens(lostReplies)) now += TRANSACTIONS_SECONDS;
    // What is recorded while the lease lasts wakes nobody.
    if (dies) {
      const leasedUntil = now + LEASE_SECONDS;
      now = Math.min(nextEventAt(leasedUntil), Math.max(leasedUntil, now + SCHEDULED_JOB_SECONDS));
    }

    function awaitOne(): void {
      const attempt = inFlight.shift() as Attempt;
      now = attempt.endedAt;
      const { event } = attempt.delivery;
      // What was accepted is sent again if its outcome was not recorded.
      if (attempt.response === 200 && !deliveredAt.has(event)) deliveredAt.set(event, now);
      if (!dies) settle(attempt);
    }
  }

  function start(delivery: Delivery): Attempt {
    requests++;
    const { response = 200, retryAfter = 0 } = respond(delivery.event, now) ?? {};
    const took = response === "timed_out" ? TIMEOUT_SECONDS : between(...RESPONSE_SECONDS);
    const startedClosed = !isOpen(circuits.get(delivery.event.type));
    return { delivery, startedClosed, response, retryAfter, startedAt: now, endedAt: now + took };
  }

  function settle(attempt: Attempt): void {
    const { delivery, startedClosed, response, retryAfter, startedAt, endedAt } = attempt;
    const { type } = delivery.event;
    const circuit = circuits.get(type) ?? { rejected: [], failures: 0, probeAt: 0 };
    circuits.set(type, circuit);
    const wasOpen = isOpen(circuit);
    // It started before the circuit opened, so it shows nothing of the endpoint since then.
    const isOld = wasOpen && startedClosed;
    const isBusy = response === 429 || response === 503;
    const isSlow = endedAt - startedAt >= SLOW_SECONDS;
    if (isBusy || isSlow) concurrency = Math.max(1, Math.floor(concurrency / 2));
    if (response === 200) {
      pending.splice(pending.indexOf(delivery), 1);
      if (!isSlow) concurrency = Math.min(concurrency + 1, CONCURRENCY_MAX);
      failing = null;
      if (isOld) return;
      for (const one of circuit.rejected) one.dueAt = Math.min(one.dueAt, endedAt);
      circuits.delete(type);
      return;
    }
    const { priority } = delivery;
    delivery.firstAt ??= startedAt;
    delivery.priority = PRIORITY.retry;
    const isOutage = isBusy || typeof response !== "number";
    if (priority !== PRIORITY.resend) {
      const askedUntil = endedAt + (isBusy ? Math.min(retryAfter, RETRY_AFTER_MAX_SECONDS) : 0);
      failing ??= { since: startedAt, failures: 0, events: new Set() };
      failing.failures++;
      failing.events.add(delivery.event);
      if (priority === PRIORITY.untried && !wasOpen && !isOutage) circuit.rejected.push(delivery);
      const opens = isOutage || circuit.rejected.length >= CIRCUIT_OPENS_AFTER_EVENTS;
      if (isOld) circuit.probeAt = Math.max(circuit.probeAt, askedUntil);
      else if (wasOpen || opens) {
        const steps = isOutage ? CIRCUIT_OUTAGE_SECONDS : CIRCUIT_REJECTED_SECONDS;
        const seconds = steps[Math.min(circuit.failures++, steps.length - 1)] as number;
        circuit.probeAt = Math.max(endedAt + seconds, askedUntil);
      }
    }
    const isExhausted = endedAt - delivery.firstAt >= TRIED_FOR_MAX_MS / 1000;
    // While the circuit is open, it holds the delivery, and the retry schedule stands still.
    const seconds = isOpen(circuit) ? 0 : RETRY_WAITS_SECONDS[delivery.stepsUsed++];
    if (isExhausted || seconds === undefined) pending.splice(pending.indexOf(delivery), 1);
    else delivery.dueAt = endedAt + seconds * (1 + RETRY_JITTER * chance.number());
    const isDead =
      failing !== null &&
      failing.failures >= DISABLE_AFTER_FAILURES &&
      failing.events.size > 1 &&
      endedAt - failing.since >= DISABLE_AFTER_MS / 1000;
    if (isDead) disabledAt = endedAt;
  }

  /**
   * When a message arrives for what may be sent next, unless something happens before. Messages are delayed by whole
   * seconds. One that is underway and arrives in time is enough.
   */
  function nextAt(clock: number): number {
    let sendAt = Infinity;
    for (const { event, dueAt, priority } of pending) {
      const { probeAt = 0 } = circuits.get(event.type) ?? {};
      const at = priority === PRIORITY.resend ? dueAt : Math.max(dueAt, probeAt);
      sendAt = Math.min(sendAt, at);
    }
    const isUnderway = message.sendAt > clock + ARRIVED_SECONDS && message.sendAt <= sendAt;
    if (!isUnderway) message = { sendAt, arrivesAt: now + Math.max(1, Math.ceil(sendAt - clock)) };
    const at = Math.min(message.arrivesAt, nextEventAt());
    return at === Infinity ? hours * 3600 : at;
  }

  /** When others do something next, after `from`, which wakes the subscription. */
  function nextEventAt(from = -Infinity): number {
    const recordedAts = events.slice(recorded).map(({ at }) => at);
    const byHandAt = isSentByHand ? Infinity : (byHand?.at ?? Infinity);
    const all = [...recordedAts, byHandAt, isMoved ? Infinity : movesAt];
    return Math.min(...all.filter((at) => at > from));
  }

  function between(min: number, max: number): number {
    return min + (max - min) * chance.number();
  }
}

/** The figures of the model with one seed. */
function modelWith(scenario: Scenario, seed: number): Figures {
  const { requests, deliveredAt } = simulateModel(scenario, seed);
  const atOf = new Map([...deliveredAt].map(([{ type, place }, at]) => [`${type} ${place}`, at]));
  return figuresOf(scenario, requests, ({ type, place }) => atOf.get(`${type} ${place}`));
}

/**
 * How many seeds the model simulates a scenario with before its figures are compared, and at most. Probes are random, so
 * its figures differ from seed to seed, and in few of them events wait for many minutes. Few seeds are enough for most
 * scenarios.
 */
const SEEDS = { few: 15, many: 300 };

/** The figures of the model in a scenario: the best, the typical and the worst of several seeds. */
export interface Modelled {
  best: Figures;
  typical: Figures;
  worst: Figures;
}

/**
 * Simulates a scenario by the model with more and more seeds. With each seed, what changes in it changes somewhat later:
 * how long an outage is felt depends on when the next probe happens to be.
 *
 * @returns the figures of all seeds so far, time and again.
 */
function* modelWithMore(scenario: Scenario): Generator<Modelled> {
  const { deaths } = scenario;
  const all: Figures[] = [];
  // At best, no process dies by chance.
  const spared: Figures[] = [];
  while (all.length < SEEDS.many) {
    for (let i = 0; i < SEEDS.few; i++) {
      const later = shift(scenario, 37 * i);
      const seed = all.length + 1;
      all.push(modelWith(later, seed));
      if (deaths) spared.push(modelWith({ ...later, deaths: 0 }, seed));
    }
    yield {
      best: pickEach([...all, ...spared], 0),
      typical: pickEach(all, all.length >> 1),
      worst: pickEach(all, -1),
    };
  }
}

/** Returns the figures of the model in a scenario with a few seeds. */
export function modelOf(scenario: Scenario): Modelled {
  return modelWithMore(scenario).next().value as Modelled;
}

/** The scenario, in which what changes changes so many seconds later. */
function shift(scenario: Scenario, seconds: number): Scenario {
  const { rules, byHand, movesAt } = scenario;
  return {
    ...scenario,
    rules: rules.map((rule) => (rule.until ? { ...rule, until: rule.until + seconds } : rule)),
    ...(byHand && { byHand: { ...byHand, at: byHand.at + seconds } }),
    ...(movesAt && { movesAt: movesAt + seconds }),
  };
}

/** Of each figure, the one at this place of their order. */
function pickEach(all: Figures[], place: number): Figures {
  const pick = (name: keyof Figures) =>
    all
      .map((one) => one[name])
      .sort((a, b) => a - b)
      .at(place) as number;
  return {
    median: pick("median"),
    p90: pick("p90"),
    max: pick("max"),
    left: pick("left"),
    requests: pick("requests"),
  };
}

/**
 * What is allowed besides a factor of two. Messages are delayed by whole seconds, and calls take some, too. Whether an event
 * meets a probe that times out is chance.
 */
const SLACK: Figures = {
  median: 3,
  p90: TIMEOUT_SECONDS,
  max: TIMEOUT_SECONDS,
  left: 0,
  requests: 10,
};

/** Returns which figure of the real code in a scenario differs from the model by more than a factor of two; null if none does. */
export function findDifference(real: Figures, scenario: Scenario): string | null {
  let difference: string | null = null;
  for (const modelled of modelWithMore(scenario)) {
    difference = compare(real, modelled);
    // More seeds only widen the range.
    if (difference === null) break;
  }
  return difference;
}

function compare(real: Figures, { best, worst }: Modelled): string | null {
  for (const name of Object.keys(SLACK) as (keyof Figures)[]) {
    const isMore = real[name] > 2 * worst[name] + SLACK[name];
    const isLess = best[name] > 2 * real[name] + SLACK[name];
    if (isMore || isLess)
      return `${name} is ${real[name].toFixed(1)}, and ${best[name].toFixed(1)} to ${worst[name].toFixed(1)} in the model`;
  }
  return null;
}

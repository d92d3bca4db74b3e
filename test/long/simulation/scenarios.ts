import type { Chance } from "../../../scripts/shared/chance.ts";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";

/*
 * Scenarios of one subscription and its endpoint, as data. The model of flow control (model.ts) and the real code
 * (day.ts) live through the same scenario, so that their figures can be compared. Times are seconds since its start.
 */

/** A response of an endpoint: a status, or none. */
export type Response = number | "timed_out" | "unreachable";

export interface Scenario {
  name: string;
  hours: number;
  records: Records[];
  /** What the endpoint does: the first rule that applies decides. It accepts what no rule is about. */
  rules: Rule[];
  /** A person replays all that has failed, or resends the oldest `RESENT_MAX` of what is not delivered. */
  byHand?: { at: number; what: "resend" | "replay" };
  /** When the subscription gets another URL, whose endpoint accepts everything. */
  movesAt?: number;
  /** How far the clocks of two processes may be off, in either direction. */
  clocks?: number;
  /** Share of transactions whose reply is lost after the commit. */
  lostReplies?: number;
  /** Share of steps at which the process of a consumer dies. */
  deaths?: number;
}

/** Maximum events of a call that resends them. */
export const RESENT_MAX = 100;

/** Events of one type that are recorded: `count` together, once or every so often. */
interface Records {
  type: WebhookEvent;
  count?: number;
  from?: number;
  every?: number;
  /** How often at most. */
  times?: number;
}

/** A rule of an endpoint: its response to some events, for some time. */
interface Rule {
  response: Response;
  retryAfter?: number | undefined;
  /** Only to events of this type... */
  type?: WebhookEvent;
  /** ...that were recorded by then... */
  recordedBy?: number;
  /** ...to this share of the events, always the same ones... */
  share?: number;
  /** Only until then. */
  until?: number;
  /** Only once, after that time. */
  onceAfter?: number;
}

/** An event of a scenario. */
export interface ScenarioEvent {
  type: WebhookEvent;
  /** Its place among the events of its type. */
  place: number;
  at: number;
}

/** Returns the events of a scenario, in the order in which they are recorded. */
export function eventsOf({ records, hours }: Scenario): ScenarioEvent[] {
  const ats = records.flatMap(({ type, count = 1, from = 0, every, times = Infinity }) => {
    const n = every === undefined ? 1 : Math.min(times, Math.ceil((hours * 3600 - from) / every));
    return Array.from({ length: n * count }, (_, i) => ({
      type,
      at: from + Math.floor(i / count) * (every ?? 0),
    }));
  });
  const places = new Map<WebhookEvent, number>();
  return ats
    .toSorted((a, b) => a.at - b.at)
    .map(({ type, at }) => {
      const place = places.get(type) ?? 0;
      places.set(type, place + 1);
      return { type, at, place };
    });
}

/** Opens the endpoint of a scenario. @returns the rule that decides about an event at a time; null if it is accepted. */
export function openEndpoint({ rules, movesAt = Infinity }: Scenario) {
  const used = new Set<Rule>();
  return (event: ScenarioEvent, at: number): Rule | null => {
    if (at >= movesAt) return null;
    const rule = rules.find(
      (rule) =>
        concerns(rule, event) &&
        at < (rule.until ?? Infinity) &&
        (rule.onceAfter === undefined || (at >= rule.onceAfter && !used.has(rule))),
    );
    if (rule) used.add(rule);
    return rule ?? null;
  };
}

function concerns({ type, recordedBy = Infinity, share = 1 }: Rule, event: ScenarioEvent): boolean {
  const isOfShare = (event.place * 7919) % 1000 < share * 1000;
  return event.at <= recordedBy && isOfShare && (type ?? event.type) === event.type;
}

/** Since when the endpoint accepts an event; Infinity if it never does. A rule that applies once rejects no event for long. */
function acceptedFrom({ rules, movesAt = Infinity }: Scenario, event: ScenarioEvent): number {
  const ends = rules
    .filter((rule) => rule.onceAfter === undefined && concerns(rule, event))
    .map(({ until = Infinity }) => Math.min(until, movesAt));
  return Math.max(event.at, ...ends);
}

const [LEAD, RUN] = ["lead.created", "run.completed"] as const;
const RATES = { "two seconds": 2, minute: 60, "five minutes": 300 };
const NAMES = { 400: "rejected", 503: "busy", timed_out: "timed out", unreachable: "unreachable" };
const FAILURES = [400, 503, "timed_out"] as const;
const HOURLY_LEAD: Records = { type: LEAD, from: 100, every: 3600 };

/** What the model and the real code are compared in. */
export const SCENARIOS: Scenario[] = [
  ...[300, 1_000].map((count) => ({
    name: `${count} imported and rejected, then a lead an hour`,
    hours: 98,
    records: [{ type: LEAD, count }, HOURLY_LEAD],
    rules: [{ response: 400, recordedBy: 0 }],
  })),
  ...FAILURES.map((response) => ({
    name: `a run a minute ${NAMES[response]}, a lead an hour, of which one fails once`,
    hours: 30,
    records: [HOURLY_LEAD, { type: RUN, every: 60 }],
    rules: [
      { type: RUN, response },
      { type: LEAD, response: 400, onceAfter: 12 * 3600 },
    ],
  })),
  ...[300, 1_800].map((retryAfter) => ({
    name: `a run a minute 503 with Retry-After ${retryAfter}, a lead a minute`,
    hours: 6,
    records: [
      { type: LEAD, from: 7, every: 60 },
      { type: RUN, every: 60 },
    ],
    rules: [{ type: RUN, response: 503, retryAfter }],
  })),
  ...[0.5, 0.8, 0.95].map((share) => ({
    name: `60 at once, ${share * 100} % rejected`,
    hours: 1,
    records: [{ type: LEAD, count: 60 }],
    rules: [{ response: 400, share }],
  })),
  ...Object.entries(RATES).flatMap(([name, every]) =>
    [0.3, 0.5, 0.8, 0.95].map((share) => ({
      name: `a lead each ${name}, ${share * 100} % rejected`,
      hours: 24,
      records: [{ type: LEAD, every, times: 1_800 }],
      rules: [{ response: 400, share }],
    })),
  ),
  ...[10, 30, 60, 120].flatMap((minutes) =>
    FAILURES.map((response) => ({
      name: `outage of ${minutes} min (${NAMES[response]}), a lead each 10 min`,
      hours: minutes / 60 + 8,
      records: [{ type: LEAD, every: 600 }],
      rules: [{ response, until: minutes * 60 }],
    })),
  ),
  ...([400, "unreachable"] as const).map((response) => ({
    name: `outage of 60 min (${NAMES[response]}), a lead each 3 h`,
    hours: 12,
    records: [{ type: LEAD, every: 3 * 3600 }],
    rules: [{ response, until: 3600 }],
  })),
  ...FAILURES.map((response) => ({
    name: `outage of 25 h (${NAMES[response]}), a lead each 10 min`,
    hours: 30,
    records: [{ type: LEAD, every: 600 }],
    rules: [{ response, until: 25 * 3600 }],
  })),
  ...FAILURES.map((response) => ({
    name: `outage of 2 h (${NAMES[response]}), 2,000 waiting`,
    hours: 4,
    records: [{ type: LEAD, count: 2_000 }],
    rules: [{ response, until: 2 * 3600 }],
  })),
  ...FAILURES.flatMap((response) =>
    [45 / 3600, 24].map((hours) => ({
      name: `dead (${NAMES[response]}), 300 waiting, ${hours < 1 ? "45 s" : "a day"}`,
      hours,
      records: [{ type: LEAD, count: 300 }],
      rules: [{ response }],
    })),
  ),
  ...FAILURES.map((response) => ({
    name: `one event, always ${NAMES[response]}, nothing else`,
    hours: 200,
    records: [{ type: LEAD }],
    rules: [{ response }],
  })),
  ...(["resend", "replay"] as const).map((what) => ({
    name: `outage of 2 h (timed out), 20 waiting, ${what} when it ends`,
    hours: 4,
    records: [{ type: LEAD, count: 20 }],
    rules: [{ response: "timed_out" as const, until: 2 * 3600 }],
    byHand: { at: 2 * 3600 + 1, what },
  })),
  {
    name: "dead (503 with Retry-After 1800), 400 waiting, another URL after 3 h",
    hours: 5,
    records: [{ type: LEAD, count: 400 }],
    rules: [{ response: 503, retryAfter: 1_800 }],
    movesAt: 3 * 3600,
  },
  ...[0.5, 0.8].map((share) => ({
    name: `a lead each minute, ${share * 100} % rejected, clocks that differ by a second`,
    hours: 24,
    records: [{ type: LEAD, every: 60 }],
    rules: [{ response: 400, share }],
    clocks: 0.5,
  })),
  {
    name: "3,000 at once, all accepted",
    hours: 1,
    records: [{ type: LEAD, count: 3_000 }],
    rules: [],
  },
  {
    name: "a lead each two seconds, 30 % rejected, 5 % of replies lost",
    hours: 2,
    records: [{ type: LEAD, every: 2 }],
    rules: [{ response: 400, share: 0.3 }],
    lostReplies: 0.05,
  },
  {
    name: "a lead each two seconds, 30 % rejected, 0.2 % of steps lethal",
    hours: 2,
    records: [{ type: LEAD, every: 2 }],
    rules: [{ response: 400, share: 0.3 }],
    deaths: 0.002,
  },
];

/** Picks a scenario: an endpoint that rejects a part, a type or everything for a while, and perhaps something else. */
export function pickScenario(chance: Chance): Scenario {
  const every = chance.pick([2, 20, 60, 600]);
  const times = chance.pick([20, 50, 100]);
  const backlog = { type: chance.pick([LEAD, RUN]), count: chance.pick([1, 1, 50, 300]) };
  const runs = chance.happens(0.5) ? [{ type: RUN, every: chance.pick([60, 600]), times }] : [];
  const hours = (every * times) / 3600 + 2;
  const response = chance.pick<Response>([400, 422, 500, 503, "timed_out", "unreachable"]);
  const retryAfter = chance.pick([null, 0, 59, 600, 1_800, 86_400]) ?? undefined;
  const until = chance.pick([600, 1_800, 3_600, Math.min(hours * 1_800, 90_000)]);
  const rule = chance.pick<Partial<Rule>>([
    { share: chance.pick([0.3, 0.5, 0.8, 0.95]), response: chance.pick([400, 422, 500]) },
    { type: RUN },
    { recordedBy: 0, response: chance.pick([400, 422, 500]) },
    { until },
    { until, type: RUN },
    { share: 0 },
  ]);
  const isByHand = chance.happens(0.2);
  const rules = [{ response, retryAfter, ...rule }];
  if (chance.happens(0.2)) rules.push({ response: 400, retryAfter: undefined, onceAfter: 900 });
  return {
    name: "a picked scenario",
    hours,
    records: [backlog, { type: LEAD, from: 60, every, times }, ...runs],
    rules,
    ...(isByHand && { byHand: { at: until + 1, what: chance.pick(["resend", "replay"]) } }),
    ...(chance.happens(0.1) && { movesAt: until + 2 }),
    clocks: chance.pick([0, 0.02, 0.5]),
    lostReplies: chance.pick([0, 0, 0, 0, 0.05]),
    deaths: chance.pick([0, 0, 0, 0, 0.005]),
  };
}

/** What a scenario did: how long the events waited that the endpoint would accept, in seconds, and how many requests it got. */
export interface Figures {
  median: number;
  p90: number;
  max: number;
  /** Events that it would accept, and never got. */
  left: number;
  requests: number;
}

/** An event that is accepted so late in the scenario is not counted. */
const SETTLED_WITHIN_SECONDS = 600;

/** @param deliveredAt when each event was delivered: undefined if it was not. */
export function figuresOf(
  scenario: Scenario,
  requests: number,
  deliveredAt: (event: ScenarioEvent) => number | undefined,
): Figures {
  const waits: number[] = [];
  for (const event of eventsOf(scenario)) {
    const from = acceptedFrom(scenario, event);
    if (from <= scenario.hours * 3600 - SETTLED_WITHIN_SECONDS)
      waits.push(Math.max(0, (deliveredAt(event) ?? Infinity) - from));
  }
  const got = waits.filter(Number.isFinite).sort((a, b) => a - b);
  const quantile = (p: number) => got[Math.min(got.length - 1, Math.floor(got.length * p))] ?? 0;
  return {
    ...{ median: quantile(0.5), p90: quantile(0.9), max: quantile(1) },
    ...{ left: waits.length - got.length, requests },
  };
}

/** What is counted, in Cloudflare's billed units. */
type Unit = keyof typeof PRICES;

/**
 * Cloudflare's prices in US dollars, of the paid plan: what a month includes, and one more unit. From
 * the pages on pricing of Workers, Durable Objects, D1 and Queues, in November 2026.
 */
const PRICES = {
  "Worker requests": { included: 10e6, each: 0.3e-6 },
  "CPU, ms": { included: 30e6, each: 0.02e-6 },
  "object requests": { included: 1e6, each: 0.15e-6 },
  "object duration, GB-s": { included: 400e3, each: 12.5e-6 },
  "D1 rows read": { included: 25e9, each: 0.001e-6 },
  "D1 rows written": { included: 50e6, each: 1e-6 },
  "D1 storage, GB": { included: 5, each: 0.75 },
  "queue operations": { included: 1e6, each: 0.4e-6 },
  "log lines": { included: 20e6, each: 0.6e-6 },
};
const PLAN = 5;

/** Leads recorded in the month, each announced to three subscribers, and pages of 25 that are read. */
const LEADS = 1e6;
const PAGES = 3e6;
const SUBSCRIBERS = 3;
const SWEEPS = 30 * 24 * 60;

/**
 * What a lead takes with its event and three deliveries, by how many are recorded in a call: as
 * `measureCost` reports it, without the audit trail. The rest are upper bounds: a batch and a dispatch
 * for each call.
 */
const RECORDED = {
  1: { rowsRead: 95, rowsWritten: 12.1, queueOperations: 9.1 },
  100: { rowsRead: 57.6, rowsWritten: 12.1, queueOperations: 0.1 },
};
/** What the sweep takes to delete its event and deliveries 30 days later, and to find nothing. */
const DELETED = { rowsRead: 62.3, rowsWritten: 4 };
const IDLE_SWEEP_ROWS = 40;
/** A call in the audit trail: its row and its place in the list of its workspace; deleted a year later. */
const AUDIT_ROWS = 2 * 2;
/** Upper bounds, from `cpu_ms_per_request` and the rates on two cores: they include the database. */
const CPU_MS = { page: 2.5, recorded: 3.8, delivered: 0.5 };
/** `bytes_per_lead`, and its event with three deliveries. */
const LEAD_BYTES = 444;
const EVENT_BYTES = 169 + SUBSCRIBERS * 159;
/** A gate is in memory for at most this long after a request: until its counts are written. */
const GATE_SECONDS = 0.5;
const GATE_GB = 0.128;

/** What the month takes if leads are recorded so many in a call. */
function usage(perCall: keyof typeof RECORDED): Record<Unit, number> {
  const calls = LEADS / perCall;
  const { rowsRead, rowsWritten, queueOperations } = RECORDED[perCall];
  const deliveries = LEADS * SUBSCRIBERS;
  return {
    // Calls from another Worker are not billed.
    "Worker requests": PAGES + calls + SWEEPS,
    "CPU, ms": PAGES * CPU_MS.page + LEADS * CPU_MS.recorded + deliveries * CPU_MS.delivered,
    "object requests": PAGES + calls,
    "object duration, GB-s": (PAGES + calls) * GATE_SECONDS * GATE_GB,
    "D1 rows read": PAGES * 26 + LEADS * (rowsRead + DELETED.rowsRead) + SWEEPS * IDLE_SWEEP_ROWS,
    "D1 rows written": LEADS * (rowsWritten + DELETED.rowsWritten) + calls * AUDIT_ROWS,
    "D1 storage, GB": (LEADS * (LEAD_BYTES + EVENT_BYTES)) / 1e9,
    "queue operations": LEADS * queueOperations,
    "log lines": PAGES + 2 * calls,
  };
}

/** The example of a month in docs/performance.md, as lines of Markdown; what costs nothing is left out. */
export function monthTable(): string[] {
  const [single, hundred] = [usage(1), usage(100)];
  const units = Object.keys(PRICES) as Unit[];
  const cost = (unit: Unit, amount: number) => {
    const { included, each } = PRICES[unit];
    return Math.max(0, amount - included) * each;
  };
  const total = (month: Record<Unit, number>, of: typeof cost) =>
    units.reduce((sum, unit) => sum + of(unit, month[unit]), 0);
  const beyond = (unit: Unit, amount: number) => amount * PRICES[unit].each;
  const billed = units.filter((unit) => cost(unit, single[unit]) + cost(unit, hundred[unit]) > 0);
  const rows = billed.map((unit) => [
    unit,
    ...[single, hundred].flatMap((month) => [show(month[unit]), dollars(cost(unit, month[unit]))]),
    show(PRICES[unit].included),
  ]);
  return [
    ["", "one by one", "cost", "by the hundred", "cost", "included"],
    ["---", "---", "---", "---", "---", "---"],
    ...rows,
    ["the plan", "", dollars(PLAN), "", dollars(PLAN), ""],
    [
      "**the month**",
      "",
      `**${dollars(PLAN + total(single, cost))}**`,
      "",
      `**${dollars(PLAN + total(hundred, cost))}**`,
      "",
    ],
    [
      "the same again, with nothing included",
      "",
      dollars(total(single, beyond)),
      "",
      dollars(total(hundred, beyond)),
      "",
    ],
  ].map((cells) => `| ${cells.join(" | ")} |`);
}

const dollars = (amount: number) => `$${amount.toFixed(2)}`;

/** A number with at most three digits that matter. */
function show(amount: number): string {
  const [divisor, suffix] = amount >= 1e9 ? [1e9, " G"] : amount >= 1e6 ? [1e6, " M"] : [1, ""];
  return `${Number((amount / divisor).toPrecision(3)).toLocaleString("en-US")}${suffix}`;
}

/**
 * `npm run price` prints the tables of docs/performance.md that are calculated: the cost of a month at three sizes, and
 * what a client far away waits for. A test compares them. With `--leads` and `--webhooks`, it prints the cost for these.
 */
import { fail, parseArguments, parseCount } from "../scripts/shared/command.ts";
import { print } from "../scripts/shared/terminal.ts";

const USAGE = `npm run price -- [--leads N] [--webhooks N]

Prints what a month costs, in US dollars.

  --leads N     the leads of a month, instead of three sizes; a run costs about as much as a lead
  --webhooks N  how many webhooks get the event of each lead (3)
`;

/** Cloudflare's prices on the Workers Paid plan, in dollars, and what it includes each month. */
const PRICES_OF = "2026-11-26";
const PLAN = 5;
const PRICES = {
  requests: { included: 10e6, per: 1e6, price: 0.3 },
  cpuMs: { included: 30e6, per: 1e6, price: 0.02 },
  rowsRead: { included: 25e9, per: 1e6, price: 0.001 },
  rowsWritten: { included: 50e6, per: 1e6, price: 1 },
  storedBytes: { included: 5e9, per: 1e9, price: 0.75 },
  objectRequests: { included: 1e6, per: 1e6, price: 0.15 },
  objectGbSeconds: { included: 400_000, per: 1e6, price: 12.5 },
  objectRowsWritten: { included: 50e6, per: 1e6, price: 1 },
  queueOperations: { included: 1e6, per: 1e6, price: 0.4 },
  lines: { included: 20e6, per: 1e6, price: 0.6 },
};
type Item = keyof typeof PRICES;
type Use = Record<Item, number>;

const LABELS: Record<Item, string> = {
  requests: "requests and queue batches",
  cpuMs: "CPU time",
  rowsRead: "rows read",
  rowsWritten: "rows written",
  storedBytes: "storage after a year",
  objectRequests: "object requests",
  objectGbSeconds: "object time",
  objectRowsWritten: "object rows written",
  queueOperations: "queue operations",
  lines: "log lines",
};

/**
 * The life of an event with three subscriptions, from its record to its expiry, by how it was recorded:
 * `npm run bench -- --only month`. CPU time is an upper bound, from the throughput of two cores on which the
 * database and the receivers ran, too.
 */
export const LIFE = {
  alone: { rowsRead: 730, rowsWritten: 22, messages: 3, lines: 2, cpuMs: 6.5 },
  together: { rowsRead: 165, rowsWritten: 16.1, messages: 0.03, lines: 0.03, cpuMs: 3 },
};
/** The subscriptions of the measured event. */
const MEASURED_WEBHOOKS = 3;
/** The share of the record in `LIFE`, which does not grow with the subscriptions: from lives with one and with two. */
const RECORD = {
  alone: { rowsRead: 10, rowsWritten: 4, messages: 0, lines: 2, cpuMs: 0 },
  together: { rowsRead: 24, rowsWritten: 4, messages: 0, lines: 0.03, cpuMs: 0 },
};
/** A page of 25 leads; the object of its key writes at most once for each, and works 5 ms in 128 MB. */
export const PAGE = { rowsRead: 26, lines: 1, cpuMs: 4, objectGbSeconds: 0.005 * 0.128 };
const PAGES_PER_EVENT = 3;
/** The resources of a sweep that finds nothing to do. */
export const SWEEP = { rowsRead: 42, rowsWritten: 4, lines: 1 };
const SWEEPS = 30 * 24 * 60;
/** The operations of a message, which is written, read and deleted. */
const OPERATIONS_PER_MESSAGE = 3;
/** The size of the docs' sample lead in the database file, where it stays for good (test/worker/recording/size.test.ts). */
export const LEAD_BYTES = 473;
/**
 * The size of a lead's event in the database file, where it stays for a month: with one delivery, and what each further
 * one adds.
 */
const EVENT_BYTES = 360;
const DELIVERY_BYTES = 230;
const DATABASE_BYTES = 8e9;

const SIZES = [1e6, 10e6, 100e6];
const WAYS = ["alone", "together"] as const;
type Way = (typeof WAYS)[number];

/** The options of a deployment. */
interface Choice {
  way: Way;
  webhooks?: number;
  pagesPerEvent?: number;
  sampledLines?: number;
}

/** Computes the use of a month in which `events` leads are recorded, announced and read. */
function useOf(
  events: number,
  { way, webhooks = MEASURED_WEBHOOKS, pagesPerEvent = PAGES_PER_EVENT, sampledLines = 1 }: Choice,
) {
  const of = (unit: keyof (typeof LIFE)[Way]) =>
    RECORD[way][unit] + ((LIFE[way][unit] - RECORD[way][unit]) * webhooks) / MEASURED_WEBHOOKS;
  const pages = events * pagesPerEvent;
  const use: Use = {
    requests: pages + events * of("messages") + SWEEPS,
    cpuMs: events * of("cpuMs") + pages * PAGE.cpuMs,
    rowsRead: events * of("rowsRead") + pages * PAGE.rowsRead + SWEEPS * SWEEP.rowsRead,
    rowsWritten: events * of("rowsWritten") + SWEEPS * SWEEP.rowsWritten,
    storedBytes: events * (12 * LEAD_BYTES + EVENT_BYTES + (webhooks - 1) * DELIVERY_BYTES),
    objectRequests: pages,
    objectGbSeconds: pages * PAGE.objectGbSeconds,
    objectRowsWritten: pages,
    queueOperations: events * of("messages") * OPERATIONS_PER_MESSAGE,
    lines: sampledLines * (events * of("lines") + pages * PAGE.lines + SWEEPS * SWEEP.lines),
  };
  return use;
}

function costOf(item: Item, used: number): number {
  const { included, per, price } = PRICES[item];
  return (Math.max(0, used - included) / per) * price;
}

/** Computes the whole price as the sum of whole dollars, so that the lines of the table add up to it. */
function totalOf(use: Use): number {
  return ITEMS.reduce((sum, item) => sum + Math.round(costOf(item, use[item])), PLAN);
}

const ITEMS = Object.keys(PRICES) as Item[];
const dollars = (amount: number) =>
  `$${amount.toLocaleString("en-US", { maximumFractionDigits: 0 })}`;
const millions = (count: number) => `${count / 1e6} M leads`;
const row = (cells: string[]) => `| ${cells.join(" | ")} |`;

/** Writes the tables in Markdown, for months with so many leads, each announced to so many webhooks. */
export function priceTables(sizes = SIZES, webhooks = MEASURED_WEBHOOKS): string {
  const columns = sizes.flatMap((events) => WAYS.map((way) => ({ events, way })));
  const uses = columns.map(({ events, way }) => useOf(events, { way, webhooks }));
  const heads = columns.map(
    ({ events, way }) => `${millions(events)}, ${way === "alone" ? "one by one" : "in batches"}`,
  );
  const line = (label: string, cell: (use: Use) => string) => row([label, ...uses.map(cell)]);
  const largest = (use: Use) => {
    const [item] = ITEMS.toSorted((a, b) => costOf(b, use[b]) - costOf(a, use[a]));
    if (!item || costOf(item, use[item]) < PLAN) return "the plan";
    return `${LABELS[item]}, ${Math.round((100 * costOf(item, use[item])) / totalOf(use))}%`;
  };
  const month = [
    row([`prices of ${PRICES_OF}`, ...heads]),
    row(["---", ...columns.map(() => "---")]),
    ...ITEMS.filter((item) => uses.some((use) => costOf(item, use[item]) >= 0.5)).map((item) =>
      line(LABELS[item], (use) => dollars(costOf(item, use[item]))),
    ),
    line("the plan", () => dollars(PLAN)),
    line("**the month**", (use) => `**${dollars(totalOf(use))}**`),
    line("largest", largest),
    line("databases after a year", ({ storedBytes }) =>
      String(Math.ceil(storedBytes / DATABASE_BYTES)),
    ),
  ];

  const events = Math.max(...sizes);
  const base = totalOf(useOf(events, { way: "alone", webhooks }));
  const choices: [string, Choice][] = [
    ["record in batches of 100", { way: "together" }],
    ["receive events instead of reading pages", { way: "alone", pagesPerEvent: 0 }],
    ["log one invocation in ten (`head_sampling_rate`)", { way: "alone", sampledLines: 0.1 }],
    ["all of these, which overlap", { way: "together", pagesPerEvent: 0, sampledLines: 0.1 }],
  ];
  const savings = [
    row([`${millions(events)}, one by one: ${dollars(base)}`, "saves"]),
    row(["---", "---"]),
    ...choices.map(([label, choice]) =>
      row([label, dollars(base - totalOf(useOf(events, { ...choice, webhooks })))]),
    ),
  ];
  return `${month.join("\n")}\n\n${savings.join("\n")}`;
}

/** The round trips between a client in Sydney and the EU, and between the Worker and what it calls, both in the EU. */
const SYDNEY_MS = 280;
const HOP_MS = 5;
/** The network hops of requests: `npm run bench -- --only reads`, and test/worker/http/hops.test.ts. */
const HOPS: Record<string, number> = {
  "read, key cached by the isolate": 1,
  "read, key not cached": 2,
  "`PATCH`": 3,
  "429 from the isolate's cache": 0,
};

/** Writes in Markdown how long a client in Sydney waits, by where the Worker runs. */
export function distanceTable(): string {
  const ms = (time: number) => time.toLocaleString("en-US");
  return [
    row(["request from Sydney, ms", "Worker near the client", "`placement` in the EU"]),
    row(["---", "---", "---"]),
    ...Object.entries(HOPS).map(([request, hops]) =>
      row([request, ms(hops * SYDNEY_MS), ms(SYDNEY_MS + hops * HOP_MS)]),
    ),
  ].join("\n");
}

if (import.meta.main) {
  process.on("uncaughtException", fail);
  const { leads, webhooks } = parseArguments(USAGE, {
    leads: { type: "string" },
    webhooks: { type: "string", default: String(MEASURED_WEBHOOKS) },
  }).values;
  const sizes = leads === undefined ? SIZES : [parseCount("--leads", leads)];
  const tables = priceTables(sizes, parseCount("--webhooks", webhooks));
  print(leads === undefined ? `${tables}\n\n${distanceTable()}` : tables);
}

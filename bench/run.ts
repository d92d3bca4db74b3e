/**
 * Measures how fast the service reads, records and delivers, what that costs, and how well clients
 * and subscribers are isolated from each other.
 *
 *     npm run bench
 *     npm run bench -- --quick --json figures.json --chart docs/reads.svg
 *     npm run bench -- --only hostile
 *     npm run bench -- --only framework
 *     npm run bench -- --only by-hand
 *
 * Every figure that depends on the machine is shown with its counterpart from the same bench.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../scripts/shared/checkout.ts";
import { openSteps, parseArguments } from "../scripts/shared/command.ts";
import { useMemory } from "../scripts/shared/memory.ts";
import { buildWorker, startRuntime } from "../scripts/shared/runtime.ts";
import { measureByHand } from "./beside-by-hand.ts";
import { measureBundle, measureStartup } from "./bundle.ts";
import { drawReads } from "./chart.ts";
import { measureCost } from "./cost.ts";
import { measureDatabases } from "./databases.ts";
import { describeFigures, type Figures } from "./figures.ts";
import { measureFramework } from "./framework.ts";
import { measureHostile } from "./hostile.ts";
import { measureFairness, measureIsolation, prepareIsolation } from "./isolation.ts";
import { monthTable } from "./month.ts";
import { measureMoves } from "./moves.ts";
import { measurePages } from "./pages.ts";
import { measureReads, READS } from "./reads.ts";
import { measureDelivering, measureRecording } from "./recording.ts";
import { measureShedding } from "./shedding.ts";
import { measureSizes } from "./sizes.ts";

const USAGE = `npm run bench -- [--quick] [--only hostile|framework|by-hand|month] [--json FILE] [--chart FILE]

Measures how fast the service reads, records and delivers, what that costs, and how well clients and
subscribers are isolated from each other.

  --quick           fewer and shorter measurements
  --only hostile    only deliveries to hostile receivers, which --quick otherwise omits
  --only framework  only the framework's share of a read
  --only month      only what a month costs (docs/performance.md), which measures nothing
  --only by-hand    only the comparison with a Worker written by hand
  --json FILE       also writes the figures to FILE
  --chart FILE      draws a chart of the reads, as SVG
`;

const { values } = parseArguments(USAGE, {
  quick: { type: "boolean", default: false },
  only: { type: "string" },
  json: { type: "string" },
  chart: { type: "string" },
});
const { quick, only } = values;
if (only !== undefined && !["hostile", "framework", "by-hand", "month"].includes(only))
  throw new Error("--only accepts hostile, framework, by-hand or month");
if (only === "month") {
  console.log(monthTable().join("\n"));
  process.exit();
}
const vars = { QUOTA_REQUESTS: 100_000_000 };
useMemory();

const step = openSteps();
step("building");
const shipped = buildWorker();
const build = (name: string) =>
  buildWorker(join(ROOT, "dist/bench", name), join(ROOT, "bench", `${name}.ts`));
const meteredBundle = build("worker");
const measureWorld = () => measureHostile({ shipped, metered: meteredBundle, vars, quick, step });
const byHandBundle = build("by-hand");
const compareByHand = () => {
  step("a Worker written by hand");
  return measureByHand(
    { shipped, byHand: byHandBundle },
    { vars },
    quick
      ? { rounds: 1, seconds: 1, eventsARound: 1_000, isolatedEvents: 10 }
      : { rounds: 5, seconds: 3, eventsARound: 3_000, isolatedEvents: 50 },
  );
};
if (only === "hostile" || only === "by-hand") {
  const { figures, tables } = await (only === "hostile" ? measureWorld() : compareByHand());
  step("");
  for (const { title, rows } of tables) show(title, rows);
  reportFigures(figures);
  process.exit();
}
const floorBundle = build("floor");
if (only === "framework") {
  step("the framework's share");
  const framework = await measureFramework(shipped, floorBundle, quick ? 6 : 10, quick ? 1 : 3);
  step("");
  showFramework(framework);
  process.exit();
}

const metered = await startRuntime({ bundle: meteredBundle, vars });
step("reads from afar");
const reads = await measureReads(
  metered,
  quick ? [0, 20, 40] : [0, 10, 20, 40, 80],
  quick ? 7 : 25,
);
step("what deliveries cost");
const shapes = [
  { subscriptions: 1, calls: quick ? 20 : 50, leads: 1 },
  { subscriptions: 20, calls: quick ? 5 : 20, leads: 1 },
  { subscriptions: 1, calls: quick ? 2 : 20, leads: 100 },
  { subscriptions: 20, calls: quick ? 1 : 5, leads: 100 },
];
const costs = [];
for (const shape of shapes) costs.push({ shape, cost: await measureCost(metered, shape) });
step("recording");
const recording = await measureRecording(metered, quick ? 1 : 5, quick ? 2_000 : 5_000);
const rows = quick ? 100_000 : 1_000_000;
step(`pages of ${rows} leads`);
const pages = await measurePages(metered, rows, quick ? 20 : 200);
step("delivering");
const delivering = await measureDelivering(metered, quick ? 1 : 5, quick ? 1_000 : 3_000);
await metered.stop();
const databases = await measureDatabases({ bundle: meteredBundle, vars, quick, step });
step("a workspace that moves to another database");
const moves = await measureMoves({ bundle: meteredBundle, vars, quick });
step("bytes in the database");
const sizes = await measureSizes({ bundle: meteredBundle, vars, quick });

step("the framework's share");
const runtime = await startRuntime({ vars });
// Someone waits ten seconds for an answer there, and nothing else happens.
const ground = prepareIsolation(runtime);
const framework = await measureFramework(shipped, floorBundle, quick ? 6 : 10, quick ? 1 : 3);
const isolationGround = await ground;
step("a single event behind a burst");
const fairness = await measureFairness(runtime, quick ? 1_000 : 10_000);
step("a hanging subscriber next to nine healthy ones");
const isolation = await measureIsolation(isolationGround, quick ? 1 : 5, quick ? 25 : 100);
step("a well-behaved client in a flood");
const shedding = await measureShedding(runtime, quick ? 1 : 5, quick ? 1 : 3);
await runtime.stop();
const byHand = await compareByHand();
const hostile = quick ? null : await measureWorld();

step("bundle and start");
const bundle = measureBundle(shipped);
const start = quick ? null : measureStartup(join(ROOT, "wrangler.toml"), 5);
const hello = quick ? null : measureHello();
step("");

const first = pages[0];
const deepest = pages.at(-1);
const figures: Figures = {
  ...hostile?.figures,
  ...byHand.figures,
  ...databases.figures,
  ...moves.figures,
  ...sizes.figures,
  hot_read_hops: reads.hops.hot,
  cold_read_hops: reads.hops.cold,
  naive_read_hops: reads.hops.naive,
  flood_hops: reads.hops.flood,
  rows_read_over_limit: Math.max(...pages.map(({ rowsRead }) => rowsRead)) - 25,
  deep_page_ratio: (deepest?.ms ?? Number.NaN) / (first?.ms ?? Number.NaN),
  framework_ratio: framework.frameworkRatio,
  cpu_ms_per_request: framework.cpuMsPerRequest,
  bare_cpu_ms_per_request: framework.bareCpuMsPerRequest,
  leads_per_second: recording.leadsPerSecond,
  single_leads_per_second: recording.singleLeadsPerSecond,
  recording_ratio: recording.leadsPerSecond / recording.insertsPerSecond,
  deliveries_per_second: delivering.deliveriesPerSecond,
  delivering_ratio: delivering.deliveriesPerSecond / delivering.postsPerSecond,
  receipt_p50_ms: delivering.receiptP50Ms,
  receipt_p99_ms: delivering.receiptP99Ms,
  isolation_ratio: isolation.isolationRatio,
  batches_behind_a_burst: fairness.batchesWaited,
  flooded_p99_ratio: shedding.floodedP99Ms / shedding.aloneP99Ms,
  d1_round_trips_per_batch: costs.at(-1)?.cost.roundTripsPerBatch ?? Number.NaN,
  bundle_gzip_bytes: bundle.gzipBytes,
};
if (start !== null) figures.startup_cpu_ms = start;

show(
  "GET /v1/automations over the round trip to D1 and the Durable Objects: median, ms",
  READS.map((read) => ({
    read,
    ...Object.fromEntries(reads.roundTripsMs.map((ms, i) => [`${ms} ms`, reads.times[read][i]])),
    hops: reads.hops[read],
  })),
);
show(
  `Pages of 25 of ${rows} leads`,
  pages.map(({ page, rowsRead, ms }) => ({ page, "rows read": rowsRead, ms })),
);
showFramework(framework);
show("Leads per second through the Platform API, and raw inserts in D1 batches", [
  {
    calls: "of 100",
    leads: recording.leadsPerSecond,
    inserts: recording.insertsPerSecond,
    ratio: recording.leadsPerSecond / recording.insertsPerSecond,
  },
  {
    calls: "of 1",
    leads: recording.singleLeadsPerSecond,
    inserts: recording.singleInsertsPerSecond,
    ratio: recording.singleLeadsPerSecond / recording.singleInsertsPerSecond,
  },
]);
show("Events delivered to a fast receiver, and bare posts from a Worker", [
  {
    "deliveries / s": delivering.deliveriesPerSecond,
    "bare posts / s": delivering.postsPerSecond,
    ratio: delivering.deliveriesPerSecond / delivering.postsPerSecond,
    "record to receipt p50, ms": delivering.receiptP50Ms,
    "p99, ms": delivering.receiptP99Ms,
  },
]);
show(
  "What a delivery costs, from its record to its settlement",
  costs.map(({ shape, cost }) => ({
    subscriptions: shape.subscriptions,
    "leads per call": shape.leads,
    deliveries: cost.deliveries,
    "D1 trips / consumer batch": cost.roundTripsPerBatch,
    "D1 trips / delivery": cost.roundTripsPerDelivery,
    "rows read / delivery": cost.rowsReadPerDelivery,
    "rows written / delivery": cost.rowsWrittenPerDelivery,
    "queue operations / delivery": cost.queueOperationsPerDelivery,
  })),
);
show("How well subscribers are isolated", [
  {
    "p99 of nine healthy ones, ms": isolation.healthyP99Ms,
    "next to one that hangs, ms": isolation.besideHangingP99Ms,
    ratio: isolation.isolationRatio,
    "behind a burst, batches": fairness.batchesWaited,
    "behind a burst, ms": fairness.waitedMs,
  },
]);
show("The effect of a flood of invalid and used-up keys on a well-behaved client", [
  {
    "p99 alone, ms": shedding.aloneP99Ms,
    "p99 in the flood, ms": shedding.floodedP99Ms,
    "refused in total": shedding.refused,
  },
]);
for (const { title, rows } of [
  ...byHand.tables,
  ...databases.tables,
  ...moves.tables,
  ...sizes.tables,
  ...(hostile?.tables ?? []),
])
  show(title, rows);
show("The bundle, and a Hono hello world", [
  { worker: "public-api", ...bundle, "start-up CPU, ms": start ?? undefined },
  ...(hello ? [hello] : []),
]);
reportFigures(figures);
if (values.chart) writeFileSync(values.chart, drawReads(reads));

function showFramework(framework: Awaited<ReturnType<typeof measureFramework>>): void {
  show("GET /v1/automations, 25 items, 10 connections: shipped Worker and bare handler", [
    {
      "requests / s": framework.requestsPerSecond,
      "bare requests / s": framework.bareRequestsPerSecond,
      ratio: framework.frameworkRatio,
      "CPU ms / request": framework.cpuMsPerRequest,
      "bare CPU ms / request": framework.bareCpuMsPerRequest,
    },
  ]);
}

/** The same for a hello world. */
function measureHello() {
  const config = join(ROOT, "bench/hello.toml");
  const outdir = join(ROOT, "dist/bench/hello");
  const bundle = buildWorker(outdir, join(ROOT, "bench/hello.ts"), config);
  const start = measureStartup(config, 5);
  return { worker: "hello world", ...measureBundle(bundle), "start-up CPU, ms": start };
}

/**
 * Shows the figures, each with its unit and what it is compared with; `--json` also writes them.
 */
function reportFigures(figures: Figures): void {
  console.log("Figures, by their names in --json");
  console.log(`${describeFigures(figures).join("\n")}\n`);
  if (values.json) writeFileSync(values.json, `${JSON.stringify(figures, null, 2)}\n`);
}

/** A table with numbers rounded to three decimals. */
function show(title: string, table: Record<string, string | number | undefined>[]): void {
  console.log(title);
  console.table(
    table.map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([name, value]) => [
          name,
          typeof value === "number" ? Math.round(value * 1000) / 1000 : value,
        ]),
      ),
    ),
  );
}

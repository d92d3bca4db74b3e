/**
 * Measures what deliveries cost, and how well subscribers are kept apart.
 *
 *     npm run bench
 *     npm run bench -- --quick --json figures.json
 *
 * Every figure that depends on the machine stands beside its counterpart from the same run.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ROOT } from "../scripts/checkout.ts";
import { buildWorker, startRuntime } from "../scripts/runtime.ts";
import { measureCost } from "./cost.ts";
import { measureFairness, measureIsolation } from "./isolation.ts";
import { measureShedding } from "./shedding.ts";

const { values } = parseArgs({
  options: { quick: { type: "boolean", default: false }, json: { type: "string" } },
});
const { quick } = values;
const figures: Record<string, number> = {};

progress("building");
buildWorker();
const bundle = buildWorker(join(ROOT, "dist/bench"), join(ROOT, "bench/worker.ts"));
const vars = { QUOTA_REQUESTS: 1_000_000 };

progress("what deliveries cost");
const metered = await startRuntime({ bundle, vars });
const shapes = [
  { subscriptions: 1, calls: 50, leads: 1 },
  { subscriptions: 20, calls: 20, leads: 1 },
  { subscriptions: 1, calls: quick ? 5 : 20, leads: 100 },
  { subscriptions: 20, calls: quick ? 1 : 5, leads: 100 },
];
const costs = [];
for (const shape of shapes) costs.push({ shape, cost: await measureCost(metered, shape) });
await metered.stop();
const largest = costs.at(-1)?.cost;
figures.d1_round_trips_per_batch = largest?.roundTripsPerBatch ?? Number.NaN;

const runtime = await startRuntime({ vars });
progress("a burst beside a single event");
const fairness = await measureFairness(runtime, quick ? 2_000 : 10_000);
figures.batches_behind_a_burst = fairness.batchesWaited;
progress("a subscriber that hangs beside nine healthy ones");
const isolation = await measureIsolation(runtime, quick ? 1 : 5, quick ? 50 : 100);
figures.isolation_ratio = isolation.isolationRatio;
progress("a good client in a flood of bad ones");
const shedding = await measureShedding(runtime, quick ? 1 : 5, quick ? 200 : 500);
figures.flooded_p99_ratio = shedding.floodedP99Ms / shedding.aloneP99Ms;
await runtime.stop();

progress("");
console.log("What a delivery costs, from its record to its settlement");
console.table(
  costs.map(({ shape, cost }) => ({
    subscriptions: shape.subscriptions,
    "leads a call": shape.leads,
    deliveries: cost.deliveries,
    "D1 trips / consumer batch": round(cost.roundTripsPerBatch),
    "D1 trips / delivery": round(cost.roundTripsPerDelivery),
    "rows read / delivery": round(cost.rowsReadPerDelivery),
    "rows written / delivery": round(cost.rowsWrittenPerDelivery),
    "queue operations / delivery": round(cost.queueOperationsPerDelivery),
  })),
);
console.log("How well subscribers are kept apart");
console.table({
  "p99 of nine healthy subscribers, ms": round(isolation.healthyP99Ms),
  "the same beside one that hangs, ms": round(isolation.besideHangingP99Ms),
  "isolation ratio": round(isolation.isolationRatio),
  [`a single event behind a burst of ${quick ? "2 000" : "10 000"}, ms`]: round(fairness.waitedMs),
  "the same in consumer batches": round(fairness.batchesWaited),
});
console.log("What a flood of bad and exhausted keys does to a good client");
console.table({
  "p99 of its reads alone, ms": round(shedding.aloneP99Ms),
  "p99 in the flood, ms": round(shedding.floodedP99Ms),
  "requests of the flood that were refused": shedding.refused,
});
if (values.json) writeFileSync(values.json, `${JSON.stringify(figures, null, 2)}\n`);

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function progress(step: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${step}`);
}

/**
 * Measures the figures that decisions need: how fast the service reads, records and delivers, what that costs,
 * and how well clients and subscribers are isolated. Ratios compare what ran side by side in one run.
 */
import { writeFileSync } from "node:fs";
import { openSteps, parseArguments } from "../scripts/shared/command.ts";
import { useMemory } from "../test/node/support/memory.ts";
import { measureByHand } from "./beside-by-hand.ts";
import { measureBurst } from "./burst.ts";
import { measureDelivering } from "./delivering.ts";
import { describeFigures, type Samples } from "./figures.ts";
import { measureFramework } from "./framework.ts";
import { measureHostile } from "./hostile.ts";
import { measureMonth } from "./month.ts";
import { measureMove } from "./moves.ts";
import { measureReads } from "./reads.ts";
import { measureRecording } from "./recording.ts";
import { measureRequests } from "./requests.ts";
import { measureRetention } from "./retention.ts";
import { measureRows } from "./rows.ts";
import type { Extent } from "./setting.ts";
import { median } from "./statistics.ts";

interface Bench {
  measure: (extent: Extent) => Promise<Samples>;
  /** Whether a short run is meaningful; `--quick` leaves out the others. */
  quick: boolean;
}

const BENCHES: Record<string, Bench> = {
  reads: { measure: measureReads, quick: true },
  recording: { measure: measureRecording, quick: true },
  delivering: { measure: measureDelivering, quick: true },
  rows: { measure: measureRows, quick: true },
  month: { measure: measureMonth, quick: true },
  requests: { measure: measureRequests, quick: true },
  framework: { measure: measureFramework, quick: false },
  "by-hand": { measure: measureByHand, quick: false },
  burst: { measure: measureBurst, quick: false },
  retention: { measure: measureRetention, quick: false },
  move: { measure: measureMove, quick: false },
  hostile: { measure: measureHostile, quick: false },
};

const USAGE = `npm run bench -- [--quick | --smoke] [--only NAME] [--json FILE]

Measures how fast the service reads, records and delivers, what that costs, and how well clients and
subscribers are isolated from each other.

  --quick      fewer and shorter rounds; leaves out what they cannot measure
  --smoke      a handful of events, to see that each bench runs; its figures say nothing
  --only NAME  one of ${Object.keys(BENCHES).join(", ")}
  --json FILE  also writes the medians to FILE
`;

const { values } = parseArguments(USAGE, {
  quick: { type: "boolean", default: false },
  smoke: { type: "boolean", default: false },
  only: { type: "string" },
  json: { type: "string" },
});
const { only } = values;
if (only !== undefined && !(only in BENCHES))
  throw new Error(`--only accepts ${Object.keys(BENCHES).join(", ")}`);
const extent: Extent = values.smoke ? "smoke" : values.quick ? "quick" : "full";
useMemory();

const step = openSteps();
const samples: Samples = {};
for (const [name, { measure, quick }] of Object.entries(BENCHES)) {
  if (only === undefined ? extent === "quick" && !quick : only !== name) continue;
  step(name);
  Object.assign(samples, await measure(extent));
}
step("");
console.log(describeFigures(samples).join("\n"));
if (values.json) {
  const medians = Object.entries(samples).map(([name, of]) => [name, median(of)]);
  writeFileSync(values.json, `${JSON.stringify(Object.fromEntries(medians), null, 2)}\n`);
}
process.exit();

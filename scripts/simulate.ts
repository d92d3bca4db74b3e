/**
 * Runs the delivery code in simulated worlds, one per seed, and reports whether every invariant
 * held.
 *
 *     npm run simulate -- --seeds 1000 --from 1
 *
 * A failing world prints its history; `--world SEED` replays it.
 */
import { spawn } from "node:child_process";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { findDifference, modelOf } from "../test/long/simulation/model.ts";
import {
  eventsOf,
  type Figures,
  SCENARIOS,
  type Scenario,
} from "../test/long/simulation/scenarios.ts";
import { measure, simulate } from "../test/long/simulation/simulate.ts";
import { loadWorker } from "../test/long/simulation/worker.ts";
import { D1_FAULTS, type Fault } from "../test/support/service-faults.ts";
import { fail, openSteps, parseArguments, parseCount } from "./shared/command.ts";
import { print } from "./shared/terminal.ts";

const USAGE = `npm run simulate -- [--seeds N] [--from N] [--world SEED] [--jobs N] [--scenarios short|all] [--src DIR] [--verbose]

Runs the delivery code in simulated worlds, one per seed, and reports whether every invariant held.
A failing world prints its history; --world SEED replays it.

  --seeds N     number of worlds (default: 300)
  --from N      the first seed (default: 1)
  --world SEED  simulates this world, and no others; can be repeated
  --jobs N      number of processes (default: the number of processors)
  --scenarios   compares scenarios with the model of flow control instead: how long events wait; short or all
  --src DIR     uses these sources instead of this checkout's
  --verbose     prints the history of every world
`;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  seeds: { type: "string", default: "300" },
  from: { type: "string", default: "1" },
  world: { type: "string", multiple: true, default: [] },
  src: { type: "string", default: join(import.meta.dirname, "../src") },
  jobs: { type: "string", default: String(availableParallelism()) },
  verbose: { type: "boolean", default: false },
  scenarios: { type: "string" },
});
const first = parseCount("--from", values.from);
const range = Array.from({ length: parseCount("--seeds", values.seeds) }, (_, i) => first + i);
const named = values.world.map((seed) => parseCount("--world", seed));
const seeds = named.length > 0 ? named : range;
const jobs = Math.min(parseCount("--jobs", values.jobs), seeds.length);

const startedAt = performance.now();
if (values.scenarios) await compare(values.scenarios);
else if (jobs > 1) await share();
else await simulateAll();

/** Distributes the seeds over as many processes as there are jobs. */
async function share(): Promise<void> {
  const size = Math.ceil(seeds.length / jobs);
  const children = Array.from({ length: Math.ceil(seeds.length / size) }, (_, i) => {
    const worlds = seeds.slice(i * size, (i + 1) * size).flatMap((seed) => ["--world", `${seed}`]);
    const args = ["--jobs", "1", ...worlds, "--src", values.src];
    return spawn(process.execPath, [import.meta.filename, ...args], {
      stdio: ["ignore", "inherit", "inherit"],
    });
  });
  const codes = await Promise.all(
    children.map(
      (child) =>
        new Promise<number>((resolve) =>
          child.on("exit", (code) => {
            // One failure ends all processes.
            if (code !== 0) for (const other of children) other.kill();
            resolve(code ?? 1);
          }),
        ),
    ),
  );
  if (codes.some((code) => code !== 0)) process.exit(1);
  print(`${seeds.length} worlds, 0 violations in ${secondsSince(startedAt)} s`);
}

async function simulateAll(): Promise<void> {
  const worker = await loadWorker(values.src);
  const totals = { events: 0, requests: 0, deaths: 0, simulatedHours: 0 };
  const injected = new Set<Fault>();
  const step = openSteps();
  for (const seed of seeds) {
    step(`${seeds.length} worlds: at ${seed}`, 5_000);
    const result = await simulate(seed, worker);
    totals.events += result.events;
    totals.requests += result.requests;
    totals.deaths += result.deaths;
    for (const fault of result.injected) injected.add(fault);
    totals.simulatedHours += result.simulatedMs / 3_600_000;
    if (values.verbose || result.violation) print(result.history.join("\n"));
    if (result.violation) {
      print(`seed ${seed} failed: ${result.violation}`);
      print(`npm run simulate -- --world ${seed}`);
      // `process.exit` would truncate a long history in a pipe.
      process.exitCode = 1;
      return;
    }
  }
  print(
    `${seeds.length} worlds: ${Math.round(totals.simulatedHours)} simulated hours, ` +
      `${totals.events} events, ${totals.requests} requests, ${totals.deaths} deaths, ` +
      `${injected.size} of ${D1_FAULTS.length} faults of D1, ` +
      `0 violations in ${secondsSince(startedAt)} s`,
  );
}

/** Prints how long events waited in each scenario, in the model and in the real code. */
async function compare(which: string): Promise<void> {
  const worker = await loadWorker(values.src);
  const scenarios = SCENARIOS.filter((scenario) => which === "all" || isShort(scenario));
  const show = ({ median, p90, max, left, requests }: Figures) =>
    `${[median, p90, max].map((seconds) => seconds.toFixed(1)).join(" / ")} s, ${requests} requests, ${left} left`;
  print("| scenario | model: median / p90 / longest wait | real code | differs |");
  print("|---|---|---|---|");
  let differing = 0;
  for (const scenario of scenarios) {
    const modelled = modelOf(scenario);
    const real = await measure(scenario, 1, worker);
    const difference = findDifference(real, scenario);
    if (difference) differing++;
    print(`| ${scenario.name} | ${show(modelled.typical)} | ${show(real)} | ${difference ?? ""} |`);
  }
  print(`${scenarios.length} scenarios, ${differing} differ in ${secondsSince(startedAt)} s`);
  if (differing > 0) process.exitCode = 1;
}

/** Whether it takes a second or so. */
function isShort(scenario: Scenario): boolean {
  return scenario.hours <= 8.5 && eventsOf(scenario).length <= 400;
}

function secondsSince(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(1);
}

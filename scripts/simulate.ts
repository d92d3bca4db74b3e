/**
 * Runs the delivery code in simulated worlds, one per seed, and reports whether every invariant
 * held.
 *
 *     npm run simulate -- --seeds 1000 --from 1
 *
 * A failing seed prints its history; `--seeds 1 --from SEED` replays it.
 */
import { spawn } from "node:child_process";
import { registerHooks } from "node:module";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { simulate } from "../test/long/simulation/scenario.ts";
import { loadWorker } from "../test/long/simulation/worker.ts";
import { D1_FAULTS, type Fault } from "../test/support/service-faults.ts";
import { fail, openSteps, parseArguments, parseCount } from "./shared/command.ts";
import { print } from "./shared/terminal.ts";

const USAGE = `npm run simulate -- [--seeds N] [--from N] [--jobs N] [--src DIR] [--verbose]

Runs the delivery code in simulated worlds, one per seed, and reports whether every invariant held.
A failing seed prints its history; --seeds 1 --from SEED replays it.

  --seeds N   number of worlds (default: 300)
  --from N    the first seed (default: 1)
  --jobs N    number of processes (default: the number of processors)
  --src DIR   uses these sources instead of this checkout's
  --verbose   prints the history of every seed
`;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  seeds: { type: "string", default: "300" },
  from: { type: "string", default: "1" },
  src: { type: "string", default: join(import.meta.dirname, "../src") },
  jobs: { type: "string", default: String(availableParallelism()) },
  verbose: { type: "boolean", default: false },
});
const seeds = parseCount("--seeds", values.seeds);
const jobs = Math.min(parseCount("--jobs", values.jobs), seeds);
const first = parseCount("--from", values.from);

// Outside the Workers runtime, its base classes only have to store their arguments.
const STAND_IN = `class Base { constructor(ctx, env) { this.ctx = ctx; this.env = env; } }
  export { Base as WorkerEntrypoint, Base as DurableObject };`;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "cloudflare:workers"
      ? { url: `data:text/javascript,${encodeURIComponent(STAND_IN)}`, shortCircuit: true }
      : next(specifier, context),
});

const startedAt = performance.now();
if (jobs > 1) await share();
else await simulateAll();

/** Distributes the seeds over as many processes as there are jobs. */
async function share(): Promise<void> {
  const size = Math.ceil(seeds / jobs);
  const children = Array.from({ length: jobs }, (_, i) => {
    const count = Math.min(size, seeds - i * size);
    const args = ["--jobs", "1", "--from", String(first + i * size), "--seeds", String(count)];
    return spawn(process.execPath, [import.meta.filename, ...args, "--src", values.src], {
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
  print(`${seeds} seeds, 0 violations in ${secondsSince(startedAt)} s`);
}

async function simulateAll(): Promise<void> {
  const worker = await loadWorker(values.src);
  const totals = { events: 0, posts: 0, crashes: 0, simulatedHours: 0 };
  const injected = new Set<Fault>();
  const step = openSteps();
  for (let seed = first; seed < first + seeds; seed++) {
    step(`seeds ${first} to ${first + seeds - 1}: at ${seed}`, 5_000);
    const result = await simulate(seed, worker);
    totals.events += result.events;
    totals.posts += result.posts;
    totals.crashes += result.crashes;
    for (const fault of result.injected) injected.add(fault);
    totals.simulatedHours += result.simulatedMs / 3_600_000;
    if (values.verbose || result.violation) print(result.history.join("\n"));
    if (result.violation) {
      print(`seed ${seed} failed: ${result.violation}`);
      print(`npm run simulate -- --seeds 1 --from ${seed}`);
      // `process.exit` would truncate a long history in a pipe.
      process.exitCode = 1;
      return;
    }
  }
  print(
    `seeds ${first} to ${first + seeds - 1}: ${Math.round(totals.simulatedHours)} simulated hours, ` +
      `${totals.events} events, ${totals.posts} posts, ${totals.crashes} crashes, ` +
      `${injected.size} of ${D1_FAULTS.length} faults of D1, ` +
      `0 violations in ${secondsSince(startedAt)} s`,
  );
}

function secondsSince(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(1);
}

/**
 * Tries the planted faults that the simulation is to notice, in one process: for each, it simulates worlds until one
 * shows it. When other code changes, it may be another world that does: thirty are tried, for a minute and a half.
 * Prints a line of JSON for each fault.
 *
 *     node --import ./scripts/ready.js test/long/simulation/try-faults.ts FOLDER
 *
 * FOLDER is a folder in the checkout, for the faulty Workers.
 */
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { print } from "../../../scripts/shared/terminal.ts";
import { FAULTS } from "../../faults/faults.ts";
import { simulate } from "./simulate.ts";
import { type LoadedWorker, loadFaulty } from "./worker.ts";

/** What became of a fault. */
export interface Tried {
  promise: string;
  /** The violated invariant; null if no world shows the fault. */
  violation: string | null;
}

const WORLDS_MAX = 30;
/**
 * A long world may take half a minute itself, and longer under load. Without this bound, a watchdog would end the whole
 * test.
 */
const SEARCH_MAX_MS = 90_000;

const [, , folder = ""] = process.argv;
for (const [i, fault] of FAULTS.filter(({ simulated }) => simulated).entries()) {
  const worker = await loadFaulty(join(ROOT, "src"), fault, join(folder, `${i}.mjs`));
  const violation = await findViolation(worker, fault.simulated?.seed ?? 1);
  print(JSON.stringify({ promise: fault.promise, violation } satisfies Tried));
}

async function findViolation(worker: LoadedWorker, first: number): Promise<string | null> {
  const endsAt = performance.now() + SEARCH_MAX_MS;
  for (let seed = first; seed < first + WORLDS_MAX && performance.now() < endsAt; seed++) {
    const { violation } = await simulate(seed, worker);
    // What the world had under way ends before the next one begins.
    await setImmediate();
    if (violation) return `seed ${seed}: ${violation}`;
  }
  return null;
}

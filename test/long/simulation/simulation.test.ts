import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { Fault } from "../../faults/fault.ts";
import { FAULTS } from "../../faults/faults.ts";

const ROOT = join(import.meta.dirname, "../../..");
mkdirSync(join(ROOT, "dist"), { recursive: true });
const SCRATCH = mkdtempSync(join(ROOT, "dist/simulation-"));

afterAll(() => rmSync(SCRATCH, { recursive: true }));

function simulate(...args: string[]) {
  const command = ["--import", "./scripts/ready.js", "scripts/simulate.ts", ...args];
  const { status, stdout, stderr } = spawnSync("node", command, {
    cwd: ROOT,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  return { status, output: stdout + stderr };
}

/** A copy of the sources with a fault. */
function plant({ file, text, replacement, promise }: Fault): string {
  const src = join(SCRATCH, promise.replaceAll(/\W+/g, "-"), "src");
  cpSync(join(ROOT, "src"), src, { recursive: true });
  cpSync(join(ROOT, "migrations"), join(src, "../migrations"), { recursive: true });
  const sound = readFileSync(join(src, file), "utf8");
  expect(sound).toContain(text);
  writeFileSync(
    join(src, file),
    sound.replace(text, () => replacement),
  );
  return src;
}

/**
 * Short worlds that differ: usual ones, two with several databases, and one endpoint in each scenario that is not long.
 * Longer ones are for `npm run simulate`.
 */
const WORLDS = [1, 16, 22, 20, 25, 3, 12, 24, 27, 42];
/** One of them, in which isolates crash and most faults of D1 occur. */
const REPLAYED = 8;

const worlds = (...seeds: number[]) => seeds.flatMap((seed) => ["--world", `${seed}`]);

describe("the simulation", () => {
  test("finds no violated invariant in ten worlds", () => {
    const { status, output } = simulate(...worlds(...WORLDS), "--jobs", "1");
    expect(output).toContain(" 0 violations");
    // Every error of the table, before the commit and after it.
    expect(output).toMatch(/ (\d+) of \1 faults of D1,/);
    expect(status).toBe(0);
  }, 600_000);

  test("replays a seed exactly", () => {
    const args = [...worlds(REPLAYED), "--verbose", "--jobs", "1"];
    const [first, second] = [simulate(...args), simulate(...args)].map(({ output }) =>
      output.replace(/ in [\d.]+ s$/m, ""),
    );
    expect(first).toBe(second);
    expect(first?.split("\n").length).toBeGreaterThan(100);
  });

  const faults = FAULTS.flatMap((fault) =>
    fault.simulated ? [{ ...fault, ...fault.simulated }] : [],
  );

  test("is tried on fifteen faults at least", () => {
    expect(faults.length).toBeGreaterThanOrEqual(15);
  });

  // When other code changes, it may be another world that shows a fault: thirty are tried.
  test.each(faults)(
    "detects it if it does not hold that $promise",
    ({ violation, seed, ...fault }) => {
      const worlds = ["--seeds", "30", "--from", `${seed}`, "--jobs", "1"];
      const { status, output } = simulate(...worlds, "--src", plant(fault));
      expect(output).toMatch(new RegExp(`seed \\d+ failed: .*(${violation.source})`));
      expect(status).toBe(1);
    },
    600_000,
  );
});

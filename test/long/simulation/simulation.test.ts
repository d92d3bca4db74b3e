import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { FAULTS } from "../../faults/faults.ts";
import type { Tried } from "./try-faults.ts";

const TRY_FAULTS = join(import.meta.dirname, "try-faults.ts");
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

/**
 * Short worlds that differ: usual ones, two with three databases (5 and 10), a harsh one (7), and scenarios of one endpoint
 * (3, 6, 9, 12, 15). Others are for `npm run simulate`.
 */
const WORLDS = [1, 2, 4, 5, 7, 8, 10, 11, 13, 3, 6, 9, 12, 15];
/** One of them, in which processes die and most faults of D1 occur. */
const REPLAYED = 8;

const worlds = (...seeds: number[]) => seeds.flatMap((seed) => ["--world", `${seed}`]);

describe("the simulation", () => {
  test("finds no violated invariant in fourteen worlds", () => {
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

  test("agrees with the model of flow control within a factor of two", () => {
    const { status, output } = simulate("--scenarios", "short");
    expect(output).toMatch(/^\d{2} scenarios, 0 differ/m);
    expect(status).toBe(0);
  }, 600_000);

  const faults = FAULTS.flatMap(({ promise, simulated }) =>
    simulated ? [{ promise, ...simulated }] : [],
  );

  test("is tried on ten faults at least", () => {
    expect(faults.length).toBeGreaterThanOrEqual(10);
  });

  describe("of a faulty Worker", () => {
    let tried: Tried[] = [];

    beforeAll(() => {
      const command = ["--import", "./scripts/ready.js", TRY_FAULTS, SCRATCH];
      const { stdout, stderr } = spawnSync("node", command, { cwd: ROOT, encoding: "utf8" });
      expect(stderr).toBe("");
      tried = stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
    }, 600_000);

    test.each(faults)("detects it if it does not hold that $promise", ({ promise, violation }) => {
      const found = tried.find((each) => each.promise === promise);
      expect(found?.violation).toMatch(violation);
    });
  });
});

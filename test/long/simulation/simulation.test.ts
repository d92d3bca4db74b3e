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

/** The seed of a world with three databases, in which processes die. */
const REPLAYED = 5;
/** Short worlds that differ: a usual one, in which each fault of D1 occurs, that one, a harsh one and a scenario. */
const WORLDS = [1, REPLAYED, 7, 3];

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

const worlds = (...seeds: number[]) => [
  ...seeds.flatMap((seed) => ["--world", `${seed}`]),
  ...["--jobs", "1", "--verbose"],
];

describe("the simulation", () => {
  let simulated: ReturnType<typeof simulate>;

  beforeAll(() => {
    simulated = simulate(...worlds(...WORLDS));
  }, 600_000);

  test("finds no violated invariant in four worlds", () => {
    const { status, output } = simulated;
    expect(output).toMatch(/^4 worlds: .* 0 violations/m);
    // Every error of the table, before the commit and after it.
    expect(output).toMatch(/ (\d+) of \1 faults of D1,/);
    expect(status).toBe(0);
  });

  test("replays a seed exactly, whatever was simulated before", () => {
    const [history = ""] = simulate(...worlds(REPLAYED)).output.split("\n1 worlds: ");
    expect(history.split("\n").length).toBeGreaterThan(100);
    expect(simulated.output.includes(history)).toBe(true);
  });

  test("agrees with the model of flow control within a factor of two", () => {
    const { status, output } = simulate("--scenarios", "short");
    expect(output).toMatch(/^\d{2} scenarios, 0 differ/m);
    expect(status).toBe(0);
  }, 600_000);

  const faults = FAULTS.flatMap(({ promise, simulated }) =>
    simulated ? [{ promise, ...simulated }] : [],
  );

  test("is tried on nine faults at least", () => {
    expect(faults.length).toBeGreaterThanOrEqual(9);
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

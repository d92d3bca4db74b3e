// biome-ignore-all lint/suspicious/noTemplateCurlyInString: they are quoted from the sources
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "../..");
mkdirSync(join(ROOT, "dist"), { recursive: true });
const SCRATCH = mkdtempSync(join(ROOT, "dist/simulation-"));

afterAll(() => rmSync(SCRATCH, { recursive: true }));

function simulate(...args: string[]) {
  const script = join(ROOT, "scripts/simulate.ts");
  const { status, stdout, stderr } = spawnSync("node", [script, ...args], {
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  return { status, output: stdout + stderr };
}

/** A copy of the sources in which each of `edits` has been made, once. */
function plant(name: string, file: string, edits: [string, string][]): string {
  const src = join(SCRATCH, name, "src");
  cpSync(join(ROOT, "src"), src, { recursive: true });
  let text = readFileSync(join(src, file), "utf8");
  for (const [found, planted] of edits) {
    expect(text).toContain(found);
    text = text.replaceAll(found, planted);
  }
  writeFileSync(join(src, file), text);
  return src;
}

// A process of its own that may take minutes where others load the machine.
describe("the simulation", { timeout: 600_000 }, () => {
  test("finds no invariant that fails in a few hundred worlds", () => {
    const { status, output } = simulate("--seeds", "300", "--from", "1");
    expect(output).toContain("300 seeds, 0 violations");
    expect(status).toBe(0);
  });

  test("plays a seed again exactly", () => {
    const args = ["--seeds", "1", "--from", "7", "--verbose", "--jobs", "1"];
    const [first, second] = [simulate(...args), simulate(...args)].map(({ output }) =>
      output.replace(/ in [\d.]+ s$/m, ""),
    );
    expect(first).toBe(second);
    expect(first?.split("\n").length).toBeGreaterThan(100);
  });

  test("finds the missing lease", () => {
    const src = plant("lease", "model/deliveries.ts", [
      ["SET claim = ${lease.claim}, due_at = ${lease.until}", "SET claim = ${lease.claim}"],
      ["AND d.due_at = ${lease.until} AND d.claim", "AND d.claim"],
    ]);
    const { status, output } = simulate("--seeds", "300", "--src", src);
    expect(output).toMatch(/seed \d+ failed: .* is (posted to .* after it was|overdue by more)/);
    expect(status).toBe(1);
  });

  test("finds the missing settle guard", () => {
    const src = plant("guard", "model/deliveries.ts", [
      ["AND claim = ${lease.claim} AND ${deliveries.state} = 'pending'", ""],
    ]);
    const { status, output } = simulate("--seeds", "300", "--src", src);
    expect(output).toMatch(/seed \d+ failed: /);
    expect(status).toBe(1);
  });

  test("finds the missing sweep", () => {
    const src = plant("sweep", "sweep.ts", [["if (!(await wake(env, overdue)))", "if (false)"]]);
    const { status, output } = simulate("--seeds", "300", "--src", src);
    expect(output).toMatch(/seed \d+ failed: .* is overdue by more than an hour/);
    expect(status).toBe(1);
  });
});

import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { FIGURES } from "../../bench/figures.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { runProgram } from "../node/support/process.ts";

test("every bench runs, and measures every figure that is described", {
  timeout: 600_000,
}, async () => {
  const file = join(mkdtempSync(join(tmpdir(), "bench-")), "figures.json");
  const bench = join(ROOT, "bench/run.ts");
  const end = await runProgram([process.execPath, bench, "--smoke", "--json", file]);
  expect(end.code, end.stderr).toBe(0);
  const figures: Record<string, number> = JSON.parse(readFileSync(file, "utf8"));
  expect(Object.keys(figures).sort()).toEqual(Object.keys(FIGURES).sort());
  for (const [name, value] of Object.entries(figures)) expect(value, name).not.toBeNaN();
});

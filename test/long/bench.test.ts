import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { FIGURES } from "../../bench/figures.ts";
import { LIFE } from "../../bench/price.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { runProgram } from "../node/support/process.ts";

/** How far the few events of a smoke run may be from what many need. */
const DEVIATION_MAX = 0.25;

test("every bench measures the figures that are described", {
  timeout: 600_000,
}, async () => {
  const file = join(mkdtempSync(join(tmpdir(), "bench-")), "figures.json");
  const bench = join(ROOT, "bench/run.ts");
  const end = await runProgram([process.execPath, bench, "--smoke", "--json", file]);
  expect(end.code, end.stderr).toBe(0);
  const figures: Record<string, number> = JSON.parse(readFileSync(file, "utf8"));
  expect(Object.keys(figures).sort()).toEqual(Object.keys(FIGURES).sort());
  for (const [name, value] of Object.entries(figures)) expect(value, name).not.toBeNaN();
  const { rowsRead, rowsWritten, messages, lines } = LIFE.alone;
  const priced = {
    month_rows_read_alone: rowsRead,
    rows_written_life_alone: rowsWritten,
    month_messages_alone: messages,
    month_lines_alone: lines,
  };
  for (const [name, value] of Object.entries(priced))
    expect(Math.abs(Number(figures[name]) / value - 1), name).toBeLessThan(DEVIATION_MAX);
});

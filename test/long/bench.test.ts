import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { EVENTS } from "../../bench/life.ts";
import { LIFE, PAGE, SWEEP } from "../../bench/price.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { runProgram } from "../node/support/process.ts";

/** How far the few events of a smoke run may be from what many need. */
const DEVIATION_MAX = 0.25;

test("the price of a month is computed from what the bench measures", {
  timeout: 600_000,
}, async () => {
  const file = join(mkdtempSync(join(tmpdir(), "bench-")), "figures.json");
  const options = ["--only", "month", "--smoke", "--json", file];
  const end = await runProgram([process.execPath, join(ROOT, "bench/run.ts"), ...options]);
  expect(end.code, end.stderr).toBe(0);
  const figures: Record<string, number> = JSON.parse(readFileSync(file, "utf8"));
  // A smoke run records a few events in a call instead of a hundred, each way, and a page has only their leads. What
  // an event reads among a hundred is not to be had from a few.
  const callsOfAHundred = 100 / EVENTS.smoke;
  const pages = (2 * EVENTS.smoke) / 25;
  const priced = {
    month_rows_read_alone: LIFE.alone.rowsRead,
    rows_written_life_alone: LIFE.alone.rowsWritten,
    month_messages_alone: LIFE.alone.messages,
    month_lines_alone: LIFE.alone.lines,
    rows_written_life: LIFE.together.rowsWritten,
    month_messages_together: LIFE.together.messages * callsOfAHundred,
    month_lines_together: LIFE.together.lines * callsOfAHundred,
    month_rows_read_page: PAGE.rowsRead * pages,
    month_lines_page: PAGE.lines,
    month_rows_read_sweep: SWEEP.rowsRead,
    month_rows_written_sweep: SWEEP.rowsWritten,
    month_lines_sweep: SWEEP.lines,
  };
  for (const [name, value] of Object.entries(priced))
    expect(Math.abs(Number(figures[name]) / value - 1), name).toBeLessThan(DEVIATION_MAX);
});

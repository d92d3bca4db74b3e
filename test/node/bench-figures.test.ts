import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { describeFigures, FIGURES, type Figures } from "../../bench/figures.ts";
import { monthTable } from "../../bench/month.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

const NAMES = Object.keys(FIGURES) as (keyof Figures)[];

test("the names in --json stay the same for programs", () => {
  expect(NAMES).toEqual(
    expect.arrayContaining([
      "hostile_p99_ratio",
      "delivering_ratio",
      "rows_written_per_delivery",
      "rows_written_half_429",
      "rows_written_dead",
      "retention_events_per_second",
      "databases_recording_ratio",
      "busy_neighbour_p99_ratio",
      "bytes_per_lead_and_event",
      "bytes_per_run",
      "bytes_per_lead_event",
      "bytes_per_run_event",
      "move_rows_per_second",
      "move_closed_ms",
      "startup_cpu_ms",
      "bundle_gzip_bytes",
    ]),
  );
});

test("each figure of the benchmark is a line with its unit and what it is compared with", () => {
  const figures: Figures = Object.fromEntries(NAMES.map((name, i) => [name, 1000.25 + i]));
  const [head, ...lines] = describeFigures(figures);
  expect(head).toMatch(/^figure +value +unit +of +compared with$/);
  expect(lines).toHaveLength(NAMES.length);
  for (const [i, line] of lines.entries()) {
    const cells = line.split(/ {2,}/);
    expect(cells.slice(0, 2)).toEqual([NAMES[i], (1000.25 + i).toLocaleString("en-US")]);
    expect(cells).toHaveLength(5);
    expect(cells.every((cell) => cell.length > 0)).toBe(true);
  }
});

test("docs/performance.md has the month that the constants beside the benchmark make", () => {
  const page = readFileSync(join(ROOT, "docs/performance.md"), "utf8");
  expect(page).toContain(`\n\n${monthTable().join("\n")}\n\n`);
});

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { distanceTable, priceTables } from "../../bench/price.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

test.each([
  ["the cost of a month", priceTables().split("\n\n")[0]],
  ["what saves most", priceTables().split("\n\n")[1]],
  ["what a client in Sydney waits for", distanceTable()],
])("docs/performance.md has the tables that npm run price prints: %s", (_, tables) => {
  expect(readFileSync(join(ROOT, "docs/performance.md"), "utf8")).toContain(tables);
});

test("the lines of each column add up to the price of its month", () => {
  const rows = priceTables()
    .split("\n\n")[0]
    ?.split("\n")
    .map((line) => line.split("|").slice(1, -1))
    .map(([label = "", ...cells]) => ({
      label: label.trim(),
      dollars: cells.map((cell) => Number(cell.replace(/[^\d]/g, ""))),
    }));
  const end = rows?.findIndex(({ label }) => label === "**the month**") ?? 0;
  expect(end).toBeGreaterThan(5);
  const month = rows?.[end]?.dollars ?? [];
  const sums = month.map((_, i) =>
    rows?.slice(2, end).reduce((sum, { dollars }) => sum + (dollars[i] ?? 0), 0),
  );
  expect(sums).toEqual(month);
});

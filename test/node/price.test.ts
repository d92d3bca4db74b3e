import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { distanceTable, priceTables } from "../../bench/price.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

test.each([
  ["the cost of a month", priceTables()],
  ["what a client in Sydney waits for", distanceTable()],
])("docs/performance.md has the tables that npm run price prints: %s", (_, tables) => {
  expect(readFileSync(join(ROOT, "docs/performance.md"), "utf8")).toContain(tables);
});

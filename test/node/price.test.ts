import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { priceTables } from "../../bench/price.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

test("docs/performance.md has the tables that npm run price prints", () => {
  expect(readFileSync(join(ROOT, "docs/performance.md"), "utf8")).toContain(priceTables());
});

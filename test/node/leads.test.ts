import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

test("no query updates a lead: the bodies of its events are made from its row, and must not change", () => {
  const src = join(ROOT, "src");
  const updating = readdirSync(src, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .filter((file) => {
      const text = readFileSync(join(src, file), "utf8");
      return /\.update\(leads\)|UPDATE (\$\{)?leads\b|target: leads\b/.test(text);
    });
  expect(updating).toEqual([]);
});

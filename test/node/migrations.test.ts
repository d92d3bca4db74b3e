import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { createTriggers } from "../../src/workspaces/moving/triggers.ts";

/** A database with all migrations applied. */
const db = new DatabaseSync(":memory:");
for (const file of readdirSync(join(ROOT, "migrations")).toSorted())
  if (file.endsWith(".sql")) db.exec(readFileSync(join(ROOT, "migrations", file), "utf8"));

test("the migrations create the triggers that the manifest of tables needs, as it says them", () => {
  const rows = db.prepare("SELECT sql FROM sqlite_schema WHERE type = 'trigger'").all();
  const created = rows.map(({ sql }) => `${sql};`);
  expect(created.toSorted()).toEqual(createTriggers().toSorted());
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { getTableConfig } from "drizzle-orm/sqlite-core";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { deliveries } from "../../src/db/schema.ts";
import { createTriggers } from "../../src/workspaces/moving/triggers.ts";

/** A database with all migrations applied. */
const db = new DatabaseSync(":memory:");
for (const file of readdirSync(join(ROOT, "migrations")).toSorted())
  if (file.endsWith(".sql")) db.exec(readFileSync(join(ROOT, "migrations", file), "utf8"));

test("the deliveries, and they alone, have no rowids; their table is otherwise as Drizzle makes it", () => {
  const tables = db.prepare("PRAGMA table_list").all();
  expect(tables.filter(({ wr }) => wr === 1).map(({ name }) => name)).toEqual(["deliveries"]);
  const { columns, indexes, primaryKeys } = getTableConfig(deliveries);
  const stored = db.prepare("PRAGMA table_info(deliveries)").all();
  expect(
    stored.map(({ name, type, notnull, dflt_value }) => [name, type, notnull, dflt_value]),
  ).toEqual(
    columns.map((column) => [
      column.name,
      column.getSQLType().toUpperCase(),
      column.notNull ? 1 : 0,
      column.default === undefined ? null : String(column.default),
    ]),
  );
  const names = (list: { name: unknown }[]) => list.map(({ name }) => name);
  const key = stored.filter(({ pk }) => pk !== 0) as { name: unknown }[];
  expect(names(key)).toEqual(names(primaryKeys[0]?.columns ?? []));
  const made = db
    .prepare("PRAGMA index_list(deliveries)")
    .all()
    .filter(({ origin }) => origin === "c");
  expect(names(made as { name: unknown }[]).toSorted()).toEqual(
    indexes.map(({ config }) => config.name).toSorted(),
  );
});

test("the migrations create the triggers that the manifest of tables needs, as it says them", () => {
  const rows = db.prepare("SELECT sql FROM sqlite_schema WHERE type = 'trigger'").all();
  const created = rows.map(({ sql }) => `${sql};`);
  expect(created.toSorted()).toEqual(createTriggers().toSorted());
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { getTableName, is } from "drizzle-orm";
import { SQLiteTable } from "drizzle-orm/sqlite-core";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { MIGRATIONS_TABLE } from "../../scripts/shared/databases.ts";
import * as schema from "../../src/db/schema.ts";
import { createTriggers } from "../../src/moving/triggers.ts";

/** A database with all migrations applied. */
function migrated(): DatabaseSync {
  const db = new DatabaseSync(":memory:");
  for (const file of readdirSync(join(ROOT, "migrations")).toSorted())
    if (file.endsWith(".sql")) db.exec(readFileSync(join(ROOT, "migrations", file), "utf8"));
  return db;
}

const tables = [...Object.values(schema)].filter((exported) => is(exported, SQLiteTable));

test("the migrations make the tables of the schema, and each is WITHOUT ROWID", () => {
  const made = migrated()
    .prepare("PRAGMA table_list")
    .all()
    .filter(({ name }) => !String(name).startsWith("sqlite_"));
  expect(made.map(({ name }) => name).toSorted()).toEqual(tables.map(getTableName).toSorted());
  expect(made.filter(({ wr }) => wr !== 1).map(({ name }) => name)).toEqual([]);
});

test("the SQL of the commands in the docs suits the tables", () => {
  const pages = readdirSync(join(ROOT, "docs")).filter((name) => name.endsWith(".md"));
  const texts = pages.map((page) => readFileSync(join(ROOT, "docs", page), "utf8"));
  const commands = texts.flatMap((text) => [...text.matchAll(/--command "([^"]+)"/g)]);
  expect(commands.length).toBeGreaterThan(2);
  const db = migrated();
  // The table in which wrangler notes what it has applied.
  db.exec(MIGRATIONS_TABLE);
  for (const [, sql = ""] of commands) expect(() => db.prepare(sql).all(), sql).not.toThrow();
});

test("the migrations create the triggers that the manifest of tables needs, as it says them", () => {
  const rows = migrated().prepare("SELECT sql FROM sqlite_schema WHERE type = 'trigger'").all();
  const created = rows.map(({ sql }) => `${sql};`);
  expect(created.toSorted()).toEqual(createTriggers().toSorted());
});

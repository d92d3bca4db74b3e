import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { createTriggers } from "../../src/workspaces/moving/triggers.ts";

const FOLDER = join(ROOT, "migrations");

/** Applies migrations, by default all. */
function applyTo(db: DatabaseSync, isApplied = (_name: string) => true): DatabaseSync {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith(".sql") && isApplied(file));
  for (const file of files.sort()) db.exec(readFileSync(join(FOLDER, file), "utf8"));
  return db;
}

/** A database with migrations applied, by default all. */
function migrated(isApplied?: (name: string) => boolean): DatabaseSync {
  return applyTo(new DatabaseSync(":memory:"), isApplied);
}

test("the migrations create the triggers that the manifest of tables needs, as it says them", () => {
  const rows = migrated().prepare("SELECT sql FROM sqlite_schema WHERE type = 'trigger'").all();
  const created = rows.map(({ sql }) => `${sql};`);
  expect(created.toSorted()).toEqual(createTriggers().toSorted());
});

test("a migration that recreates the leads table keeps leads and what refers to them", () => {
  const db = migrated((name) => name < "0008");
  db.exec(`INSERT INTO workspaces (id, name, admin_emails, created_at) VALUES ('w', 'W', '[]', 1);
    INSERT INTO automations (id, workspace_id, reference, type, provider, agent_id, agent_name, name, status, created_at, updated_at)
      VALUES ('a', 'w', 'r', 'crm_source', 'p', 'g', 'G', 'N', 'active', 1, 1);
    INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
      VALUES ('l', 'w', 'r', 'crm', 'g', x'00ff', 7, 'e');
    INSERT INTO runs (id, workspace_id, reference, automation_id, status, trigger_type, occurred_at, actions, lead_id)
      VALUES ('n', 'w', 'r', 'a', 's', 't', 1, '[]', 'l')`);
  const leads = () => db.prepare("SELECT *, hex(sealed) AS hex FROM leads").all();
  const before = leads();
  db.exec("BEGIN");
  applyTo(db, (name) => name.startsWith("0008"));
  db.exec("COMMIT");
  expect(leads()).toEqual(before);
  expect(db.prepare("PRAGMA foreign_key_check").all()).toEqual([]);
  expect(() => db.exec("DELETE FROM leads")).toThrow("FOREIGN KEY");
});

test("tables that are written often have no rowid, even if drizzle-kit has recreated them", () => {
  const tables = migrated().prepare("PRAGMA table_list").all();
  const without = tables.filter(({ wr }) => wr === 1).map(({ name }) => name);
  expect(without.toSorted()).toEqual([
    "attempts",
    "audit_trail",
    "commits",
    "deliveries",
    "earlier_secrets",
    "erased_leads",
    "events",
    "leads",
    "removals",
  ]);
});

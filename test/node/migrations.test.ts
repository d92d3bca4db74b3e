import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { EVENTS_WITH_BODIES, type EventWithBody } from "../../scripts/shared/stored-bodies.ts";
import { bodyOf } from "../../src/model/bodies.ts";

const FOLDER = join(ROOT, "migrations");
const MIGRATIONS = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".sql"))
  .sort()
  .map((file) => readFileSync(join(FOLDER, file), "utf8"));

test("a key from before its use was noted counts as used: its gate may be keeping what it has read", () => {
  const db = new DatabaseSync(":memory:");
  const noting = MIGRATIONS.findIndex((sql) => sql.includes("`last_used_at` integer"));
  for (const sql of MIGRATIONS.slice(0, noting)) db.exec(sql);
  db.exec("INSERT INTO workspaces (id, name, admin_emails, created_at) VALUES ('w', 'W', '[]', 5)");
  db.exec(
    "INSERT INTO api_keys (id, workspace_id, key_hash, created_at) VALUES ('a', 'w', 'a', 7)",
  );
  for (const sql of MIGRATIONS.slice(noting)) db.exec(sql);
  db.exec(
    "INSERT INTO api_keys (id, workspace_id, key_hash, created_at) VALUES ('b', 'w', 'b', 9)",
  );
  const rows = db.prepare("SELECT id, last_used_at FROM api_keys ORDER BY id").all();
  expect(rows).toEqual([
    { id: "a", last_used_at: 7 },
    { id: "b", last_used_at: null },
  ]);
});

test("the statement for rolling back gives events of leads the bodies that they are posted with", () => {
  const db = new DatabaseSync(":memory:");
  for (const sql of MIGRATIONS) db.exec(sql);
  db.exec("INSERT INTO workspaces (id, name, admin_emails, created_at) VALUES ('w', 'W', '[]', 5)");
  const custom = JSON.stringify({ 1: 'é"\n\u0001\u2028🌻', list: [0.1, null, { true: false }] });
  const lead = db.prepare(
    `INSERT INTO leads (id, workspace_id, reference, source, agent_id, name, custom_fields, created_at)
      VALUES (?, 'w', 'r', 'crm', 'agt_1', ?, ?, ?)`,
  );
  const event = db.prepare(
    `INSERT INTO events (workspace_id, id, type, body, lead_id, owed, created_at)
      VALUES ('w', ?, 'lead.created', '', ?, '[]', ?)`,
  );
  for (const [i, at] of [1_700_000_000_000, 1_795_310_628_155, 1_795_310_659_999].entries()) {
    lead.run(`lea_${i}`, i === 0 ? null : 'Zoë "🌻" \\ \t', custom, at);
    event.run(`evt_${i}`, `lea_${i}`, at + 1);
  }
  const before = db.prepare(EVENTS_WITH_BODIES).all() as unknown as EventWithBody[];
  const operations = readFileSync(join(ROOT, "docs/operations.md"), "utf8");
  db.exec(/```sql\n(\s+UPDATE events SET lead_id[^`]+)```/.exec(operations)?.[1] ?? "");
  const after = db.prepare("SELECT body FROM events ORDER BY id").all();
  expect(after).toEqual(before.map((row) => ({ body: bodyOf(row) })));
  expect(before.map(bodyOf).every((body) => body?.startsWith('{"id":"evt_'))).toBe(true);
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

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

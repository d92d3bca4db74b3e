import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import {
  findPlacements,
  type Placements,
  settlePlacements,
} from "../../scripts/restore/placements.ts";
import { callsToRepeat } from "../../scripts/restore/repeat.ts";
import { type Compared, putBackStatements, rowsToPutBack } from "../../scripts/restore/rows.ts";
import {
  type Execute,
  type Row,
  readTables,
  TABLES,
  type Tables,
} from "../../scripts/restore/tables.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

/** A database with the tables of `migrations/`. */
function openTables(): DatabaseSync {
  const database = new DatabaseSync(":memory:");
  const files = readdirSync(join(ROOT, "migrations")).filter((name) => name.endsWith(".sql"));
  for (const name of files.toSorted())
    database.exec(readFileSync(join(ROOT, "migrations", name), "utf8"));
  return database;
}

function insert(database: DatabaseSync, table: string, row: Row): void {
  const columns = Object.keys(row);
  const marks = columns.map(() => "?").join(", ");
  database
    .prepare(`INSERT INTO ${table} (${columns.join(", ")}) VALUES (${marks})`)
    .run(...Object.values(row));
}

const read = (database: DatabaseSync): Tables => {
  const rows = TABLES.map((table) => [table, database.prepare(`SELECT * FROM ${table}`).all()]);
  // Rows of SQLite have no prototype.
  return JSON.parse(JSON.stringify(Object.fromEntries(rows)));
};

const workspace = (id: string, more: Row = {}): Row => ({
  ...{ id, name: "Agence", admin_emails: "[]", created_at: 1, ...more },
});
const key = (id: string, more: Row = {}): Row => ({
  ...{ id, workspace_id: "wks_1", key_hash: id, last_four: "abcd", created_at: 1, ...more },
});
const subscription = (id: string, more: Row = {}): Row => ({
  id,
  workspace_id: "wks_1",
  url: "https://hooks.example.com/",
  events: '["lead.created"]',
  sealed_secret: "then",
  created_at: 1,
  ...more,
});
const call = (id: string, method: string, ids: string[], result = "ok"): Row => ({
  ...{ id, at: 5, method, workspace_id: "wks_1", ids: JSON.stringify(ids), via: "rpc", result },
  duration_ms: 1,
});

/** Runs statements in these databases. */
const executeIn =
  (databases: Record<string, DatabaseSync>): Execute =>
  async (binding, statements) =>
    statements.map((sql) => databases[binding]?.prepare(sql).all() as Row[]);

/** A database, then and now. */
function opened() {
  const [then, now] = [openTables(), openTables()];
  const both = (table: string, row: Row, more: Row = {}) => {
    insert(then, table, row);
    insert(now, table, { ...row, ...more });
  };
  return { then, now, both };
}

/** The restored time. */
const RESTORED_TO = 1_000_000;

const SETTLED: Placements = { statements: [], erased: [], movedHere: [] };

/** Compares what was noted with a restored database. */
const compare = (noted: Tables, then: DatabaseSync, placements = SETTLED): Compared => ({
  noted,
  found: read(then),
  placements,
  restoredTo: RESTORED_TO,
  skipsSettings: false,
});

/** Puts back in `then` what was noted. */
function putBack(then: DatabaseSync, noted: Tables, placements = SETTLED): string[] {
  const statements = TABLES.flatMap((table) =>
    putBackStatements(table, rowsToPutBack(table, compare(noted, then, placements))),
  );
  for (const statement of statements) then.exec(statement);
  return statements;
}

describe("the rows that are put back", () => {
  test("are those that were created, and the kept columns of those that were changed", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"), { name: 'L\'Agence\n"2"; --', sealed_data_key: "k2.x" });
    both("api_keys", key("key_1"), { expires_at: 9 });
    both("subscriptions", subscription("whk_1"), { sealed_secret: "now", disabled_at: 5 });
    // By a clock that is a minute behind.
    const since = { created_at: RESTORED_TO - 60_000 };
    insert(now, "subscriptions", subscription("whk_3", { ...since, deleted_at: 5 }));
    insert(now, "workspaces", workspace("wks_2", since));
    insert(now, "api_keys", key("key_2", { ...since, workspace_id: "wks_2" }));
    insert(now, "subscriptions", subscription("whk_2", { ...since, idempotency_key: "key_1 a" }));
    insert(now, "audit_trail", call("1", "createWorkspace", []));
    const noted = read(now);
    putBack(then, noted);
    const found = read(then);
    for (const table of ["workspaces", "api_keys", "audit_trail"] as const)
      expect(found[table], table).toEqual(noted[table]);
    // Disabling is repeated, as it cancels deliveries.
    // One that was deleted since is not inserted.
    expect(found.subscriptions).toEqual([
      { ...noted.subscriptions[0], disabled_at: null },
      { ...noted.subscriptions[1], idempotency_key: null },
    ]);
    expect(putBack(then, noted)).toEqual([]);
  });

  test.each<[table: "workspaces" | "api_keys" | "subscriptions", changed: Row]>([
    ["workspaces", { admin_emails: '["a@example.com"]', webhooks_max: 50 }],
    ["api_keys", { requests_per_window: 7, last_used_at: 7 }],
    [
      "subscriptions",
      {
        url: "https://other.example/",
        description: "CRM",
        header_names: '["X-Token"]',
        sealed_headers: "00",
        earlier_secrets: "[]",
        rotated_at: 7,
      },
    ],
  ])("of %s have every column that was changed: %o", (table, changed) => {
    const { then, now, both } = opened();
    const rows = {
      workspaces: workspace("wks_1"),
      api_keys: key("key_1"),
      subscriptions: subscription("whk_1"),
    };
    if (table !== "workspaces") both("workspaces", rows.workspaces);
    both(table, rows[table], changed);
    putBack(then, read(now));
    expect(read(then)[table]).toMatchObject([changed]);
  });

  test("leave alone what has been deleted or erased since the database went back", () => {
    const { then, now, both } = opened();
    const since = { created_at: RESTORED_TO };
    for (const id of ["wks_1", "wks_3"]) both("workspaces", workspace(id), { name: "Now" });
    insert(now, "workspaces", workspace("wks_2"));
    insert(now, "api_keys", key("key_2", { workspace_id: "wks_2" }));
    both("subscriptions", subscription("whk_1"), { url: "https://now.example/" });
    insert(now, "subscriptions", subscription("whk_2"));
    insert(now, "subscriptions", subscription("whk_3", since));
    insert(now, "subscriptions", subscription("whk_4", { ...since, workspace_id: "wks_3" }));
    then.exec("UPDATE subscriptions SET deleted_at = 9 WHERE id = 'whk_1'");
    // Its workspace has moved away.
    then.exec("UPDATE workspaces SET database = 'DB_2', write_lock = 'locked' WHERE id = 'wks_3'");
    putBack(then, read(now));
    const found = read(then);
    expect(found.workspaces).toMatchObject([
      { id: "wks_1", name: "Now" },
      { id: "wks_3", name: "Agence" },
    ]);
    expect(found.api_keys).toEqual([]);
    expect(found.subscriptions).toMatchObject([{ id: "whk_1", deleted_at: 9 }, { id: "whk_3" }]);
  });

  test("are written in statements that D1 accepts, however many they are", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    for (let i = 0; i < 2_000; i++) insert(now, "audit_trail", call(String(i), "readWebhook", []));
    const statements = putBack(then, read(now));
    expect(statements.length).toBeGreaterThan(2);
    expect(Math.max(...statements.map(({ length }) => length))).toBeLessThan(100_000);
    expect(read(then).audit_trail).toHaveLength(2_000);
  });
});

test.each(["DB", "DB_2"])(
  "a workspace that was created during the restore of %s is not erased",
  async (database) => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    insert(then, "workspaces", workspace("wks_2"));
    insert(then, "workspaces", workspace("wks_3", { created_at: RESTORED_TO + 60_001 }));
    const noted = read(now);
    // With a second database, the directory has an entry of the new workspace.
    if (database !== "DB") insert(now, "workspaces", workspace("wks_3", { database }));
    const execute = executeIn({ [database]: then, ...(database !== "DB" && { DB: now }) });
    const placements = await findPlacements(execute, database, noted, RESTORED_TO);
    expect(placements.erased).toEqual(["wks_2"]);
    // It can be repeated.
    for (let run = 1; run <= 2; run++) await settlePlacements(execute, placements);
    expect(read(database === "DB" ? then : now).workspaces).toMatchObject([
      { id: "wks_1" },
      { id: "wks_2" },
      { id: "wks_3" },
    ]);
  },
);

describe("a workspace that has moved since then", () => {
  const entry = { database: "DB_2", write_lock: "locked", name: "" };
  const find = (then: DatabaseSync, noted: Tables) =>
    findPlacements(executeIn({ DB: then }), "DB", noted, RESTORED_TO);
  const settle = (then: DatabaseSync, placements: Placements) =>
    settlePlacements(executeIn({ DB: then }), placements);

  test("to DB gets its row and subscriptions back, even if the restore stops in between", async () => {
    const { then, now } = opened();
    insert(then, "workspaces", workspace("wks_1", entry));
    insert(now, "workspaces", workspace("wks_1", { access_granted: 0 }));
    insert(now, "subscriptions", subscription("whk_1"));
    const noted = read(now);
    const placements = await find(then, noted);
    expect(placements.movedHere).toEqual(["wks_1"]);
    for (let run = 1; run <= 2; run++) {
      await settle(then, placements);
      for (const statement of putBackStatements(
        "workspaces",
        rowsToPutBack("workspaces", compare(noted, then, placements)),
      ))
        then.exec(statement);
    }
    putBack(then, noted, placements);
    expect(read(then).subscriptions).toEqual(noted.subscriptions);
    expect(read(then).workspaces).toEqual([{ ...noted.workspaces[0], access_granted: 1 }]);
    expect(callsToRepeat(compare(noted, then, placements), 10)).toEqual([
      { method: "setWorkspaceAccess", input: { workspaceId: "wks_1", granted: false } },
    ]);
  });

  test("to DB gets its settings back even if they are skipped, as no other workspace does", async () => {
    const { then, now, both } = opened();
    insert(then, "workspaces", workspace("wks_1", entry));
    insert(now, "workspaces", workspace("wks_1", { sealed_data_key: "k1.x" }));
    insert(now, "subscriptions", subscription("whk_1"));
    both("workspaces", workspace("wks_2"), { name: "Damaged" });
    const other = subscription("whk_2", { workspace_id: "wks_2" });
    both("subscriptions", other, { url: "https://damaged.example/" });
    both("api_keys", key("key_1"), { requests_per_window: 7 });
    insert(now, "audit_trail", call("1", "updateWebhook", ["whk_2"]));
    const noted = read(now);
    const placements = await find(then, noted);
    await settle(then, placements);
    for (const table of TABLES) {
      const compared = { ...compare(noted, then, placements), skipsSettings: true };
      for (const statement of putBackStatements(table, rowsToPutBack(table, compared)))
        then.exec(statement);
    }
    const found = read(then);
    expect(found.workspaces).toMatchObject([noted.workspaces[0], { id: "wks_2", name: "Agence" }]);
    expect(found.subscriptions).toMatchObject([{ id: "whk_1" }, { url: other.url }]);
    expect(found.api_keys).toMatchObject([{ requests_per_window: null }]);
    expect(found.audit_trail).toEqual(noted.audit_trail);
  });

  test("to another database gets its row back, even if the move was begun long before", async () => {
    const { then, now } = opened();
    const directory = openTables();
    insert(now, "workspaces", workspace("wks_1"));
    insert(directory, "workspaces", workspace("wks_1", entry));
    const execute = executeIn({ DB: directory, DB_2: then });
    const placements = await findPlacements(execute, "DB_2", read(now), RESTORED_TO);
    expect(placements).toEqual({ statements: [], erased: [], movedHere: ["wks_1"] });
    putBack(then, read(now), placements);
    expect(read(then).workspaces).toEqual(read(now).workspaces);
  });

  test("from DB, or between other databases, is where the directory has it now", async () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"), { ...entry, database: "DB_3" });
    both("workspaces", workspace("wks_2", entry), { database: "DB_3" });
    both("workspaces", workspace("wks_3", entry));
    await settle(then, await find(then, read(now)));
    expect(read(then).workspaces).toMatchObject([
      { database: "DB_3", write_lock: "locked", move_id: "restored" },
      { database: "DB_3", write_lock: "locked", move_id: null },
      { database: "DB_2", write_lock: "locked", move_id: null },
    ]);
  });

  test("from DB and back is unlocked, although its move was under way then", async () => {
    const { then, now, both } = opened();
    const locked = { write_lock: "locked", move_id: "1" };
    both("workspaces", workspace("wks_1", locked), { write_lock: null, move_id: null });
    then.exec(
      "INSERT INTO moves (workspace_id, id, source, target, stage, created_at, since) VALUES ('wks_1', '1', 'DB', 'DB_2', 'copying', 1, 1)",
    );
    const placements = await find(then, read(now));
    expect(placements.movedHere).toEqual([]);
    await settle(then, placements);
    expect(read(then).workspaces).toEqual(read(now).workspaces);
    expect(then.prepare("SELECT * FROM moves").all()).toEqual([]);
  });
});

test("the audit trail is read from the calls on that had not ended at the restored time", async () => {
  const { now } = opened();
  const at = (id: string, at: number, durationMs: number) =>
    insert(now, "audit_trail", { ...call(id, "eraseLeads", []), at, duration_ms: durationMs });
  at("ended", RESTORED_TO - 90_000, 10_000);
  at("under way", RESTORED_TO - 90_000, 90_001);
  at("ended just before", RESTORED_TO - 1_000, 10);
  at("later", RESTORED_TO, 10);
  const { audit_trail } = await readTables(executeIn({ DB: now }), "DB", RESTORED_TO);
  expect(audit_trail.map(({ id }) => id)).toEqual(["under way", "ended just before", "later"]);
});

describe("the calls that are repeated", () => {
  const repeated = (then: DatabaseSync, now: DatabaseSync, erased: string[] = []) =>
    callsToRepeat(compare(read(now), then, { ...SETTLED, erased }), 10);
  const callsOf = (then: DatabaseSync, now: DatabaseSync) =>
    repeated(then, now).map(({ method, input }) =>
      [method, Object.values(input).flat()[0]].join(" "),
    );

  test("revoke what is revoked or expired now, and nothing else", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    both("api_keys", key("key_1"), { revoked_at: 5 });
    both("api_keys", key("key_2"), { expires_at: 9 });
    both("api_keys", key("key_3"), { expires_at: 11 });
    both("api_keys", key("key_4", { revoked_at: 2 }));
    expect(callsOf(then, now)).toEqual(["revokeApiKey key_1", "revokeApiKey key_2"]);
  });

  test("tell the objects of keys what was changed", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    both("api_keys", key("key_1"), { requests_per_window: 7 });
    insert(now, "audit_trail", call("1", "updateApiKey", ["key_1"]));
    // Its expiry has been put back by now.
    both("api_keys", key("key_2", { requests_per_window: 8, expires_at: 99 }));
    insert(now, "audit_trail", call("2", "rollApiKey", ["key_2", "key_3"]));
    both("api_keys", key("key_4"));
    const update = (keyId: string, requestsPerWindow: number) => ({
      method: "updateApiKey",
      input: { keyId, requestsPerWindow },
    });
    expect(repeated(then, now)).toEqual([update("key_1", 7), update("key_2", 8)]);
  });

  test("tell the objects of new keys, and of keys whose workspace has moved, to look again", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    both("workspaces", workspace("wks_2"));
    both("api_keys", key("key_1"));
    both("api_keys", key("key_2"));
    both("api_keys", key("key_3", { workspace_id: "wks_2" }));
    insert(now, "audit_trail", call("1", "createApiKey", ["key_1"]));
    const moved = { workspace_id: "wks_2" };
    insert(now, "audit_trail", { ...call("2", "moveWorkspace", []), ...moved });
    expect(callsOf(then, now)).toEqual(["updateApiKey key_1", "updateApiKey key_3"]);
  });

  test("end access and sessions, or grant access, as it is now", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"), { access_granted: 0, sessions_not_before: 5 });
    both("workspaces", workspace("wks_2", { access_granted: 0 }), { access_granted: 1 });
    both("workspaces", workspace("wks_3", { access_granted: 0 }));
    const setAccess = (workspaceId: string, granted: boolean) => ({
      method: "setWorkspaceAccess",
      input: { workspaceId, granted },
    });
    expect(repeated(then, now)).toEqual([
      setAccess("wks_1", false),
      { method: "endPortalSessions", input: { workspaceId: "wks_1" } },
      setAccess("wks_2", true),
    ]);
  });

  test("delete, disable and enable subscriptions, and remove event types, as they are now", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    insert(then, "subscriptions", subscription("whk_1"));
    both("subscriptions", subscription("whk_2"), { deleted_at: 5 });
    both("subscriptions", subscription("whk_3"), { disabled_at: 5 });
    both("subscriptions", subscription("whk_4", { disabled_at: 2 }), { disabled_at: null });
    both("subscriptions", subscription("whk_5"), { events: '["run.completed"]' });
    both("subscriptions", subscription("whk_6"));
    both("subscriptions", subscription("whk_7", { disabled_at: 2 }));
    expect(callsOf(then, now)).toEqual([
      ...["deleteWebhook whk_1", "deleteWebhook whk_2", "disableWebhook whk_3"],
      ...["enableWebhook whk_4", "updateWebhook whk_5"],
    ]);
    const calls = repeated(then, now);
    expect(calls.at(-1)?.input).toEqual({ webhookId: "whk_5", events: ["run.completed"] });
  });

  test("leave alone a subscription that was created during the restore", () => {
    const { then, both } = opened();
    const { now } = opened();
    both("workspaces", workspace("wks_1"));
    insert(now, "workspaces", workspace("wks_1"));
    insert(then, "subscriptions", subscription("whk_1", { created_at: RESTORED_TO + 60_001 }));
    insert(then, "subscriptions", subscription("whk_2", { created_at: RESTORED_TO + 60_000 }));
    expect(callsOf(then, now)).toEqual(["deleteWebhook whk_2"]);
  });

  test("erase and remove what the audit trail names, unless it was refused", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1"));
    insert(now, "audit_trail", call("1", "eraseLeads", ["lea_1"]));
    insert(now, "audit_trail", call("2", "eraseLeads", ["lea_2"], "failed"));
    insert(now, "audit_trail", call("3", "eraseLeads", ["lea_3"], "not_found: workspaceId"));
    insert(now, "audit_trail", call("4", "removeAutomations", ["aut_1"]));
    const calls = repeated(then, now, ["wks_9"]);
    expect(calls).toEqual([
      { method: "eraseWorkspace", input: { workspaceId: "wks_9" } },
      { method: "eraseLeads", input: { workspaceId: "wks_1", ids: ["lea_1"] } },
      { method: "eraseLeads", input: { workspaceId: "wks_1", ids: ["lea_2"] } },
      { method: "removeAutomations", input: { workspaceId: "wks_1", ids: ["aut_1"] } },
    ]);
  });

  test("revoke or invalidate the keys of a workspace that is back, whose erasure may be skipped", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_2"));
    insert(then, "workspaces", workspace("wks_1"));
    insert(then, "api_keys", key("key_1", { requests_per_window: 7 }));
    insert(then, "api_keys", key("key_2", { revoked_at: 2 }));
    insert(then, "api_keys", key("key_3", { expires_at: 9 }));
    const compared = compare(read(now), then, { ...SETTLED, erased: ["wks_1"] });
    expect(callsToRepeat(compared, 10)).toEqual([
      { method: "updateApiKey", input: { keyId: "key_1", requestsPerWindow: 7 } },
      { method: "revokeApiKey", input: { keyId: "key_3" } },
      { method: "eraseWorkspace", input: { workspaceId: "wks_1" } },
    ]);
  });

  test("leave a workspace alone that lives elsewhere, whatever it has left here", () => {
    const { then, now, both } = opened();
    both("workspaces", workspace("wks_1", { database: "DB_2", access_granted: 0 }), {
      access_granted: 1,
      name: "",
    });
    insert(then, "subscriptions", subscription("whk_1"));
    insert(now, "audit_trail", call("1", "eraseLeads", ["lea_1"]));
    // This one lives here.
    both("workspaces", workspace("wks_2", { access_granted: 0 }), { access_granted: 1, name: "" });
    expect(callsOf(then, now)).toEqual(["setWorkspaceAccess wks_2"]);
    const put = rowsToPutBack("workspaces", compare(read(now), then));
    expect(put.map(({ id }) => id)).toEqual(["wks_2"]);
  });
});

import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { parseOptions } from "../../../scripts/restore/options.ts";
import { restore } from "../../../scripts/restore/restoration.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { openApi } from "../../../scripts/shared/local-api.ts";
import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { withAbsolutePaths, withTestSettings } from "../../../scripts/shared/test-settings.ts";
import { opened } from "../../node/support/opened.ts";
import { platformOf } from "../../node/support/platform-here.ts";
import { runHere } from "../../node/support/process.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";
import { startCloudflare } from "./cloudflare.ts";
import { QUEUES } from "./deployment.ts";

/** How each database is called in the account, by its binding. */
const DATABASES = { DB: "public-api", DB_2: "public-api-2" } as const;

/** A deployment with its storage on this machine, whose databases the account can restore. */
async function openDeployment(bindings: (keyof typeof DATABASES)[]) {
  const folder = mkdtempSync(join(tmpdir(), "restoring-"));
  const [d1, copy] = [join(folder, "state/d1"), join(folder, "copy")];
  const start = () =>
    startRuntime({
      persist: join(folder, "state"),
      databases: bindings.length,
      // A test asks again until a key is accepted.
      vars: { AUTH_FAILURES: 1_000 },
    });
  const cloudflare = await startCloudflare();
  for (const name of QUEUES) cloudflare.addQueue(name, "eu");
  const options = (args: string[]) => ["--config", join(folder, "wrangler.toml"), ...args];
  const env = { ...process.env, HOME: folder, ...cloudflare.env };
  const deployment = {
    cloudflare,
    folder,
    runtime: await start(),
    /** The bookmark to which a database has been restored. */
    wentTo: "",
    /** What happens when a database has been restored. */
    onRestored: async () => {},
    /** The method of the Platform API that fails in `restore`, before it changes anything; "" for none. */
    failing: "",
    /** Whether `restore` can open the Platform API. */
    isReachable: true,
    /** Remembers the databases as they are, while nothing is written. @returns the time. */
    remember() {
      cpSync(d1, copy, { recursive: true });
      return new Date().toISOString();
    },
    /** Does what the command does, in this process. */
    restore: (...args: string[]) =>
      runHere(() => {
        const open = async (): Promise<PlatformClient> => {
          if (!deployment.isReachable) throw new Error("No route to host.");
          const platform = platformOf(deployment.runtime);
          const call: PlatformClient["call"] = async (method, input) => {
            if (method === deployment.failing) throw new Error("Network connection lost.");
            return platform.call(method, input);
          };
          return { ...platform, call };
        };
        return restore(parseOptions(options(args)), env, open);
      }),
    async close() {
      await Promise.all([deployment.runtime.stop(), cloudflare.close()]);
      rmSync(folder, { recursive: true });
    },
  };
  const databaseOf = (binding: string) =>
    (deployment.runtime.env as unknown as Record<string, D1Database>)[binding] as D1Database;
  const toml = withTestSettings(readFileSync(join(ROOT, "wrangler.toml"), "utf8"));
  const blocks = bindings
    .slice(1)
    .map(
      (binding) =>
        `\n[[d1_databases]]\nbinding = "${binding}"\ndatabase_name = "${DATABASES[binding]}"\nmigrations_dir = "${ROOT}/migrations"\n`,
    );
  writeFileSync(join(folder, "wrangler.toml"), withAbsolutePaths(toml) + blocks.join(""));
  for (const binding of bindings) {
    await databaseOf(binding).exec(
      `INSERT INTO sweep_positions (part, position) VALUES ('binding', '${binding}')`,
    );
    const database = cloudflare.addDatabase(DATABASES[binding], "eu");
    database.query = async (sql) => {
      const db = databaseOf(binding);
      const statements = sql.split(";\n").map((one) => db.prepare(one));
      const results = await db.batch(statements);
      // They are used here, too: a statement that is collected as garbage before the batch has reached the runtime is
      // freed there, and Miniflare then fails with "false == true".
      return statements.map((_, i) => results[i]?.results ?? []);
    };
    // Time Travel: the files of then, and other isolates.
    database.restore = async (bookmark) => {
      deployment.wentTo = bookmark;
      await deployment.runtime.stop();
      for (const file of filesOf(copy, binding)) {
        // A log that a killed runtime has left would bring back what was written later.
        for (const log of ["-wal", "-shm"]) rmSync(join(d1, file + log), { force: true });
        cpSync(join(copy, file), join(d1, file));
      }
      deployment.runtime = await start();
      await deployment.onRestored();
    };
  }
  return deployment;
}

/** The files of a database in a folder of D1's storage. */
function filesOf(folder: string, binding: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return names.filter(
    (name) => name.endsWith(".sqlite") && bindingIn(join(folder, name)) === binding,
  );
}

/** Which database a file is; undefined for a file of the runtime's own. */
function bindingIn(file: string): unknown {
  using database = new DatabaseSync(file);
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  const tables = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'sweep_positions'");
  if (!tables.get()) return undefined;
  return database.prepare("SELECT position FROM sweep_positions WHERE part = 'binding'").get()
    ?.position;
}

/** How a key is answered. */
async function statusOf({ url }: Runtime, apiKey: string): Promise<number> {
  const headers = { Authorization: `Bearer ${apiKey}` };
  return (await fetch(new URL("/v1/leads", url), { headers })).status;
}

/** A deployment with one database. */
const single = await opened(openDeployment(["DB"]));

test("npm run restore brings records back, and repeats later decisions of people", async () => {
  const deployment = single;
  const { cloudflare, folder } = deployment;
  deployment.onRestored = async () => {
    await deployment.runtime.env.DB.exec("UPDATE d1_migrations SET name = '' WHERE id = 2");
  };
  const [kept, deleted] = [await startReceiver(), await startReceiver()];
  /** Creates a key. The runtime's own answers end with it. */
  const createKey = async (input: { workspaceId: string; requestsPerWindow?: number }) => {
    const { keyId, apiKey } = await deployment.runtime.env.PLATFORM.createApiKey(input);
    return { keyId: String(keyId), apiKey: String(apiKey) };
  };

  const main = await openWorkspace(deployment.runtime);
  const { workspaceId } = main;
  const { id: keptId } = await main.subscribe(kept.url);
  const { id: webhookId } = await main.subscribe(deleted.url);
  const { id: disabledId } = await main.subscribe(`${deleted.url}/disabled`, ["run.completed"]);
  const revoked = await createKey({ workspaceId });
  const [unused, leaked] = [await createKey({ workspaceId }), await createKey({ workspaceId })];
  const barred = await openWorkspace(deployment.runtime);
  const erasedWorkspace = await openWorkspace(deployment.runtime);
  const agent = { reference: "agent", name: "Agence" };
  const record = async (reference: string) => {
    const leads = [{ reference, source: "crm" as const, agent }];
    return String((await deployment.runtime.env.PLATFORM.recordLeads({ workspaceId, leads })).ids);
  };
  const before = await record("before");
  const erased = await record("erased");
  await until(() => kept.posts.length === 2 && deleted.posts.length === 2);
  for (const key of [main.apiKey, revoked.apiKey, barred.apiKey])
    expect(await statusOf(deployment.runtime, key)).toBe(200);
  const settled = async () => (await deployment.runtime.env.PLATFORM.ledger({})).pending === 0;
  await until(settled);
  const time = deployment.remember();

  // What happens after the moment that is restored.
  const { PLATFORM } = deployment.runtime.env;
  await PLATFORM.revokeApiKey({ keyId: revoked.keyId });
  const created = await createKey({ workspaceId, requestsPerWindow: 77 });
  await PLATFORM.setWorkspaceAccess({ workspaceId: barred.workspaceId, granted: false });
  await PLATFORM.eraseWorkspace({ workspaceId: erasedWorkspace.workspaceId });
  await PLATFORM.endPortalSessions({ workspaceId });
  await PLATFORM.disableWebhook({ webhookId: disabledId });
  const secret = String((await PLATFORM.rotateWebhookSecret({ webhookId: keptId })).secret);
  await PLATFORM.updateWebhook({ webhookId: keptId, url: `${kept.url}/moved` });
  await openApi(deployment.runtime.url.origin, main.apiKey)("DELETE", `/v1/webhooks/${webhookId}`);
  await PLATFORM.eraseLeads({ workspaceId, references: ["erased"] });
  const after = await record("after");
  await until(() => kept.posts.length === 3);
  const subscriptions = () =>
    deployment.runtime.env.DB.prepare(
      "SELECT id, url, sealed_secret, rotated_at, disabled_at IS NULL AS active FROM subscriptions WHERE deleted_at IS NULL ORDER BY id",
    )
      .all()
      .then(({ results }) => results);
  const decided = await subscriptions();
  expect(decided).toHaveLength(2);

  const goBack = (...args: string[]) => deployment.restore("--timestamp", time, ...args);
  /** The Worker as it now runs. */
  const decide = () => deployment.runtime.env;
  const isPaused = () => cloudflare.queues.map(({ settings }) => settings.delivery_paused ?? false);

  // Without an answer, nothing is changed.
  const asked = await goBack();
  expect(asked.stderr).toContain("Nothing was changed. Add --yes to go on.");
  expect(asked.stdout).toContain("revokeApiKey 1");
  expect([cloudflare.changes, isPaused()]).toEqual([[], [false, false, false]]);
  // Another restore, whose notes are elsewhere, may be in progress.
  expect(asked.stdout).not.toContain("Deliveries are paused already");
  for (const { settings } of cloudflare.queues) settings.delivery_paused = true;
  expect((await goBack()).stdout).toContain("Deliveries are paused already");
  for (const { settings } of cloudflare.queues) settings.delivery_paused = false;

  // An outage before the database is restored. Then, it lacks a migration, which cannot be applied.
  cloudflare.outage = /time_travel.restore/;
  expect((await goBack("--yes")).stderr).toContain("Service unavailable");
  const [file = ""] = readdirSync(folder).filter((name) => name.endsWith(".json"));
  expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
  cloudflare.outage = null;
  const createdLater = await createKey({ workspaceId });
  await PLATFORM.revokeApiKey({ keyId: leaked.keyId });
  expect((await goBack("--yes")).stderr).toContain(
    "The migrations of DB failed: Cloudflare rejects POST",
  );
  expect(deployment.wentTo).toBe(`at-${time}`);
  expect(isPaused()).toEqual([true, true, false]);
  await decide().DB.exec("UPDATE d1_migrations SET name = '0001_triggers.sql' WHERE id = 2");
  for (const [key, status] of [
    [revoked, 200],
    [unused, 200],
    [created, 401],
  ] as const)
    expect(await statusOf(deployment.runtime, key.apiKey)).toBe(status);
  // A client that goes on trying keeps the gate of its key in memory.
  const trying = setInterval(() => statusOf(deployment.runtime, created.apiKey), 4_000);
  onTestFinished(() => clearInterval(trying));

  // The other calls are not made twice, so what people decide after them stays.
  deployment.failing = "eraseLeads";
  expect((await goBack("--yes")).stderr).toContain("These calls failed; deliveries stay paused.");
  await decide().PLATFORM.setWorkspaceAccess({ workspaceId: barred.workspaceId, granted: true });
  deployment.failing = "";

  const { code, stdout, stderr } = await goBack("--yes");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toContain(`Repeated eraseLeads {"workspaceId":"${workspaceId}"`);
  expect(stdout).toContain("npx wrangler d1 time-travel restore DB --bookmark=");
  expect(isPaused()).toEqual([false, false, false]);
  // What has been recorded since then stays.
  const notes = join(folder, file);
  const repeatedRun = await goBack("--yes");
  expect([repeatedRun.code, repeatedRun.stderr]).toEqual([
    1,
    `This restore is finished. To do it once more, delete ${notes} first.\n`,
  ]);
  expect(Object.keys(JSON.parse(readFileSync(notes, "utf8")))).toEqual(["bookmark", "finished"]);

  clearInterval(trying);
  // An isolate refuses an unknown key for two seconds without asking its gate.
  await until(async () => (await statusOf(deployment.runtime, created.apiKey)) === 200);
  const statuses = [revoked, leaked, created, createdLater, barred, erasedWorkspace];
  expect(
    await Promise.all(statuses.map(({ apiKey }) => statusOf(deployment.runtime, apiKey))),
  ).toEqual([401, 401, 200, 200, 200, 401]);
  // Its first use was after the database had gone back.
  await decide().PLATFORM.revokeApiKey({ keyId: unused.keyId });
  expect(await statusOf(deployment.runtime, unused.apiKey)).toBe(401);
  expect(await subscriptions()).toEqual(decided);
  const listed = await deployment.runtime.env.PLATFORM.listAuditTrail({ workspaceId });
  const trail = JSON.parse(JSON.stringify(listed.items)) as {
    method: string;
    ids: string[];
    actor: string;
  }[];
  const repeated = trail.filter(({ actor }) => actor === "npm run restore");
  const calls = repeated.map(({ method, ids }) => [method, ...ids].join(" "));
  expect(calls.toSorted()).toEqual([...new Set(calls)].toSorted());
  expect([...new Set(repeated.map(({ method }) => method))].toSorted()).toEqual([
    "deleteWebhook",
    "disableWebhook",
    "endPortalSessions",
    "eraseLeads",
    "revokeApiKey",
    "updateApiKey",
  ]);
  for (const method of ["rotateWebhookSecret", "createApiKey"])
    expect(trail.map((entry) => entry.method)).toContain(method);

  // The same leads; what was recorded since then is announced once more, under the newest secret.
  expect(await record("before")).toBe(before);
  expect(await record("after")).toBe(after);
  await until(() => kept.posts.length === 4);
  await until(settled);
  const events = kept.posts.map(({ body }) => JSON.parse(body.toString()));
  expect(events.map(({ data }) => data.id)).toEqual([before, erased, after, after]);
  expect(kept.posts.at(-1)?.path).toBe("/moved");
  expect(secret).toMatch(/^whsec_/);
  expect(deleted.posts).toHaveLength(2);
  expect(await deployment.runtime.env.PLATFORM.ledger({})).toMatchObject({
    addsUp: true,
    pending: 0,
  });
  await Promise.all([kept.close(), deleted.close()]);
});

test("a workspace is back if its erasure is skipped, whatever the run that continues skips", async () => {
  const deployment = single;
  deployment.onRestored = async () => {};
  const mistaken = await openWorkspace(deployment.runtime);
  await mistaken.recordLeads(["then"]);
  const time = deployment.remember();
  const { workspaceId } = mistaken;
  const { PLATFORM } = deployment.runtime.env;
  await until(async () => (await PLATFORM.eraseWorkspace({ workspaceId })).done);
  expect(await statusOf(deployment.runtime, mistaken.apiKey)).toBe(401);

  const args = ["--timestamp", time, "--yes"];
  deployment.isReachable = false;
  const failed = await deployment.restore(...args, "--skip", "eraseWorkspace");
  expect(failed.stderr).toContain("No route to host.");
  deployment.isReachable = true;
  const { code, stdout, stderr } = await deployment.restore(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).not.toContain("Repeated eraseWorkspace");
  // The gate of its key may have cached that the key is unknown.
  expect(stdout).toMatch(/^Repeated updateApiKey /m);
  const read = openApi(deployment.runtime.url.origin, mistaken.apiKey)<{ data: object[] }>;
  expect((await read("GET", "/v1/leads")).data).toHaveLength(1);
});

test("a restore continues though keys whose calls have failed have ended since then", async () => {
  const deployment = single;
  const [kept, erased] = [
    await openWorkspace(deployment.runtime),
    await openWorkspace(deployment.runtime),
  ];
  const time = deployment.remember();
  const { PLATFORM } = deployment.runtime.env;
  await PLATFORM.updateApiKey({ keyId: kept.keyId, requestsPerWindow: 77 });
  await until(
    async () => (await PLATFORM.eraseWorkspace({ workspaceId: erased.workspaceId })).done,
  );
  // The gate of the key caches it as of then.
  deployment.onRestored = async () => {
    expect(await statusOf(deployment.runtime, kept.apiKey)).toBe(200);
  };
  deployment.failing = "updateApiKey";
  const failed = await deployment.restore("--timestamp", time, "--yes");
  for (const { keyId } of [kept, erased])
    expect(failed.stderr).toContain(`updateApiKey {"keyId":"${keyId}"`);
  expect(failed.stdout).toContain("Repeated eraseWorkspace");
  deployment.failing = "";
  await deployment.runtime.env.DB.prepare("UPDATE api_keys SET expires_at = 1 WHERE id = ?")
    .bind(kept.keyId)
    .run();
  expect(await statusOf(deployment.runtime, kept.apiKey)).toBe(200);

  const { code, stderr } = await deployment.restore("--timestamp", time, "--yes");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(await statusOf(deployment.runtime, kept.apiKey)).toBe(401);
});

test("restoring one of several databases leaves alone what has moved away", async () => {
  const deployment = await openDeployment(["DB", "DB_2"]);
  const open = () => openWorkspace(deployment.runtime, { database: "DB_2" });
  const [kept, moved, erased] = [await open(), await open(), await open()];
  for (const workspace of [kept, moved, erased]) await workspace.recordLeads(["then"]);
  const time = deployment.remember();

  const created = await open();
  const { PLATFORM } = deployment.runtime.env;
  const { workspaceId } = moved;
  const recorded = await PLATFORM.recordLeads({
    workspaceId,
    leads: [{ reference: "now", source: "crm", agent: { reference: "agent", name: "Agence" } }],
  });
  expect(recorded.created).toBe(1);
  await until(async () => (await PLATFORM.moveWorkspace({ workspaceId, database: "DB" })).done);
  // As if a minute had passed, after which what it left behind is deleted.
  await deployment.runtime.env.DB.exec("UPDATE moves SET since = 0");
  await deployment.runtime.scheduled();
  await until(
    async () => (await PLATFORM.eraseWorkspace({ workspaceId: erased.workspaceId })).done,
  );
  const rowsIn = async (table: string, id: string) => {
    const { DB_2 } = deployment.runtime.env as unknown as { DB_2: D1Database };
    const sql = `SELECT count(*) AS n FROM ${table} WHERE ${table === "workspaces" ? "id" : "workspace_id"} = ?`;
    return DB_2.prepare(sql).bind(id).first<number>("n");
  };
  expect(await rowsIn("leads", workspaceId)).toBe(0);

  let back: (number | null)[] = [];
  deployment.onRestored = async () => {
    const ids = [workspaceId, erased.workspaceId];
    back = await Promise.all(ids.map((id) => rowsIn("leads", id)));
  };
  const args = ["--timestamp", time, "--database", "DB_2", "--yes"];
  const { code, stdout, stderr } = await deployment.restore(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(back).toEqual([1, 1]);
  expect(stdout).toContain("moveWorkspace");
  expect(await rowsIn("leads", erased.workspaceId)).toBe(0);
  expect(await rowsIn("workspaces", created.workspaceId)).toBe(1);
  // The scheduled job deletes what is back of the one that has moved.
  await deployment.runtime.scheduled();
  expect(await rowsIn("leads", workspaceId)).toBe(0);
  const leadsOf = async (apiKey: string) =>
    (await openApi(deployment.runtime.url.origin, apiKey)<{ data: object[] }>("GET", "/v1/leads"))
      .data;
  expect(await leadsOf(kept.apiKey)).toHaveLength(1);
  expect(await leadsOf(moved.apiKey)).toHaveLength(2);
  expect(await leadsOf(created.apiKey)).toEqual([]);
  expect(await statusOf(deployment.runtime, erased.apiKey)).toBe(401);

  // DB goes back, too: to before the workspace moved there.
  deployment.onRestored = async () => {};
  const directory = await deployment.restore("--timestamp", time, "--yes");
  expect(directory).toMatchObject({ code: 0, stderr: "" });
  expect(directory.stdout).toContain(`${workspaceId} has moved to DB since then`);
  expect(await leadsOf(moved.apiKey)).toEqual([]);
  const again = { reference: "then", source: "crm" as const, agent: { reference: "a", name: "A" } };
  const reported = await deployment.runtime.env.PLATFORM.recordLeads({
    workspaceId,
    leads: [again],
  });
  expect(reported.created).toBe(1);
  expect(await leadsOf(moved.apiKey)).toHaveLength(1);
  expect(await leadsOf(kept.apiKey)).toHaveLength(1);
  expect(await leadsOf(created.apiKey)).toEqual([]);
  await deployment.close();
});

import { cpSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { expect, test, vi } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { runProgram } from "../../node/support/process.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";
import { startCloudflare } from "./cloudflare.ts";
import { QUEUES } from "./deployment.ts";

// Wrangler takes seconds to start, and longer on a busy machine.
vi.setConfig({ testTimeout: 900_000 });

const FOLDER = mkdtempSync(join(tmpdir(), "restoring-"));
const STATE = join(FOLDER, "state");
const COPY = join(FOLDER, "d1");
const REGISTRY = join(FOLDER, "registry");

/** The Worker with the stored state, where the Platform API is found. */
const startWorker = () => startRuntime({ persist: STATE, registry: REGISTRY });

/** How a key is answered. */
async function statusOf({ url }: Runtime, apiKey: string): Promise<number> {
  const headers = { Authorization: `Bearer ${apiKey}` };
  return (await fetch(new URL("/v1/leads", url), { headers })).status;
}

test("npm run restore brings records back, and keeps what people have decided since then, after outages, too", async () => {
  const cloudflare = await startCloudflare();
  for (const name of QUEUES) cloudflare.addQueue(name, "eu");
  const database = cloudflare.addDatabase("public-api", "eu");
  const [kept, deleted] = [await startReceiver(), await startReceiver()];
  let runtime = await startWorker();
  database.query = async (sql) => {
    const { DB } = runtime.env;
    const results = await DB.batch(sql.split(";\n").map((one) => DB.prepare(one)));
    return results.map((result) => result.results);
  };
  // Time Travel: the files of then, and other isolates.
  database.restore = async () => {
    await runtime.stop();
    rmSync(join(STATE, "d1"), { recursive: true });
    cpSync(COPY, join(STATE, "d1"), { recursive: true });
    runtime = await startWorker();
    cloudflare.outage = /^POST .*.query$/;
  };
  /** Creates a key. The runtime's own answers end with it. */
  const createKey = async (input: { workspaceId: string; requestsPerWindow?: number }) => {
    const { keyId, apiKey } = await runtime.env.PLATFORM.createApiKey(input);
    return { keyId: String(keyId), apiKey: String(apiKey) };
  };

  const main = await openWorkspace(runtime);
  const { workspaceId } = main;
  const { id: keptId } = await main.subscribe(kept.url);
  const { id: webhookId } = await main.subscribe(deleted.url);
  const { id: disabledId } = await main.subscribe(`${deleted.url}/disabled`, ["run.completed"]);
  const revoked = await createKey({ workspaceId });
  const barred = await openWorkspace(runtime);
  const erasedWorkspace = await openWorkspace(runtime);
  const agent = { reference: "agent", name: "Agence" };
  const record = async (reference: string) => {
    const leads = [{ reference, source: "crm" as const, agent }];
    return String((await runtime.env.PLATFORM.recordLeads({ workspaceId, leads })).ids);
  };
  const before = await record("before");
  const erased = await record("erased");
  await until(() => kept.posts.length === 2 && deleted.posts.length === 2);
  for (const key of [main.apiKey, revoked.apiKey, barred.apiKey])
    expect(await statusOf(runtime, key)).toBe(200);
  const settled = async () => (await runtime.env.PLATFORM.ledger({})).pending === 0;
  await until(settled);
  await runtime.stop();
  cpSync(join(STATE, "d1"), COPY, { recursive: true });
  const time = new Date().toISOString();

  // What happens after the moment that is restored.
  runtime = await startWorker();
  const { PLATFORM } = runtime.env;
  await PLATFORM.revokeApiKey({ keyId: revoked.keyId });
  const created = await createKey({ workspaceId, requestsPerWindow: 77 });
  await PLATFORM.setWorkspaceAccess({ workspaceId: barred.workspaceId, granted: false });
  await PLATFORM.eraseWorkspace({ workspaceId: erasedWorkspace.workspaceId });
  await PLATFORM.endPortalSessions({ workspaceId });
  await PLATFORM.disableWebhook({ webhookId: disabledId });
  const secret = String((await PLATFORM.rotateWebhookSecret({ webhookId: keptId })).secret);
  await PLATFORM.updateWebhook({ webhookId: keptId, url: `${kept.url}/moved` });
  await openApi(runtime.url.origin, main.apiKey)("DELETE", `/v1/webhooks/${webhookId}`);
  await PLATFORM.eraseLeads({ workspaceId, references: ["erased"] });
  const after = await record("after");
  await until(() => kept.posts.length === 3);
  const subscriptions = () =>
    runtime.env.DB.prepare(
      "SELECT id, url, sealed_secret, rotated_at, disabled_at IS NULL AS active FROM subscriptions WHERE deleted_at IS NULL ORDER BY id",
    )
      .all()
      .then(({ results }) => results);
  const decided = await subscriptions();
  expect(decided).toHaveLength(2);

  const env = {
    PATH: [dirname(process.execPath), process.env.PATH].join(delimiter),
    HOME: FOLDER,
    NODE_NO_WARNINGS: "1",
    ...cloudflare.env,
    WRANGLER_REGISTRY_PATH: REGISTRY,
  };
  const restore = (...args: string[]) =>
    runProgram(
      [process.execPath, "test/node/support/restore-locally.ts", "--timestamp", time, ...args],
      { env },
    );
  const isPaused = () => cloudflare.queues.map(({ settings }) => settings.delivery_paused ?? false);

  // Without an answer, nothing is changed.
  const asked = await restore();
  expect(asked.stderr).toContain("Nothing was changed. Add --yes to go on.");
  expect(asked.stdout).toContain("revokeApiKey 1");
  expect([cloudflare.changes, isPaused()]).toEqual([[], [false, false, false]]);

  // One outage before the database is restored, and one just after.
  cloudflare.outage = /time_travel.restore/;
  expect((await restore("--yes")).stderr).toContain("Time Travel failed");
  const [file = ""] = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));
  expect(statSync(join(FOLDER, file)).mode & 0o777).toBe(0o600);
  cloudflare.outage = null;
  expect((await restore("--yes")).stderr).toContain("The migrations of DB failed");
  expect(isPaused()).toEqual([true, true, false]);
  expect(await statusOf(runtime, revoked.apiKey)).toBe(200);
  cloudflare.outage = null;

  const { code, stdout, stderr } = await restore("--yes");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toContain(`Repeated revokeApiKey {"keyId":"${revoked.keyId}"}`);
  expect(stdout).toContain("npx wrangler d1 time-travel restore DB --bookmark=");
  expect(isPaused()).toEqual([false, false, false]);
  expect((await restore("--yes")).stderr).toContain("This restore is finished.");

  expect(await statusOf(runtime, revoked.apiKey)).toBe(401);
  expect(await statusOf(runtime, created.apiKey)).toBe(200);
  expect(await statusOf(runtime, barred.apiKey)).toBe(403);
  expect(await statusOf(runtime, erasedWorkspace.apiKey)).toBe(401);
  expect(await subscriptions()).toEqual(decided);
  const listed = await runtime.env.PLATFORM.listAuditTrail({ workspaceId });
  const trail = JSON.parse(JSON.stringify(listed.items)) as { method: string; actor: string }[];
  const repeated = trail.filter(({ actor }) => actor === "npm run restore");
  expect(repeated.map(({ method }) => method).toSorted()).toEqual([
    "deleteWebhook",
    "disableWebhook",
    "endPortalSessions",
    "eraseLeads",
    "revokeApiKey",
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
  expect(await runtime.env.PLATFORM.ledger({})).toMatchObject({ addsUp: true, pending: 0 });
  await runtime.stop();
  await Promise.all([kept.close(), deleted.close(), cloudflare.close()]);
  rmSync(FOLDER, { recursive: true });
});

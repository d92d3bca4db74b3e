import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

const PAGE = readFileSync(join(ROOT, "docs/restoring.md"), "utf8");

/** The statements of a step of the page. */
function statementsOf(step: number): string[] {
  const [, text = ""] = PAGE.split(new RegExp(`^${step}\\. `, "m"));
  const [own = ""] = text.split(/^(?:\d+\. |## )/m);
  return [...own.matchAll(/--command "(.+?)"/g)].map(([, sql = ""]) => sql);
}

const FOLDER = mkdtempSync(join(tmpdir(), "restoring-"));
const STATE = join(FOLDER, "state");
const COPY = join(FOLDER, "d1");

/** The Worker with the stored state; a new start replaces its isolates, as a deployment does. */
const startWorker = () => startRuntime({ persist: STATE });

/** Runs a statement of the page. */
async function run<Row = unknown>({ env }: Runtime, sql = ""): Promise<Row[]> {
  const results = await env.DB.batch(sql.split("; ").map((one) => env.DB.prepare(one)));
  return (results.at(-1)?.results ?? []) as Row[];
}

async function open(runtime: Runtime, url?: string) {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const key = await addKey(runtime, String(workspaceId));
  const body = { url, events: ["lead.created"] };
  if (url) await call(runtime, key.apiKey, "POST", "/v1/webhooks", body);
  return { workspaceId: String(workspaceId), ...key };
}

/** A new key. The runtime's own answers end with it. */
async function addKey({ env }: Runtime, workspaceId: string) {
  const { apiKey, keyId } = await env.PLATFORM.createApiKey({ workspaceId });
  return { apiKey: String(apiKey), keyId: String(keyId) };
}

function call({ url }: Runtime, apiKey: string, method: string, path: string, body?: unknown) {
  return fetch(new URL(path, url), {
    method,
    headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

const statusOf = async (runtime: Runtime, apiKey: string) =>
  (await call(runtime, apiKey, "GET", "/v1/leads")).status;

const lead = (reference: string) => ({
  reference,
  source: "crm" as const,
  agent: { reference: "agent", name: "Agence" },
});

test("after the steps of docs/restoring.md, what was revoked or deleted since then is so again", async () => {
  const [kept, deleted] = [await startReceiver(), await startReceiver()];
  let runtime = await startWorker();
  const main = await open(runtime, kept.url);
  const revoked = await addKey(runtime, main.workspaceId);
  const { apiKey } = revoked;
  const barred = await open(runtime);
  const unused = await open(runtime);
  const made = await call(runtime, main.apiKey, "POST", "/v1/webhooks", {
    url: deleted.url,
    events: ["lead.created"],
  });
  const { id: webhookId } = (await made.json()) as { id: string };
  const record = async (reference: string) => {
    const { workspaceId } = main;
    const leads = [lead(reference)];
    const { ids } = await runtime.env.PLATFORM.recordLeads({ workspaceId, leads });
    return String(ids);
  };
  const before = await record("before");
  await until(() => kept.posts.length === 1 && deleted.posts.length === 1, 30_000);
  for (const key of [main.apiKey, apiKey, barred.apiKey])
    expect(await statusOf(runtime, key)).toBe(200);
  const settled = async () => (await runtime.env.PLATFORM.ledger({})).pending === 0;
  await until(settled, 30_000);
  await runtime.stop();
  cpSync(join(STATE, "d1"), COPY, { recursive: true });

  // What happens after the moment that is restored.
  runtime = await startWorker();
  await runtime.env.PLATFORM.revokeApiKey({ keyId: revoked.keyId });
  await runtime.env.PLATFORM.setWorkspaceAccess({
    workspaceId: barred.workspaceId,
    granted: false,
  });
  await call(runtime, main.apiKey, "DELETE", `/v1/webhooks/${webhookId}`);
  const after = await record("after");
  await until(() => kept.posts.length === 2, 30_000);
  expect(await statusOf(runtime, apiKey)).toBe(401);
  expect(await statusOf(runtime, barred.apiKey)).toBe(403);
  expect(await statusOf(runtime, unused.apiKey)).toBe(200);

  // Steps 4 to 6.
  const [withdrawals, subscriptions] = statementsOf(4);
  const withdrawn = await run<{ revoked: string; id: string }>(runtime, withdrawals);
  const existing = await run<{ id: string }>(runtime, subscriptions);
  await runtime.stop();
  rmSync(join(STATE, "d1"), { recursive: true });
  cpSync(COPY, join(STATE, "d1"), { recursive: true });
  runtime = await startWorker();
  expect(await statusOf(runtime, apiKey), "the danger that the page names").toBe(200);
  expect(await statusOf(runtime, main.apiKey)).toBe(200);

  // Step 7: the gate of a key that was first used since then knows it, and the database does not.
  const lastUse = "SELECT last_used_at FROM api_keys WHERE id = ?";
  const usedAt = () => runtime.env.DB.prepare(lastUse).bind(unused.keyId).first("last_used_at");
  expect(await usedAt()).toBeNull();
  await run(runtime, statementsOf(7)[0]);
  expect(await usedAt()).not.toBeNull();

  // Step 8.
  expect(withdrawn).toHaveLength(2);
  const { PLATFORM } = runtime.env;
  for (const { revoked, id } of withdrawn)
    if (revoked === "key") await PLATFORM.revokeApiKey({ keyId: id });
    else await PLATFORM.setWorkspaceAccess({ workspaceId: id, granted: false });
  expect(await statusOf(runtime, apiKey)).toBe(401);
  expect(await statusOf(runtime, barred.apiKey)).toBe(403);
  await PLATFORM.revokeApiKey({ keyId: unused.keyId });
  expect(await statusOf(runtime, unused.apiKey)).toBe(401);

  // Step 9.
  const [list, remove = ""] = statementsOf(9);
  const back = (await run<{ id: string }>(runtime, list)).map(({ id }) => id);
  const extra = back.filter((id) => !existing.some((each) => each.id === id));
  expect(extra).toEqual([webhookId]);
  for (const id of extra) await run(runtime, remove.replaceAll("whk_…", id));
  expect(await run(runtime, list)).toEqual(existing);

  // Step 11: the same leads; what was recorded since then is announced once more.
  expect(await record("before")).toBe(before);
  expect(await record("after")).toBe(after);
  await until(() => kept.posts.length === 3, 30_000);
  await until(settled, 30_000);
  const events = kept.posts.map(({ body }) => JSON.parse(body.toString()));
  expect(events.map(({ data }) => data.id)).toEqual([before, after, after]);
  expect(new Set(events.map(({ id }) => id)).size).toBe(3);
  expect(deleted.posts).toHaveLength(1);
  expect(await PLATFORM.ledger({})).toMatchObject({ addsUp: true, pending: 0 });
  await runtime.stop();
  await Promise.all([kept.close(), deleted.close()]);
  rmSync(FOLDER, { recursive: true });
});

import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
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

/** How a key is answered. */
async function statusOf({ url }: Runtime, apiKey: string): Promise<number> {
  const headers = { Authorization: `Bearer ${apiKey}` };
  return (await fetch(new URL("/v1/leads", url), { headers })).status;
}

test("after the steps of docs/restoring.md, what was revoked, deleted or erased since then is so again", async () => {
  const [kept, deleted] = [await startReceiver(), await startReceiver()];
  let runtime = await startWorker();
  const main = await openWorkspace(runtime);
  const { workspaceId } = main;
  await main.subscribe(kept.url);
  const { id: webhookId } = await main.subscribe(deleted.url);
  const revoked = await runtime.env.PLATFORM.createApiKey({ workspaceId });
  // The runtime's own answers end with it.
  const [apiKey, keyId] = [String(revoked.apiKey), String(revoked.keyId)];
  const barred = await openWorkspace(runtime);
  const unused = await openWorkspace(runtime);
  const agent = { reference: "agent", name: "Agence" };
  const record = async (reference: string) => {
    const leads = [{ reference, source: "crm" as const, agent }];
    return String((await runtime.env.PLATFORM.recordLeads({ workspaceId, leads })).ids);
  };
  const before = await record("before");
  const erased = await record("erased");
  await until(() => kept.posts.length === 2 && deleted.posts.length === 2);
  for (const key of [main.apiKey, apiKey, barred.apiKey])
    expect(await statusOf(runtime, key)).toBe(200);
  const settled = async () => (await runtime.env.PLATFORM.ledger({})).pending === 0;
  await until(settled);
  await runtime.stop();
  cpSync(join(STATE, "d1"), COPY, { recursive: true });

  // What happens after the moment that is restored.
  runtime = await startWorker();
  await runtime.env.PLATFORM.revokeApiKey({ keyId });
  const { workspaceId: barredId } = barred;
  await runtime.env.PLATFORM.setWorkspaceAccess({ workspaceId: barredId, granted: false });
  await openApi(runtime.url.origin, main.apiKey)("DELETE", `/v1/webhooks/${webhookId}`);
  await runtime.env.PLATFORM.eraseLeads({ workspaceId, references: ["erased"] });
  const after = await record("after");
  await until(() => kept.posts.length === 3);
  expect(await statusOf(runtime, apiKey)).toBe(401);
  expect(await statusOf(runtime, barred.apiKey)).toBe(403);
  expect(await statusOf(runtime, unused.apiKey)).toBe(200);

  // Steps 4 to 6.
  const [withdrawals, subscriptions, erasures] = statementsOf(4);
  const withdrawn = await run<{ revoked: string; id: string }>(runtime, withdrawals);
  const existing = await run<{ id: string }>(runtime, subscriptions);
  // The audit trail notes a call soon after its answer.
  await until(async () => (await run(runtime, erasures)).length === 1);
  const [erasure] = await run<{ workspace_id: string; ids: string }>(runtime, erasures);
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

  // Step 10.
  const again = { workspaceId: erasure?.workspace_id ?? "", ids: JSON.parse(erasure?.ids ?? "") };
  expect(again).toEqual({ workspaceId, ids: [erased] });
  expect(await PLATFORM.eraseLeads(again)).toMatchObject({ missing: [] });

  // Step 11: the same leads; what was recorded since then is announced once more.
  expect(await record("before")).toBe(before);
  expect(await record("after")).toBe(after);
  await until(() => kept.posts.length === 4);
  await until(settled);
  const events = kept.posts.map(({ body }) => JSON.parse(body.toString()));
  expect(events.map(({ data }) => data.id)).toEqual([before, erased, after, after]);
  expect(new Set(events.map(({ id }) => id)).size).toBe(4);
  expect(deleted.posts).toHaveLength(2);
  expect(await PLATFORM.ledger({})).toMatchObject({ addsUp: true, pending: 0 });
  await runtime.stop();
  await Promise.all([kept.close(), deleted.close()]);
  rmSync(FOLDER, { recursive: true });
});

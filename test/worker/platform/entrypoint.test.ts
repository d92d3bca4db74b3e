import { createExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { Platform as Entrypoint } from "../../../src/platform/entrypoint.ts";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import {
  automationReport,
  EMPTY_LEDGER,
  errorOf,
  eventsOf,
  leadReport,
  openApi,
  openListeningWorkspace,
  openWorkspace,
  rateLimitOf,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";

const { Platform } = exports;

test("createWorkspace returns the id of a new workspace with access", async () => {
  const input = { name: "Agence Lumière", adminEmails: ["admin@example.com"] };
  const { workspaceId, ...rest } = await Platform.createWorkspace(input);
  expect(workspaceId).toMatch(/^wks_[0-9a-z]+$/);
  expect(rest).toEqual({});
  const { apiKey } = await Platform.createApiKey({ workspaceId });
  expect((await openApi(apiKey).get("/v1/leads")).status).toBe(200);
  expect((await Platform.createWorkspace(input)).workspaceId).not.toBe(workspaceId);
});

test("createApiKey shows the key once, stores only its SHA-256, and gives it its own quota", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
  const { keyId, apiKey } = await Platform.createApiKey({ workspaceId, requestsPerWindow: 7 });
  expect(keyId).toMatch(/^key_[0-9a-z]+$/);
  expect(apiKey).toMatch(/^key_live_[0-9A-Za-z]{32}$/);
  const rows = env.DB.prepare("SELECT * FROM api_keys WHERE workspace_id = ?").bind(workspaceId);
  expect((await rows.all()).results).toEqual([
    {
      expires_at: null,
      id: keyId,
      workspace_id: workspaceId,
      key_hash: await hashApiKey(apiKey),
      requests_per_window: 7,
      created_at: expect.any(Number),
      revoked_at: null,
      last_used_at: null,
    },
  ]);
  const answer = await openApi(apiKey).get("/v1/leads");
  expect(rateLimitOf(answer)).toMatchObject({ limit: 7, remaining: 6 });
});

test.each(["recordAutomations", "recordLeads", "recordRuns", "removeAutomations"] as const)(
  "%s takes 1 to 100 items per call",
  async (method) => {
    const { workspaceId } = await openListeningWorkspace();
    const automationId = await recordAutomation(workspaceId);
    const call = async (count: number) => {
      const references = Array.from({ length: count }, (_, i) => `item-${i}`);
      const inputs = {
        recordAutomations: { automations: references.map((each) => automationReport(each)) },
        recordLeads: { leads: references.map((each) => leadReport(each)) },
        recordRuns: { runs: references.map((each) => runReport(each, automationId)) },
        removeAutomations: { ids: references.map((each) => `aut_${each}`) },
      };
      const run = Platform[method] as (input: object) => Promise<{ ids?: string[] }>;
      return run({ workspaceId, ...inputs[method] });
    };
    for (const count of [0, 101])
      expect(await errorOf(call(count))).toMatch(new RegExp(`^${method}: [a-z]+: Too `));
    const { ids = [] } = await call(100);
    expect(new Set(ids).size).toBe(method === "removeAutomations" ? 0 : 100);
  },
);

test("setWorkspaceAccess can be called again, in both directions, and does not restore a revoked key", async () => {
  const { workspaceId, keyId, api } = await openWorkspace();
  for (const granted of [false, false, true, true, false]) {
    expect(await Platform.setWorkspaceAccess({ workspaceId, granted })).toEqual({});
    expect((await api.get("/v1/leads")).status).toBe(granted ? 200 : 403);
  }
  await Platform.revokeApiKey({ keyId });
  await Platform.setWorkspaceAccess({ workspaceId, granted: true });
  expect((await api.get("/v1/leads")).status).toBe(401);
});

test("setWorkspaceAccess is not tried again if the reply is lost: somebody else may have decided otherwise", async () => {
  const { workspaceId, api } = await openWorkspace();
  const setAccess = { workspaceId, granted: true };
  const DB = lossyDatabase("reply", () => Platform.setWorkspaceAccess(setAccess));
  const lossy = new Entrypoint(createExecutionContext(), { ...env, DB });
  await errorOf(lossy.setWorkspaceAccess({ workspaceId, granted: false }));
  expect((await api.get("/v1/leads")).status).toBe(200);
});

test.each([
  ["there is no subscription, and no event is stored", openWorkspace, 0],
  ["no subscription is active, and the event is stored", openListeningWorkspace, 1],
])("the ledger counts nothing where %s", async (_, open, events) => {
  const { workspaceId } = await open();
  const automationId = await recordAutomation(workspaceId);
  await Platform.recordRuns({ workspaceId, runs: [runReport("1", automationId)] });
  expect(await eventsOf(workspaceId)).toHaveLength(events);
  expect(await Platform.ledger({ workspaceId })).toEqual(EMPTY_LEDGER);
});
test("listWorkspaces finds by a part of the name, in any case, however many others are newer", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Maison ÉTOILE du Nord" });
  await env.DB.prepare(
    `INSERT INTO workspaces (id, name, admin_emails, created_at)
      WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2100)
      SELECT 'wks_named' || n, 'Agence ' || n, '[]', 9e12 + n FROM numbers`,
  ).run();
  const first = await Platform.listWorkspaces({ name: "étoile DU" });
  expect(first).toEqual({ items: [], nextCursor: expect.any(String) });
  const second = await Platform.listWorkspaces({ name: "étoile DU", cursor: first.nextCursor });
  expect(second).toMatchObject({ items: [{ workspaceId }], nextCursor: null });
  expect((await Platform.listWorkspaces({ name: "agence" })).items).toHaveLength(100);
  const { items } = await Platform.listWorkspaces({ name: "Agence 2099" });
  expect(items.map((each) => each.workspaceId)).toEqual(["wks_named2099"]);
  await env.DB.prepare("DELETE FROM workspaces WHERE id LIKE 'wks_named%'").run();
});

import { createExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
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
import { WORKSPACE_DB } from "../../support/placement.ts";

const { Platform } = exports;

/** An input that the types do not allow. */
function wrong<Input>(input: unknown): Input {
  return input as Input;
}

/** The number of rows in each table. */
async function tables(): Promise<Record<string, number>> {
  const names = ["workspaces", "api_keys", "automations", "leads", "runs", "events", "deliveries"];
  const counts = await WORKSPACE_DB.batch<{ n: number }>(
    names.map((name) => WORKSPACE_DB.prepare(`SELECT count(*) AS n FROM ${name}`)),
  );
  return Object.fromEntries(names.map((name, i) => [name, counts[i]?.results[0]?.n ?? 0]));
}

describe("createWorkspace", () => {
  test("returns the id of a new workspace with access", async () => {
    const input = { name: "Agence Lumière", adminEmails: ["admin@example.com"] };
    const { workspaceId, ...rest } = await Platform.createWorkspace(input);
    expect(workspaceId).toMatch(/^wks_[0-9a-z]+$/);
    expect(rest).toEqual({});
    const { apiKey } = await Platform.createApiKey({ workspaceId });
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(200);
    const second = await Platform.createWorkspace(input);
    expect(second.workspaceId).not.toBe(workspaceId);
  });

  test.each([
    [undefined, "createWorkspace: Invalid input: expected object, received undefined"],
    [null, "createWorkspace: Invalid input: expected object, received null"],
    ["Agence", "createWorkspace: Invalid input: expected object, received string"],
    [{}, "createWorkspace: name is missing"],
    [{ owner: "b" }, 'createWorkspace: name is missing; Unrecognized key: "owner"'],
    [{ name: null }, "createWorkspace: name: Invalid input: expected string, received null"],
    [{ name: "" }, "createWorkspace: name: Too small: expected string to have >=1 characters"],
    [{ name: "a\0" }, "createWorkspace: name: must be well-formed text"],
    [{ name: "a", adminEmails: "a@example.com" }, "createWorkspace: adminEmails: "],
    [{ name: "a", adminEmails: ["a@example.com", "b"] }, "createWorkspace: adminEmails[1]: "],
    [{ name: "a", owner: "b" }, 'createWorkspace: Unrecognized key: "owner"'],
  ])("says what is wrong, and where: %j", async (input, message) => {
    const before = await tables();
    expect(await errorOf(Platform.createWorkspace(wrong(input)))).toContain(message);
    expect(await tables()).toEqual(before);
  });
});

test.each<[object, string]>([
  [
    { leads: [{ name: "Camille" }] },
    "recordLeads: workspaceId, leads[0].reference, leads[0].source, leads[0].agent are missing",
  ],
  [
    { workspaceId: "wks_1", leads: [{ ...leadReport("1"), agent: { reference: "" } }] },
    "recordLeads: leads[0].agent.name is missing; leads[0].agent.reference: Too small",
  ],
  [
    { workspaceId: "wks_1", leads: Array.from({ length: 4 }, () => ({})) },
    "leads[3].reference and 2 more are missing",
  ],
])("missing fields are all named together: %j", async (input, message) => {
  expect(await errorOf(Platform.recordLeads(wrong(input)))).toContain(message);
});

describe("createApiKey", () => {
  test("shows the key once, and stores only its SHA-256", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
    const created = await Platform.createApiKey({ workspaceId });
    expect(created).toEqual({
      keyId: expect.stringMatching(/^key_[0-9a-z]+$/),
      apiKey: expect.stringMatching(/^key_live_[0-9A-Za-z]{32}$/),
    });
    const rows = env.DB.prepare("SELECT * FROM api_keys WHERE workspace_id = ?");
    const { results } = await rows.bind(workspaceId).all();
    expect(results).toEqual([
      {
        expires_at: null,
        id: created.keyId,
        workspace_id: workspaceId,
        key_hash: await hashApiKey(created.apiKey),
        requests_per_window: null,
        created_at: expect.any(Number),
        revoked_at: null,
        last_used_at: null,
      },
    ]);
  });

  test("gives the key its own quota", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "Agence" });
    const { apiKey } = await Platform.createApiKey({ workspaceId, requestsPerWindow: 7 });
    const answer = await openApi(apiKey).get("/v1/leads");
    expect(rateLimitOf(answer)).toMatchObject({ limit: 7, remaining: 6 });
  });

  test.each([0, -1, 1.5, Number.NaN, 1_000_001, "7"])(
    "rejects an invalid quota: %j",
    async (quota) => {
      const input = { workspaceId: "wks_1", requestsPerWindow: quota };
      const message = await errorOf(Platform.createApiKey(wrong(input)));
      expect(message).toContain("createApiKey: requestsPerWindow: ");
    },
  );
});

describe("an unknown id", () => {
  const workspaceId = `wks_${"0".repeat(25)}`;
  const webhookId = "whk_unknown";
  const keyId = "key_unknown";
  const calls = {
    setWorkspaceAccess: { workspaceId, granted: true },
    updateWorkspace: { workspaceId, name: "A" },
    createApiKey: { workspaceId },
    listApiKeys: { workspaceId },
    recordAutomations: { workspaceId, automations: [automationReport("1")] },
    removeAutomations: { workspaceId, ids: ["aut_1"] },
    recordLeads: { workspaceId, leads: [leadReport("1")] },
    recordRuns: { workspaceId, runs: [runReport("1", "aut_1")] },
    eraseLeads: { workspaceId, ids: ["lea_1"] },
    findLeads: { workspaceId, email: "a@example.com" },
    exportWorkspace: { workspaceId },
    ledger: { workspaceId },
    listWebhooks: { workspaceId },
    listDeliveries: { webhookId },
    readDelivery: { webhookId, eventId: "evt_unknown" },
    enableWebhook: { webhookId },
    disableWebhook: { webhookId },
    rotateWebhookSecret: { webhookId },
    endSecretOverlap: { webhookId },
    sendTestEvent: { webhookId, type: "lead.created" },
    redeliver: { webhookId, eventIds: ["evt_1"] },
    updateApiKey: { keyId, requestsPerWindow: 1 },
    rollApiKey: { keyId, overlapSeconds: 1 },
  };

  test.each(Object.entries(calls))(
    "is an error of %s, which names the method once, and nothing is written",
    async (method, input) => {
      const before = await tables();
      const call = Platform[method as keyof typeof calls] as (input: object) => Promise<unknown>;
      const message = await errorOf(call(input));
      expect(message).toMatch(
        new RegExp(
          `^${method}: (workspaceId|webhookId|keyId): no such (workspace|subscription|key)`,
        ),
      );
      expect(await tables()).toEqual(before);
    },
  );
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
    const before = await tables();
    for (const count of [0, 101])
      expect(await errorOf(call(count))).toMatch(new RegExp(`^${method}: [a-z]+: Too `));
    expect(await tables()).toEqual(before);
    const { ids = [] } = await call(100);
    expect(new Set(ids).size).toBe(method === "removeAutomations" ? 0 : 100);
  },
);

describe("setWorkspaceAccess", () => {
  test("can be called again, in both directions, and does not restore a revoked key", async () => {
    const { workspaceId, keyId, api } = await openWorkspace();
    for (const granted of [false, false, true, true]) {
      expect(await Platform.setWorkspaceAccess({ workspaceId, granted })).toEqual({});
      expect((await api.get("/v1/leads")).status).toBe(granted ? 200 : 403);
    }
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await Platform.revokeApiKey({ keyId });
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect((await api.get("/v1/leads")).status).toBe(401);
  });

  test("is not tried again if the reply is lost: somebody else may have decided otherwise", async () => {
    const { workspaceId, api } = await openWorkspace();
    const setAccess = { workspaceId, granted: true };
    const DB = lossyDatabase("reply", () => Platform.setWorkspaceAccess(setAccess));
    const lossy = new Entrypoint(createExecutionContext(), { ...env, DB });
    await errorOf(lossy.setWorkspaceAccess({ workspaceId, granted: false }));
    expect((await api.get("/v1/leads")).status).toBe(200);
  });

  test.each([undefined, null, 0, "false"])("accepts true and false only: %j", async (granted) => {
    const call = Platform.setWorkspaceAccess(wrong({ workspaceId: "wks_1", granted }));
    expect(await errorOf(call)).toMatch(/^setWorkspaceAccess: granted(:| is missing)/);
  });
});

describe("ledger", () => {
  test.each([
    ["there is no subscription, and no event is stored", openWorkspace, 0],
    ["no subscription is active, and the event is stored", openListeningWorkspace, 1],
  ])("counts nothing where %s", async (_, open, events) => {
    const { workspaceId } = await open();
    const automationId = await recordAutomation(workspaceId);
    await Platform.recordRuns({ workspaceId, runs: [runReport("1", automationId)] });
    expect(await eventsOf(workspaceId)).toHaveLength(events);
    expect(await Platform.ledger({ workspaceId })).toEqual(EMPTY_LEDGER);
  });
});

describe("listWorkspaces", () => {
  test("finds by a part of the name, in any case, however many others are newer", async () => {
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
    const full = await Platform.listWorkspaces({ name: "agence" });
    expect(full.items).toHaveLength(100);
    const { items } = await Platform.listWorkspaces({ name: "Agence 2099" });
    expect(items.map((each) => each.workspaceId)).toEqual(["wks_named2099"]);
    await env.DB.prepare("DELETE FROM workspaces WHERE id LIKE 'wks_named%'").run();
  });
});

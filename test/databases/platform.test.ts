import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { randomId } from "../../src/contract/ids.ts";
import { MINUTE_MS } from "../../src/contract/time.ts";
import { parseEncryptionKeys, seal } from "../../src/encryption/seal.ts";
import { OPERATIONS, type PlatformMethod } from "../../src/platform/operations.ts";
import { findServiceHealth } from "../../src/service-health.ts";
import { sweep } from "../../src/sweep.ts";
import { mintSecret } from "../../src/webhooks/signature.ts";
import { automationReport, errorOf, leadReport, runReport } from "../support/api.ts";
import {
  deploymentWith,
  NAMES,
  openSubscribedIn,
  openWorkspaceIn,
  platformOf,
  rowsIn,
  unreachableDatabase,
  WAYS,
} from "../support/databases.ts";
import { keepLog } from "../support/log-lines.ts";
import { shortenTimers } from "../support/timers.ts";

const platform = exports.Platform;
keepLog();

/** Waits until the ledger of a workspace shows these counts. */
function ledgerOf(workspaceId: string) {
  return expect.poll(() => platform.ledger({ workspaceId }), { timeout: 15_000 });
}

describe("every method works for a workspace of DB_2, and answers no more than it declares", () => {
  /** The methods that these tests have called. */
  const called = new Set<string>();
  const all = new Proxy(platform, {
    get(_, name: PlatformMethod) {
      called.add(name);
      const methods = platform as unknown as Record<string, (input: unknown) => Promise<unknown>>;
      return async (input: unknown) => {
        // Called on the stub: a remote method has no `call`.
        const answer = await methods[name]?.(input);
        // Parsing drops what the operation does not declare.
        expect(OPERATIONS[name].output.parse(answer), name).toEqual(answer);
        return answer;
      };
    },
  }) as typeof platform;

  test("by the id of the workspace", async () => {
    const { workspaceId, api, webhookId } = await openSubscribedIn("DB_2");
    await all.createWorkspace({ name: "Agence", database: "DB_2" });
    await all.updateWorkspace({ workspaceId, name: "Agence Horizon" });
    const names = (await all.listWorkspaces({})).items.map(({ name }) => name);
    expect(names).toContain("Agence Horizon");
    expect((await all.databases({})).items).toHaveLength(3);
    expect(await all.readWorkspace({ workspaceId })).toMatchObject({ name: "Agence Horizon" });
    const automations = [automationReport("a1"), automationReport("a2")];
    const { ids } = await all.recordAutomations({ workspaceId, automations });
    const [kept = "", removed = ""] = ids;
    const leads = [leadReport("l1"), leadReport("l2")];
    const recorded = await all.recordLeads({ workspaceId, leads });
    const [leadId = "", erased = ""] = recorded.ids;
    const runs = [runReport("r1", kept, { leadId })];
    for (const created of [1, 0])
      expect(await all.recordRuns({ workspaceId, runs })).toMatchObject({ created });
    expect(await all.removeAutomations({ workspaceId, ids: [removed] })).toEqual({ removed: 1 });
    const found = await all.findLeads({ workspaceId, reference: "l2" });
    expect(found).toMatchObject({ items: [{ id: erased }] });
    await all.eraseLeads({ workspaceId, ids: [erased] });
    expect((await api.get("/v1/leads")).body).toMatchObject({ data: [{ id: leadId }] });
    expect((await api.get("/v1/automations")).body).toMatchObject({ data: [{ id: kept }] });
    expect((await api.get("/v1/runs")).body).toMatchObject({ data: [{ lead_id: leadId }] });
    await ledgerOf(workspaceId).toMatchObject({ pending: 0, addsUp: true });
    expect(await all.ledger({ workspaceId })).toMatchObject({ addsUp: true });
    expect(await all.backlog({ workspaceId })).toMatchObject({ pending: 0 });
    expect(await all.listWebhooks({ workspaceId })).toMatchObject({ items: [{ webhookId }] });
    expect((await all.createPortalLink({ workspaceId })).url).toContain("/portal#");
    for (const granted of [false, true]) {
      await all.setWorkspaceAccess({ workspaceId, granted });
      expect((await api.get("/v1/leads")).status).toBe(granted ? 200 : 403);
    }
    const exported = (await all.exportWorkspace({ workspaceId })).items;
    expect(exported[0]).toMatchObject({ kind: "workspace", name: "Agence Horizon" });
    for (const kind of ["api_key", "workspace"])
      expect(exported.filter((item) => item.kind === kind)).toHaveLength(1);
    const move = await all.moveWorkspace({ workspaceId, database: "DB_2" });
    expect(move).toMatchObject({ done: true });
    expect(await all.eraseWorkspace({ workspaceId })).toEqual({ done: true, remaining: 0 });
    const [last] = (await all.listAuditTrail({ workspaceId })).items;
    expect(last).toMatchObject({ method: "eraseWorkspace" });
  });

  test("by the id of a webhook", async () => {
    const { workspaceId, webhookId, api } = await openSubscribedIn("DB_2");
    await platform.recordLeads({ workspaceId, leads: [leadReport("l1")] });
    await ledgerOf(workspaceId).toMatchObject({ delivered: 1 });
    await all.updateWebhook({ webhookId, description: "CRM" });
    expect(await all.readWebhook({ webhookId })).toMatchObject({ webhookId, description: "CRM" });
    const { items } = await all.listDeliveries({ webhookId });
    expect(items).toMatchObject([{ state: "delivered" }]);
    const eventId = items[0]?.eventId ?? "";
    expect(await all.readDelivery({ webhookId, eventId })).toMatchObject({ eventId });
    const again = await all.redeliver({ webhookId, eventIds: [eventId] });
    expect(again).toEqual({ count: 1, nextCursor: null });
    await ledgerOf(workspaceId).toMatchObject({ delivered: 1, pending: 0 });
    const test = await all.sendTestEvent({ webhookId, type: "lead.created" });
    expect(test).toMatchObject({ status: 200 });
    expect((await all.rotateWebhookSecret({ webhookId })).secret).toMatch(/^whsec_/);
    await all.endSecretOverlap({ webhookId });
    expect(await all.readWebhook({ webhookId })).toMatchObject({ overlapEndsAt: null });
    await all.disableWebhook({ webhookId });
    expect((await api.get("/v1/webhooks")).body).toMatchObject({
      data: [{ disabled_at: expect.any(String) }],
    });
    expect(await all.enableWebhook({ webhookId })).toEqual({ count: 0, nextCursor: null });
    await all.deleteWebhook({ webhookId });
    expect((await api.get("/v1/webhooks")).body).toMatchObject({ data: [] });
    // Whose subscription it was is looked up in its database.
    expect((await platform.listAuditTrail({ workspaceId })).items[0]).toMatchObject({
      method: "deleteWebhook",
      ids: [webhookId],
    });
    await all.resealSecrets({});
    expect(await all.health({})).toEqual({ healthy: true, problems: [] });
  });

  test("by the id of a key", async () => {
    const { workspaceId, keyId, apiKey, api } = await openWorkspaceIn("DB_2");
    const limit = async () => Number((await api.get("/v1/leads")).headers["x-ratelimit-limit"]);
    expect(await limit()).toBe(600);
    await all.updateApiKey({ keyId, requestsPerWindow: 42 });
    expect(await limit()).toBe(42);
    const rolled = await all.rollApiKey({ keyId, overlapSeconds: 3_600 });
    const created = await all.createApiKey({ workspaceId });
    expect((await all.listApiKeys({ workspaceId })).items).toHaveLength(3);
    await all.revokeApiKey({ keyId: created.keyId });
    await all.revokeApiKey({ apiKey });
    expect((await api.get("/v1/leads")).status).toBe(401);
    const keyIds = (await platform.listApiKeys({ workspaceId })).items.map((key) => key.keyId);
    expect(keyIds).toContain(rolled.keyId);
  });

  test("each method was called", () => {
    expect([...called].toSorted()).toEqual(Object.keys(OPERATIONS).toSorted());
  });
});

describe("a workspace of another database", () => {
  test("that does not exist is refused in the same words as with one database", async () => {
    const workspaceId = "wks_nobody";
    const calls = [
      platform.recordLeads({ workspaceId, leads: [leadReport("1")] }),
      platform.createApiKey({ workspaceId }),
      platform.ledger({ workspaceId }),
    ];
    for (const sentence of await Promise.all(calls.map(errorOf)))
      expect(sentence).toMatch(/^[a-zA-Z]+: workspaceId: no such workspace$/);
    const unknown = await errorOf(platform.disableWebhook({ webhookId: "whk_nobody" }));
    expect(unknown).toBe("disableWebhook: webhookId: no such subscription");
  });

  test("is found by its webhook while another database is unreachable", async () => {
    const { webhookId } = await openSubscribedIn("DB_2");
    for (const way of WAYS) {
      const platform = platformOf(deploymentWith({ DB_3: unreachableDatabase(way) }));
      const startedAt = Date.now();
      expect(await platform.listDeliveries({ webhookId })).toMatchObject({ items: [] });
      // It does not wait for the database that is unreachable, which takes five seconds.
      expect(Date.now() - startedAt).toBeLessThan(4_900);
      shortenTimers(5_000);
      // It cannot know that the subscription does not exist.
      const sentence = await errorOf(platform.disableWebhook({ webhookId: "whk_nobody" }));
      expect(sentence).toMatch(way === "hangs" ? "DB_3 does not answer" : "overloaded");
      vi.restoreAllMocks();
    }
  });
});

test("a sweep of all databases is noted in DB alone", async () => {
  const later = Date.now() + 10 * MINUTE_MS;
  const bindings = deploymentWith({});
  await sweep(bindings, later);
  const { problems } = await findServiceHealth(bindings, later);
  expect(problems.filter((problem) => problem.includes("sweep"))).toEqual([]);
});

describe("the ledger and the backlog", () => {
  test("add up over all databases, can be shown for one, and do not add up if those of one do not", async () => {
    const ledgers = () =>
      Promise.all(
        [{}, ...NAMES.map((database) => ({ database }))].map((of) => platform.ledger(of)),
      );
    const figures = async () => {
      const backlogs = [await platform.backlog({}), await platform.backlog({ database: "DB_3" })];
      const counted = (await ledgers()).map(({ addsUp, ...counts }) => {
        expect(addsUp).toBe(true);
        return [counts.created, counts.delivered, counts.pending];
      });
      return [...counted, backlogs.map(({ pending }) => pending)].flat();
    };
    const before = await figures();
    const opened = [];
    for (const [i, database] of NAMES.entries()) {
      const behaviour = i === 0 ? "ok" : "status-500";
      const { workspaceId } = await openSubscribedIn(database, { behaviour });
      const leads = [leadReport("1"), leadReport("2"), leadReport("3")].slice(i);
      await platform.recordLeads({ workspaceId, leads });
      opened.push(workspaceId);
    }
    const [first = "", second = "", third = ""] = opened;
    await ledgerOf(first).toMatchObject({ delivered: 3 });
    const more = [
      [6, 3, 3],
      [3, 3, 0],
      [2, 0, 2],
      [1, 0, 1],
      [3, 1],
    ].flat();
    expect((await figures()).map((count, i) => count - (before[i] ?? 0))).toEqual(more);
    expect(await platform.ledger({ workspaceId: second })).toMatchObject({
      created: 2,
      pending: 2,
    });
    const last = "SELECT max(event_id) FROM deliveries WHERE workspace_id = ?";
    await rowsIn("DB_3", `DELETE FROM deliveries WHERE event_id = (${last})`, third);
    expect((await ledgers()).map(({ addsUp }) => addsUp)).toEqual([false, true, true, false]);
    expect(await platform.eraseWorkspace({ workspaceId: third })).toMatchObject({ done: true });
    expect((await platform.ledger({})).addsUp).toBe(true);
  });

  test("are refused for a database that is not bound", async () => {
    const sentence = "database: no database is bound as DB_9; there is DB, DB_2, DB_3";
    expect(await errorOf(platform.ledger({ database: "DB_9" }))).toBe(`ledger: ${sentence}`);
    expect(await errorOf(platform.backlog({ database: "DB_9" }))).toBe(`backlog: ${sentence}`);
  });
});

test("resealSecrets re-encrypts 100 secrets in a call, whichever databases they are in", async () => {
  const keys = parseEncryptionKeys(env.ENCRYPTION_KEYS);
  const insert =
    "INSERT INTO subscriptions (id, workspace_id, url, events, sealed_secret, created_at) VALUES (?, ?, '', '[]', ?, 0)";
  for (const name of ["DB_2", "DB_3"] as const) {
    const { workspaceId } = await openWorkspaceIn(name);
    for (let i = 0; i < 60; i++) {
      const id = randomId("webhook");
      await rowsIn(name, insert, id, workspaceId, await seal(keys, id, mintSecret()));
    }
  }
  const ENCRYPTION_KEYS = `new:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=,${env.ENCRYPTION_KEYS}`;
  const rotated = platformOf({ ...env, ENCRYPTION_KEYS } as Env);
  expect(await rotated.resealSecrets({})).toMatchObject({ resealed: 100 });
});

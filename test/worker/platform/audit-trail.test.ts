import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { derivedId, randomId } from "../../../src/contract/ids.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { connect } from "../../../src/db/client.ts";
import { listApiKeys } from "../../../src/platform/api-keys.ts";
import { invoke } from "../../../src/platform/invoke.ts";
import { createWorkspace, readWorkspace } from "../../../src/platform/workspaces.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import { sweep } from "../../../src/sweep.ts";
import { insertAuditEntry } from "../../../src/workspaces/audit-trail.ts";
import {
  automationReport,
  errorOf,
  leadReport,
  openWorkspace,
  Platform,
  SOME_TIME,
} from "../../support/api.ts";
import { isolated, subscribe } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { keepLog } from "../../support/log-lines.ts";
import { DATABASE } from "../../support/placement.ts";
import { shortenTimers } from "../../support/timers.ts";

const lines = keepLog();

type Entry = Awaited<ReturnType<typeof Platform.listAuditTrail>>["items"][number];

/** What the trail says of a workspace, newest first; of all if there is none. */
async function trailOf(workspaceId?: string): Promise<Entry[]> {
  return (await Platform.listAuditTrail({ workspaceId })).items as Entry[];
}

/** The log lines of calls, without what differs each time. */
function logged(): object[] {
  const all = lines.map((line) => JSON.parse(line));
  return all
    .filter(({ event }) => event === "platform_call")
    .map(({ event, durationMs, ...fields }) => fields);
}

/** The directory, each call of which does something first, with its statements. */
const directoryThat = (act: (sql: string) => unknown) =>
  interposed(env.DB, async ({ texts, go }) => {
    await act(texts.join());
    return go();
  });

/** The surroundings of a call, with another directory. */
const callOn = (DB: D1Database) => ({ env: { ...env, DB }, ctx: { waitUntil: () => {} } });

const NO_CHANGE = { webhookId: null, before: null, after: null };

describe("the audit trail", () => {
  test("has a row and a log line for each call, with its actor and result", async () => {
    const named = { name: "Agence", actor: "Ada", database: DATABASE };
    const { workspaceId } = await Platform.createWorkspace(named);
    const { keyId, apiKey } = await Platform.createApiKey({ workspaceId, actor: "Ada" });
    const { id: webhookId } = await subscribe(workspaceId);
    await Platform.disableWebhook({ webhookId, actor: "support-7" });
    await Platform.deleteWebhook({ webhookId });
    expect(await Platform.revokeApiKey({ apiKey, actor: "x".repeat(100) })).toEqual({
      keyId,
      workspaceId,
      webhookIds: [],
    });
    await Platform.exportWorkspace({ workspaceId });
    await errorOf(Platform.ledger({ workspaceId, actor: "x".repeat(101) }));
    await errorOf(Platform.findLeads({ workspaceId, phone: "()", actor: "mallory" }));
    const entries = await trailOf(workspaceId);
    const entry = (method: string, ids: string[], actor: string | null, result = "ok") => ({
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      method,
      workspaceId,
      ids,
      keys: ids.includes(keyId) ? { [keyId]: expect.stringContaining(apiKey.slice(-4)) } : {},
      actor,
      via: "rpc",
      result,
      durationMs: expect.any(Number),
      ...NO_CHANGE,
    });
    expect(entries).toEqual([
      entry("findLeads", [], "mallory", "invalid_type: phone"),
      entry("ledger", [], null, "out_of_range: actor"),
      entry("exportWorkspace", [], null),
      entry("revokeApiKey", [keyId], "x".repeat(100)),
      {
        ...entry("deleteWebhook", [webhookId], null),
        webhookId,
        before: expect.objectContaining({ disabledAt: SOME_TIME }),
      },
      {
        ...entry("disableWebhook", [webhookId], "support-7"),
        webhookId,
        before: { disabledAt: null },
        after: { disabledAt: SOME_TIME },
      },
      entry("createApiKey", [keyId], "Ada"),
      entry("createWorkspace", [], "Ada"),
    ]);
    expect(logged().toReversed().slice(1)).toEqual(
      // The actor may be a person.
      entries.map(({ at, durationMs, ids, keys, actor, webhookId, before, after, ...fields }) => ({
        ...fields,
        ids: ids.join(" "),
      })),
    );
    const { results } = await env.DB.prepare("SELECT * FROM audit_trail").all();
    expect(JSON.stringify(results) + lines.join()).not.toContain(apiKey);
  });

  test("has nothing personal, whatever is recorded, searched, erased or refused", async () => {
    const { workspaceId } = await openWorkspace();
    const secret = "zoe.canari@example.com";
    const lead = leadReport(secret, { name: secret, email: secret });
    await Platform.recordLeads({ workspaceId, leads: [lead] });
    await Platform.findLeads({ workspaceId, email: secret });
    await Platform.eraseLeads({ workspaceId, references: [secret] });
    for (const leads of [[], [lead]]) {
      const wrong = { workspaceId, [secret]: 1, leads } as never;
      expect(await errorOf(Platform.recordLeads(wrong))).toContain("recordLeads: ");
    }
    await errorOf(Platform.readWorkspace({ workspaceId: secret }));
    await errorOf(Platform.createWorkspace({ name: secret, database: "DB_9" }));
    const all = await trailOf();
    expect(all.slice(0, 4).map(({ method, result }) => `${method} ${result}`)).toEqual([
      "createWorkspace invalid: database",
      "readWorkspace invalid: workspaceId",
      "eraseLeads ok",
      "findLeads ok",
    ]);
    const erased = await derivedId("lead", workspaceId, secret);
    expect(all.find(({ method }) => method === "eraseLeads")?.ids).toEqual([erased]);
    expect(JSON.stringify(all) + lines.join()).not.toContain("canari");
  });

  test("has no call that records, because the log has them, with their results", async () => {
    const { workspaceId } = await openWorkspace();
    await Platform.recordLeads({ workspaceId, leads: [leadReport("l")] });
    await errorOf(Platform.recordRuns({ workspaceId, runs: [] }));
    const automations = [automationReport("a")];
    const { ids } = await Platform.recordAutomations({ workspaceId, automations });
    await Platform.removeAutomations({ workspaceId, ids });
    const [entry, ...earlier] = await trailOf(workspaceId);
    expect(entry).toMatchObject({ method: "removeAutomations", result: "ok" });
    expect(earlier.filter(({ method }) => method.startsWith("record"))).toEqual([]);
    expect(logged().slice(-5, -1)).toMatchObject([
      { method: "recordLeads", result: "ok", workspaceId },
      { method: "recordRuns", result: "out_of_range: runs", workspaceId },
      { method: "recordAutomations", result: "ok", workspaceId },
      { method: "removeAutomations", result: "ok", workspaceId },
    ]);
  });

  test("outlives the workspace for a year, and is read page by page", async () => {
    const { workspaceId } = await Platform.createWorkspace({ name: "A" });
    await Platform.eraseWorkspace({ workspaceId });
    const methods = async () => (await trailOf(workspaceId)).map(({ method }) => method);
    const made = ["eraseWorkspace", "createWorkspace"];
    expect(await methods()).toEqual(made);
    await sweep(isolated().env, Date.now() + 364 * DAY_MS);
    expect(await methods()).toEqual(["listAuditTrail", ...made]);
    await sweep(isolated().env, Date.now() + 366 * DAY_MS);
    expect(await methods()).toEqual([]);
    const unknown = randomId("workspace");
    await env.DB.prepare(
      `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
        INSERT INTO audit_trail (at, id, method, workspace_id, ids, via, result, duration_ms)
        SELECT ?1 - i, i, 'ledger', ?2, '[]', 'rpc', 'ok', 0 FROM n`,
    )
      .bind(Date.now(), unknown)
      .run();
    const first = await Platform.listAuditTrail({ workspaceId: unknown });
    expect(first.items).toHaveLength(100);
    const cursor = first.nextCursor;
    const second = await Platform.listAuditTrail({ workspaceId: unknown, cursor });
    // The first page was a call about it, too, but is newer.
    expect(second).toMatchObject({ items: [{}], nextCursor: null });
  });

  test.each<[what: string, act: () => Promise<unknown>]>([
    ["fails", () => Promise.reject(new Error("D1_ERROR: database is full"))],
    ["never responds", () => new Promise(() => {})],
  ])("loses a row if the directory %s, but neither the call nor the log line", async (_, act) => {
    shortenTimers(5_000);
    const call = callOn(directoryThat((sql) => /audit_trail/.test(sql) && act()));
    const answer = await invoke("createWorkspace", createWorkspace, call, { name: "A" }, "rpc");
    const { workspaceId } = answer as { workspaceId: string };
    expect(await Platform.readWorkspace({ workspaceId })).toMatchObject({ name: "A" });
    expect(logged()[0]).toMatchObject({ method: "createWorkspace", workspaceId, result: "ok" });
    expect(lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ event: "audit_failed", method: "createWorkspace", workspaceId }),
    );
  });

  test("says that a call failed, without its error's text", async () => {
    const call = callOn(undefined as never);
    const failed = invoke("createWorkspace", createWorkspace, call, { name: "A" }, "rpc");
    await expect(failed).rejects.toThrow();
    expect(logged()[0]).toMatchObject({ result: "failed", workspaceId: null });
  });

  test("has an entry once, however often its insertion is retried", async () => {
    const call = { method: "ledger", workspaceId: "wks_0retried", ids: [], actor: null };
    const entry = { ...call, at: Date.now(), id: "same", via: "rpc", result: "ok", durationMs: 0 };
    for (let i = 0; i < 2; i++) await insertAuditEntry(connect(env.DB), entry);
    expect(await trailOf("wks_0retried")).toHaveLength(1);
  });
});

test("A call is noted even if the directory is slow or its caller hangs up", async () => {
  const { workspaceId } = await openWorkspace();
  const DB = directoryThat((sql) => sleep(/audit_trail/.test(sql) ? 100 : 0));
  const waitedFor: Promise<unknown>[] = [];
  const ctx = { waitUntil: (promise: Promise<unknown>) => void waitedFor.push(promise) };
  const call = { env: { ...env, DB }, ctx };
  await invoke("listApiKeys", listApiKeys, call, { workspaceId }, "rpc");
  expect((await trailOf(workspaceId))[0]).toMatchObject({ method: "listApiKeys", result: "ok" });
  void invoke("readWorkspace", readWorkspace, call, { workspaceId }, "rpc");
  expect(waitedFor).toHaveLength(2);
  await waitedFor[1];
  expect((await trailOf(workspaceId))[0]).toMatchObject({ method: "readWorkspace" });
});

test("an entry has the workspace of the subscription or key that a call names", async () => {
  const { workspaceId, keyId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId);
  const { eventId } = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const { keyId: newId } = await Platform.rollApiKey({ keyId, overlapSeconds: 60 });
  await Platform.updateApiKey({ keyId: newId, requestsPerWindow: 7 });
  await Platform.findLeads({ workspaceId, email: "nobody@example.com" });
  const entries = await trailOf(workspaceId);
  expect(Object.fromEntries(entries.map(({ method, ids }) => [method, ids]))).toMatchObject({
    sendTestEvent: [webhookId, eventId],
    rollApiKey: [keyId, newId],
    updateApiKey: [newId],
    findLeads: [],
  });
});

test("what only looks like an id is neither stored nor logged", async () => {
  const { workspaceId } = await openWorkspace();
  const ids = Array.from({ length: 201 }, () => randomId("lead"));
  await Platform.eraseLeads({ workspaceId, ids: ["tel_33612345678", "lea_camilledurand"] });
  await errorOf(Platform.eraseLeads({ workspaceId, ids }));
  const entries = await trailOf(workspaceId);
  expect(entries[0]?.ids).toEqual(ids.slice(0, 200));
  expect(entries[1]).toMatchObject({ method: "eraseLeads", ids: [] });
  expect(lines.join()).not.toMatch(/33612345678|camilledurand/);
});

import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { commit, openDatabase } from "../../src/db/client.ts";
import { leads } from "../../src/db/schema.ts";
import { Platform as PlatformEntrypoint } from "../../src/platform/entrypoint.ts";
import { hashApiKey } from "../../src/quota/api-key.ts";
import { ownedTable } from "../../src/workspaces/manifest.ts";
import { listMoves } from "../../src/workspaces/moves.ts";
import {
  COPIED_BYTES_AT_ONCE,
  findChanges,
  findChunk,
} from "../../src/workspaces/moving/copying.ts";
import { moveWorkspace } from "../../src/workspaces/moving/move.ts";
import {
  automationReport,
  leadReport,
  listAll,
  openApi,
  openWorkspace,
  recordAutomation,
  recordLead,
  runReport,
} from "../support/api.ts";
import {
  type DatabaseName,
  databaseOf,
  deploymentWith,
  platformOf,
  rowsIn,
  tablesWith,
  valueIn,
} from "../support/databases.ts";
import { isolated, subscribe } from "../support/deliveries.ts";
import { failingDatabase } from "../support/failing.ts";
import { admitBeside } from "../support/gates.ts";
import { hangingBefore } from "../support/hanging.ts";
import { keepLog } from "../support/log-lines.ts";
import { lossyDatabase } from "../support/lost-reply.ts";
import { meteredDatabase } from "../support/metered-database.ts";
import { beginMoving, copyAll, moved, openWithLeads, placementOf } from "../support/moves.ts";

const { Platform } = exports;
const lines = keepLog();

describe("while a workspace is copied", () => {
  test("leads that are erased are erased there, however much goes with them", async () => {
    const { workspaceId, api } = await openWorkspace();
    // More changes than are copied at once.
    for (let i = 0; i < 8; i++) await subscribe(workspaceId);
    const automationId = await recordAutomation(workspaceId);
    const leads = Array.from({ length: 100 }, (_, i) => leadReport(`lead-${i}`));
    const platform = platformOf(isolated().env);
    const { ids } = await platform.recordLeads({ workspaceId, leads });
    const runs = ids.map((leadId, i) => runReport(`run-${i}`, automationId, { leadId }));
    await platform.recordRuns({ workspaceId, runs });
    await copyAll(workspaceId);
    expect(await tablesWith("DB_3", ids[50] ?? "?")).toContain("leads");
    await Platform.eraseLeads({ workspaceId, ids: ids.slice(1) });
    await moved(workspaceId, "DB_3");
    expect(await listAll(api, "leads")).toHaveLength(1);
    const listed = await listAll<{ lead_id: string | null }>(api, "runs");
    expect(listed.filter(({ lead_id }) => lead_id !== null)).toHaveLength(1);
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 8, addsUp: true });
  });

  test("what is written meanwhile is copied in pieces that fit into memory, and the rest is not read", async () => {
    const { workspaceId } = await openWorkspace();
    await copyAll(workspaceId);
    const text = "x".repeat(15_000);
    const large = Array.from({ length: 80 }, (_, i) =>
      leadReport(String(i), { customFields: { text } }),
    );
    await Platform.recordLeads({ workspaceId, leads: large });
    const changed = await commit(openDatabase(databaseOf("DB_2")), findChanges(workspaceId));
    expect(changed?.isAll).toBe(false);
    expect(JSON.stringify(changed?.tables.map(({ rows }) => rows)).length).toBeLessThan(
      COPIED_BYTES_AT_ONCE + 2 * text.length,
    );
    const { DB, rows } = meteredDatabase();
    const chunk = await commit(openDatabase(DB), findChunk(workspaceId, ownedTable(leads), null));
    expect(chunk.rows).toHaveLength(33);
    expect(rows.read).toBeLessThan(4.5 * large.length);
    await moved(workspaceId, "DB_3");
    const count = "SELECT count(*) FROM leads WHERE workspace_id = ?";
    expect(await valueIn("DB_3", count, workspaceId)).toBe(large.length);
  });

  test("secrets that are resealed stay so in the other database, and those left behind do not count", async () => {
    const { workspaceId, webhookId } = await openWithLeads();
    await Platform.rotateWebhookSecret({ webhookId });
    await copyAll(workspaceId);
    const rotated = `next:${btoa("n".repeat(32))},${env.ENCRYPTION_KEYS}`;
    const reseal = (keys: string) =>
      platformOf({ ...env, ENCRYPTION_KEYS: keys }).resealSecrets({});
    while ((await reseal(rotated)).remaining > 0);
    await moved(workspaceId, "DB_3");
    const read =
      "SELECT substr(sealed_secret, 1, 5) AS key FROM subscriptions WHERE id = ?1 UNION ALL SELECT substr(value->>'sealedSecret', 1, 5) FROM subscriptions, json_each(earlier_secrets) WHERE subscriptions.id = ?1";
    const key = { key: "next." };
    expect(await rowsIn("DB_3", read, webhookId)).toEqual([key, key]);
    // What was left behind is under the former key, and is no secret any more.
    expect(await reseal(`other:${btoa("o".repeat(32))},${rotated}`)).toMatchObject({
      remaining: 0,
      unreadable: expect.any(Number),
    });
  });

  // Triggers note each row that is written meanwhile, and D1 counts the rows that they write.
  test("calls return how many records they have inserted, removed or owed again", async () => {
    const { workspaceId, webhookId } = await openWithLeads(2);
    const automationId = await recordAutomation(workspaceId);
    await copyAll(workspaceId);
    const record = {
      leads: (...references: string[]) =>
        Platform.recordLeads({ workspaceId, leads: references.map((each) => leadReport(each)) }),
      runs: (...references: string[]) =>
        Platform.recordRuns({
          workspaceId,
          runs: references.map((each) => runReport(each, automationId)),
        }),
      automations: (...references: string[]) =>
        Platform.recordAutomations({
          workspaceId,
          automations: references.map((each) => automationReport(each)),
        }),
    };
    expect(await record.leads("a", "b")).toMatchObject({ created: 2 });
    expect(await record.leads("a", "c")).toMatchObject({ created: 1 });
    expect(await record.runs("1", "2")).toMatchObject({ created: 2 });
    const { ids, created } = await record.automations("x", "y");
    const { removed } = await Platform.removeAutomations({ workspaceId, ids });
    const delivered = () =>
      Platform.listDeliveries({ webhookId, state: "delivered", limit: 2 }).then(
        ({ items }) => items,
      );
    await expect.poll(delivered).toHaveLength(2);
    const eventIds = (await delivered()).map(({ eventId }) => eventId);
    const { count } = await Platform.redeliver({ webhookId, eventIds });
    expect({ created, removed, count }).toEqual({ created: 2, removed: 2, count: 2 });
  });

  test.each([
    ["that is deleted", false],
    ["that is deleted while deliveries to it are in progress", true],
  ])("a key of a subscription %s can be used again meanwhile", async (_, isHeld) => {
    const { workspaceId, api } = await openWorkspace();
    const webhook = { url: "https://ok-webhooks.example/h", events: ["lead.created"] };
    const create = async (key: string) => {
      const headers = { "Idempotency-Key": key };
      return (await api.post<{ id: string }>("/v1/webhooks", webhook, headers)).body;
    };
    // Ids are random: the new subscription comes first in half of these.
    const createAll = () => Promise.all(["1", "2", "3", "4", "5"].map(create));
    const first = await createAll();
    await copyAll(workspaceId);
    const hold =
      "UPDATE subscriptions SET leased_by = 'x', leased_until = ? WHERE workspace_id = ?";
    const holdUntil = (time: number) => rowsIn("DB_2", hold, time, workspaceId);
    if (isHeld) {
      await holdUntil(Date.now() + 60_000);
      await recordLead(workspaceId);
    }
    for (const { id } of first) expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
    const second = await createAll();
    for (const [i, { id }] of second.entries()) expect(id).not.toBe(first[i]?.id);
    // Both are copied while the first are still there.
    await beginMoving(workspaceId, 3);
    await holdUntil(0);
    await moved(workspaceId, "DB_3");
    expect(await placementOf(workspaceId)).toBe("DB_3");
    expect(await createAll()).toEqual(second);
  });

  test("the move ends though there is always something new", { timeout: 150_000 }, async () => {
    const { workspaceId, record } = await openWithLeads();
    let n = 0;
    const DB_2 = failingDatabase("DB_2", async (sql, go) => {
      if (!/FROM "changes"/.test(sql)) return go();
      // Whenever the mover asks for changes, there is one more.
      const recorded = record(`more-${n++}`).catch(() => {});
      await Promise.race([recorded, new Promise((resolve) => setTimeout(resolve, 200))]);
      return go();
    });
    const startedAt = performance.now();
    const hasTime = () => performance.now() - startedAt < 120_000;
    const { done } = await moveWorkspace(deploymentWith({ DB_2 }), workspaceId, "DB_3", hasTime);
    expect(done).toBe(true);
  });
});

test("a write whose reply was lost at the switch is not made once more in the other database", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  const sealedIn = (name: DatabaseName) =>
    valueIn<string>(name, "SELECT sealed_secret FROM subscriptions WHERE id = ?", webhookId);
  const DB_2 = lossyDatabase("reply", async () => {
    // Somebody else makes another secret, and the workspace moves, before it is tried again.
    await Platform.rotateWebhookSecret({ webhookId, overlapSeconds: 0 });
    await moved(workspaceId, "DB_3");
  });
  const platform = platformOf(deploymentWith({ DB_2 }));
  await platform.rotateWebhookSecret({ webhookId, overlapSeconds: 3_600 });
  expect(await sealedIn("DB_3")).toBe(await sealedIn("DB_2"));
});

test("what is written at the switch is known, and wakes its deliveries, in the other database", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  const slow = hangingBefore(["DB", /update "workspaces" set "database"/]);
  const moving = moveWorkspace(slow.env, workspaceId, "DB_3", () => true);
  await slow.hung;
  const updating = Platform.updateWorkspace({ workspaceId, name: "Agence Horizon" });
  const refused = Promise.withResolvers<void>();
  const DB_2 = failingDatabase("DB_2", (_, go) => go().finally(refused.resolve));
  const { env: bindings, fast } = isolated();
  const context = createExecutionContext();
  const platform = new PlatformEntrypoint(context, { ...bindings, DB_2 } as Env);
  const recording = platform.recordLeads({ workspaceId, leads: [leadReport("more")] });
  await refused.promise;
  await slow.release();
  await Promise.all([moving, updating, recording]);
  await waitOnExecutionContext(context);
  expect(fast).toMatchObject([{ subscriptionId: webhookId, database: "DB_3" }]);
  expect((await Platform.listWorkspaces({})).items).toContainEqual(
    expect.objectContaining({ workspaceId, name: "Agence Horizon", database: "DB_3" }),
  );
});

describe("a mover that runs out of time", () => {
  const hasEntered = (state: string) => lines.some((line) => line.includes(`"state":"${state}"`));

  test("while the workspace is closed leaves no writes waiting for the next one", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await moveWorkspace(env, workspaceId, "DB_3", () => !hasEntered("closed"));
    await livesIn("DB_3");
  });

  test("while deliveries end leaves none waiting for the next one", async () => {
    const { workspaceId, webhookId } = await openWithLeads();
    // Somebody holds the subscription.
    const hold = "UPDATE subscriptions SET leased_by = 'x', leased_until = ? WHERE id = ?";
    await rowsIn("DB_2", hold, Date.now() + 20_000, webhookId);
    const owe = "UPDATE deliveries SET state = 'pending', due_at = 0 WHERE subscription_id = ?";
    await rowsIn("DB_2", owe, webhookId);
    const { env: bindings, fast } = isolated();
    const mayGoOn = () => !hasEntered("draining");
    const { state } = await moveWorkspace(bindings, workspaceId, "DB_3", mayGoOn);
    expect([hasEntered("draining"), state]).toEqual([true, "copying"]);
    expect(fast).toMatchObject([{ subscriptionId: webhookId, database: "DB_2" }]);
  });
});

test("the sweep goes on first with those whose writes wait", async () => {
  const states = ["copying", "gone", "draining", "closed"];
  const insert = databaseOf("DB_2").prepare(
    "INSERT INTO moves (workspace_id, move_id, state, other, since) VALUES (?1, ?1, ?2, 'DB_3', 9)",
  );
  await databaseOf("DB_2").batch(states.map((state) => insert.bind(`wks_order_${state}`, state)));
  const listed = await commit(openDatabase(databaseOf("DB_2")), listMoves(100, Date.now()));
  const order = listed.flatMap(({ workspaceId, state }) =>
    workspaceId.startsWith("wks_order") ? state : [],
  );
  expect(order).toEqual(["closed", "draining", "gone", "copying"]);
  await databaseOf("DB_2").exec("DELETE FROM moves WHERE workspace_id LIKE 'wks_order%'");
});

test("a key that is first used at the switch is served", async () => {
  const { workspaceId, ids } = await openWithLeads();
  const { apiKey } = await Platform.createApiKey({ workspaceId });
  const keyHash = await hashApiKey(apiKey);
  // It has read the directory when the workspace moves.
  const admission = await admitBeside(env.KEY_GATE.getByName(keyHash), keyHash, async (go) => {
    await moved(workspaceId, "DB_3");
    return go();
  });
  expect(admission).toMatchObject({ verdict: "admitted", database: "DB_3" });
  expect(await listAll(openApi(apiKey), "leads")).toHaveLength(ids.length);
});

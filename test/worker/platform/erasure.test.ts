import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { derivedId } from "../../../src/contract/ids.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import { CLEANUP_MAX, STATEMENTS_MAX } from "../../../src/db/budget.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { attempts, erasedLeads, leads } from "../../../src/db/schema.ts";
import { findLate } from "../../../src/delivery/wake.ts";
import { beginErasure, closeWorkspace, eraseAllRows } from "../../../src/lifecycle/erase.ts";
import { deleteOldErasedLeads, eraseLeadRows } from "../../../src/lifecycle/erase-leads.ts";
import { eraseLeads as erasure } from "../../../src/platform/personal-data.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { sweep } from "../../../src/sweep.ts";
import { openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import {
  automationReport,
  deployedAs,
  errorOf,
  leadReport,
  listAll,
  openApi,
  openWorkspace,
  Platform,
  platformOf,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { tablesWith as tablesOf } from "../../support/databases.ts";
import {
  announceLeads,
  answered,
  deliveriesTo,
  dispatchAt,
  isolated,
  owed,
  setSubscription,
  subscribe,
  subscriber,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import {
  DATABASE,
  db,
  inDatabase,
  useThreeDatabases,
  WORKSPACE_DB,
} from "../../support/placement.ts";
import { openPortal } from "../../support/portal.ts";
import { fillLeads } from "../../support/record.ts";
import { insertApiKeys, insertSubscriptions } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";
import { steadyClock } from "../../support/timers.ts";

useThreeDatabases();

const PERSON = { name: "Zoé Larrieu-Quint", email: "zoe.lq@example.com", phone: "+33612345678" };

/** A workspace with two leads, the first with a run, which are owed to one subscriber. */
async function withLeads() {
  const { workspaceId, api } = await openWorkspace();
  const subscription = await subscribe(workspaceId);
  const automationId = await recordAutomation(workspaceId);
  // No message lets the runtime's own consumer post them, too.
  const { ids } = await platformOf(isolated().env).recordLeads({
    workspaceId,
    leads: [
      leadReport("first", { ...PERSON, customFields: { note: PERSON.phone } }),
      leadReport("second", { name: "Marc Aurèle" }),
    ],
  });
  const [first = "", second = ""] = ids;
  await Platform.recordRuns({
    workspaceId,
    runs: [runReport("run", automationId, { leadId: first })],
  });
  return { workspaceId, api, subscription, first, second };
}

const tablesWith = (text: string) => tablesOf(DATABASE, text);

describe("eraseLeads", () => {
  test("leaves nothing of a lead: no row, event, body, delivery or attempt, and no `lead_id` of a run", async () => {
    const { workspaceId, api, subscription, first, second } = await withLeads();
    await setSubscription(subscription.id, { concurrency: 2 });
    await dispatchAt(Date.now(), [subscription.id], answered(500));
    expect(await deliveriesTo(subscription.id)).toMatchObject(Array(2).fill({ attemptsMade: 1 }));
    expect(await tablesWith(first)).toEqual(["events", "leads", "runs"]);
    const erased = await Platform.eraseLeads({ workspaceId, ids: [first] });
    expect(erased).toEqual({ erased: 1, missing: [] });
    expect(await tablesWith(first)).toEqual(["erased_leads"]);
    for (const personal of Object.values(PERSON)) expect(await tablesWith(personal)).toEqual([]);
    expect(await listAll(api, "leads")).toMatchObject([{ id: second, name: "Marc Aurèle" }]);
    expect(await listAll(api, "runs")).toMatchObject([{ lead_id: null }]);
    expect(await deliveriesTo(subscription.id)).toHaveLength(1);
    const ledger = await Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 1, pending: 1, addsUp: true });
  });

  test("returns what it erased and what is missing, however it is named", async () => {
    const { workspaceId, api, first } = await withLeads();
    const stranger = await withLeads();
    const erase = (ids: string[], references?: string[]) =>
      Platform.eraseLeads({ workspaceId, ids, references });
    expect(await erase([stranger.first])).toEqual({ erased: 0, missing: [stranger.first] });
    expect(await erase([first, "lea_none"], ["first", "second", "never"])).toEqual({
      erased: 2,
      missing: ["lea_none", "never"],
    });
    expect(await erase([first, first])).toEqual({ erased: 0, missing: [first] });
    expect(await listAll(api, "leads")).toEqual([]);
    expect(await listAll(stranger.api, "leads")).toHaveLength(2);
    expect(await listAll(stranger.api, "runs")).toMatchObject([{ lead_id: stranger.first }]);
    const ledger = await Platform.ledger({ workspaceId: stranger.workspaceId });
    expect(ledger).toMatchObject({ created: 2, addsUp: true });
    // Nor does it keep out what the other workspace has yet to record.
    const next = await derivedId("lead", stranger.workspaceId, "next");
    expect(await erase([next])).toEqual({ erased: 0, missing: [next] });
    const report = { workspaceId: stranger.workspaceId, leads: [leadReport("next")] };
    expect(await Platform.recordLeads(report)).toMatchObject({ created: 1 });
  });

  test("during a dispatch, does not send what is waiting", async () => {
    const { workspaceId, subscription, first, second } = await withLeads();
    const { id } = subscription;
    await setSubscription(id, { concurrency: 1 });
    const now = Date.now();
    const clock = steadyClock();
    const { posts, attempt } = subscriber(async () => {
      await Platform.eraseLeads({ workspaceId, ids: [first, second] });
      clock.passedMs += 2_000;
      return answered(500);
    });
    await dispatchAt(() => now + clock.passedMs, [id], attempt);
    vi.restoreAllMocks();
    expect(posts).toHaveLength(1);
    expect(await deliveriesTo(id)).toEqual([]);
    expect(await db.select().from(attempts).where(sql`subscription_id = ${id}`)).toEqual([]);
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 0, addsUp: true });
  });

  test("reads what it erases, however many leads and events the workspace has", async () => {
    const { workspaceId, first } = await withLeads();
    await announceLeads(workspaceId, 500, Date.now());
    await fillLeads(workspaceId, 500);
    const { DB, rows } = meteredDatabase();
    await commit(connect(DB), eraseLeadRows(workspaceId, [first], Date.now()));
    expect(await db.select().from(leads).where(sql`id = ${first}`)).toEqual([]);
    expect(rows.read).toBeLessThan(200);
  });

  test("counts what it erased even if the database loses its reply", async () => {
    const { workspaceId, first } = await withLeads();
    const bindings = { ...env, ...inDatabase({ DB: lossyDatabase("reply") }) };
    const calling = { env: bindings, ctx: { waitUntil: () => {} } };
    const input = { workspaceId, ids: [first], references: null };
    expect(await erasure.run(calling, input)).toEqual({ erased: 1, missing: [] });
  });

  test("cannot be undone by another call, a queue message or a dead letter, for 15 days", async () => {
    const { workspaceId, api, subscription } = await withLeads();
    // The third has not arrived yet when its erasure is asked for.
    const references = ["first", "second", "third"];
    await Platform.eraseLeads({ workspaceId, references });
    // Days ago: the last erasure counts.
    const age = WORKSPACE_DB.prepare(
      "UPDATE erased_leads SET erased_at = 1 WHERE workspace_id = ?",
    );
    await age.bind(workspaceId).run();
    await Platform.eraseLeads({ workspaceId, references });
    const leads = [...references, "fourth"].map((reference) => leadReport(reference, PERSON));
    const recorded = await Platform.recordLeads({ workspaceId, leads });
    expect(recorded).toMatchObject({ created: 1 });
    const shown = () => listAll<Lead>(api, "leads");
    expect(await shown()).toMatchObject([{ id: recorded.ids[3] }]);
    expect(await deliveriesTo(subscription.id)).toHaveLength(1);
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 1, addsUp: true });
    const other = await openWorkspace();
    await Platform.recordLeads({ workspaceId: other.workspaceId, leads });
    expect(await listAll(other.api, "leads")).toHaveLength(4);
    const ends = Date.now() + 15 * DAY_MS;
    for (const [time, count] of [[ends - HOUR_MS, 1] as const, [ends + HOUR_MS, 4] as const]) {
      await sweep(isolated().env, time);
      await Platform.recordLeads({ workspaceId, leads });
      expect(await shown()).toHaveLength(count);
    }
  });
});

test("the record of an erased lead is deleted on the millisecond at which it is 15 days old", async () => {
  const { workspaceId } = await openWorkspace();
  await Platform.eraseLeads({ workspaceId, references: ["first"] });
  const recorded = () =>
    db
      .select({ at: erasedLeads.erasedAt })
      .from(erasedLeads)
      .where(sql`workspace_id = ${workspaceId}`);
  const [{ at } = { at: 0 }] = await recorded();
  await commit(db, deleteOldErasedLeads(at + 15 * DAY_MS - 1));
  expect(await recorded()).toHaveLength(1);
  await commit(db, deleteOldErasedLeads(at + 15 * DAY_MS));
  expect(await recorded()).toEqual([]);
});

describe("eraseWorkspace", () => {
  test("during a dispatch, ends it", async () => {
    let now = Date.now();
    const { id, workspaceId } = await owed(3, now);
    const attempt = async () => {
      now += 2_000;
      await Platform.eraseWorkspace({ workspaceId });
      return answered(200);
    };
    expect(await tablesWith(workspaceId)).not.toEqual([]);
    expect(await dispatchAt(() => now, [id], attempt)).toEqual([]);
    expect(await tablesWith(workspaceId)).toEqual([]);
  });

  test("once begun, lets nothing be recorded, although the isolate has cached the data key", async () => {
    const { workspaceId } = await withLeads();
    const runs = [runReport("late", await recordAutomation(workspaceId))];
    expect(openedDataKeys.get(workspaceId)).toBeDefined();
    await commit(db, beginErasure(workspaceId));
    const late = [
      Platform.recordLeads({ workspaceId, leads: [leadReport("late")] }),
      Platform.recordRuns({ workspaceId, runs }),
      Platform.recordAutomations({ workspaceId, automations: [automationReport("late", {})] }),
    ];
    for (const error of await Promise.all(late.map(errorOf)))
      expect(error).toContain("workspaceId");
    const { results } = await WORKSPACE_DB.prepare(
      "SELECT id FROM leads WHERE workspace_id = ?1 AND reference = 'late' UNION ALL SELECT id FROM automations WHERE workspace_id = ?1 AND reference = 'late'",
    )
      .bind(workspaceId)
      .all();
    expect(results).toEqual([]);
  });

  test("leaves nothing of it, rejects its keys, and can be called again", async () => {
    const { workspaceId, api, subscription } = await withLeads();
    await Platform.rotateWebhookSecret({ webhookId: subscription.id });
    const other = await withLeads();
    expect((await api.get("/v1/leads")).status).toBe(200);
    for (let twice = 0; twice < 2; twice++)
      expect(await Platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
    expect((await api.get("/v1/leads")).status).toBe(401);
    for (const id of [workspaceId, subscription.id]) expect(await tablesWith(id)).toEqual([]);
    expect(await tablesWith(other.workspaceId)).toContain("events");
    expect(await listAll(other.api, "leads")).toHaveLength(2);
    const late = Platform.recordLeads({ workspaceId, leads: [leadReport("late")] });
    expect(await errorOf(late)).toContain("workspaceId: no such workspace");
  });

  test.each<[when: string, erase: (workspaceId: string) => Promise<unknown>]>([
    ["after it", (workspaceId) => Platform.eraseWorkspace({ workspaceId })],
    [
      "while it goes on",
      (id) => env.DB.prepare("UPDATE workspaces SET erasing = 1 WHERE id = ?").bind(id).run(),
    ],
  ])(
    "leaves no fields of a change whose entry in the audit trail is written %s",
    async (_, erase) => {
      const { workspaceId } = await openWorkspace();
      const { id } = await subscribe(workspaceId);
      const [noted, erased] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const DB = interposed(env.DB, async ({ texts, go }) => {
        if (!texts.some((text) => text.startsWith('insert into "audit_trail"'))) return go();
        noted.resolve();
        await erased.promise;
        return go();
      });
      const portal = await openPortal(workspaceId, deployedAs({ ...env, DB }));
      const changed = portal.post(`/webhooks/${id}/update`, { description: PERSON.name });
      await noted.promise;
      await erase(workspaceId);
      erased.resolve();
      expect((await changed).status).toBe(200);
      const { items } = await Platform.listAuditTrail({ workspaceId });
      const [change] = items.filter(({ method }) => method === "updateWebhook");
      expect(change).toMatchObject({ result: "ok", webhookId: null, before: null, after: null });
      // The description that was written is a name that another test looks for.
      expect(await Platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
    },
  );

  test("reads each row a few times, in however many pieces", async () => {
    const { workspaceId } = await openWorkspace();
    await fillLeads(workspaceId, 5_000);
    await commit(db, closeWorkspace(workspaceId, Date.now()));
    const other = (await openWorkspace()).workspaceId;
    const ids = Array.from({ length: 5_000 }, (_, i) => `whk_${i}`);
    await insertSubscriptions(ids.map((id) => ({ id, workspaceId: other })));
    const { DB, rows } = meteredDatabase();
    const metered = connect(DB);
    expect(await eraseAllRows(metered, workspaceId, () => false)).toBe(false);
    expect(rows.read).toBeLessThan(11_000);
    expect(await eraseAllRows(metered, workspaceId, () => true)).toBe(true);
    expect(rows.read).toBeLessThan(12 * 5_000);
  });

  test("leaves no pending delivery that the scheduled job would wake for as long as it takes", async () => {
    const now = Date.now();
    const { id, workspaceId } = await owed(1, now);
    const other = await owed(1, now);
    await commit(db, closeWorkspace(workspaceId, now));
    await dispatchAt(now, [id], answered(200));
    const { wakeUps } = await findLate(db, "", now + HOUR_MS, now + HOUR_MS);
    const ids = wakeUps.map(({ subscriptionId }) => subscriptionId);
    expect([ids.includes(id), ids.includes(other.id)]).toEqual([false, true]);
  });

  test.each(["was deleted before", "is deleted in the process"])(
    "leaves no secret of a subscription that %s",
    async (when) => {
      const { id, workspaceId } = await owed(0, Date.now());
      await Platform.rotateWebhookSecret({ webhookId: id });
      if (when === "was deleted before") await Platform.deleteWebhook({ webhookId: id });
      else {
        await commit(db, closeWorkspace(workspaceId, Date.now()));
        await dispatchAt(Date.now(), [id], answered(200));
      }
      expect(await tablesWith(id)).toContain("subscriptions");
      await Platform.eraseWorkspace({ workspaceId });
      for (const gone of [id, workspaceId]) expect(await tablesWith(gone)).toEqual([]);
    },
  );

  test("stops before its call has executed 1,000 statements", async () => {
    const { workspaceId } = await openWorkspace();
    const keep = env.DB.prepare(`CREATE TRIGGER kept BEFORE DELETE ON workspaces
      WHEN OLD.id = '${workspaceId}' BEGIN SELECT RAISE(IGNORE); END`);
    await keep.run();
    let statements = 0;
    const DB = interposed(env.DB, ({ texts, go }) => {
      statements += texts.length;
      return go();
    });
    const platform = platformOf({ ...env, DB });
    expect(await platform.eraseWorkspace({ workspaceId })).toEqual({ done: false });
    expect(statements).toBeGreaterThan(STATEMENTS_MAX / 2);
    expect(statements).toBeLessThanOrEqual(STATEMENTS_MAX);
    await env.DB.prepare("DROP TRIGGER kept").run();
  });

  test("notifies at most 500 gates in a call, and erases nothing before all are notified", async () => {
    const { workspaceId, api } = await withLeads();
    expect((await api.get("/v1/leads")).status).toBe(200);
    await insertApiKeys(
      Array.from({ length: 500 }, (_, i) => ({
        id: `key_${i}${workspaceId}`,
        workspaceId,
        revokedAt: 1,
        lastUsedAt: i + 1,
      })),
    );
    const told: string[] = [];
    const getByName = (name: string) => ({
      forget: async () => {
        told.push(name);
        if (!name.startsWith("hash_")) await env.KEY_GATE.getByName(name).forget();
      },
    });
    const KEY_GATE = { getByName } as unknown as Env["KEY_GATE"];
    const platform = platformOf({ ...isolated().env, KEY_GATE });
    for (const [count, done] of [
      [500, false],
      [501, true],
    ] as const) {
      expect(await platform.eraseWorkspace({ workspaceId })).toEqual({ done });
      expect(told).toHaveLength(count);
      // The key that was used last may still be live.
      expect((await api.get("/v1/leads")).status).toBe(401);
      expect((await tablesWith(workspaceId)).includes("leads")).toBe(!done);
    }
    expect(new Set(told).size).toBe(501);
  });

  test("notifies a gate again that could not be notified", async () => {
    const { workspaceId, api } = await openWorkspace();
    expect((await api.get("/v1/leads")).status).toBe(200);
    let isDown = true;
    const getByName = (name: string) => ({
      forget: async () => {
        if (isDown) throw new Error("the gate is down");
        await env.KEY_GATE.getByName(name).forget();
      },
    });
    const KEY_GATE = { getByName } as unknown as Env["KEY_GATE"];
    const platform = platformOf({ ...isolated().env, KEY_GATE });
    expect(await errorOf(platform.eraseWorkspace({ workspaceId }))).toBe("the gate is down");
    isDown = false;
    expect(await platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
    expect((await api.get("/v1/leads")).status).toBe(401);
  });

  test("works in chunks, continues where it stopped, and then rejects the keys", async () => {
    const { workspaceId, api } = await openWorkspace();
    expect((await api.get("/v1/leads")).status).toBe(200);
    const { id } = await subscribe(workspaceId);
    await storeEvents(workspaceId, id, CLEANUP_MAX + 1, Date.now(), "pending");
    await fillLeads(workspaceId, CLEANUP_MAX + 1);
    const { apiKey } = await Platform.createApiKey({ workspaceId });
    // Stops before the gates are told.
    await commit(db, closeWorkspace(workspaceId, Date.now()));
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(403);
    expect(await eraseAllRows(db, workspaceId, () => false)).toBe(false);
    // No leads before all events are gone.
    const { results } = await WORKSPACE_DB.prepare(
      "SELECT (SELECT count(*) FROM events WHERE workspace_id = ?1) AS events, (SELECT count(*) FROM leads WHERE workspace_id = ?1) AS leads",
    )
      .bind(workspaceId)
      .all();
    expect(results).toEqual([{ events: 1, leads: CLEANUP_MAX + 1 }]);
    expect(await Platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
    expect(await tablesWith(workspaceId)).toEqual([]);
    expect((await api.get("/v1/leads")).status).toBe(401);
  });
});

test("what names a lead that was erased is recorded without that link", async () => {
  const { workspaceId, api } = await openWorkspace();
  const automationId = await recordAutomation(workspaceId);
  const leadId = await derivedId("lead", workspaceId, "l");
  await Platform.eraseLeads({ workspaceId, references: ["l"] });
  const runs = [runReport("beside", automationId), runReport("r", automationId, { leadId })];
  expect(await Platform.recordRuns({ workspaceId, runs })).toMatchObject({ created: 2 });
  expect(await listAll(api, "runs")).toMatchObject(Array(2).fill({ lead_id: null }));
});

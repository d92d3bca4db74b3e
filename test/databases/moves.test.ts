import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import type { ExportItem } from "../../src/lifecycle/export.ts";
import { advanceMove } from "../../src/moving/move.ts";
import {
  automationReport,
  errorOf,
  exportAll,
  leadReport,
  listAll,
  openWorkspace,
  Platform,
  platformOf,
  recordAutomation,
  refusal,
  runReport,
} from "../support/api.ts";
import {
  deploymentWith,
  NAMES,
  openSubscribedIn,
  openWorkspaceIn,
  rowsIn,
  tablesWith,
  valueIn,
} from "../support/databases.ts";
import { receivedBy, setSubscription, subscriberUrl } from "../support/deliveries.ts";
import { interposed } from "../support/interposed.ts";
import {
  allDelivered,
  cleanUp,
  countsOf,
  homesOf,
  idsIn,
  moved,
  moveUntil,
  openWithLeads,
  stageOf,
} from "../support/moves.ts";
import { useThreeDatabases } from "../support/placement.ts";
import { fillLeads, record } from "../support/record.ts";
import { announcedEmail } from "../support/rows.ts";
import { steadyClock } from "../support/timers.ts";

useThreeDatabases();

const REFUSED = refusal(500, "internal_error", { retry_after_seconds: 5 });
REFUSED.headers["retry-after"] = "5";
const exported = async (workspaceId: string) => (await exportAll(workspaceId)).flat();

/** A workspace with rows of every kind: runs, subscriptions, deliveries in all states. */
async function openFull() {
  const workspace = await openSubscribedIn("DB_2", { events: WebhookEvent.options });
  const { workspaceId, webhookId } = workspace;
  const { ids } = await Platform.recordAutomations({
    workspaceId,
    automations: [automationReport("a"), automationReport("b"), automationReport("c")],
  });
  const [first = "", , removed = ""] = ids;
  await Platform.removeAutomations({ workspaceId, ids: [removed] });
  const leads = Array.from({ length: 10 }, (_, i) =>
    leadReport(`lead-${i}`, {
      name: `Zoë “${i}” 🌻`,
      customFields: { i, text: 'é\n"\\'.repeat(i === 0 ? 1_500 : 1) },
    }),
  );
  const recorded = await Platform.recordLeads({ workspaceId, leads });
  const actions = Array(30).fill({ type: "é".repeat(200), status: "success" });
  const runs = recorded.ids.map((leadId, i) =>
    runReport(`run-${i}`, first, { leadId, actions: i === 0 ? actions : [] }),
  );
  await Platform.recordRuns({ workspaceId, runs });
  await allDelivered(workspaceId, 20);
  const later = Date.now() + 3_600_000;
  for (const sql of [
    `INSERT INTO attempts (subscription_id, event_id, attempt, at, outcome, status, duration_ms)
      SELECT subscription_id, event_id, 1, 5, 'answered', 500, 7 FROM deliveries WHERE subscription_id = '${webhookId}' LIMIT 9`,
    `UPDATE workspaces SET webhooks_max = 30, sessions_not_before = 5, test_events = 6, test_events_since = 7,
      redelivered = 8, redelivered_since = 9 WHERE id = '${workspaceId}'`,
    // And one waits.
    `UPDATE subscriptions SET circuits = '{"lead.created":{"rejected":[],"failures":1,"probeAt":${later},"since":1,"outcome":"timed_out","status":null}}', earlier_secrets = '[{"sealedSecret":"sealed","until":${later}}]' WHERE id = '${webhookId}'`,
  ])
    await rowsIn("DB_2", sql);
  const email = announcedEmail({ announcedAt: 2, reminders: 3, emails: 4 });
  await setSubscription(webhookId, { announced: { failing: email, disabled: email } });
  await Platform.recordLeads({ workspaceId, leads: [leadReport("last")] });
  return workspace;
}

/** What is exported, apart from leases and messages, which belong to a database, and the use of keys, which goes on. */
function comparable(items: ExportItem[]) {
  return items
    .map(({ leasedBy, leasedUntil, nextMessageAt, lastUsedAt, ...item }) => JSON.stringify(item))
    .sort();
}

describe("moveWorkspace", () => {
  test("takes all of a workspace along, from DB_2 to DB_3 and on to DB, and its keys work as before", async () => {
    const { workspaceId, api } = await openFull();
    const before = comparable(await exported(workspaceId));
    const list = await api.get("/v1/leads?limit=100");
    let home = "DB_2";
    for (const to of ["DB_3", "DB"]) {
      expect(await homesOf(workspaceId)).toEqual([home]);
      await moved(workspaceId, to);
      expect(comparable(await exported(workspaceId))).toEqual(before);
      expect((await api.get("/v1/leads?limit=100")).body).toEqual(list.body);
      // What is left behind goes once reads that began before are over.
      expect((await homesOf(workspaceId)).sort()).toEqual([home, to].sort());
      await cleanUp();
      home = to;
    }
    expect(await homesOf(workspaceId)).toEqual([home]);
    expect(comparable(await exported(workspaceId))).toEqual(before);
  });

  test("fails no read, loses no accepted write, and delivers each event, while traffic goes on", async () => {
    // However long the moves take, no request is beyond the quota.
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 1_000_000 });
    const url = subscriberUrl();
    const subscription = { url, events: ["lead.created", "automation.status_changed"] };
    expect((await api.post("/v1/webhooks", subscription)).status).toBe(201);
    const automationId = await recordAutomation(workspaceId);
    const recorded: string[] = [];
    let [isOver, _changes, refused] = [false, 0, 0];
    const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    /** Acts again and again, with pauses that leave the machine to the others. */
    const again = async (act: () => Promise<void>) => {
      for (; !isOver; await pause(100)) await act();
    };
    const record = async () => {
      const leads = [leadReport(crypto.randomUUID()), leadReport(crypto.randomUUID())];
      for (;;) {
        const answer = await Platform.recordLeads({ workspaceId, leads }).catch(String);
        if (typeof answer !== "string") return void recorded.push(...answer.ids);
        expect(answer).toContain("moving: try again");
        refused++;
        await pause(100);
      }
    };
    const work = Promise.all([
      again(record),
      again(record),
      again(async () => {
        for (const status of ["paused", "active"]) {
          const answer = await api.patch(`/v1/automations/${automationId}`, { status });
          if (answer.status === 200) _changes++;
          else expect(answer).toEqual(REFUSED);
          if (answer.status !== 200) return;
        }
        // Always two changes, or none.
      }),
      again(async () => {
        const last = recorded.at(-1);
        // Whatever was recorded before it was asked for.
        if (last) expect(await idsIn(api, "leads")).toContain(last);
      }),
      again(async () => expect((await Platform.ledger({ workspaceId })).addsUp).toBe(true)),
    ]);
    // On a busy machine, no write may come while the workspace is closed.
    do {
      for (const database of ["DB", "DB_2"]) {
        // The local runtime ends no pause of the traffic while one query follows the other.
        while (!(await advanceMove(env, workspaceId, database, () => false)).done) await pause(10);
        await cleanUp();
      }
    } while (refused === 0);
    isOver = true;
    await work;
    // A cursor from before the moves would walk them as well: each row once.
    const walked = (await listAll<{ id: string }>(api, "leads")).map(({ id }) => id);
    expect(walked.sort()).toEqual([...recorded].sort());
    const { created } = await Platform.ledger({ workspaceId });
    await allDelivered(workspaceId, created);
    expect(created).toBeGreaterThanOrEqual(recorded.length);
    const received = new Set((await receivedBy({ url })).map(({ body }) => JSON.parse(body).id));
    expect(received.size).toBe(created);
    expect(await homesOf(workspaceId)).toEqual(["DB_2"]);
  });
});

describe("a move", () => {
  test("back to where the workspace lives cancels one that is copying", async () => {
    const { workspaceId, ids, leadIds, record } = await openWithLeads();
    await moveUntil(workspaceId, "copying");
    for (let i = 0; i < 4; i++) await advanceMove(env, workspaceId, "DB_3", () => false);
    expect(await homesOf(workspaceId)).toEqual(["DB_2", "DB_3"]);
    const elsewhere = Platform.moveWorkspace({ workspaceId, database: "DB" });
    expect(await errorOf(elsewhere)).toContain("database: this workspace is being moved to DB_3");
    await moved(workspaceId, "DB_2");
    await record();
    const early = Platform.moveWorkspace({ workspaceId, database: "DB_3" });
    const left = "the rows that this workspace left in DB_3 are still being deleted";
    expect(await errorOf(early)).toContain(left);
    await cleanUp();
    expect(await homesOf(workspaceId)).toEqual(["DB_2"]);
    expect(await leadIds()).toEqual(ids);
  });

  test("to a third database is rejected while what is left in the first is being deleted", async () => {
    const { workspaceId } = await openWorkspaceIn("DB_2");
    await moved(workspaceId, "DB_3");
    const early = Platform.moveWorkspace({ workspaceId, database: "DB" });
    const left = "database: the rows that this workspace left in DB_2 are still being deleted";
    expect(await errorOf(early)).toContain(left);
    await cleanUp();
    const begun = await advanceMove(env, workspaceId, "DB", () => false);
    expect(begun).toMatchObject({ stage: "draining" });
    await moved(workspaceId, "DB_3");
  });

  test.each([
    [19_999, true],
    [20_000, false],
  ])("is done in one call if that takes less than 20 s: %i ms, %s", async (ms, done) => {
    const { workspaceId, livesIn } = await openWithLeads();
    const clock = steadyClock();
    const DB = interposed(env.DB, ({ texts, go }) => {
      if (/"moves"/.test(texts.join())) clock.passedMs = ms;
      return go();
    });
    const move = { workspaceId, database: "DB_3" };
    const first = await platformOf(deploymentWith({ DB })).moveWorkspace(move);
    expect(first).toMatchObject({ done });
    expect(await Platform.moveWorkspace(move)).toMatchObject({ done: true });
    await livesIn("DB_3");
  });

  test("shows how many rows it has copied of those there are", async () => {
    const { workspaceId } = await openWithLeads(2);
    const { created } = await Platform.ledger({});
    const step = () => advanceMove(env, workspaceId, "DB_3", () => false);
    expect(await step()).toEqual({ done: false, stage: "draining", copied: 0, rows: 7 });
    await moveUntil(workspaceId, "copying");
    // A subscription, and two leads with their events and deliveries.
    const counts = [(await step()).copied];
    while ((await stageOf(workspaceId)) === "copying") {
      // Rows that two databases have count once.
      expect(await Platform.ledger({})).toMatchObject({ created });
      const { copied, rows } = await step();
      counts.push(copied);
      if (copied > 0) expect(rows).toBe(7);
    }
    expect(counts.slice(0, 3)).toEqual([1, 1, 3]);
    expect(counts).toContain(7);
  });

  test("takes along large leads, more than are copied at once", async () => {
    const { workspaceId } = await openWorkspaceIn("DB_2");
    await fillLeads(workspaceId, 260, 8_000);
    const leads = "SELECT id, created_at, length(sealed) FROM leads WHERE workspace_id = ?";
    const before = await rowsIn("DB_2", leads, workspaceId);
    expect(before).toHaveLength(260);
    await moved(workspaceId, "DB_3");
    expect(await rowsIn("DB_3", leads, workspaceId)).toEqual(before);
  });

  test("to a database that is no longer bound keeps the first one from recording for it", async () => {
    const { workspaceId } = await openWorkspace();
    const { DB_2, DB_3, ...alone } = env as Env & Record<string, unknown>;
    const input = { workspaceId, leads: [leadReport("1")] };
    // As if nobody had bound the others any more.
    const recorded = record(alone as Env, "recordLeads", input, Date.now());
    await expect(recorded).rejects.toThrow("has no data key in this database");
    expect(await countsOf(workspaceId)).toEqual({});
  });

  test("takes an erasure along, and a workspace that has moved is erased everywhere", async () => {
    const { workspaceId } = await openWorkspace();
    const leads = [leadReport("1"), leadReport("2")];
    const { ids } = await Platform.recordLeads({ workspaceId, leads });
    await Platform.eraseLeads({ workspaceId, references: ["0"] });
    await Platform.eraseLeads({ workspaceId, ids: ids.slice(0, 1) });
    await moved(workspaceId, "DB_3");
    const erased = { workspaceId, leads: [leadReport("0"), leadReport("1")] };
    expect(await Platform.recordLeads(erased)).toMatchObject({ created: 0 });
    const count = "SELECT count(*) FROM leads WHERE workspace_id = ?";
    expect(await valueIn("DB_3", count, workspaceId)).toBe(1);
    // What the move has just left behind, too.
    expect(await Platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
    for (const name of NAMES) expect(await tablesWith(name, workspaceId)).toEqual([]);
  });
});

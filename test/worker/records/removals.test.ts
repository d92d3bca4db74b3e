import { env } from "cloudflare:workers";
import { inArray } from "drizzle-orm";
import { expect, test, vi } from "vitest";
import { DAY_MS } from "../../../src/contract/time.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { PAGE_EXAMINED_MAX, type PageRequest } from "../../../src/db/page.ts";
import { automations } from "../../../src/db/schema.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import { cleanUpAutomations } from "../../../src/records/removals.ts";
import { listRuns, type Run } from "../../../src/records/runs.ts";
import {
  automationReport,
  errorOf,
  eventsOf,
  leadReport,
  openListeningWorkspace,
  Platform,
  recordAutomation,
  refusal,
  runReport,
} from "../../support/api.ts";
import { platformOf } from "../../support/databases.ts";
import { observedDatabase } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { record } from "../../support/record.ts";
import { insertRuns } from "../../support/rows.ts";

/** How many runs of an automation are stored, and of itself. */
async function stored(id: string) {
  const query = env.DB.prepare(
    `SELECT (SELECT count(*) FROM runs WHERE automation_id = ?1) AS runs,
      (SELECT count(*) FROM automations WHERE id = ?1) AS automations`,
  );
  return query.bind(id).first();
}

/** A workspace with an automation about to be removed, with many runs. */
async function openRemoved(runs: number) {
  const { workspaceId, api } = await openListeningWorkspace();
  const recordAgain = (status: "active" | "paused" = "active") => {
    const automations = [automationReport("1", { status })];
    return Platform.recordAutomations({ workspaceId, automations });
  };
  const id = (await recordAgain()).ids[0] as string;
  await insertRuns(
    Array.from({ length: runs }, (_, i) => ({
      id: `run_${i}${id}`,
      workspaceId,
      automationId: id,
      occurredAt: i,
    })),
  );
  const kept = await recordAutomation(workspaceId);
  const keptReports = { workspaceId, runs: [runReport("k", kept)] };
  const { ids: keptRuns } = await Platform.recordRuns(keptReports);
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  const listed = async (path: string) =>
    (await api.get<PageBody<Run>>(path)).body.data.map((item) => item.id);
  return { workspaceId, api, id, kept, keptRuns, listed, recordAgain };
}

const db = openDatabase(env.DB);

test("A removed automation disappears at once with its 20,000 runs, which are deleted in chunks", async () => {
  const { workspaceId, api, id, kept, keptRuns, listed } = await openRemoved(20_000);
  const { ids: leads } = await Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
  const check = async () => {
    for (const path of ["", "/runs"])
      expect(await api.get(`/v1/automations/${id}${path}`)).toEqual(
        refusal(404, "automation_not_found"),
      );
    expect((await api.patch(`/v1/automations/${id}`, { status: "paused" })).status).toBe(404);
    expect(await listed("/v1/automations")).toEqual([kept]);
    expect(await listed("/v1/runs")).toEqual(keptRuns);
    expect(await listed("/v1/leads")).toEqual(leads);
  };
  await check();
  const late = Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] });
  expect(await errorOf(late)).toContain("no such automation");

  const { DB, trips } = observedDatabase();
  await cleanUpAutomations(openDatabase(DB), Date.now(), () => false);
  expect(await stored(id)).toMatchObject({ runs: 20_000 });
  await cleanUpAutomations(openDatabase(DB), Date.now(), () => true);
  // Each call checks what there is to do; then four chunks of 5,000.
  expect(trips).toHaveLength(2 + 4);
  expect(await stored(id)).toEqual({ runs: 0, automations: 1 });
  await check();
});

test("A removed automation is deleted fifteen days after its removal, with or without runs", async () => {
  const removed = [await openRemoved(0), await openRemoved(1)];
  const ids = removed.map(({ id }) => id);
  const { removedAt } = automations;
  const rows = db.select({ removedAt }).from(automations).where(inArray(automations.id, ids));
  const times = (await rows).map((row) => row.removedAt as number);
  await cleanUpAutomations(db, Math.min(...times) + 15 * DAY_MS - 1, () => true);
  for (const id of ids) expect(await stored(id)).toEqual({ runs: 0, automations: 1 });
  await cleanUpAutomations(db, Math.max(...times) + 15 * DAY_MS, () => true);
  for (const id of ids) expect(await stored(id)).toEqual({ runs: 0, automations: 0 });
});

/** Removes an automation that has one run more than fit into a chunk, and deletes one chunk after fifteen days. */
async function deleteOneChunk() {
  const later = Date.now() + 15 * DAY_MS + 60_000;
  await cleanUpAutomations(db, later, () => true);
  const { id } = await openRemoved(5_001);
  let chunks = 0;
  await cleanUpAutomations(db, later, () => chunks++ === 0);
  return id;
}

test("A removed automation stays as long as it has runs, which are deleted in chunks", async () => {
  expect(await stored(await deleteOneChunk())).toEqual({ runs: 1, automations: 1 });
});

test("The newest runs of a removed automation are deleted first", async () => {
  const id = await deleteOneChunk();
  const left = env.DB.prepare("SELECT id FROM runs WHERE automation_id = ?").bind(id);
  expect((await left.all()).results).toEqual([{ id: `run_0${id}` }]);
});

test.each([0, 1])(
  "A report from before a removal brings back no automation that had %i runs",
  async (runs) => {
    const { workspaceId, id, kept, listed } = await openRemoved(runs);
    const automations = [automationReport("1", { updatedAt: "2026-01-01T00:00:00Z" })];
    for (let i = 0; i < 2; i++) {
      expect(await Platform.recordAutomations({ workspaceId, automations })).toMatchObject({
        ids: [id],
        created: 0,
      });
      await cleanUpAutomations(db, Date.now(), () => true);
    }
    expect(await listed("/v1/automations")).toEqual([kept]);
  },
);

test("A removed automation that is recorded again returns with new runs only, even during the deletion", async () => {
  const { workspaceId, id, listed, recordAgain, keptRuns } = await openRemoved(20_000);
  // Of the run of another automation, and not of the removal.
  expect(await eventsOf(workspaceId)).toHaveLength(1);
  // With another status, which is that of a new automation, and no change.
  expect((await recordAgain("paused")).ids).toEqual([id]);
  expect(await eventsOf(workspaceId)).toHaveLength(1);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual([]);
  const { ids } = await Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] });
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(ids);
  expect((await listed("/v1/runs")).toSorted()).toEqual([...keptRuns, ...ids].toSorted());
  await cleanUpAutomations(db, Date.now(), () => true);
  expect(await stored(id)).toEqual({ runs: 1, automations: 1 });
});

test("A removed automation comes back without a run that another call recorded in between", async () => {
  const { workspaceId } = await openListeningWorkspace();
  const id = await recordAutomation(workspaceId, { reference: "1" });
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  const recordLateRun = () => insertRuns([{ id: "run_late", workspaceId, automationId: id }]);
  let tries = 0;
  const DB = interposed(env.DB, async ({ texts, go }) => {
    const isStoring = texts.some((text) => text.startsWith('insert into "automations"'));
    if (isStoring && ++tries === 1) await recordLateRun();
    return go();
  });
  const { reference, type, provider, agent, status } = automationReport("1", {});
  const automations = [{ reference, type, provider, agent, status }];
  const { ids } = await platformOf({ ...env, DB }).recordAutomations({ workspaceId, automations });
  expect([ids, tries]).toEqual([[id], 2]);
  expect(await stored(id)).toEqual({ runs: 0, automations: 1 });
});

test.each([1, 100])(
  "A page with limit=%i examines a bounded number of hidden runs",
  async (limit) => {
    const { workspaceId, kept, keptRuns } = await openRemoved(20_000);
    const older = [runReport("older", kept, { occurredAt: new Date(0).toISOString() })];
    const { ids } = await Platform.recordRuns({ workspaceId, runs: older });
    const { DB, rows } = meteredDatabase();
    const seen: string[] = [];
    for (let after: PageRequest["after"] = null, isOver = false; !isOver; ) {
      rows.read = 0;
      const page = await listRuns(openDatabase(DB), workspaceId, true, { limit, after });
      expect(rows.read).toBeLessThan(3 * PAGE_EXAMINED_MAX);
      seen.push(...page.items.map((run) => run.id));
      after = page.next;
      isOver = after === null;
    }
    expect(seen).toEqual([...keptRuns, ...ids]);
  },
);

test.each([1, 100])(
  "a page of runs is not empty while more follows, among 9,000 hidden ones: limit=%i",
  async (limit) => {
    const { workspaceId, kept, keptRuns } = await openRemoved(9_000);
    const older = [runReport("older", kept, { occurredAt: "1970-01-01T00:00:00Z" })];
    const { ids } = await Platform.recordRuns({ workspaceId, runs: older });
    const seen: string[] = [];
    for (let after: PageRequest["after"] = null, isOver = false; !isOver; ) {
      const page = await listRuns(db, workspaceId, true, { limit, after });
      expect(page.items).not.toEqual([]);
      seen.push(...page.items.map((run) => run.id));
      after = page.next;
      isOver = after === null;
    }
    expect(seen).toEqual([...keptRuns, ...ids]);
  },
);

test("the runs of an automation that is recorded again are deleted in chunks before it is", async () => {
  const { workspaceId, id, listed } = await openRemoved(20_000);
  const { DB, trips } = observedDatabase();
  const automations = [automationReport("1")];
  const { changed } = await record(
    { ...env, DB },
    "recordAutomations",
    { workspaceId, automations },
    Date.now(),
  );
  expect(changed).toBe(1);
  // What is stored, what to delete, four chunks, what is stored then, and the report.
  expect(trips).toHaveLength(2 + 4 + 2);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual([]);
  expect(await stored(id)).toEqual({ runs: 0, automations: 1 });
});

test("a report of an automation whose runs take too long to delete is no invalid input", async () => {
  const { recordAgain } = await openRemoved(6_000);
  let at = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => (at += 10_001));
  const error = await recordAgain().catch((thrown: Error) => thrown);
  clock.mockRestore();
  // An InputError begins with the method and the place.
  expect(error).toMatchObject({
    message: "the runs of a removed automation are still being deleted: try again",
  });
  expect((await recordAgain()).ids).toHaveLength(1);
});

test("a run removed with its automation is new when it is recorded again", async () => {
  const { workspaceId, id, listed, recordAgain } = await openRemoved(0);
  await recordAgain();
  const runs = [runReport("1", id)];
  const first = await Platform.recordRuns({ workspaceId, runs });
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  await recordAgain();
  const before = await eventsOf(workspaceId);
  const again = [runReport("1", id, { status: "failed" })];
  expect(await Platform.recordRuns({ workspaceId, runs: again })).toEqual(first);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(first.ids);
  expect(await eventsOf(workspaceId)).toHaveLength(before.length + 1);
  await Platform.recordRuns({ workspaceId, runs });
  expect(await eventsOf(workspaceId)).toHaveLength(before.length + 1);
  await cleanUpAutomations(db, Date.now(), () => true);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(first.ids);
});

test("what is recorded again before its rows are deleted stays", async () => {
  const { workspaceId, id, listed, recordAgain } = await openRemoved(1);
  const DB = lossyDatabase("request", async () => {
    await recordAgain();
    await Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] });
  });
  await cleanUpAutomations(openDatabase(DB), Date.now(), () => true);
  expect(await listed(`/v1/automations/${id}/runs`)).toHaveLength(1);
});

import { env } from "cloudflare:workers";
import { eq, inArray, sql } from "drizzle-orm";
import { expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { CLEANUP_MAX } from "../../../src/db/budget.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { isTemporary } from "../../../src/db/errors.ts";
import { automations } from "../../../src/db/schema.ts";
import { announce, draftEvent } from "../../../src/events/outbox.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import { deleteOldAutomations, deleteRemovedRuns } from "../../../src/records/removals.ts";
import type { Run } from "../../../src/records/runs.ts";
import {
  automationReport,
  errorOf,
  eventsOf,
  leadReport,
  openListeningWorkspace,
  openWorkspace,
  Platform,
  platformOf,
  recordAutomation,
  refusal,
  runReport,
} from "../../support/api.ts";
import {
  answered,
  dispatchAt,
  observedDatabase,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { insertRuns } from "../../support/rows.ts";

/** How many runs of an automation are stored, and of itself. */
async function stored(id: string) {
  const query = env.DB.prepare(
    `SELECT (SELECT count(*) FROM runs WHERE automation_id = ?1) AS runs,
      (SELECT count(*) FROM automations WHERE id = ?1) AS automations`,
  );
  return query.bind(id).first();
}

/** A workspace with an automation that has so many runs, and another one with a run. */
async function openFull(runs: number) {
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
  const listed = async (path: string) =>
    (await api.get<PageBody<Run>>(path)).body.data.map((item) => item.id);
  const remove = () => Platform.removeAutomations({ workspaceId, ids: [id] });
  return { workspaceId, api, id, kept, keptRuns, listed, recordAgain, remove };
}

/** Makes a call while each look at the clock finds it ten seconds later, so that its time is soon over. */
async function hurried<T>(call: () => Promise<T>): Promise<T> {
  let at = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => (at += 10_001));
  return call().finally(() => clock.mockRestore());
}

const db = connect(env.DB);

test("A removed automation is gone at once, and its runs piece by piece until the call is done", async () => {
  const { workspaceId, api, id, kept, keptRuns, listed, remove } = await openFull(3_500);
  const { ids: leads } = await Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
  expect(await hurried(remove)).toEqual({ done: false });
  for (const path of ["", "/runs"])
    expect(await api.get(`/v1/automations/${id}${path}`)).toEqual(
      refusal(404, "automation_not_found"),
    );
  expect((await api.patch(`/v1/automations/${id}`, { status: "paused" })).status).toBe(404);
  expect(await listed("/v1/automations")).toEqual([kept]);
  expect(await stored(id)).toMatchObject({ runs: expect.toSatisfy((left: number) => left > 0) });
  const late = Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] });
  expect(await errorOf(late)).toContain("no such automation");
  expect(await remove()).toEqual({ done: true });
  expect(await listed("/v1/runs")).toEqual(keptRuns);
  expect(await listed("/v1/leads")).toEqual(leads);
  expect(await stored(id)).toEqual({ runs: 0, automations: 1 });
  // A report from between two calls would otherwise count as older than the removal.
  const removedAt = async () => {
    const [row] = await db.select().from(automations).where(eq(automations.id, id));
    return row?.removedAt ?? expect.unreachable("it is not removed");
  };
  const at = await removedAt();
  expect(at).toBeLessThan(Date.now());
  expect(await remove()).toEqual({ done: true });
  expect(await removedAt()).toBe(at);
});

test("A removal deletes a bounded number of runs in a transaction", async () => {
  const { workspaceId, id } = await openFull(3 * CLEANUP_MAX);
  await env.DB.prepare("UPDATE automations SET removed_at = 1 WHERE id = ?").bind(id).run();
  const { DB, trips } = observedDatabase();
  const done = await deleteRemovedRuns(connect(DB), workspaceId, [id], () => true);
  // The first trip finds the automation.
  expect([done, trips.length]).toEqual([true, 1 + 3]);
});

test("A removal does not affect the automations of another workspace", async () => {
  const { id, listed, kept } = await openFull(1);
  const { workspaceId } = await openWorkspace();
  const ids = [id, "aut_unknown"];
  expect(await Platform.removeAutomations({ workspaceId, ids })).toEqual({ done: true });
  expect((await listed("/v1/automations")).toSorted()).toEqual([id, kept].toSorted());
  await env.DB.prepare("UPDATE automations SET removed_at = 1 WHERE id = ?").bind(id).run();
  expect(await Platform.removeAutomations({ workspaceId, ids })).toEqual({ done: true });
  expect(await stored(id)).toMatchObject({ runs: 1 });
});

test("A run that is recorded while its automation is removed is refused, and announced to nobody", async () => {
  const { workspaceId, id, remove, keptRuns, listed } = await openFull(0);
  const before = await eventsOf(workspaceId);
  let tries = 0;
  const DB = interposed(env.DB, async ({ texts, go }) => {
    const isStoring = texts.some((text) => text.startsWith('insert into "runs"'));
    if (isStoring && ++tries === 1) expect(await remove()).toEqual({ done: true });
    return go();
  });
  const runs = [runReport("late", id)];
  const call = () =>
    Promise.allSettled([platformOf({ ...env, DB }).recordRuns({ workspaceId, runs })]);
  const reasons = [...(await call()), ...(await call())].map((result) =>
    result.status === "rejected" ? result.reason : null,
  );
  expect(reasons.map(({ message }) => message)).toEqual([
    expect.stringContaining("deleted meanwhile: try again"),
    expect.stringContaining("no such automation"),
  ]);
  expect(reasons.map(isTemporary)).toEqual([true, false]);
  expect(tries).toBe(1);
  expect(await listed("/v1/runs")).toEqual(keptRuns);
  expect(await eventsOf(workspaceId)).toEqual(before);
});

test("Events that were recorded before the removal of their automation are sent", async () => {
  const { workspaceId } = await openWorkspace();
  const { id } = await subscribe(workspaceId, { events: ["run.completed"] });
  const automationId = await recordAutomation(workspaceId);
  const now = Date.now();
  const run = { id: randomId("run"), automation_id: automationId } as Run;
  const drafts = [draftEvent("run.completed", run, now)];
  await commit(
    db,
    announce(workspaceId, "run.completed", drafts, () => sql`true`, now),
  );
  await Platform.removeAutomations({ workspaceId, ids: [automationId] });
  await dispatchAt(now, [id], async () => answered(200));
  expect(await statesOf(id)).toEqual({ delivered: 1 });
});

test("A removed automation is deleted fifteen days after its removal, once it has no runs", async () => {
  const [without, withRuns] = [await openFull(0), await openFull(1)];
  for (const { remove } of [without, withRuns]) await remove();
  const late = { id: "run_late", workspaceId: withRuns.workspaceId, automationId: withRuns.id };
  await insertRuns([late]);
  const { id, removedAt } = automations;
  const isOne = inArray(id, [without.id, withRuns.id]);
  const times = (await db.select({ removedAt }).from(automations).where(isOne)).map(
    (row) => row.removedAt as number,
  );
  await commit(db, deleteOldAutomations(Math.min(...times) + 15 * DAY_MS - 1));
  expect(await stored(without.id)).toEqual({ runs: 0, automations: 1 });
  await commit(db, deleteOldAutomations(Math.max(...times) + 15 * DAY_MS));
  expect(await stored(without.id)).toEqual({ runs: 0, automations: 0 });
  expect(await stored(withRuns.id)).toEqual({ runs: 1, automations: 1 });
});

test("A removed automation that is recorded again returns with new runs only, even during the deletion", async () => {
  const { workspaceId, id, listed, recordAgain, keptRuns, remove } = await openFull(3_500);
  expect(await hurried(remove)).toEqual({ done: false });
  const error = await hurried(recordAgain).catch((thrown: Error) => thrown);
  // An InputError begins with the method and the place.
  expect(error).toMatchObject({
    message: "the runs of a removed automation are still being deleted: try again",
  });
  expect(isTemporary(error)).toBe(true);
  // With another status, which is that of a new automation, and no change. The one event is of the other's run.
  expect((await recordAgain("paused")).ids).toEqual([id]);
  expect(await eventsOf(workspaceId)).toHaveLength(1);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual([]);
  const { ids } = await Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] });
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(ids);
  expect((await listed("/v1/runs")).toSorted()).toEqual([...keptRuns, ...ids].toSorted());
});

test("A removal deletes no run of an automation that was recorded again meanwhile", async () => {
  const { workspaceId, id, listed, recordAgain } = await openFull(1);
  let ids: string[] = [];
  const DB = interposed(env.DB, async ({ texts, go }) => {
    if (ids.length === 0 && texts.some((text) => text.startsWith('DELETE FROM "runs"'))) {
      await recordAgain();
      ({ ids } = await Platform.recordRuns({ workspaceId, runs: [runReport("new", id)] }));
    }
    return go();
  });
  const removing = platformOf({ ...env, DB }).removeAutomations({ workspaceId, ids: [id] });
  expect(await removing).toEqual({ done: true });
  expect(ids).toHaveLength(1);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(ids);
});

test("A run removed with its automation is new when it is recorded again", async () => {
  const { workspaceId, id, listed, recordAgain, remove } = await openFull(0);
  const runs = [runReport("1", id)];
  const first = await Platform.recordRuns({ workspaceId, runs });
  await remove();
  await recordAgain();
  const before = await eventsOf(workspaceId);
  const again = [runReport("1", id, { status: "failed" })];
  expect(await Platform.recordRuns({ workspaceId, runs: again })).toEqual(first);
  expect(await listed(`/v1/automations/${id}/runs`)).toEqual(first.ids);
  expect(await eventsOf(workspaceId)).toHaveLength(before.length + 1);
});

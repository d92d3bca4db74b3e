import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/contract/time.ts";
import { commit, openDatabase } from "../../src/db/client.ts";
import { cleanUpAutomations } from "../../src/records/removals.ts";
import { forgetErasedLeads } from "../../src/workspaces/lifecycle/erase-leads.ts";
import { deleteExpired, parseRetention } from "../../src/workspaces/lifecycle/retention.ts";
import { continueMove, moveWorkspace } from "../../src/workspaces/moving/move.ts";
import { errorOf, openApi, recordAutomation, runReport } from "../support/api.ts";
import { databaseOf, NAMES, rowsIn, tablesWith, valueIn } from "../support/databases.ts";
import { failingDatabase } from "../support/failing.ts";
import { hangingBefore, type Moment } from "../support/hanging.ts";
import { keepLog } from "../support/log-lines.ts";
import {
  beginMoving,
  cleanUp,
  dieClosed,
  endReads,
  expireLeases,
  hangMover,
  homesOf,
  moved,
  openWithLeads,
  placementOf,
} from "../support/moves.ts";

const { Platform } = exports;
keepLog();

const always = () => true;

/** The first transactions of a move, of copying leads, and of the switch, and the directory's. */
const BEGUN: Moment = ["DB_3", /insert into "workspaces"/];
const COPYING: Moment = ["DB_3", /INSERT OR REPLACE INTO "leads"/];
const SWITCHING: Moment = ["DB_3", /update "workspaces"/];
const SWITCHED: Moment = ["DB", /update "workspaces" set "database"/];

describe("a mover that hung", () => {
  test.each<[string, Moment, Moment]>([
    ["before it told the target of itself, takes nothing from who came after it", BEGUN, COPYING],
    [
      "at the switch, leaves it to who came after it",
      SWITCHING,
      ["DB_2", /^select.* from "workspaces"/],
    ],
  ])("%s", async (_, isHungAt, isWokenAt) => {
    const { workspaceId, livesIn } = await openWithLeads();
    const first = await hangMover(workspaceId, isHungAt);
    const second = await hangMover(workspaceId, isWokenAt);
    const released = first.release();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await second.release();
    await released;
    await livesIn("DB_3");
  });

  test("keeps the move while it may still be at work, whoever calls", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    const slow = await hangMover(workspaceId, BEGUN, false);
    const owner = () =>
      valueIn("DB_2", "SELECT moved_by FROM moves WHERE workspace_id = ?", workspaceId);
    const before = await owner();
    await moveWorkspace(env, workspaceId, "DB_3", () => false);
    expect(await owner()).toBe(before);
    await slow.release();
    await moved(workspaceId, "DB_3");
    await livesIn("DB_3");
  });

  test("before it told the target of itself, does not switch a later move", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await dieClosed(workspaceId);
    const late = await hangMover(workspaceId, ["DB_3", /^update "moves"/]);
    await moved(workspaceId, "DB_3", "DB_2");
    await cleanUp();
    // Nothing of it has been copied yet.
    await beginMoving(workspaceId, 1);
    await late.release();
    await moved(workspaceId, "DB_3");
    await livesIn("DB_3");
  });

  test.each<[string, Moment, string[]]>([
    [
      "changed the directory does not change it once the workspace has come back",
      SWITCHED,
      ["DB_3", "DB_2"],
    ],
    ["began does not begin once the workspace has moved", BEGUN, ["DB_3"]],
  ])("before it %s", async (_, moment, databases) => {
    const { workspaceId, livesIn } = await openWithLeads();
    const late = await hangMover(workspaceId, moment);
    await moved(workspaceId, ...databases);
    await late.release();
    await livesIn(databases.at(-1) ?? "");
    await cleanUp();
    await moved(workspaceId, "DB_2");
    expect(await placementOf(workspaceId)).toBe("DB_2");
  });

  test("while it deleted what was left behind, deletes nothing of what has come back", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await moved(workspaceId, "DB_3");
    await endReads();
    const late = hangingBefore(["DB_2", /DELETE FROM "?events|delete from "events"/]);
    const hung = continueMove(late.env, "DB_2", workspaceId, always).catch(() => {});
    await late.hung;
    await expireLeases();
    await cleanUp();
    await moved(workspaceId, "DB_2");
    await late.release();
    await hung;
    await livesIn("DB_2");
  });
});

describe("a mover that dies", () => {
  /** The three databases, as a mover sees them that dies in its call number `last`. */
  function dyingAt(last: number, isCarriedOut: boolean) {
    let calls = 0;
    const dying = NAMES.map((name) => [
      name,
      failingDatabase(name, async (_, go) => {
        calls++;
        if (calls < last) return go();
        if (calls === last && isCarriedOut) await go();
        throw new Error("killed");
      }),
    ]);
    const bindings = { ...env, ...Object.fromEntries(dying) } as Env;
    return { bindings, calls: () => calls, isAlive: () => calls < last };
  }

  async function openSmall() {
    const workspace = await openWithLeads(1);
    const { workspaceId } = workspace;
    const runs = [runReport("1", await recordAutomation(workspaceId))];
    await Platform.recordRuns({ workspaceId, runs });
    return workspace;
  }

  test("wherever that is, leaves a move that the next one finishes", {
    timeout: 180_000,
  }, async () => {
    const whole = dyingAt(Number.POSITIVE_INFINITY, true);
    const { workspaceId } = await openSmall();
    await moveWorkspace(whole.bindings, workspaceId, "DB_3", always);
    expect(whole.calls()).toBeGreaterThan(25);
    // The simulation kills movers at every step, too.
    const deaths = Array.from({ length: Math.ceil(whole.calls() / 7) }, async (_, i) => {
      const { workspaceId, ids, leadIds, livesIn } = await openSmall();
      const { bindings, isAlive } = dyingAt(1 + 7 * i, i % 2 === 0);
      await moveWorkspace(bindings, workspaceId, "DB_3", isAlive).catch(() => {});
      // Whoever reads is served at once, whatever state that has left.
      expect(await leadIds()).toEqual(ids);
      for (const name of NAMES)
        await rowsIn(name, "UPDATE moves SET moved_until = 0 WHERE workspace_id = ?", workspaceId);
      await moved(workspaceId, "DB_3");
      await livesIn("DB_3");
      return workspaceId;
    });
    const workspaceIds = await Promise.all(deaths);
    await cleanUp();
    await cleanUp();
    for (const id of workspaceIds) expect(await homesOf(id)).toEqual(["DB_3"]);
  });
});

test("a move that was cancelled and is begun again brings back nothing that was erased in between", async () => {
  const { workspaceId, ids, leadIds } = await openWithLeads();
  await beginMoving(workspaceId, 5);
  await moved(workspaceId, "DB_2");
  await Platform.eraseLeads({ workspaceId, ids: ids.slice(0, 1) });
  const early = Platform.moveWorkspace({ workspaceId, database: "DB_3" });
  expect(await errorOf(early)).toContain("what this workspace left in DB_3 is still being deleted");
  await cleanUp();
  await moved(workspaceId, "DB_3");
  expect(await leadIds()).toEqual(ids.slice(1));
});

test("a move that another call cancels is not begun again by the one that began it", async () => {
  const { workspaceId } = await openWithLeads();
  const late = await hangMover(workspaceId, ["DB_2", /^update "moves" set .*"moved_by"/]);
  await moved(workspaceId, "DB_2");
  await late.release();
  expect(await late.moving).toEqual({ done: false, state: null });
});

test("what a cancelled move has copied is deleted, even while another move is on", async () => {
  const { workspaceId } = await openWithLeads();
  await beginMoving(workspaceId, 5);
  await moved(workspaceId, "DB_2");
  await moveWorkspace(env, workspaceId, "DB", () => false);
  await continueMove(env, "DB_3", workspaceId, always);
  expect(await tablesWith("DB_3", workspaceId)).toEqual(["workspaces"]);
  await moved(workspaceId, "DB_2");
});

test("a key that is first used right before its workspace moves is served where that lives afterwards", async () => {
  const { workspaceId, ids, record } = await openWithLeads();
  const api = openApi((await Platform.createApiKey({ workspaceId })).apiKey);
  const late = await hangMover(workspaceId, ["DB_2", /update "moves" set "state" = \?/]);
  expect((await api.get("/v1/leads")).status).toBe(200);
  await late.release();
  expect(await late.moving).toEqual({ done: true, state: null });
  await record();
  const { body } = await api.get<{ data: unknown[] }>("/v1/leads");
  expect(body.data).toHaveLength(ids.length);
});

test("what is due for deletion in a workspace whose mover died stays, and fails no part of the sweep", async () => {
  const { workspaceId } = await openWithLeads(1);
  const ids = [await recordAutomation(workspaceId)];
  await Platform.removeAutomations({ workspaceId, ids });
  await Platform.eraseLeads({ workspaceId, references: ["never recorded"] });
  await rowsIn("DB_2", "UPDATE erased_leads SET erased_at = 1 WHERE workspace_id = ?", workspaceId);
  const later = Date.now() + 40 * DAY_MS;
  await dieClosed(workspaceId);
  const db = openDatabase(databaseOf("DB_2"));
  await cleanUpAutomations(db, () => true);
  await commit(db, forgetErasedLeads(Date.now()));
  await deleteExpired(db, parseRetention(env), later, always);
  for (const table of ["automations", "erased_leads", "events"]) {
    const count = `SELECT count(*) FROM ${table} WHERE workspace_id = ?`;
    expect(await valueIn("DB_2", count, workspaceId), table).toBe(1);
  }
  await moved(workspaceId, "DB_3");
});

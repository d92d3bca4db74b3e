import { describe, expect, test, vi } from "vitest";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { sweep } from "../../src/sweep.ts";
import { openedDataKeys } from "../../src/workspaces/data-keys.ts";
import {
  automationReport,
  errorOf,
  leadReport,
  Platform as platform,
  platformOf,
  runReport,
} from "../support/api.ts";
import {
  databaseOf,
  deploymentWith,
  NAMES,
  openSubscribedIn,
  openWorkspaceIn,
  rowsIn,
  tablesWith,
  unreachableDatabase,
  valueIn,
} from "../support/databases.ts";
import { HOUR_MS, isolated } from "../support/deliveries.ts";
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { cleanUp, hangMover, leaveMoves, moved, openWithLeads } from "../support/moves.ts";
import { type DatabaseName, useThreeDatabases } from "../support/placement.ts";
import { storeEvents } from "../support/stored-events.ts";

useThreeDatabases();

keepLog();

/** Expects that nothing is left anywhere of what has these ids. */
async function expectGone(...ids: string[]) {
  for (const name of NAMES) for (const id of ids) expect(await tablesWith(name, id)).toEqual([]);
}

/** Erases a workspace, of which then nothing is left anywhere. */
async function eraseAll(...[workspaceId, ...ids]: [string, ...string[]]) {
  expect(await platform.eraseWorkspace({ workspaceId })).toEqual({ done: true });
  await expectGone(workspaceId, ...ids);
}

test.each(["DB", "DB_2"] as const)(
  "a workspace of %s whose erasure was cut off gets no access, no keys and no leads",
  async (name) => {
    const { workspaceId, webhookId, api } = await openSubscribedIn(name);
    await cutOffErasure(workspaceId, name);
    const access = (granted: boolean) => platform.setWorkspaceAccess({ workspaceId, granted });
    const refusal = "workspaceId: this workspace is being erased";
    expect(await errorOf(access(true))).toContain(refusal);
    const granted = "SELECT access_granted FROM workspaces WHERE id = ?";
    expect(await valueIn(name, granted, workspaceId)).toBe(0);
    expect(await access(false)).toEqual({});
    expect(await errorOf(platform.createApiKey({ workspaceId }))).toContain(refusal);
    // An isolate that still knows the data key records leads: they are erased with the others.
    openedDataKeys.clear();
    const record = platform.recordLeads({ workspaceId, leads: [leadReport("late")] });
    expect(await errorOf(record)).toContain("no such workspace");
    const { items } = await platform.listApiKeys({ workspaceId });
    expect(items.filter(({ revokedAt }) => revokedAt === null)).toEqual([]);
    expect((await api.get("/v1/leads")).status).toBe(401);
    await eraseAll(workspaceId, webhookId);
  },
);

test("a call that was checked before an erasure began records nothing, and says why", async () => {
  const { workspaceId } = await openWorkspaceIn("DB");
  const slow = interposed(databaseOf("DB"), async ({ texts, go }) => {
    if (texts.some((text) => text.startsWith('insert into "leads"')))
      await cutOffErasure(workspaceId, "DB");
    return go();
  });
  const input = { workspaceId, leads: [leadReport("late")] };
  const recording = platformOf(deploymentWith({ DB: slow })).recordLeads(input);
  expect(await errorOf(recording)).toContain("workspaceId: this workspace is being erased");
  expect(await tablesWith("DB", workspaceId)).not.toContain("leads");
  await eraseAll(workspaceId);
});

/** Begins to erase a workspace, which is cut off before anything in its database is erased. */
async function cutOffErasure(workspaceId: string, database: DatabaseName) {
  const cut = interposed(databaseOf(database), async ({ texts, go }) =>
    texts.some((text) => text.startsWith('delete from "moves"')) ? expect.fail("cut off") : go(),
  );
  const cutOff = platformOf(deploymentWith({ [database]: cut }));
  const erasing = cutOff.eraseWorkspace({ workspaceId });
  expect(await errorOf(erasing)).toContain("cut off");
}

test("an erasure that was cut off leaves the time at which a key was revoked before", async () => {
  const { workspaceId, keyId } = await openWorkspaceIn("DB");
  await platform.revokeApiKey({ keyId });
  const before = await platform.listApiKeys({ workspaceId });
  await cutOffErasure(workspaceId, "DB");
  expect(await platform.listApiKeys({ workspaceId })).toEqual(before);
  await eraseAll(workspaceId);
});

test("a workspace is erased where it lives and where it has been: nothing is written to what it left", async () => {
  const { workspaceId } = await openSubscribedIn("DB");
  await platform.recordLeads({ workspaceId, leads: [leadReport("left")] });
  await platform.updateWorkspace({ workspaceId, adminEmails: ["left@example.com"] });
  await moved(workspaceId, "DB_2");
  await cutOffErasure(workspaceId, "DB_2");
  // As somebody does who looked up long ago where it lives.
  const write = "UPDATE events SET created_at = 0 WHERE workspace_id = ?";
  await expect(rowsIn("DB", write, workspaceId)).rejects.toThrow("moving: try again");
  await cleanUp();
  expect(await tablesWith("DB", workspaceId)).toEqual(["api_keys", "workspaces"]);
  const left =
    "SELECT json_array(name, admin_emails, sealed_data_key) FROM workspaces WHERE id = ?";
  expect(await valueIn("DB", left, workspaceId)).toBe('["","[]",null]');
  const refusal = "workspaceId: this workspace is being erased";
  expect(await errorOf(platform.createApiKey({ workspaceId }))).toContain(refusal);
  await eraseAll(workspaceId);
});

describe("an erasure that ran out of time", () => {
  /** What has moved from DB_2 to DB_3, where its erasure is done; in DB_2, it has only begun. */
  async function halfErased() {
    const { workspaceId, webhookId } = await openSubscribedIn("DB_2");
    const soon = Date.now() + HOUR_MS;
    await storeEvents(workspaceId, webhookId, 1_100, soon, "pending");
    await moved(workspaceId, "DB_3");
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 60_000));
    const left = () => tablesWith("DB_3", workspaceId);
    while ((await left()).length > 0) await platform.eraseWorkspace({ workspaceId });
    clock.mockRestore();
    return workspaceId;
  }

  test("is finished by the sweep in a database that was unreachable when it was called again", async () => {
    const workspaceId = await halfErased();
    const away = platformOf(deploymentWith({ DB_2: unreachableDatabase("rejects") }));
    expect(await away.eraseWorkspace({ workspaceId })).toMatchObject({ done: true });
    expect((await tablesWith("DB_2", workspaceId)).length).toBeGreaterThan(1);
    await leaveMoves();
    await sweep(isolated().env, Date.now());
    expect(
      (await tablesWith("DB_2", workspaceId)).filter((table) => table !== "workspaces"),
    ).toEqual([]);
  });
});

test("a workspace is erased though its move was cancelled after it had arrived", async () => {
  const { workspaceId } = await openWithLeads();
  const hung = await hangMover(workspaceId, ["DB", /set "database"/]);
  await platform.moveWorkspace({ workspaceId, database: "DB_2" });
  await eraseAll(workspaceId);
  await hung.release();
  await expectGone(workspaceId);
});

describe("erasing a workspace of another database", () => {
  /** A workspace with rows in every table that can contain any. */
  async function openFull() {
    const workspace = await openSubscribedIn("DB_2", { events: WebhookEvent.options });
    const { workspaceId, webhookId } = workspace;
    const platform = platformOf(isolated().env);
    const automations = [automationReport("a")];
    const { ids } = await platform.recordAutomations({ workspaceId, automations });
    await platform.recordLeads({ workspaceId, leads: [leadReport("l1", { name: "Zoé Larrieu" })] });
    await platform.recordRuns({ workspaceId, runs: [runReport("r1", ids[0] ?? "")] });
    await platform.rotateWebhookSecret({ webhookId });
    return workspace;
  }

  test("keeps its keys and its entry until its own database is done", async () => {
    const { workspaceId, webhookId } = await openFull();
    await storeEvents(workspaceId, webhookId, 1_100, Date.now(), "delivered");
    let now = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 60_000));
    const outOfTime = platformOf(deploymentWith({}));
    const { done } = await outOfTime.eraseWorkspace({ workspaceId });
    clock.mockRestore();
    expect(done).toBe(false);
    expect(await tablesWith("DB", workspaceId)).toEqual(["api_keys", "workspaces"]);
    const move = platform.moveWorkspace({ workspaceId, database: "DB_3" });
    expect(await errorOf(move)).toContain("this workspace is being erased");
    expect(await tablesWith("DB_2", workspaceId)).not.toContain("moves");
    await eraseAll(workspaceId, webhookId);
  });

  const { DB_2, DB_3, ...one } = deploymentWith({}) as Env & Record<string, unknown>;

  test.each([
    [
      "not bound, even if only one is",
      one as Env,
      /^eraseWorkspace: database: no database is bound as DB_2, only as DB$/,
      401,
    ],
    ["unreachable", deploymentWith({ DB_2: unreachableDatabase("rejects") }), /overloaded/, 200],
  ])(
    "is not done while its database is %s, and continues then",
    async (_, cutOff, error, status) => {
      const { workspaceId, api } = await openFull();
      expect(await errorOf(platformOf(cutOff).eraseWorkspace({ workspaceId }))).toMatch(error);
      expect((await api.get("/v1/leads")).status).toBe(status);
      expect(await tablesWith("DB", workspaceId)).toContain("workspaces");
      expect(await tablesWith("DB_2", workspaceId)).toContain("leads");
      await eraseAll(workspaceId);
      expect((await api.get("/v1/leads")).status).toBe(401);
    },
  );
});

describe("a database that was restored to an earlier state", () => {
  test("without a workspace that is in the directory: the workspace can be erased", async () => {
    const { workspaceId, keyId, api } = await openWorkspaceIn("DB_2");
    await rowsIn("DB_2", "DELETE FROM workspaces WHERE id = ?", workspaceId);
    expect((await api.get("/v1/leads")).status).toBe(500);
    await eraseAll(workspaceId, keyId);
    expect((await api.get("/v1/leads")).status).toBe(401);
  });

  test("with a workspace that the directory has erased: it can be erased again, and sends nothing meanwhile", async () => {
    const { workspaceId, webhookId } = await openSubscribedIn("DB_2");
    await platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    await rowsIn("DB", "DELETE FROM api_keys WHERE workspace_id = ?", workspaceId);
    await rowsIn("DB", "DELETE FROM workspaces WHERE id = ?", workspaceId);
    const away = platformOf(deploymentWith({ DB_2: unreachableDatabase("rejects") }));
    expect(await errorOf(away.eraseWorkspace({ workspaceId }))).toContain("overloaded");
    expect(await tablesWith("DB_2", workspaceId)).toContain("leads");
    const states: unknown[] = [];
    const DB_2 = interposed(databaseOf("DB_2"), async ({ texts, go }) => {
      const state = `SELECT s.deleted_at IS NULL AS is_sent_to, w.access_granted, w.erasing FROM subscriptions AS s
        JOIN workspaces AS w ON w.id = s.workspace_id WHERE s.id = ?`;
      if (texts.some((text) => /^delete from/i.test(text)))
        states.push(...(await rowsIn("DB_2", state, webhookId)));
      return go();
    });
    await platformOf(deploymentWith({ DB_2 })).eraseWorkspace({ workspaceId });
    expect(states[0]).toEqual({ is_sent_to: 0, access_granted: 0, erasing: 1 });
    await eraseAll(workspaceId);
  });
});

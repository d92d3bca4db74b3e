import { evictDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { keyResults } from "../../src/rate-limit/gates.ts";
import type { KeyAdmission } from "../../src/rate-limit/key-gate.ts";
import { hashApiKey } from "../../src/rate-limit/key-text.ts";
import {
  deployedAs,
  leadReport,
  openApi,
  Platform as platform,
  recordAutomation,
} from "../support/api.ts";
import {
  databaseOf,
  deploymentWith,
  NAMES,
  openWorkspaceIn,
  rowsIn,
  tablesWith,
  unreachableDatabase,
  WAYS,
} from "../support/databases.ts";
import { admitBeside } from "../support/gates.ts";
import { countHops } from "../support/hops.ts";
import { interposed, interposedObjects } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { cleanUp, hangMover, moved } from "../support/moves.ts";
import { type DatabaseName, useThreeDatabases } from "../support/placement.ts";

useThreeDatabases();

const lines = keepLog();

async function openGated(database: DatabaseName) {
  const workspace = await openWorkspaceIn(database);
  const keyHash = await hashApiKey(workspace.apiKey);
  const gate = () => env.KEY_GATE.getByName(keyHash);
  return { ...workspace, keyHash, gate, admit: () => gate().admit(keyHash) };
}

describe("the status of a key", () => {
  test("changes with access, which is stored in its workspace's database", async () => {
    const { workspaceId, admit, api, gate } = await openGated("DB_2");
    expect((await api.get("/v1/leads")).status).toBe(200);
    await platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await admit()).toMatchObject({ verdict: "access_denied" });
    expect((await api.get("/v1/leads")).status).toBe(403);
    await evictDurableObject(gate());
    expect((await api.get("/v1/leads")).status).toBe(403);
    const { apiKey } = await platform.createApiKey({ workspaceId });
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(403);
    await platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect((await api.get("/v1/leads")).status).toBe(200);
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(200);
    await platform.setWorkspaceAccess({ workspaceId, granted: false });
    await moved(workspaceId, "DB_3");
    expect((await openApi(apiKey).get("/v1/leads")).status).toBe(403);
  });

  test("is read again if access was withdrawn during the look-up", async () => {
    const { workspaceId, keyHash, gate } = await openGated("DB_2");
    let reads = 0;
    const admission = await admitBeside(gate(), keyHash, async (go) => {
      const found = await go();
      // This gate is told, because its look-up has marked the key as used.
      if (++reads === 1) await platform.setWorkspaceAccess({ workspaceId, granted: false });
      return found;
    });
    expect(admission).toMatchObject({ verdict: "access_denied" });
  });

  test("is looked up where the workspace is, if it moves during the look-up", async () => {
    const { workspaceId, keyHash, gate } = await openGated("DB_2");
    let reads = 0;
    const admission = await admitBeside(gate(), keyHash, async (go) => {
      if (++reads === 1) await moved(workspaceId, "DB_3");
      return go();
    });
    expect(admission).toMatchObject({ verdict: "admitted", database: "DB_3" });
  });

  test("is not kept if the key is first used right before the directory points elsewhere", async () => {
    const { workspaceId, admit } = await openGated("DB_2");
    const mover = await hangMover(workspaceId, ["DB", /^update "workspaces" set "database"/]);
    expect(await admit()).toMatchObject({ database: "DB_2" });
    await mover.release();
    expect(await admit()).toMatchObject({ database: "DB_3" });
  });
});

describe("network hops", () => {
  test.each(NAMES)("of a read in %s: two when cold, one when hot", async (database) => {
    const { workspaceId, apiKey } = await openGated(database);
    const id = await recordAutomation(workspaceId);
    const { overrides, taken } = countHops(databaseOf(database));
    const { DB, ...gates } = overrides;
    const api = openApi(apiKey, deployedAs({ ...env, ...gates, [database]: DB }));
    for (const expected of [2, 1, 1]) {
      expect((await api.get(`/v1/automations/${id}`)).status).toBe(200);
      expect(taken()).toBe(expected);
    }
  });

  test("of a hot read in DB_2 do not include the directory", async () => {
    const { workspaceId, apiKey, api } = await openGated("DB_2");
    await platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    await api.get("/v1/leads");
    const alone = deploymentWith({ DB: unreachableDatabase("hangs") });
    const without = openApi(apiKey, deployedAs(alone));
    expect((await without.get("/v1/leads")).body).toMatchObject({ data: [{ source: "social" }] });
  });
});

describe("an isolate that remembers a different database than the gate returns", () => {
  /** A workspace whose reads this isolate has made in one database, and that then lives in another one. */
  async function openRelocated(from: DatabaseName, to: DatabaseName) {
    const gated = await openGated(from);
    const { workspaceId, api, keyHash } = gated;
    const record = (reference: string) =>
      platform.recordLeads({ workspaceId, leads: [leadReport(reference, { name: reference })] });
    await record(`of ${from}`);
    expect((await api.get("/v1/leads")).body).toMatchObject({ data: [{ name: `of ${from}` }] });
    await moved(workspaceId, to);
    await record(`of ${to}`);
    expect(keyResults.beginEarlyRead(keyHash)?.known).toMatchObject({ database: from });
    return gated;
  }

  test("reads again from the right one, and discards the first result", async () => {
    const { api, keyHash } = await openRelocated("DB_2", "DB_3");
    for (let twice = 0; twice < 2; twice++) {
      const { body } = await api.get("/v1/leads");
      expect(body).toMatchObject({ data: [{ name: "of DB_3" }, { name: "of DB_2" }] });
      expect(keyResults.beginEarlyRead(keyHash)?.known).toMatchObject({ database: "DB_3" });
    }
  });

  test("reads from the right one, even if the gate does not say when it looked up the key", async () => {
    const { workspaceId, apiKey } = await openGated("DB_2");
    // As an object of a former version, which may run for minutes after a deployment.
    const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
      const { statusReadAt: _, ...former } = (await go()) as KeyAdmission;
      return former as Awaited<ReturnType<typeof go>>;
    });
    const api = openApi(apiKey, deployedAs({ ...env, KEY_GATE }));
    const idsShown = async () =>
      (await api.get<{ data: { id: string }[] }>("/v1/leads")).body.data.length;
    await platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    expect(await idsShown()).toBe(1);
    await moved(workspaceId, "DB_3");
    await platform.recordLeads({ workspaceId, leads: [leadReport("2")] });
    expect(await idsShown()).toBe(2);
  });

  test.each([
    ["a list, whole", "/v1/leads", { data: [{ source: "social" }] }],
    ["one record", "/v1/automations/{id}", { status: "active" }],
  ])("reads %s, even if the workspace returns during the read", async (_, path, expected) => {
    const { workspaceId, apiKey, api } = await openGated("DB_2");
    const automationId = await recordAutomation(workspaceId);
    await platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    expect((await api.get("/v1/leads")).status).toBe(200);
    await moved(workspaceId, "DB_3");
    await cleanUp();
    const mover = await hangMover(workspaceId, ["DB_2", /INSERT INTO "(automations|leads)"/], {
      to: "DB_2",
    });
    const [asked, returned] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
      asked.resolve();
      await returned.promise;
      return go();
    });
    const read = Promise.withResolvers<void>();
    const DB_2 = interposed(databaseOf("DB_2"), ({ go }) => go().finally(() => read.resolve()));
    const slow = openApi(apiKey, deployedAs({ ...deploymentWith({ DB_2 }), KEY_GATE }));
    const reading = slow.get(path.replace("{id}", automationId));
    // It has read from `DB_2` by then, which lacks these rows.
    await Promise.all([asked.promise, read.promise]);
    await mover.release();
    returned.resolve();
    expect(await reading).toMatchObject({ status: 200, body: expected });
  });

  test("writes to the right one", async () => {
    const { api } = await openRelocated("DB_2", "DB_3");
    const webhook = { url: "https://hooks.example/in", events: ["lead.created"] };
    const { status, body } = await api.post<{ id: string }>("/v1/webhooks", webhook);
    expect(status).toBe(201);
    const found = NAMES.map((name) => tablesWith(name, body.id));
    expect(await Promise.all(found)).toEqual([[], [], ["subscriptions"]]);
    expect((await api.get("/v1/webhooks")).body).toMatchObject({ data: [{ id: body.id }] });
  });

  test.each(WAYS)("does not fail if that one is unreachable: it %s", async (way) => {
    const { apiKey } = await openRelocated("DB_3", "DB_2");
    const { get } = openApi(apiKey, deployedAs(deploymentWith({ DB_3: unreachableDatabase(way) })));
    const data = [{ name: "of DB_2" }, { name: "of DB_3" }];
    expect((await get("/v1/leads")).body).toMatchObject({ data });
  });
});

test("a workspace in a database that is not bound only fails its own requests", async () => {
  const [broken, sound] = [await openGated("DB_2"), await openGated("DB_2")];
  const unbind = "UPDATE workspaces SET database = 'DB_7' WHERE id = ?";
  await rowsIn("DB", unbind, broken.workspaceId);
  expect((await broken.api.get("/v1/leads")).status).toBe(500);
  expect(lines.join("\n")).toContain("no database is bound as DB_7");
  expect((await sound.api.get("/v1/leads")).status).toBe(200);
  const { items } = await platform.listWorkspaces({});
  const shown = ({ workspaceId }: typeof sound) =>
    items.find((item) => item.workspaceId === workspaceId);
  expect(shown(broken)).toMatchObject({ name: null, database: "DB_7" });
  expect(shown(sound)).toMatchObject({ name: "Agence DB_2" });
});

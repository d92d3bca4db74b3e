import { beforeAll, describe, expect, test } from "vitest";
import { SUBSCRIPTIONS_MAX } from "../../src/contract/limits.ts";
import { isoTime } from "../../src/contract/time.ts";
import {
  deployedAs,
  errorOf,
  pagesOf,
  Platform as platform,
  platformOf,
  send,
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
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { type DatabaseName, useThreeDatabases } from "../support/placement.ts";
import { insertWorkspaces } from "../support/rows.ts";
import { shortenTimers } from "../support/timers.ts";

useThreeDatabases();

const lines = keepLog();

/** Fills a database with some megabytes. */
async function fill(name: DatabaseName, megabytes: number): Promise<void> {
  const db = databaseOf(name);
  await db.exec("CREATE TABLE IF NOT EXISTS ballast (bytes BLOB)");
  for (let i = 0; i < megabytes; i++)
    await db.prepare("INSERT INTO ballast VALUES (zeroblob(1000000))").run();
}

/** Where a workspace lives, according to the list. */
async function placementOf(workspaceId: string): Promise<string | undefined> {
  const { items } = await platform.listWorkspaces({});
  return items.find((item) => item.workspaceId === workspaceId)?.database;
}

describe("a new workspace", () => {
  // DB is the largest from here on, and DB_3 the smallest.
  beforeAll(async () => {
    await fill("DB", 4);
    await fill("DB_2", 2);
  });

  test.each(NAMES)("lives in the database given: %s", async (database) => {
    const { workspaceId } = await platform.createWorkspace({ name: "Agence", database });
    expect(await placementOf(workspaceId)).toBe(database);
    // And its entry in the directory.
    for (const name of NAMES)
      expect(await tablesWith(name, workspaceId)).toEqual(
        name === database || name === "DB" ? ["workspaces"] : [],
      );
  });

  test("is rejected in a database that is not bound", async () => {
    for (const database of ["DB_4", "DB_1", "KEY_GATE", "db_2", "__proto__"]) {
      const refused = platform.createWorkspace({ name: "Agence nulle part", database });
      const sentence = `createWorkspace: database: no database is bound as ${database}, only as DB, DB_2, DB_3`;
      expect(await errorOf(refused)).toBe(sentence);
    }
    expect(await tablesWith("DB", "Agence nulle part")).toEqual([]);
  });

  test("is in no list if its database rejects it", async () => {
    const listed = async () => (await platform.listWorkspaces({})).items;
    const before = await listed();
    const away = platformOf(deploymentWith({ DB_2: unreachableDatabase("rejects") }));
    const refused = away.createWorkspace({ name: "Agence", database: "DB_2" });
    expect(await errorOf(refused)).toContain("overloaded");
    expect(await listed()).toEqual(before);
  });

  test("whose creation fails halfway is named in the audit trail, and can be erased", async () => {
    const DB = interposed(databaseOf("DB"), ({ texts, go }) =>
      texts.some((text) => text.startsWith('insert into "workspaces"'))
        ? Promise.reject(new Error("D1_ERROR: D1 DB is overloaded."))
        : go(),
    );
    const away = platformOf(deploymentWith({ DB }));
    await errorOf(away.createWorkspace({ name: "Agence perdue", database: "DB_2" }));
    const stored = () => rowsIn("DB_2", "SELECT id FROM workspaces WHERE name = 'Agence perdue'");
    const [half] = await stored();
    const workspaceId = String(half?.id);
    const { items } = await platform.listAuditTrail({ workspaceId });
    expect(items).toMatchObject([{ method: "createWorkspace", result: "failed" }]);
    while (!(await platform.eraseWorkspace({ workspaceId })).done);
    expect(await stored()).toEqual([]);
  });

  test("lives in the smallest database by default", async () => {
    const { workspaceId } = await platform.createWorkspace({ name: "Agence" });
    expect(await placementOf(workspaceId)).toBe("DB_3");
    await fill("DB_3", 3);
    const next = await platform.createWorkspace({ name: "Agence" });
    expect(await placementOf(next.workspaceId)).toBe("DB_2");
  });

  test("is not created in a closed database, unless the call names it", async () => {
    const platform = platformOf({ ...deploymentWith({}), DATABASES_CLOSED: "DB_2, DB_3" } as Env);
    const { workspaceId } = await platform.createWorkspace({ name: "Agence" });
    expect(await placementOf(workspaceId)).toBe("DB");
    const named = await platform.createWorkspace({ name: "Agence", database: "DB_2" });
    expect(await placementOf(named.workspaceId)).toBe("DB_2");
  });

  test.each(["DB", "DB, DB_3"])(
    "is not created in a closed database if no open one responds, and the call may be repeated: %s",
    async (closed) => {
      const [second, third] = [unreachableDatabase("rejects"), unreachableDatabase("rejects")];
      const away = deploymentWith({ DB_2: second, DB_3: third });
      const key = btoa("p".repeat(32));
      const create = (name: string, DATABASES_CLOSED: string) =>
        send(
          "/platform/createWorkspace",
          {
            method: "POST",
            headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
            body: JSON.stringify({ name }),
          },
          deployedAs({ ...away, DATABASES_CLOSED, PLATFORM_KEYS: `crm:${key}` } as Env),
        );
      const { status, headers } = await create(`Agence sans ${closed}`, closed);
      expect([status, headers["retry-after"]]).toEqual([500, "5"]);
      expect(await tablesWith("DB", `Agence sans ${closed}`)).toEqual([]);
      expect((await create(`Agence avec ${closed}`, "DB_3")).status).toBe(200);
      expect(await tablesWith("DB", `Agence avec ${closed}`)).toEqual(["workspaces"]);
    },
  );

  test.each(WAYS)(
    "is not placed in a database that is unreachable, and lists show the others: it %s",
    async (way) => {
      const [here, there] = [await openWorkspaceIn("DB_3"), await openWorkspaceIn("DB_2")];
      const platform = platformOf(deploymentWith({ DB_2: unreachableDatabase(way) }));
      shortenTimers(5_000);
      const [created, listed, databases] = await Promise.all([
        platform.createWorkspace({ name: "Agence" }),
        platform.listWorkspaces({}),
        platform.databases({}),
      ]);
      expect(await placementOf(created.workspaceId)).toBe("DB_3");
      const shown = ({ workspaceId }: typeof here) =>
        listed.items.find((item) => item.workspaceId === workspaceId);
      expect(shown(here)).toMatchObject({ name: "Agence DB_3", accessGranted: true });
      expect(shown(there)).toEqual({
        workspaceId: there.workspaceId,
        database: "DB_2",
        createdAt: expect.any(String),
        name: null,
        accessGranted: null,
        webhooksMax: null,
      });
      const away = { sizeBytes: null, workspaces: null };
      const bound = { sizeBytes: expect.any(Number) };
      expect(databases.items).toMatchObject([bound, { database: "DB_2", ...away }, bound]);
      const logged = lines.map((line) => JSON.parse(line));
      const unreachable = logged.filter(({ event }) => event === "database_unreachable");
      expect(unreachable).toMatchObject(Array(3).fill({ database: "DB_2" }));
    },
  );

  test("has its name and settings only in its own database", async () => {
    const { workspaceId } = await platform.createWorkspace({
      name: "Agence Lumière",
      adminEmails: ["zoe@example.com"],
      database: "DB_2",
    });
    await platform.updateWorkspace({ workspaceId, name: "Agence Horizon", webhooksMax: 30 });
    expect(await tablesWith("DB", "zoe@example.com")).toEqual([]);
    expect(await tablesWith("DB", "Agence Horizon")).toEqual([]);
    const changed = { name: "Agence Horizon", webhooksMax: 30, database: "DB_2" };
    const [newest] = (await platform.listWorkspaces({})).items;
    expect(newest).toMatchObject({ workspaceId, ...changed });
  });
});

test("listWorkspaces pages through the workspaces of all databases, newest first, without gaps", async () => {
  const made = Array.from({ length: 110 }, (_, i) => ({
    workspaceId: `wks_paged_${1_000 + i}`,
    name: `wks_paged_${1_000 + i}`,
    database: NAMES[i % 3] as DatabaseName,
    accessGranted: i % 2 === 0,
    webhooksMax: SUBSCRIPTIONS_MAX,
    createdAt: isoTime(9e12 + i),
  }));
  const rows = made.map(({ name, database, accessGranted }, i) => ({
    id: name,
    name,
    accessGranted,
    createdAt: 9e12 + i,
    database: database === "DB" ? null : database,
  }));
  // The directory has all of them.
  await insertWorkspaces(rows, databaseOf("DB"));
  for (const name of ["DB_2", "DB_3"] as const) {
    const own = rows.filter(({ database }) => database === name);
    await insertWorkspaces(
      own.map((row) => ({ ...row, database: null })),
      databaseOf(name),
    );
  }
  const pages = await pagesOf((cursor) => platform.listWorkspaces({ cursor }));
  expect([pages.length, pages[0]?.length]).toEqual([2, 100]);
  const listed = pages.flat();
  expect(listed.slice(0, made.length)).toEqual(made.toReversed());
  expect(new Set(listed.map((item) => item.workspaceId)).size).toBe(listed.length);
  const clear = "DELETE FROM workspaces WHERE id LIKE 'wks_paged%'";
  for (const name of NAMES) await rowsIn(name, clear);
});

describe("databases", () => {
  test("shows how full each database is, and how many workspaces live in it", async () => {
    const before = (await platform.databases({})).items;
    await openWorkspaceIn("DB_2");
    const { items } = await platform.databases({});
    for (const [i, database] of NAMES.entries()) {
      const { meta } = await databaseOf(database).prepare("SELECT 1").run();
      expect(items[i]).toMatchObject({
        database,
        sizeBytes: meta.size_after,
        workspaces: (before[i]?.workspaces ?? 0) + (database === "DB_2" ? 1 : 0),
      });
    }
  });
});

import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { randomId } from "../../src/contract/ids.ts";
import { MINUTE_MS } from "../../src/contract/time.ts";
import { findServiceHealth } from "../../src/service-health.ts";
import { sweep } from "../../src/sweep.ts";
import { createDataKey } from "../../src/workspaces/data-keys.ts";
import { errorOf, leadReport, Platform as platform, platformOf } from "../support/api.ts";
import {
  databaseOf,
  deploymentWith,
  NAMES,
  openSubscribedIn,
  rowsIn,
  unreachableDatabase,
  WAYS,
} from "../support/databases.ts";
import { keepLog } from "../support/log-lines.ts";
import { useThreeDatabases } from "../support/placement.ts";
import { insertWorkspaces } from "../support/rows.ts";
import { shortenTimers } from "../support/timers.ts";

useThreeDatabases();

keepLog();

/** Waits until the ledger of a workspace shows these counts. */
function ledgerOf(workspaceId: string) {
  return expect.poll(() => platform.ledger({ workspaceId }), { timeout: 15_000 });
}

// That routes, the portal and other calls read and write there: the files of test/worker that use three databases.
test("a workspace of DB_2 is read and exported where it lives, with its keys from the directory", async () => {
  const { workspaceId, webhookId } = await openSubscribedIn("DB_2");
  const { ids } = await platform.recordLeads({ workspaceId, leads: [leadReport("l1")] });
  await ledgerOf(workspaceId).toMatchObject({ delivered: 1 });
  const found = await platform.findLeads({ workspaceId, reference: "l1" });
  expect(found).toMatchObject({ items: [{ id: ids[0] }] });
  const exported = (await platform.exportWorkspace({ workspaceId })).items;
  for (const kind of ["api_key", "workspace", "lead"])
    expect(exported.filter((item) => item.kind === kind)).toHaveLength(1);
  expect((await platform.listApiKeys({ workspaceId })).items).toHaveLength(1);
  const move = await platform.moveWorkspace({ workspaceId, database: "DB_2" });
  expect(move).toMatchObject({ done: true });
  // Whose subscription it was is looked up in its database.
  await platform.deleteWebhook({ webhookId });
  const [last] = (await platform.listAuditTrail({ workspaceId })).items;
  expect(last).toMatchObject({ method: "deleteWebhook", ids: [webhookId] });
});

describe("a workspace of another database", () => {
  test("that does not exist is rejected in the same words as with one database", async () => {
    const workspaceId = "wks_nobody";
    const calls = [
      platform.recordLeads({ workspaceId, leads: [leadReport("1")] }),
      platform.createApiKey({ workspaceId }),
      platform.ledger({ workspaceId }),
    ];
    for (const sentence of await Promise.all(calls.map(errorOf)))
      expect(sentence).toMatch(/^[a-zA-Z]+: workspaceId: no such workspace$/);
    const unknown = await errorOf(platform.disableWebhook({ webhookId: "whk_nobody" }));
    expect(unknown).toBe("disableWebhook: webhookId: no such webhook");
  });

  test("is found by its webhook while another database is unreachable", async () => {
    const { webhookId } = await openSubscribedIn("DB_2");
    for (const way of WAYS) {
      const platform = platformOf(deploymentWith({ DB_3: unreachableDatabase(way) }));
      const startedAt = Date.now();
      expect(await platform.listDeliveries({ webhookId })).toMatchObject({ items: [] });
      // It does not wait for the database that is unreachable, which takes five seconds.
      expect(Date.now() - startedAt).toBeLessThan(4_900);
      shortenTimers(5_000);
      // It cannot know that the subscription does not exist.
      const sentence = await errorOf(platform.disableWebhook({ webhookId: "whk_nobody" }));
      expect(sentence).toMatch(way === "hangs" ? "DB_3 does not respond" : "overloaded");
      vi.restoreAllMocks();
    }
  });
});

test("a sweep of all databases is noted in DB alone", async () => {
  // Without a workspace, a missing sweep is no problem.
  await openSubscribedIn("DB_2");
  const later = Date.now() + 10 * MINUTE_MS;
  const bindings = deploymentWith({});
  const problems = async () =>
    (await findServiceHealth(bindings, later)).problems.filter((each) => each.includes("job"));
  expect(await problems()).toEqual([expect.stringMatching(/^DB: the scheduled job /)]);
  await sweep(bindings, later);
  expect(await problems()).toEqual([]);
});

test("the health of the service names a database that is not bound, if new workspaces live in it", async () => {
  await openSubscribedIn("DB_2");
  const older = Array.from({ length: 1_000 }, (_, createdAt) => ({
    id: randomId("workspace"),
    createdAt,
    // It is not among the newest thousand.
    database: createdAt === 0 ? "DB_8" : null,
  }));
  const newest = { id: randomId("workspace"), createdAt: Date.now(), database: "DB_9" };
  await insertWorkspaces([...older, newest], env.DB);
  const { problems } = await findServiceHealth(deploymentWith({}), Date.now());
  expect(problems.filter((each) => each.includes("bound"))).toEqual([
    "DB: workspaces live in DB_9, which is not bound",
  ]);
  await rowsIn("DB", "DELETE FROM workspaces WHERE id = ? OR created_at < 1000", newest.id);
});

describe("the ledger and the backlog", () => {
  test("add up over all databases, unless those of one do not", async () => {
    const ledgers = () =>
      Promise.all(
        [{}, ...NAMES.map((database) => ({ database }))].map((of) => platform.ledger(of)),
      );
    const figures = async () => {
      const backlogs = [await platform.backlog({}), await platform.backlog({ database: "DB_3" })];
      const counted = (await ledgers()).map(({ addsUp, ...counts }) => {
        expect(addsUp).toBe(true);
        return [counts.created, counts.delivered, counts.pending];
      });
      return [...counted, backlogs.map(({ pending }) => pending)].flat();
    };
    const before = await figures();
    const opened = [];
    for (const [i, database] of NAMES.entries()) {
      const behaviour = i === 0 ? "ok" : "status-500";
      const { workspaceId } = await openSubscribedIn(database, { behaviour });
      const leads = [leadReport("1"), leadReport("2"), leadReport("3")].slice(i);
      await platform.recordLeads({ workspaceId, leads });
      opened.push(workspaceId);
    }
    const [first = "", second = "", third = ""] = opened;
    await ledgerOf(first).toMatchObject({ delivered: 3 });
    const more = [
      [6, 3, 3],
      [3, 3, 0],
      [2, 0, 2],
      [1, 0, 1],
      [3, 1],
    ].flat();
    expect((await figures()).map((count, i) => count - (before[i] ?? 0))).toEqual(more);
    expect(await platform.ledger({ workspaceId: second })).toMatchObject({
      created: 2,
      pending: 2,
    });
    const last = "SELECT max(event_id) FROM deliveries WHERE workspace_id = ?";
    await rowsIn("DB_3", `DELETE FROM deliveries WHERE event_id = (${last})`, third);
    expect((await ledgers()).map(({ addsUp }) => addsUp)).toEqual([false, true, true, false]);
    expect(await platform.eraseWorkspace({ workspaceId: third })).toMatchObject({ done: true });
    expect((await platform.ledger({})).addsUp).toBe(true);
  });
});

test("resealSecrets re-encrypts 100 data keys in a call, and counts the others, in all databases", async () => {
  const withKey = async () => {
    const id = randomId("workspace");
    return { id, sealedDataKey: await createDataKey(env.ENCRYPTION_KEYS, id) };
  };
  for (const name of ["DB_2", "DB_3"] as const)
    await insertWorkspaces(
      await Promise.all(Array.from({ length: 110 }, withKey)),
      databaseOf(name),
    );
  const ENCRYPTION_KEYS = `new:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=,${env.ENCRYPTION_KEYS}`;
  const rotated = platformOf({ ...env, ENCRYPTION_KEYS } as Env);
  const first = await rotated.resealSecrets({});
  expect(first).toMatchObject({ resealed: 100, unreadable: 0 });
  let others = 0;
  for (let call = first; call.remaining > 0; others += call.resealed)
    call = await rotated.resealSecrets({});
  expect([others >= 120, first.remaining]).toEqual([true, others]);
});

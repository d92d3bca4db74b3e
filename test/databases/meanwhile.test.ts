import {
  createExecutionContext,
  runInDurableObject,
  waitOnExecutionContext,
} from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { commit, openDatabase } from "../../src/db/client.ts";
import { leads } from "../../src/db/schema.ts";
import { openedDataKeys } from "../../src/encryption/personal-data.ts";
import { Platform as PlatformEntrypoint } from "../../src/platform/entrypoint.ts";
import { hashApiKey } from "../../src/quota/api-key.ts";
import type { KeyGate } from "../../src/quota/key-gate.ts";
import { sweep } from "../../src/sweep.ts";
import { ownedTable } from "../../src/workspaces/manifest.ts";
import { listMoves } from "../../src/workspaces/moves.ts";
import {
  COPIED_BYTES_AT_ONCE,
  findChanges,
  findPiece,
} from "../../src/workspaces/moving/copying.ts";
import { moveWorkspace } from "../../src/workspaces/moving/move.ts";
import {
  errorOf,
  exportAll,
  leadReport,
  openApi,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../support/api.ts";
import {
  type DatabaseName,
  databaseOf,
  deploymentWith,
  NAMES,
  rowsIn,
  tablesWith,
  unreachableDatabase,
  valueIn,
} from "../support/databases.ts";
import { consumeBodies, isolated, subscriberUrl } from "../support/deliveries.ts";
import { failingDatabase } from "../support/failing.ts";
import { hangingBefore } from "../support/hanging.ts";
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { lossyDatabase } from "../support/lost-reply.ts";
import { mailbox } from "../support/mailbox.ts";
import { meteredDatabase } from "../support/metered-database.ts";
import {
  allDelivered,
  beginMoving,
  cleanUp,
  copyAll,
  dieClosed,
  expireLeases,
  hangMover,
  moved,
  openWithLeads,
  placementOf,
} from "../support/moves.ts";

const { Platform } = exports;
/** Owes a subscription all its deliveries again. */
const OWE = "UPDATE deliveries SET state = 'pending', due_at = 0 WHERE subscription_id = ?";
const lines = keepLog();

const insertNotice = (workspaceId: string, webhookId: string) =>
  rowsIn(
    "DB_2",
    `INSERT INTO notices (kind, workspace_id, subscription_id, host, events, failing_since, created_at, due_at)
        VALUES ('disabled', ?, ?, 'a.example', '[]', 1, 2, 3)`,
    workspaceId,
    webhookId,
  );

describe("while a workspace is copied", () => {
  test("leads that are erased are erased there, however much goes with them", async () => {
    const { workspaceId, api } = await openWorkspace();
    const events = ["lead.created"];
    // More changes than are copied at once.
    for (let i = 0; i < 8; i++) await api.post("/v1/webhooks", { url: subscriberUrl(), events });
    const automationId = await recordAutomation(workspaceId);
    const leads = Array.from({ length: 100 }, (_, i) =>
      leadReport(`lead-${i}`, { name: "Zoé Larrieu" }),
    );
    const { ids } = await Platform.recordLeads({ workspaceId, leads });
    const runs = ids.map((leadId, i) => runReport(`run-${i}`, automationId, { leadId }));
    await Platform.recordRuns({ workspaceId, runs });
    await allDelivered(workspaceId, 800);
    await copyAll(workspaceId);
    expect(await tablesWith("DB_3", ids[50] ?? "?")).toContain("leads");
    await Platform.eraseLeads({ workspaceId, ids: ids.slice(1) });
    await moved(workspaceId, "DB_3");
    expect((await api.get<{ data: unknown[] }>("/v1/leads")).body.data).toHaveLength(1);
    const list = await api.get<{ data: { lead_id: string | null }[] }>("/v1/runs?limit=100");
    expect(list.body.data.filter(({ lead_id }) => lead_id !== null)).toHaveLength(1);
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 8, addsUp: true });
  });

  test("what is written meanwhile is copied in pieces that fit into memory", async () => {
    const { workspaceId } = await openWithLeads();
    await copyAll(workspaceId);
    const text = "x".repeat(60_000);
    const leads = Array.from({ length: 50 }, (_, i) =>
      leadReport(`large-${i}`, { customFields: { text } }),
    );
    await Platform.recordLeads({ workspaceId, leads });
    const changed = await commit(openDatabase(databaseOf("DB_2")), findChanges(workspaceId));
    expect(changed?.isAll).toBe(false);
    expect(JSON.stringify(changed?.tables.map(({ rows }) => rows)).length).toBeLessThan(
      COPIED_BYTES_AT_ONCE + 2 * text.length,
    );
    await moved(workspaceId, "DB_3");
    await allDelivered(workspaceId, 53);
  });

  test("of rows that do not fit into a piece, only the size is read", async () => {
    const { workspaceId } = await openWorkspace();
    const text = "x".repeat(60_000);
    const large = Array.from({ length: 100 }, (_, i) =>
      leadReport(String(i), { customFields: { text } }),
    );
    await Platform.recordLeads({ workspaceId, leads: large });
    const { DB, rows } = meteredDatabase();
    const piece = await commit(openDatabase(DB), findPiece(workspaceId, ownedTable(leads), null));
    expect(piece.rows).toHaveLength(9);
    // Four rows each: five if their large parts were read, too.
    expect(rows.read).toBeLessThan(4.5 * large.length);
  });

  test("secrets that are resealed are resealed there, too, and those left behind stop nobody", async () => {
    const { workspaceId, webhookId } = await openWithLeads();
    await Platform.rotateWebhookSecret({ webhookId });
    await copyAll(workspaceId);
    const rotated = `next:${btoa("n".repeat(32))},${env.ENCRYPTION_KEYS}`;
    const reseal = (keys: string) =>
      new PlatformEntrypoint(createExecutionContext(), {
        ...env,
        ENCRYPTION_KEYS: keys,
      }).resealSecrets({});
    while ((await reseal(rotated)).remaining > 0);
    await moved(workspaceId, "DB_3");
    const sealed = await rowsIn<{ sealed_secret: string }>(
      "DB_3",
      "SELECT sealed_secret FROM subscriptions WHERE id = ?1 UNION SELECT sealed_secret FROM earlier_secrets WHERE subscription_id = ?1",
      webhookId,
    );
    expect(sealed.map((row) => row.sealed_secret.slice(0, 5))).toEqual(["next.", "next."]);
    // What was left behind is under the former key, and is no secret any more.
    expect(await reseal(`other:${btoa("o".repeat(32))},${rotated}`)).toMatchObject({
      remaining: 0,
      unreadable: expect.any(Number),
    });
  });

  test("a data key is not left behind, where it would stay encrypted under a former key", async () => {
    const { workspaceId } = await openWithLeads();
    await moved(workspaceId, "DB_3");
    await cleanUp();
    const read = "SELECT data_key FROM workspaces WHERE id = ?";
    const keys = await Promise.all(NAMES.map((name) => valueIn(name, read, workspaceId)));
    expect(keys.map((key) => key ?? null)).toEqual([null, null, expect.stringMatching(/^test\./)]);
  });

  test("e-mails that are sent, or owed to more administrators, are so there, too", async () => {
    const { workspaceId, webhookId } = await openWithLeads();
    await insertNotice(workspaceId, webhookId);
    const db = databaseOf("DB_2");
    await db.exec("UPDATE notices SET sent_at = 4 WHERE sent_at IS NULL");
    const add = db.prepare(
      "INSERT INTO emails (notice_id, recipient, due_at) SELECT id, ?, 9e12 FROM notices WHERE subscription_id = ?",
    );
    await add.bind("first@example.com", webhookId).run();
    await copyAll(workspaceId);
    await add.bind("second@example.com", webhookId).run();
    await beginMoving(workspaceId, 1);
    await db.exec("UPDATE emails SET state = 'sent' WHERE recipient = 'first@example.com'");
    await moved(workspaceId, "DB_3");
    const copied = await rowsIn(
      "DB_3",
      "SELECT recipient, state FROM emails WHERE recipient IN ('first@example.com', 'second@example.com') ORDER BY 1",
    );
    expect(copied).toEqual([
      { recipient: "first@example.com", state: "sent" },
      { recipient: "second@example.com", state: "owed" },
    ]);
  });

  test("the move ends though there is always something new", { timeout: 150_000 }, async () => {
    const { workspaceId } = await openWithLeads();
    let n = 0;
    const DB_2 = failingDatabase("DB_2", async (_, go) => {
      // Beside each step of the mover, the platform takes one.
      const leads = [leadReport(`more-${n++}`)];
      const recorded = Platform.recordLeads({ workspaceId, leads }).catch(() => {});
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
  const platform = new PlatformEntrypoint(createExecutionContext(), deploymentWith({ DB_2 }));
  await platform.rotateWebhookSecret({ webhookId, overlapSeconds: 3_600 });
  expect(await sealedIn("DB_3")).toBe(await sealedIn("DB_2"));
});

test("what is written at the switch is known, and wakes its deliveries, in the other database", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  const slow = hangingBefore(
    (name, sql) => name === "DB" && /update "workspaces" set "database"/.test(sql),
  );
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

test("leads move with their data key, which is left nowhere", async () => {
  const { workspaceId, api } = await openWithLeads(2);
  const shown = async () => {
    openedDataKeys.clear();
    return (await api.get("/v1/leads")).body;
  };
  const before = await shown();
  const keyIn = async (name: DatabaseName) =>
    (await valueIn<string>(name, "SELECT data_key FROM workspaces WHERE id = ?", workspaceId)) ??
    null;
  const dataKey = await keyIn("DB_2");
  for (const [from, to] of [
    ["DB_2", "DB_3"],
    ["DB_3", "DB_2"],
  ] as const) {
    await moved(workspaceId, to);
    await cleanUp();
    expect(await shown()).toEqual(before);
    expect([await keyIn(from), await keyIn(to)]).toEqual([null, dataKey]);
  }
});

describe("a mover that runs out of time", () => {
  test("does not leave writes waiting for the next one", async () => {
    const { workspaceId } = await openWithLeads();
    // It has time until the workspace is closed.
    let isClosed = false;
    const watching = hangingBefore((name, sql) => {
      if (name === "DB_3" && /update "workspaces"/.test(sql)) isClosed = true;
      return false;
    });
    const closing = () => !isClosed && !lines.some((line) => line.includes('"state":"closed"'));
    await moveWorkspace(watching.env, workspaceId, "DB_3", closing);
    expect(await placementOf(workspaceId)).toBe("DB_3");
    expect(await Platform.recordLeads({ workspaceId, leads: [leadReport("1")] })).toBeTruthy();
  });

  test("does not leave deliveries waiting for the next one", async () => {
    const { workspaceId, webhookId } = await openWithLeads();
    // Somebody holds a subscription for a while.
    const hold = "UPDATE subscriptions SET held_by = 'x', held_until = ? WHERE id = ?";
    await rowsIn("DB_2", hold, Date.now() + 20_000, webhookId);
    await rowsIn("DB_2", OWE, webhookId);
    let steps = 0;
    const { env: bindings, fast } = isolated();
    const { state } = await moveWorkspace(bindings, workspaceId, "DB_3", () => ++steps < 20);
    expect(lines.join()).toContain('"state":"draining"');
    expect(state).toBe("copying");
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

describe("a database that a workspace has left, or is closed in", () => {
  test("sends the e-mails of the others, and those of the workspace are sent where it lives", async () => {
    const leaving = await openWithLeads();
    const staying = await openWithLeads();
    for (const { workspaceId } of [leaving, staying])
      await Platform.updateWorkspace({ workspaceId, adminEmails: [`${workspaceId}@example.com`] });
    await insertNotice(leaving.workspaceId, leaving.webhookId);
    await copyAll(leaving.workspaceId);
    const box = mailbox();
    const queues = isolated().env;
    const bindings = {
      ...box.env,
      DELIVERIES: queues.DELIVERIES,
      REDELIVERIES: queues.REDELIVERIES,
      // Its sweep comes later.
      DB_2: unreachableDatabase("rejects"),
    } as Env;
    await sweep(bindings, Date.now()).catch(() => {});
    await dieClosed(leaving.workspaceId);
    await insertNotice(staying.workspaceId, staying.webhookId);
    await sweep({ ...bindings, DB_2: databaseOf("DB_2") } as Env, Date.now());
    await moved(leaving.workspaceId, "DB_3");
    await insertNotice(staying.workspaceId, "whk_other");
    await sweep({ ...bindings, DB_2: databaseOf("DB_2") } as Env, Date.now());
    expect(box.sent.map(({ to }) => to).sort()).toEqual(
      [leaving, staying, staying].map(({ workspaceId }) => `${workspaceId}@example.com`).sort(),
    );
  });

  test("delivers what the others are owed, beside a withdrawn subscription of the workspace", async () => {
    const leaving = await openWithLeads();
    const staying = await openWithLeads();
    const db = databaseOf("DB_2");
    await moved(leaving.workspaceId, "DB_3");
    // As a withdrawal that was not finished leaves it.
    const release =
      "UPDATE subscriptions SET held_until = 0, cancelling = ?, generation = ? WHERE id = ?";
    await db.batch([
      db.prepare("UPDATE workspaces SET erasing = 1 WHERE id = ?").bind(leaving.workspaceId),
      db.prepare(release).bind(1, 9, leaving.webhookId),
      db.prepare(OWE).bind(leaving.webhookId),
      db.prepare(release).bind(0, 0, staying.webhookId),
      db.prepare(OWE).bind(staying.webhookId),
      db.prepare("UPDATE workspaces SET erasing = 0 WHERE id = ?").bind(leaving.workspaceId),
    ]);
    const { env: bindings, fast, slow } = isolated();
    const bodies = [leaving, staying].map(({ webhookId }) => ({
      subscriptionId: webhookId,
      lane: "fast",
      database: "DB_2",
    }));
    await consumeBodies(bodies, bindings);
    const { workspaceId } = staying;
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ pending: 0 });
    // Nobody is woken again and again for what is deleted here.
    const woken = () => [...fast, ...slow].map(({ subscriptionId }) => subscriptionId);
    expect(woken()).not.toContain(leaving.webhookId);
    await sweep(bindings, Date.now() + 120_000);
    expect(woken()).not.toContain(leaving.webhookId);
  });

  test("expires the events of the others", async () => {
    const leaving = await openWithLeads();
    const staying = await openWithLeads();
    await moved(leaving.workspaceId, "DB_3");
    const db = databaseOf("DB_2");
    const later = Date.now() + 40 * 86_400_000;
    await db.batch([
      db
        .prepare("UPDATE moves SET since = ? WHERE workspace_id = ?")
        .bind(later, leaving.workspaceId),
      db.prepare("UPDATE workspaces SET erasing = 1 WHERE id = ?").bind(leaving.workspaceId),
      // Settled late: it is to be kept, and gets a time of its own.
      db
        .prepare("UPDATE deliveries SET settled_at = ? WHERE subscription_id = ?")
        .bind(later, leaving.webhookId),
      db.prepare("UPDATE workspaces SET erasing = 0 WHERE id = ?").bind(leaving.workspaceId),
    ]);
    await sweep(isolated().env, later);
    const { workspaceId } = staying;
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 0 });
  });
});

test("a workspace that has come back is measured again", async () => {
  const { workspaceId, ids } = await openWithLeads();
  const measured = async (name: DatabaseName) => {
    await sweep(isolated().env, Date.now() + 180_000);
    const read = "SELECT sized_bytes FROM workspaces WHERE id = ?";
    return Number(await valueIn<number>(name, read, workspaceId));
  };
  const before = await measured("DB_2");
  await moved(workspaceId, "DB_3");
  await cleanUp();
  await Platform.eraseLeads({ workspaceId, ids: ids.slice(1) });
  const bytes = await measured("DB_3");
  expect(bytes).toBeGreaterThan(0);
  expect(bytes).toBeLessThan(before);
  await moved(workspaceId, "DB_2");
  expect(await measured("DB_2")).toBe(bytes);
});

describe("moveWorkspace", () => {
  test("of one that has just arrived elsewhere, moves it on", async () => {
    const { workspaceId, leadIds, ids } = await openWithLeads();
    // The mover dies before everybody knows.
    await hangMover(workspaceId, ["DB_2", /update "workspaces"/]);
    await moved(workspaceId, "DB");
    expect(await placementOf(workspaceId)).toBe("DB");
    expect(await leadIds()).toEqual(ids);
  });

  test("is not done when somebody else has ended the move", async () => {
    const { workspaceId } = await openWithLeads();
    let isEnded = false;
    const slow = hangingBefore(
      (name, sql) => name === "DB_3" && /INSERT OR REPLACE INTO "leads"/.test(sql),
    );
    const moving = moveWorkspace(slow.env, workspaceId, "DB_3", () => !isEnded);
    await slow.hung;
    await expireLeases();
    await moved(workspaceId, "DB_2");
    isEnded = true;
    slow.release();
    expect(await moving).toEqual({ done: false, state: null });
  });

  test("back to where it lives waits for the mover at work, and frees the workspace though the other database is unreachable", async () => {
    const { workspaceId } = await openWithLeads();
    await beginMoving(workspaceId, 5);
    const unreachable = deploymentWith({ DB_3: unreachableDatabase("rejects") });
    const ended = await moveWorkspace(unreachable, workspaceId, "DB_2", () => true);
    expect(ended).toEqual({ done: true, state: null });
    await Platform.recordLeads({ workspaceId, leads: [leadReport("more")] });
    await allDelivered(workspaceId, 4);
    expect(await tablesWith("DB_3", workspaceId)).toContain("leads");
    await sweep(isolated().env, Date.now());
    expect(await tablesWith("DB_3", workspaceId)).toEqual(["workspaces"]);
  });
});

describe("eraseWorkspace", () => {
  test("erases what a move has just left behind", async () => {
    const { workspaceId } = await openWithLeads();
    await moved(workspaceId, "DB_3");
    expect(await Platform.eraseWorkspace({ workspaceId })).toEqual({ done: true, remaining: 0 });
    for (const name of NAMES) expect(await tablesWith(name, workspaceId)).toEqual([]);
  });

  test.each(["rejects", "hangs"] as const)(
    "needs no database that the workspace does not live in: it %s",
    async (way) => {
      const { workspaceId } = await openWithLeads();
      const platform = new PlatformEntrypoint(
        createExecutionContext(),
        deploymentWith({ DB_3: unreachableDatabase(way) }),
      );
      expect(await platform.eraseWorkspace({ workspaceId })).toEqual({ done: true, remaining: 0 });
      for (const name of NAMES) expect(await tablesWith(name, workspaceId)).toEqual([]);
    },
  );

  test("that has begun keeps the workspace where it is", async () => {
    const { workspaceId } = await openWithLeads();
    // It is interrupted right after it has begun.
    const half = hangingBefore((name, sql) => name === "DB_2" && /DELETE FROM "events"/.test(sql));
    const erasing = new PlatformEntrypoint(createExecutionContext(), half.env).eraseWorkspace({
      workspaceId,
    });
    await half.hung;
    const moving = Platform.moveWorkspace({ workspaceId, database: "DB_3" });
    expect(await errorOf(moving)).toContain("workspaceId: this workspace is being erased");
    half.release();
    expect(await erasing).toEqual({ done: true, remaining: 0 });
    for (const name of NAMES) expect(await tablesWith(name, workspaceId)).toEqual([]);
  });
});

test("a key that is first used at the switch is served", async () => {
  const { workspaceId, ids } = await openWithLeads();
  const { apiKey } = await Platform.createApiKey({ workspaceId });
  const gate = env.KEY_GATE.getByName(await hashApiKey(apiKey));
  const verdict = await runInDurableObject(gate, async (object: KeyGate) => {
    const { DB_2 } = (object as unknown as { env: Record<string, D1Database> }).env as {
      DB_2: D1Database;
    };
    const open = DB_2.withSession.bind(DB_2);
    // It has read the directory when the workspace moves.
    const spy = vi.spyOn(DB_2, "withSession").mockImplementation((since) =>
      interposed(open(since as string), async ({ go }) => {
        await moved(workspaceId, "DB_3");
        return go();
      }),
    );
    const admission = await object.admit(await hashApiKey(apiKey));
    spy.mockRestore();
    return admission;
  });
  expect(verdict).toMatchObject({ verdict: "admitted", database: "DB_3" });
  const { body } = await openApi(apiKey).get<{ data: unknown[] }>("/v1/leads");
  expect(body.data).toHaveLength(ids.length);
});

test("an export that was begun before a move shows each notice once", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  const insert = databaseOf("DB_2").prepare(
    `INSERT INTO notices (kind, workspace_id, subscription_id, host, events, failing_since, created_at, due_at, sent_at)
      VALUES ('failing', ?, ?, 'a.example', ?, ?, 2, 3, 4)`,
  );
  // More than one page shows, and numbers that the other database does not give them.
  const bulky = JSON.stringify(["x".repeat(30_000)]);
  for (let i = 0; i < 60; i++) await insert.bind(workspaceId, webhookId, bulky, i).run();
  await databaseOf("DB_3").exec(
    "INSERT INTO notices (id, workspace_id, subscription_id, host, events, failing_since, created_at, due_at) VALUES (100000, '', '', '', '[]', 1, 2, 3); DELETE FROM notices WHERE id = 100000",
  );
  const pages = await exportAll(workspaceId, () => moved(workspaceId, "DB_3"));
  expect(pages.length).toBeGreaterThan(1);
  const notices = pages.flat().filter(({ kind }) => kind === "notice");
  const seen = notices.map(({ failingSince }) => failingSince);
  expect(seen).toHaveLength(60);
  expect(new Set(seen).size).toBe(60);
});

import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { advanceMove, continueMoves } from "../../src/moving/move.ts";
import { sweep } from "../../src/sweep.ts";
import {
  errorOf,
  leadReport,
  Platform,
  recordAutomation,
  refusal,
  runReport,
} from "../support/api.ts";
import {
  databaseOf,
  deploymentWith,
  openSubscribedIn,
  openWorkspaceIn,
  rowsIn,
  valueIn,
} from "../support/databases.ts";
import { answered, consumeBodies, DAY_MS, isolated, MINUTE_MS } from "../support/deliveries.ts";
import { failingDatabase } from "../support/failing.ts";
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import {
  allDelivered,
  cleanUp,
  countsOf,
  homesOf,
  moved,
  moveUntil,
  openWithLeads,
  stageOf,
  sweepMoves,
} from "../support/moves.ts";
import { useThreeDatabases } from "../support/placement.ts";
import { insertApiKeys } from "../support/rows.ts";

useThreeDatabases();

const lines = keepLog();
const always = () => true;

/** Makes a move look as if its last step was made `ms` ago. */
const leaveFor = (ms: number, workspaceId: string) =>
  rowsIn("DB", "UPDATE moves SET since = ? WHERE workspace_id = ?", Date.now() - ms, workspaceId);

/** The refusal of a write while its workspace is closed. */
const { status, body, headers } = refusal(500, "internal_error", { retry_after_seconds: 5 });
const REFUSED = { status, body, headers: { ...headers, "retry-after": "5" } };

test("while a workspace is copied, each write is rejected, not logged as an error, and nothing is sent", async () => {
  const { workspaceId, webhookId, api, ids, leadIds, livesIn } = await openWithLeads();
  const automationId = await recordAutomation(workspaceId);
  await rowsIn(
    "DB_2",
    "UPDATE deliveries SET state = 'pending', due_at = ? WHERE subscription_id = ?",
    Date.now(),
    webhookId,
  );
  await moveUntil(workspaceId, "copying");
  const url = "https://ok-webhooks.example/h";
  for (const answer of [
    await api.patch(`/v1/automations/${automationId}`, { status: "paused" }),
    await api.post("/v1/webhooks", { url, events: ["lead.created"] }),
    await api.delete(`/v1/webhooks/${webhookId}`),
  ])
    expect(answer).toEqual(REFUSED);
  expect(lines.filter((line) => line.includes('"status":500'))).toHaveLength(3);
  expect(lines.filter((line) => line.includes("request_failed"))).toEqual([]);
  const refused = [
    Platform.recordLeads({ workspaceId, leads: [leadReport("new")] }),
    Platform.recordRuns({ workspaceId, runs: [runReport("new", automationId)] }),
    Platform.removeAutomations({ workspaceId, ids: [automationId] }),
    Platform.eraseLeads({ workspaceId, ids: ids.slice(0, 1) }),
    Platform.updateWorkspace({ workspaceId, name: "Agence Horizon" }),
    Platform.setWorkspaceAccess({ workspaceId, granted: false }),
    Platform.disableWebhook({ webhookId }),
    Platform.rotateWebhookSecret({ webhookId }),
  ].map(errorOf);
  for (const error of await Promise.all(refused)) expect(error).toContain("moving: try again");
  for (const path of [`/v1/automations/${automationId}`, "/v1/runs", "/v1/webhooks"])
    expect((await api.get(path)).status).toBe(200);
  expect(await leadIds()).toEqual(ids);
  const { env: bindings, fast, slow } = isolated();
  await consumeBodies([{ subscriptionId: webhookId, queue: "fast", database: "DB_2" }], bindings);
  await sweep(bindings, Date.now() + 3 * MINUTE_MS);
  const woken = [...fast, ...slow].map(({ subscriptionId }) => subscriptionId);
  expect(woken).not.toContain(webhookId);
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ pending: 3, addsUp: true });
  await moved(workspaceId, "DB_2");
  await livesIn("DB_2");
});

test("while a workspace is copied, the scheduled job deletes nothing of it, and does not fail", async () => {
  const { workspaceId, webhookId, api, ids } = await openWithLeads();
  const automationId = await recordAutomation(workspaceId);
  await Platform.recordRuns({ workspaceId, runs: [runReport("old", automationId)] });
  await allDelivered(workspaceId, ids.length);
  await Platform.removeAutomations({ workspaceId, ids: [automationId] });
  await Platform.eraseLeads({ workspaceId, ids: ids.slice(0, 1) });
  expect((await api.delete(`/v1/webhooks/${webhookId}`)).status).toBe(204);
  await moveUntil(workspaceId, "copying");
  const before = await countsOf(workspaceId);
  // By then, all of these are past their retention.
  await sweep(isolated().env, Date.now() + 500 * DAY_MS);
  expect(lines.filter((line) => line.includes("sweep_failed"))).toEqual([]);
  expect(await countsOf(workspaceId)).toEqual(before);
  await moved(workspaceId, "DB_2");
});

test("a workspace leaves once its requests in progress have ended", async () => {
  const { workspaceId, webhookId, record, livesIn } = await openWithLeads();
  await rowsIn(
    "DB_2",
    "UPDATE deliveries SET state = 'pending', due_at = ? WHERE subscription_id = ?",
    Date.now(),
    webhookId,
  );
  const started = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  let requests = 0;
  const dispatched = consumeBodies(
    [{ subscriptionId: webhookId, queue: "fast", database: "DB_2" }],
    isolated().env,
    async () => {
      requests++;
      started.resolve();
      await answer.promise;
      return answered(200);
    },
  );
  await started.promise;
  let steps = 2;
  const progress = await advanceMove(env, workspaceId, "DB_3", () => --steps > 0);
  expect(progress).toMatchObject({ done: false, stage: "draining" });
  await record();
  answer.resolve();
  await dispatched;
  const lease = "SELECT leased_until FROM subscriptions WHERE id = ?";
  expect(await valueIn("DB_2", lease, webhookId)).toBe(0);
  const delivered =
    "SELECT count(*) FROM deliveries WHERE subscription_id = ? AND state = 'delivered'";
  expect(await valueIn("DB_2", delivered, webhookId)).toBe(requests);
  await moved(workspaceId, "DB_3");
  await livesIn("DB_3");
});

test("rows are counted while writes are still accepted", async () => {
  const { workspaceId, record } = await openWithLeads();
  let counted = 0;
  const DB_2 = interposed(databaseOf("DB_2"), async ({ texts, go }) => {
    if (texts.some((text) => text.includes("json_array_length")))
      await record(`counted-${counted++}`);
    return go();
  });
  const { rows } = await advanceMove(deploymentWith({ DB_2 }), workspaceId, "DB_3", () => false);
  expect(rows).toBeGreaterThan(0);
  expect(counted).toBe(1);
  await moved(workspaceId, "DB_2");
});

describe("a target that does not respond", () => {
  const DB_3 = failingDatabase("DB_3", () => Promise.reject(new Error("D1_ERROR: away")));
  const away = deploymentWith({ DB_3 });

  test("stops no write before the move has begun to copy", async () => {
    const { workspaceId, record } = await openWithLeads();
    expect(await errorOf(advanceMove(away, workspaceId, "DB_3", always))).toContain("away");
    await record();
    await moved(workspaceId, "DB_2");
    await record("again");
  });

  test("is given up by the sweep after five minutes: writes are accepted again", async () => {
    const { workspaceId, record } = await openWithLeads();
    await moveUntil(workspaceId, "copying");
    await leaveFor(MINUTE_MS, workspaceId);
    await expect(continueMoves(away, always)).rejects.toThrow("away");
    expect(await stageOf(workspaceId)).toBe("copying");
    await leaveFor(6 * MINUTE_MS, workspaceId);
    await sweep({ ...isolated().env, DB_3 } as Env, Date.now()).catch(() => {});
    expect(await stageOf(workspaceId)).toBeUndefined();
    await record();
    expect(lines.join()).toContain('"stage":"cancelled"');
  });
});

test("the sweep continues a move behind one that fails", async () => {
  const [failing, other] = [await openWithLeads(), await openWithLeads()];
  await moveUntil(failing.workspaceId, "copying");
  await advanceMove(env, other.workspaceId, "DB", () => false);
  await leaveFor(2 * MINUTE_MS, failing.workspaceId);
  await leaveFor(MINUTE_MS, other.workspaceId);
  const DB_3 = failingDatabase("DB_3", () => Promise.reject(new Error("D1_ERROR: away")));
  await expect(continueMoves(deploymentWith({ DB_3 }), always)).rejects.toThrow("away");
  expect(await stageOf(failing.workspaceId)).toBe("copying");
  await other.livesIn("DB");
  await moved(failing.workspaceId, "DB_2");
});

test("the sweep continues a move whose caller left 15 s ago, and wakes its deliveries", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  await rowsIn(
    "DB_2",
    "UPDATE deliveries SET state = 'pending', due_at = ? WHERE subscription_id = ?",
    Date.now(),
    webhookId,
  );
  await moveUntil(workspaceId, "copying");
  const { env: bindings, fast } = isolated();
  for (const [ms, stage] of [
    [5_000, "copying"],
    [15_000, "cleanup"],
  ] as const) {
    await leaveFor(ms, workspaceId);
    await sweep(bindings, Date.now());
    expect(await stageOf(workspaceId)).toBe(stage);
  }
  expect(fast).toMatchObject([{ subscriptionId: webhookId, database: "DB_3" }]);
  await consumeBodies(
    fast.map(({ delaySeconds: _, ...wake }) => wake),
    bindings,
  );
  await allDelivered(workspaceId, 3);
});

test("a retry that is due after a move is in the queue again, with the name of the new database", async () => {
  const { workspaceId, webhookId } = await openWithLeads(1);
  const dueAt = Date.now() + 30_000;
  // The message that arrives then is addressed to DB_2.
  await rowsIn(
    "DB_2",
    "UPDATE subscriptions SET next_message_at = ? WHERE id = ?",
    dueAt,
    webhookId,
  );
  await rowsIn(
    "DB_2",
    "UPDATE deliveries SET state = 'pending', priority = 3, steps_used = 1, due_at = ? WHERE subscription_id = ?",
    dueAt,
    webhookId,
  );
  const { env: bindings, fast } = isolated();
  await advanceMove(bindings, workspaceId, "DB_3", always);
  const wakeUp = { subscriptionId: webhookId, queue: "fast", database: "DB_3" };
  expect(fast).toEqual([{ ...wakeUp, delaySeconds: 0 }]);
  await consumeBodies([wakeUp], bindings);
  expect(fast.slice(1)).toEqual([
    { ...wakeUp, delaySeconds: expect.toSatisfy((s) => s > 0 && s <= 30) },
  ]);
});

test("a move logs each stage that it enters, and its end", async () => {
  const { workspaceId } = await openWorkspaceIn("DB_2");
  await moved(workspaceId, "DB_3");
  await cleanUp();
  const logged = lines.filter((line) => line.includes(workspaceId)).map((line) => JSON.parse(line));
  const stages = logged.flatMap(({ event, stage }) => (event === "move" ? stage : []));
  expect(stages).toEqual(["copying", "switching", "cleanup", "done"]);
});

test("a move leaves the noted messages of other workspaces as they are", async () => {
  const { workspaceId } = await openWorkspaceIn("DB_2");
  const staying = await openSubscribedIn("DB_3");
  const noted = Date.now() + 60 * MINUTE_MS;
  const note = "UPDATE subscriptions SET next_message_at = ? WHERE id = ?";
  await rowsIn("DB_3", note, noted, staying.webhookId);
  await moved(workspaceId, "DB_3");
  const read = "SELECT next_message_at FROM subscriptions WHERE id = ?";
  expect(await valueIn("DB_3", read, staying.webhookId)).toBe(noted);
});

test("a move is done only when the gates of all keys know", async () => {
  const { workspaceId, ids, leadIds } = await openWithLeads();
  await insertApiKeys(
    Array.from({ length: 120 }, (_, i) => ({
      id: `key_${i}${workspaceId}`,
      workspaceId,
      lastUsedAt: 1,
    })),
  );
  const told = new Set<string>();
  let isDown = true;
  const getByName = (name: string) => ({
    forget: async () => {
      if (told.size === 80 && isDown) throw new Error("busy");
      told.add(name);
      if (!name.startsWith("hash_")) await env.KEY_GATE.getByName(name).forget();
    },
  });
  const bindings = { ...env, KEY_GATE: { getByName } as unknown as Env["KEY_GATE"] };
  expect(await errorOf(advanceMove(bindings, workspaceId, "DB_3", always))).toBe("busy");
  // The move is not cancelled, however long a gate does not respond: the directory points to DB_3.
  await leaveFor(6 * MINUTE_MS, workspaceId);
  await expect(continueMoves(bindings, always)).rejects.toThrow("busy");
  expect(await stageOf(workspaceId)).toBe("switching");
  // Reads go on meanwhile, wherever their gates look.
  expect(await leadIds()).toEqual(ids);
  const late = Platform.moveWorkspace({ workspaceId, database: "DB_2" });
  expect(await errorOf(late)).toContain("this workspace is being moved to DB_3");
  isDown = false;
  expect(await advanceMove(bindings, workspaceId, "DB_3", always)).toMatchObject({ done: true });
  expect(told.size).toBe(121);
  expect(await leadIds()).toEqual(ids);
});

test("what a workspace left behind stays for a minute, for the reads that began before", async () => {
  const { workspaceId } = await openWithLeads();
  await moved(workspaceId, "DB_3");
  const sweptAfter = async (ms: number) => {
    await leaveFor(ms, workspaceId);
    for (let i = 0; i < 2; i++) await sweepMoves();
    return (await homesOf(workspaceId)).sort();
  };
  expect(await sweptAfter(45_000)).toEqual(["DB_2", "DB_3"]);
  expect(await stageOf(workspaceId)).toBe("cleanup");
  expect(await sweptAfter(60_000)).toEqual(["DB_3"]);
});

import { env } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { newEventId, randomId } from "../../../src/contract/ids.ts";
import {
  REDELIVERIES_PER_HOUR,
  REPLAY_MAX_DAYS,
  REPLAYS_MAX,
  RESENDS_PENDING_MAX,
} from "../../../src/contract/limits.ts";
import { DAY_MS, isoTime, MINUTE_MS } from "../../../src/contract/time.ts";
import { CLEANUP_MAX } from "../../../src/db/budget.ts";
import { connect } from "../../../src/db/client.ts";
import { PRIORITY, type ReplayFilter, replays, workspaces } from "../../../src/db/schema.ts";
import {
  advanceUnended,
  continueReplay,
  type Range,
  REDELIVERY_EXAMINED_MAX,
  sendAgain,
} from "../../../src/replay/replay.ts";
import {
  endIfDone,
  findReplay,
  findUnended,
  listReplaysOf,
  stop,
} from "../../../src/replay/replays.ts";
import { sweep } from "../../../src/sweep.ts";
import {
  deployedWith,
  errorOf,
  openWorkspace,
  Platform,
  platformOf,
  SOME_TIME,
} from "../../support/api.ts";
import {
  announceLeads,
  answered,
  BROKEN,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  failAtTrip,
  HOUR_MS,
  isolated,
  observedDatabase,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db, inDatabase, WORKSPACE_DB } from "../../support/placement.ts";
import { openPortal } from "../../support/portal.ts";
import { insertEvents } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";
import { steadyClock } from "../../support/timers.ts";

/** The lease of a dispatch that does nothing: wake-up messages find the subscription taken. */
const LEASED = { leasedBy: "test", leasedUntil: Date.now() + 3 * HOUR_MS };
const FREE = { leasedUntil: 0 };

/** A subscription to which nobody delivers by itself, with events of an hour ago. */
async function withEvents(count: number, state: "missed" | "exhausted" | "delivered" = "missed") {
  const { workspaceId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId);
  await setSubscription(webhookId, LEASED);
  const now = Date.now();
  const ids = await storeEvents(workspaceId, webhookId, count, now - HOUR_MS, state);
  return { workspaceId, webhookId, ids, since: isoTime(now - 2 * HOUR_MS) };
}

/**
 * The same with missed events that so many calls and one more examine. Of each call, one event is sent, the first. The
 * others are of a type that is not listed.
 */
async function withParts(count: number) {
  const { workspaceId, webhookId, since } = await withEvents(0);
  const startsAt = Date.now() - HOUR_MS;
  await insertEvents(
    Array.from({ length: count * REDELIVERY_EXAMINED_MAX + 1 }, (_, i) => ({
      id: newEventId(startsAt + i),
      workspaceId,
      type: i % REDELIVERY_EXAMINED_MAX === 0 ? "lead.created" : "run.completed",
      createdAt: startsAt + i,
    })),
  );
  return { workspaceId, webhookId, since };
}

async function replayOf(webhookId: string) {
  const { items } = await Platform.listReplays({ webhookId });
  return items[0] ?? expect.unreachable("there is no replay");
}

/** A deployment in which something happens right before each transaction with a matching statement. */
function actingBefore(statement: RegExp, act: () => unknown): Env {
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (texts.some((text) => statement.test(text))) await act();
    },
  });
  return { ...env, ...inDatabase({ DB }) } as Env;
}
/** The Platform API of a deployment in which something happens right before a transaction enables a webhook. */
const beforeEnabling = (act: () => Promise<unknown>) =>
  platformOf(actingBefore(/^update "subscriptions" set .*"disabled_at"/, act));

/** A deployment in which `ms` have passed from the first matching statement on, and no time passes otherwise. */
function takingTime(ms: number, statement: RegExp): Env {
  const clock = steadyClock();
  return actingBefore(statement, () => {
    clock.passedMs = ms;
  });
}
/** The Platform API of a deployment that takes `ms` to note that a replay is stopped. */
const stoppingIn = (ms: number) => platformOf(takingTime(ms, /^update "replays"/));

/** The methods that have changed a webhook, newest first. */
async function changesOf(webhookId: string) {
  const { items } = await Platform.listWebhookChanges({ webhookId });
  return items.map(({ method }) => method);
}

/** Sets how many events the workspace has sent again in this hour. */
const setRedelivered = (workspaceId: string, redelivered: number, redeliveredSince = Date.now()) =>
  db
    .update(workspaces)
    .set({ redelivered, redeliveredSince })
    .where(eq(workspaces.id, workspaceId))
    .run();

/** Lets the subscription deliver what is due, once each; those of `failing` are rejected. */
async function deliverAll(webhookId: string, failing: readonly string[] = []) {
  await setSubscription(webhookId, FREE);
  await dispatchAt(Date.now(), [webhookId], ({ eventId }) =>
    Promise.resolve(answered(failing.includes(eventId) ? 400 : 200)),
  );
}

/** Takes the next step of each replay that has not ended, as the scheduled job does. */
async function advanceAll(now: number): Promise<void> {
  for (const replay of await findUnended(db, now))
    await advanceUnended(db, replay, now, () => true);
}

/** All events from a time on that a subscription has missed. */
const rangeOf = (since: string): Range => ({
  since: Date.parse(since),
  until: null,
  states: ["missed"],
});

/** Stores replays of a subscription, the oldest first. */
function insertReplays(workspaceId: string, subscriptionId: string, endedAt: (number | null)[]) {
  const filter: ReplayFilter = { since: 0, until: 1, states: [], type: null, status: null };
  const rows = endedAt.map((end, i) => ({
    ...{ workspaceId, subscriptionId, filter },
    ...{ id: randomId("replay"), createdAt: i, examinedAt: Date.now() + i, endedAt: end },
  }));
  return Promise.all(rows.map((row) => db.insert(replays).values(row).run()));
}

describe("a replay", () => {
  test("is listed with its range, and what became of its deliveries", async () => {
    const { webhookId, since, ids } = await withEvents(3);
    const states = ["missed" as const];
    await Platform.redeliver({ webhookId, since, states });
    const begun = { since, states, type: null, status: null, scheduled: 3 };
    expect(await replayOf(webhookId)).toMatchObject({ ...begun, delivered: 0, result: null });
    await setSubscription(webhookId, FREE);
    // An attempt that cannot be made is none, beside one that succeeds.
    await dispatchAt(Date.now(), [webhookId], ({ eventId }) =>
      eventId === ids[2] ? Promise.reject(new Error("no secret")) : Promise.resolve(answered(200)),
    );
    expect(await replayOf(webhookId)).toMatchObject({ ...begun, delivered: 2, failed: 0 });
    await setSubscription(webhookId, { circuits: {} });
    await deliverAll(webhookId, ids.slice(2));
    const counts = { delivered: 2, failed: 1, isExamining: false };
    expect(await replayOf(webhookId)).toMatchObject({ ...begun, ...counts, result: "done" });
    await advanceAll(Date.now() + HOUR_MS);
    const ended = await replayOf(webhookId);
    expect(ended).toMatchObject({ ...counts, result: "done" });
    expect(Date.parse(ended.endedAt ?? "")).toBeGreaterThan(Date.parse(ended.createdAt));
    // A retry succeeds.
    await setDeliveries(webhookId, { dueAt: 0 }, ids[2]);
    await deliverAll(webhookId);
    expect(await replayOf(webhookId)).toMatchObject({ delivered: 3, failed: 0 });
  });

  test.each([
    ["without an end", {}],
    ["though its end is yet to come", { until: isoTime(Date.now() + HOUR_MS) }],
  ])("is continued by its cursor alone, in its own range, %s", async (_, end) => {
    const { workspaceId, webhookId, since } = await withParts(1);
    // No call examines the whole range, so none says that no change of an automation is stored.
    await setSubscription(webhookId, { events: ["lead.created", "automation.status_changed"] });
    const first = await Platform.redeliver({ webhookId, since, states: ["missed"], ...end });
    expect(first.count).toBe(1);
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: true });
    // What comes after the first call is no part of it.
    await storeEvents(workspaceId, webhookId, 1, Date.now() + 1_000, "missed");
    // The range that a continuing call names does not count.
    const again = { webhookId, since, states: ["delivered" as const], cursor: first.nextCursor };
    expect(await Platform.redeliver(again)).toEqual({ count: 1, nextCursor: null });
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: false, scheduled: 2 });
    expect((await Platform.listReplays({ webhookId })).items).toHaveLength(1);
  });

  test.each<[string, object]>([
    ["type", { type: "automation.status_changed" }],
    ["status", { status: "5xx" }],
    ["states", { states: ["exhausted"] }],
  ])("keeps its %s in every part", async (_, range) => {
    const { webhookId, since } = await withParts(1);
    const begun = await Platform.redeliver({ webhookId, since, states: ["missed"], ...range });
    const again = { webhookId, since, cursor: begun.nextCursor };
    expect(await Platform.redeliver(again)).toEqual({ count: 0, nextCursor: null });
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: false, scheduled: 0 });
  });

  test("counts each delivery once, even if two calls continue it at the same moment", async () => {
    const { webhookId, since } = await withParts(1);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    const replay = await findReplay(db, webhookId, replayId, "replayId");
    const again = () => continueReplay(db, replay, Date.now());
    await Promise.all([again(), again()]);
    expect(await replayOf(webhookId)).toMatchObject({ scheduled: 2 });
  });

  test("is continued by the scheduled job 30 s after its caller's last call, a part in each run of 40 s", async () => {
    const { webhookId, since } = await withParts(3);
    const { nextCursor } = await Platform.redeliver({ webhookId, since });
    await db.update(replays).set({ examinedAt: 0 }).where(eq(replays.subscriptionId, webhookId));
    await Platform.redeliver({ webhookId, since, cursor: nextCursor });
    const [replay] = await db.select().from(replays).where(eq(replays.subscriptionId, webhookId));
    for (const [after, sweepMs, scheduled] of [
      [30_000, 0, 2],
      [30_001, 40_000, 2],
      [30_001, 39_999, 3],
    ] as const) {
      await sweep(takingTime(sweepMs, /./), (replay?.examinedAt ?? 0) + after);
      expect(await replayOf(webhookId)).toMatchObject({ isExamining: true, scheduled });
    }
    const { env: bindings, fast } = isolated();
    await sweep(bindings, Date.now() + HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: false, scheduled: 4 });
    expect(fast.filter((message) => message.subscriptionId === webhookId)).toHaveLength(1);
  });

  test("fails in the scheduled job with the database, rather than wait as for the next hour", async () => {
    const { webhookId, since } = await withParts(1);
    await Platform.redeliver({ webhookId, since });
    const unended = await findUnended(db, Date.now() + HOUR_MS);
    const own = unended.filter(({ subscriptionId }) => subscriptionId === webhookId);
    const { DB } = observedDatabase({ before: failAtTrip(1, BROKEN) });
    for (const replay of own)
      await expect(advanceUnended(connect(DB), replay, Date.now(), () => true)).rejects.toThrow();
    expect(own).toHaveLength(1);
  });

  test("waits for its last delivery, and ends without those that were resent", async () => {
    const { webhookId, since, ids } = await withEvents(3);
    await Platform.redeliver({ webhookId, since });
    await Platform.redeliver({ webhookId, eventIds: ids.slice(0, 2) });
    await advanceAll(Date.now() + HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject({ result: null, endedAt: null });
    await deliverAll(webhookId);
    await advanceAll(Date.now() + 2 * HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject({
      result: "done",
      scheduled: 3,
      delivered: 1,
      failed: 0,
    });
  });

  test("ends as interrupted with a subscription that is disabled", async () => {
    const { webhookId, since } = await withParts(1);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    const before = await findReplay(db, webhookId, replayId, "replayId");
    await Platform.disableWebhook({ webhookId });
    await advanceAll(Date.now() + HOUR_MS);
    const ended = await replayOf(webhookId);
    expect(ended).toMatchObject({ result: "interrupted", isExamining: false });
    expect(ended.endedAt).not.toBeNull();
    // There is nothing left to stop, so that is no change.
    await Platform.stopReplay({ webhookId, replayId: ended.replayId });
    expect(await replayOf(webhookId)).toEqual(ended);
    expect(await changesOf(webhookId)).toEqual(["disableWebhook", "redeliver"]);
    expect(await statesOf(webhookId)).toEqual({ pending: 1 });
    // Nor does a call that read it before stop it.
    await stop(db, before, Date.now(), () => true);
    expect(await replayOf(webhookId)).toEqual(ended);
  });

  const disableAndEnable = async (webhookId: string) => {
    await Platform.disableWebhook({ webhookId });
    await Platform.enableWebhook({ webhookId });
  };
  const denyAndGrant = async (_: string, workspaceId: string) => {
    for (const granted of [false, true])
      await Platform.setWorkspaceAccess({ workspaceId, granted });
  };

  test.each([
    ["its subscription was disabled and enabled", disableAndEnable],
    ["the access of its workspace was denied and granted", denyAndGrant],
  ])("does not go on after %s at once", async (_, interrupt) => {
    const { webhookId, workspaceId, since } = await withParts(1);
    await insertReplays(workspaceId, webhookId, [1]);
    await db.update(replays).set({ result: "done" }).where(eq(replays.subscriptionId, webhookId));
    const { nextCursor } = await Platform.redeliver({ webhookId, since });
    // An active subscription is not enabled, so this interrupts nothing.
    await Platform.enableWebhook({ webhookId });
    expect(await replayOf(webhookId)).toMatchObject({ result: null });
    await interrupt(webhookId, workspaceId);
    const { items } = await Platform.listReplays({ webhookId });
    expect(items.map(({ result }) => result)).toEqual(["interrupted", "done"]);
    const again = { webhookId, since, cursor: nextCursor };
    expect(await Platform.redeliver(again)).toEqual({ count: 0, nextCursor: null });
    await advanceAll(Date.now() + HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject({ scheduled: 1 });
  });

  test("of another subscription is neither continued nor stopped", async () => {
    const { webhookId, since, workspaceId } = await withParts(1);
    const { nextCursor } = await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    const { id: other } = await subscribe(workspaceId);
    const continued = Platform.redeliver({ webhookId: other, since, cursor: nextCursor });
    expect(await errorOf(continued)).toContain("no such replay");
    const stopped = Platform.stopReplay({ webhookId: other, replayId });
    expect(await errorOf(stopped)).toContain("no such replay");
    expect(await replayOf(webhookId)).toMatchObject({ result: null });
  });

  test("stands in the history with who began it and its numbers, also if it began with an enabling", async () => {
    const { webhookId, workspaceId, since } = await withEvents(2);
    await Platform.redeliver({ webhookId, since, actor: "Zoé" });
    await deliverAll(webhookId);
    await Platform.disableWebhook({ webhookId });
    await storeEvents(workspaceId, webhookId, 1, Date.now() - HOUR_MS, "missed");
    await Platform.enableWebhook({ webhookId, redeliverSince: since, actor: "Ada" });
    const [history, own] = await Promise.all([
      Platform.listWorkspaceChanges({ workspaceId }),
      Platform.listWebhookChanges({ webhookId }),
    ]);
    for (const { items } of [history, own])
      expect(
        items.slice(0, 3).map(({ method, actor, replay }) => [method, actor, replay?.delivered]),
      ).toEqual([
        ["enableWebhook", "Ada", 0],
        ["disableWebhook", null, undefined],
        ["redeliver", "Zoé", 2],
      ]);
  });
});

describe("a replay that is stopped", () => {
  test("sends nothing more, and leaves each delivery in the state that it had", async () => {
    const { webhookId, workspaceId, since, ids } = await withEvents(5, "delivered");
    const [delivered = "", exhausted = "", cancelled = "", retrying = "", sent = ""] = ids;
    const [missed] = await storeEvents(workspaceId, webhookId, 1, Date.now() - HOUR_MS, "missed");
    await setDeliveries(webhookId, {
      lastAt: 1,
      lastOutcome: "answered",
      lastStatus: 200,
      lastDurationMs: 5,
    });
    await setDeliveries(webhookId, { state: "exhausted" }, exhausted);
    await setDeliveries(webhookId, { state: "cancelled" }, cancelled);
    const failed = { state: "pending", priority: 2, stepsUsed: 1, settledAt: null } as const;
    await setDeliveries(webhookId, failed, retrying);
    await Platform.redeliver({ webhookId, since });
    await setDeliveries(webhookId, { state: "delivered", attemptsMade: 2, settledAt: 1 }, sent);
    const { replayId } = await replayOf(webhookId);
    await Platform.stopReplay({ webhookId, replayId });
    const stopped = await replayOf(webhookId);
    expect(stopped).toMatchObject({ result: "stopped", isExamining: false });
    expect(stopped.endedAt).not.toBeNull();
    const { items } = await Platform.listDeliveries({ webhookId });
    expect(Object.fromEntries(items.map(({ eventId, state }) => [eventId, state]))).toEqual({
      [delivered]: "delivered",
      [exhausted]: "exhausted",
      [cancelled]: "cancelled",
      [retrying]: "retrying",
      [sent]: "delivered",
      // It has a delivery now, which was not sent.
      [String(missed)]: "cancelled",
    });
    const open = items.filter(({ settledAt }) => settledAt === null);
    expect(open.map(({ eventId }) => eventId)).toEqual([retrying]);
    // Its success is shown once.
    const { attemptLog } = await Platform.readDelivery({ webhookId, eventId: delivered });
    expect(attemptLog).toHaveLength(1);
    await Platform.redeliver({ webhookId, eventIds: [delivered] });
    const again = await Platform.readDelivery({ webhookId, eventId: delivered });
    expect(again).toMatchObject({ state: "pending", attemptLog });
  });

  test("leaves each delivery in its state, though one transaction does not take all of them", async () => {
    const { webhookId, since } = await withEvents(CLEANUP_MAX + 1, "exhausted");
    const { nextCursor: cursor } = await Platform.redeliver({ webhookId, since });
    await Platform.redeliver({ webhookId, since, cursor });
    expect(await statesOf(webhookId)).toEqual({ pending: CLEANUP_MAX + 1 });
    const { replayId } = await replayOf(webhookId);
    await Platform.stopReplay({ webhookId, replayId });
    expect(await statesOf(webhookId)).toEqual({ exhausted: CLEANUP_MAX + 1 });
  });

  test("is not continued by anybody, nor by a call that read it before", async () => {
    const { webhookId, since } = await withParts(1);
    const { nextCursor } = await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    const before = await findReplay(db, webhookId, replayId, "replayId");
    await Platform.stopReplay({ webhookId, replayId });
    const stopped = { result: "stopped", isExamining: false, scheduled: 1 };
    expect(await replayOf(webhookId)).toMatchObject(stopped);
    expect(await changesOf(webhookId)).toEqual(["stopReplay", "redeliver"]);
    expect(await continueReplay(db, before, Date.now())).toMatchObject({ count: 0 });
    const again = Platform.redeliver({ webhookId, since, cursor: nextCursor });
    expect(await again).toEqual({ count: 0, nextCursor: null });
    await advanceAll(Date.now() + HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject(stopped);
    expect(await statesOf(webhookId)).toEqual({ cancelled: 1 });
  });

  test("is stopped as a whole, although the clock of a later call was behind that of the first", async () => {
    const { webhookId, since } = await withParts(1);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    const replay = await findReplay(db, webhookId, replayId, "replayId");
    await continueReplay(db, replay, replay.createdAt - 5_000);
    await Platform.stopReplay({ webhookId, replayId });
    expect(await statesOf(webhookId)).toEqual({ cancelled: 2 });
  });

  test("is finished by the scheduled job if stopping it takes a call 10 s", async () => {
    const { webhookId, since } = await withEvents(2);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await stoppingIn(10_000).stopReplay({ webhookId, replayId });
    expect(await replayOf(webhookId)).toMatchObject({ result: "stopped", endedAt: null });
    expect(await statesOf(webhookId)).toEqual({ pending: 2 });
    await advanceAll(Date.now() + HOUR_MS);
    expect((await replayOf(webhookId)).endedAt).not.toBeNull();
    expect(await statesOf(webhookId)).toEqual({ cancelled: 2 });
  });

  test("is recorded as one change, even if a second call finishes it", async () => {
    const { webhookId, since } = await withEvents(2);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await stoppingIn(10_000).stopReplay({ webhookId, replayId });
    expect(await replayOf(webhookId)).toMatchObject({ endedAt: null });
    await stoppingIn(9_999).stopReplay({ webhookId, replayId });
    expect(await replayOf(webhookId)).toMatchObject({ endedAt: SOME_TIME });
    expect(await changesOf(webhookId)).toEqual(["stopReplay", "redeliver"]);
  });

  test("stays stopped if its webhook is disabled before it has ended", async () => {
    const { webhookId, since } = await withEvents(2);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await stoppingIn(10_000).stopReplay({ webhookId, replayId });
    await Platform.disableWebhook({ webhookId });
    await Platform.enableWebhook({ webhookId });
    expect(await replayOf(webhookId)).toMatchObject({ result: "stopped" });
  });

  test("is also one that has not ended after seven days", async () => {
    const { webhookId, since } = await withEvents(2, "exhausted");
    await Platform.redeliver({ webhookId, since });
    const endsAt = Date.parse((await replayOf(webhookId)).createdAt) + REPLAY_MAX_DAYS * DAY_MS;
    await advanceAll(endsAt - 1);
    expect(await replayOf(webhookId)).toMatchObject({ result: null });
    expect(await statesOf(webhookId)).toEqual({ pending: 2 });
    await advanceAll(endsAt + MINUTE_MS);
    expect(await replayOf(webhookId)).toMatchObject({ result: "stopped" });
    expect(await statesOf(webhookId)).toEqual({ exhausted: 2 });
  });

  test("leaves alone what was resent in the meantime, or sent by another replay", async () => {
    const { webhookId, workspaceId, since, ids } = await withEvents(2);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await Platform.redeliver({ webhookId, eventIds: ids.slice(0, 1) });
    await storeEvents(workspaceId, webhookId, 1, Date.now() - HOUR_MS, "missed");
    await Platform.redeliver({ webhookId, since, states: ["missed"] });
    await Platform.stopReplay({ webhookId, replayId });
    expect(await statesOf(webhookId)).toEqual({ pending: 2, cancelled: 1 });
  });

  test.each([
    [200, "delivered"],
    [400, "exhausted"],
  ])("does not count what is being sent, which then gets %i and is %s", async (status, state) => {
    const { webhookId, since } = await withEvents(1, "exhausted");
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await setSubscription(webhookId, FREE);
    await dispatchAt(Date.now(), [webhookId], async () => {
      await Platform.stopReplay({ webhookId, replayId });
      return answered(status);
    });
    expect(await replayOf(webhookId)).toMatchObject({ scheduled: 1, delivered: 0, failed: 0 });
    expect(await deliveriesTo(webhookId)).toMatchObject([{ state, lastStatus: status }]);
  });

  test("sends nothing again that was being sent, and that succeeds", async () => {
    const { webhookId, since } = await withEvents(1, "exhausted");
    const retrying = { state: "pending", priority: PRIORITY.retry, settledAt: null } as const;
    await setDeliveries(webhookId, retrying);
    await Platform.redeliver({ webhookId, since });
    const { replayId } = await replayOf(webhookId);
    await setSubscription(webhookId, FREE);
    let sent = 0;
    for (let i = 0; i < 2; i++)
      await dispatchAt(Date.now(), [webhookId], async () => {
        sent++;
        await Platform.stopReplay({ webhookId, replayId });
        return answered(200);
      });
    expect([sent, await statesOf(webhookId)]).toEqual([1, { delivered: 1 }]);
  });
});

describe("the replays of a subscription", () => {
  test("are bounded: a new one replaces the oldest that has ended, and is rejected if none has", async () => {
    const { webhookId, workspaceId, since } = await withEvents(2);
    const ended = (n: number) => Array.from({ length: n }, () => 1);
    await insertReplays(workspaceId, webhookId, [null, ...ended(REPLAYS_MAX - 1)]);
    await Platform.redeliver({ webhookId, since });
    const { items } = await Platform.listReplays({ webhookId });
    const times = items.map(({ createdAt }) => Date.parse(createdAt));
    expect(times).toEqual(times.toSorted((a, b) => b - a));
    // The first one has not ended.
    expect(times.slice(-2)).toEqual([2, 0]);
    expect(items).toHaveLength(REPLAYS_MAX);
    await db.update(replays).set({ endedAt: null }).where(eq(replays.subscriptionId, webhookId));
    await storeEvents(workspaceId, webhookId, 1, Date.now() - HOUR_MS, "missed");
    const portal = await openPortal(workspaceId);
    await setRedelivered(workspaceId, 0);
    const refused = await portal.post(`/webhooks/${webhookId}/redeliver`, { since });
    expect(refused.status).toBe(429);
    expect(refused.body).toMatchObject({ error: { details: { retry_after_seconds: 60 } } });
    // What is rejected counts for nothing.
    const [counted] = await db.select().from(workspaces).where(eq(workspaces.id, workspaceId));
    expect(counted?.redelivered).toBe(0);
    const enabling = Platform.enableWebhook({ webhookId, redeliverSince: since });
    expect(await errorOf(enabling)).toMatch(/^enableWebhook: webhookId: 50 replays of it have not/);
    expect((await Platform.listReplays({ webhookId })).items).toHaveLength(REPLAYS_MAX);
    // Enabling a disabled webhook ends them.
    await Platform.disableWebhook({ webhookId });
    expect(await Platform.enableWebhook({ webhookId, redeliverSince: since })).toEqual({
      count: 3,
      nextCursor: null,
    });
  });

  test("are not replaced before they have ended, even if two begin at once", async () => {
    const { webhookId, workspaceId, since } = await withEvents(2);
    await insertReplays(workspaceId, webhookId, Array(REPLAYS_MAX - 1).fill(null));
    let isFirst = true;
    const { DB } = observedDatabase({
      before: async (_, texts) => {
        if (!isFirst || !texts.join().includes('insert into "replays"')) return;
        isFirst = false;
        await Platform.redeliver({ webhookId, since: isoTime(Date.parse(since) + 1) });
      },
    });
    await sendAgain(connect(DB), webhookId, rangeOf(since), Date.now());
    const { items } = await Platform.listReplays({ webhookId });
    expect(items.map(({ createdAt }) => Date.parse(createdAt))).toContain(0);
    await db.delete(replays).where(eq(replays.workspaceId, workspaceId));
  });

  test("of one workspace do not hold up those of another, and wait while it moves", async () => {
    const many = await withEvents(0);
    await insertReplays(many.workspaceId, many.webhookId, Array(60).fill(null));
    // Each of them at a webhook of its own.
    const { workspaceId: spread } = await withEvents(0);
    for (let i = 0; i < 60; i++) await insertReplays(spread, `whk_${i}${spread}`, [null]);
    const [one, moving] = [await withEvents(0), await withEvents(0)];
    for (const { workspaceId, webhookId } of [one, moving])
      await insertReplays(workspaceId, webhookId, [null]);
    const lock = (writeLock: "draining" | null) =>
      db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, moving.workspaceId)).run();
    await lock("draining");
    const found = await findUnended(connect(WORKSPACE_DB), Date.now() + HOUR_MS);
    await lock(null);
    // Of one workspace, those that wait longest come first.
    const ofMany = found.filter(({ workspaceId }) => workspaceId === many.workspaceId);
    expect(ofMany.slice(0, 10).map(({ createdAt }) => createdAt)).toEqual([...Array(10).keys()]);
    const owners = found.map(({ workspaceId }) => workspaceId);
    expect([one, moving].map(({ workspaceId }) => owners.includes(workspaceId))).toEqual([
      true,
      false,
    ]);
    // The later tests look at their own.
    for (const workspaceId of [many, one, moving].map((each) => each.workspaceId).concat(spread))
      await db.delete(replays).where(eq(replays.workspaceId, workspaceId));
  });

  test("have numbers of their own, though one dispatch sends what both have scheduled", async () => {
    const { webhookId, workspaceId, since, ids } = await withEvents(2);
    await Platform.redeliver({ webhookId, since });
    await storeEvents(workspaceId, webhookId, 3, Date.now() - HOUR_MS, "missed");
    await Platform.redeliver({ webhookId, since, states: ["missed"] });
    await deliverAll(webhookId, ids.slice(1));
    const { items } = await Platform.listReplays({ webhookId });
    const numbers = items.map(({ delivered, failed }) => [delivered, failed]);
    expect(numbers.toSorted()).toEqual([
      [1, 1],
      [3, 0],
    ]);
  });

  test("are deleted with it", async () => {
    const { webhookId, workspaceId } = await withEvents(1);
    await insertReplays(workspaceId, webhookId, [null, 1]);
    await setSubscription(webhookId, { deletedAt: 1 });
    const { webhookId: other, since } = await withEvents(1);
    await Platform.redeliver({ webhookId: other, since });
    await sweep(env, Date.now() + HOUR_MS);
    const stored = await db.select({ of: replays.subscriptionId }).from(replays);
    const owners = stored.map(({ of }) => of);
    expect([owners.includes(webhookId), owners.includes(other)]).toEqual([false, true]);
  });

  test("are listed and ended at the cost of their own rows, however much waits and fails", async () => {
    const count = 200;
    const { webhookId, workspaceId, since } = await withEvents(count, "exhausted");
    await Platform.redeliver({ webhookId, since });
    // An earlier replay, whose deliveries still wait.
    await setDeliveries(webhookId, { dueAt: Date.now() - MINUTE_MS });
    await storeEvents(workspaceId, webhookId, count, Date.now() - HOUR_MS / 2, "missed");
    await Platform.redeliver({ webhookId, since, states: ["missed"] });
    const { replayId } = await replayOf(webhookId);
    const replay = await findReplay(db, webhookId, replayId, "replayId");
    expect(replay.scheduled).toBe(count);
    const { DB, rows } = meteredDatabase();
    await listReplaysOf(connect(DB), webhookId);
    await endIfDone(connect(DB), replay, Date.now());
    expect(rows.read).toBeGreaterThan(2);
    expect(rows.read).toBeLessThan(20);
  });
});

describe("the events that a workspace sends again in an hour", () => {
  test("are bounded, by id and by range, however often it is disabled and enabled", async () => {
    const { webhookId, workspaceId, since, ids } = await withEvents(3, "exhausted");
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR);
    const eventIds = ids.slice(0, 1);
    const used = /20000 events again in an hour: try again in 3\d{3} s/;
    for (const call of [
      () => Platform.redeliver({ webhookId, since }),
      () => Platform.redeliver({ webhookId, eventIds }),
    ])
      expect(await errorOf(call())).toMatch(used);
    await Platform.disableWebhook({ webhookId });
    const enabling = Platform.enableWebhook({ webhookId, redeliverSince: since });
    expect(await errorOf(enabling)).toMatch(used);
    // What is rejected has changed nothing.
    expect((await Platform.readWebhook({ webhookId })).disabledAt).not.toBeNull();
    await Platform.enableWebhook({ webhookId });
    expect(await statesOf(webhookId)).toEqual({ exhausted: 3 });
    // Over HTTPS, with the time to wait.
    const portal = await openPortal(workspaceId);
    const refused = await portal.post(`/webhooks/${webhookId}/redeliver`, { eventIds });
    expect(refused).toMatchObject({ status: 429, body: { error: { code: "rate_limited" } } });
    // Counting costs nothing.
    expect(await Platform.redeliver({ webhookId, since, dryRun: true })).toMatchObject({
      count: 3,
    });
  });

  test("used up right after a call has enabled its webhook make it fail, which is an entry", async () => {
    const { webhookId, workspaceId, since } = await withEvents(3);
    await Platform.disableWebhook({ webhookId });
    const deployment = beforeEnabling(() => setRedelivered(workspaceId, REDELIVERIES_PER_HOUR));
    const enable = () => deployment.enableWebhook({ webhookId, redeliverSince: since });
    expect(await errorOf(enable())).not.toContain("enableWebhook: ");
    expect((await Platform.readWebhook({ webhookId })).disabledAt).toBeNull();
    expect(await changesOf(webhookId)).toEqual(["enableWebhook", "disableWebhook"]);
    // Once the hour is used up, a call is rejected, and has enabled nothing.
    await Platform.disableWebhook({ webhookId });
    expect(await errorOf(enable())).toContain("enableWebhook: ");
    expect((await Platform.readWebhook({ webhookId })).disabledAt).not.toBeNull();
  });

  test("bound the rows that replays, disabling and enabling write, by ten for each event", async () => {
    const count = 200;
    const { webhookId, workspaceId, since } = await withEvents(count, "delivered");
    const last = { lastAt: 1, lastOutcome: "answered", lastStatus: 200, lastDurationMs: 5 };
    await setDeliveries(webhookId, last);
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR - count);
    const { DB, rows } = meteredDatabase();
    const quiet = { send: async () => {}, sendBatch: async () => {} } as unknown as Queue;
    const deployment = deployedWith({ DB, DELIVERIES: quiet, SLOW_DELIVERIES: quiet });
    const portal = await openPortal(workspaceId, deployment);
    const post = <Body = unknown>(action: string, body: object = {}) =>
      portal.post<Body>(`/webhooks/${webhookId}/${action}`, body);
    const written: number[] = [];
    for (let round = 1; round <= 3; round++) {
      const before = rows.written;
      await post("redeliver", { since });
      for (const action of ["disable", "enable"]) await post(action);
      // The consumer cancels what was pending.
      await setSubscription(webhookId, FREE);
      await dispatchOn(DB, Date.now(), [webhookId], answered(200));
      written.push(rows.written - before);
    }
    expect(written[0]).toBeGreaterThan(count);
    expect(written[0]).toBeLessThan(10 * count);
    // In this hour, there is nothing left but the entries of disabling and enabling.
    for (const later of written.slice(1)) expect(later).toBeLessThan(30);
  });

  test("are as many again in the next hour, when the scheduled job goes on", async () => {
    const { webhookId, workspaceId, since } = await withParts(1);
    await storeEvents(workspaceId, webhookId, 1, Date.now() - HOUR_MS - MINUTE_MS, "missed");
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR - 1);
    const { count } = await Platform.redeliver({ webhookId, since });
    // A call that begins below the maximum is done.
    expect(count).toBe(2);
    const sweptAt = Date.now() + HOUR_MS;
    await advanceAll(sweptAt);
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: true, scheduled: count });
    // Others come before it now.
    expect(await listReplaysOf(db, webhookId)).toMatchObject([{ examinedAt: sweptAt }]);
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR, Date.now() - HOUR_MS);
    await advanceAll(Date.now() + 2 * HOUR_MS);
    expect(await replayOf(webhookId)).toMatchObject({ isExamining: false, scheduled: count + 1 });
  });

  test("keep no part of a range from being examined that sends nothing", async () => {
    const { webhookId, workspaceId, since } = await withParts(1);
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR);
    const { nextCursor } = await Platform.redeliver({ webhookId, since, states: ["delivered"] });
    expect(nextCursor).not.toBeNull();
    // Nothing of it waits, but it is not done yet.
    const begun = { isExamining: true, scheduled: 0, result: null };
    expect(await replayOf(webhookId)).toMatchObject(begun);
    await Platform.redeliver({ webhookId, since, cursor: nextCursor });
    const done = { isExamining: false, scheduled: 0, result: "done" };
    expect(await replayOf(webhookId)).toMatchObject(done);
  });

  test("are not those of a resend that is rejected", async () => {
    const { webhookId, workspaceId, ids } = await withEvents(RESENDS_PENDING_MAX + 1, "exhausted");
    const resend = (from: number, to: number) =>
      Platform.redeliver({ webhookId, eventIds: ids.slice(from, to) });
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR - RESENDS_PENDING_MAX);
    // A new event that waits is no resend.
    await announceLeads(workspaceId, 1, Date.now());
    await resend(0, RESENDS_PENDING_MAX - 1);
    expect(await errorOf(resend(RESENDS_PENDING_MAX - 1, RESENDS_PENDING_MAX + 1))).toContain(
      "resends of the webhook are pending",
    );
    expect(await resend(RESENDS_PENDING_MAX - 1, RESENDS_PENDING_MAX)).toMatchObject({ count: 1 });
  });

  test("of one workspace do not count for another", async () => {
    const { workspaceId } = await openWorkspace();
    await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR);
    const { webhookId, since } = await withEvents(1);
    expect(await Platform.redeliver({ webhookId, since })).toMatchObject({ count: 1 });
  });
});

test("A call that enables a webhook right after its access has ended is an entry, and sends nothing", async () => {
  const { webhookId, workspaceId, since } = await withEvents(1);
  await Platform.disableWebhook({ webhookId });
  const deployment = beforeEnabling(() =>
    Platform.setWorkspaceAccess({ workspaceId, granted: false }),
  );
  const enabling = deployment.enableWebhook({ webhookId, redeliverSince: since });
  expect(await enabling).toEqual({ count: 0, nextCursor: null });
  expect((await Platform.readWebhook({ webhookId })).disabledAt).toBeNull();
  expect(await statesOf(webhookId)).toEqual({});
  expect(await changesOf(webhookId)).toEqual(["enableWebhook", "disableWebhook"]);
});

test("A range of nothing is no replay, and counts for nothing", async () => {
  const { workspaceId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, Date.now());
  await setRedelivered(workspaceId, REDELIVERIES_PER_HOUR);
  const since = isoTime(Date.now() - HOUR_MS);
  expect(await Platform.redeliver({ webhookId, since, states: ["missed"] })).toMatchObject({
    count: 0,
  });
  expect((await Platform.listReplays({ webhookId })).items).toEqual([]);
});

import { exports } from "cloudflare:workers";
import { eq, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { derivedId, randomId } from "../../../src/contract/ids.ts";
import {
  PENDING_MAX,
  POST_TIMEOUT_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_WAITS_SECONDS,
} from "../../../src/contract/limits.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { commit, openDatabase } from "../../../src/db/client.ts";
import { PRIORITY, type Priority, workspaces } from "../../../src/db/schema.ts";
import { exhaustOverflow } from "../../../src/delivery/cancellation.ts";
import type { Outcome } from "../../../src/delivery/outcome.ts";
import { CONCURRENCY_MAX } from "../../../src/delivery/policy.ts";
import { UnreadableEvent } from "../../../src/events/bodies.ts";
import { announce, draftEvent } from "../../../src/events/outbox.ts";
import { updateSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { automationReport } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  consumeBodies,
  consumeFor,
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  failAtTrip,
  HOUR_MS,
  heldDispatch,
  isolated,
  jumpTo,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  streakSince,
  subscribe,
  subscriber,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { DATABASE, WORKSPACE_DB } from "../../support/placement.ts";
import { insertDeliveries } from "../../support/rows.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
const REJECTED = answered(400);

/** The record of runs that are rejected, and come after other events until a time. */
const runsYield = (yieldsUntil: number) => ({
  "run.completed": { since: NOW - HOUR_MS, outcome: "answered", status: 429, yieldsUntil },
});

/** The reference of the automation that `subscribedToBoth` records. */
const REFERENCE = "default";

/** Announces completed runs of an automation. */
async function announceRuns(
  workspaceId: string,
  count: number,
  now: number,
  ofAutomation?: string,
) {
  const automationId = ofAutomation ?? (await derivedId("automation", workspaceId, REFERENCE));
  const drafts = Array.from({ length: count }, () => {
    const id = randomId("run");
    return draftEvent("run.completed", { id, automation_id: automationId } as never, now);
  });
  await commit(
    db,
    announce(workspaceId, "run.completed", drafts, () => sql`true`, now),
  );
  return drafts;
}

/** A new subscription to leads and runs, in a workspace with an automation. */
async function subscribedToBoth() {
  const workspaceId = await createWorkspace();
  const automations = [automationReport(REFERENCE)];
  await exports.Platform.recordAutomations({ workspaceId, automations });
  const events: WebhookEvent[] = ["lead.created", "run.completed"];
  return { workspaceId, ...(await subscribe(workspaceId, { events })) };
}

/** Dispatches whenever something is due, until `until`; returns the times at which it did. */
async function workUntil(
  clock: { now: number },
  id: string,
  until: number,
  attempt: Parameters<typeof dispatchAt>[2],
): Promise<void> {
  for (;;) {
    const [left] = await dispatchAt(() => clock.now, [id], attempt);
    if (!left || left.nextSendAt === null || left.nextSendAt > until) break;
    clock.now = Math.max(clock.now + 1, left.nextSendAt);
  }
  clock.now = until;
}

describe("pending deliveries of a subscription", () => {
  test("are sent in the order of manual, untried, retried, and scheduled ones", async () => {
    const { id } = await owed(4, NOW);
    const rows = await deliveriesTo(id);
    const { scheduled, inStreak, untried, manual } = PRIORITY;
    for (const [i, priority] of [scheduled, inStreak, untried, manual].entries())
      await setDeliveries(id, { priority, attempts: 3 - i }, rows[i]?.eventId);
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toEqual(rows.map(({ eventId }) => eventId).toReversed());
  });

  test("of one event type do not wait for another that is rejected", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    const clock = { now: NOW };
    await announceRuns(workspaceId, 30, NOW);
    const { attempt } = subscriber(({ type }) => {
      clock.now += 20;
      return type === "run.completed" ? REJECTED : OK;
    });
    await workUntil(clock, id, NOW + 10 * MINUTE_MS, attempt);
    await announceLeads(workspaceId, 1, clock.now);
    await workUntil(clock, id, clock.now + MINUTE_MS, attempt);
    expect(await statesOf(id)).toEqual({ delivered: 1, pending: 30 });
  });

  test.each<[string, Outcome, waitMs: number]>([
    ["asks for half an hour", answered(429, RETRY_AFTER_MAX_SECONDS), 30 * MINUTE_MS],
    ["times out", { kind: "timed_out" }, POST_TIMEOUT_MS],
  ])("of one event type wait once, and no longer, for another that %s", async (...row) => {
    const [, outcome, waitMs] = row;
    const { id, workspaceId } = await subscribedToBoth();
    const clock = { now: NOW };
    const { attempt } = subscriber(({ type }) => {
      if (type === "lead.created") return OK;
      if (outcome.kind === "timed_out") clock.now += POST_TIMEOUT_MS;
      return outcome;
    });
    // Two of each type are recorded in each wait.
    for (let i = 1; i <= 24; i++) {
      await announceRuns(workspaceId, 1, clock.now);
      await announceLeads(workspaceId, 1, clock.now);
      await workUntil(clock, id, Math.max(clock.now, NOW + (i * waitMs) / 2), attempt);
    }
    const leads = (await deliveriesTo(id)).filter(({ type }) => type === "lead.created");
    const waits = leads.map(({ dueAt, settledAt }) => (settledAt ?? clock.now) - dueAt);
    expect(Math.max(...waits)).toBeLessThanOrEqual(waitMs + 2_000);
  });

  test("of an accepted event type are retried before another is tried that asks for half an hour", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceLeads(workspaceId, 1, NOW);
    await setDeliveries(id, { priority: PRIORITY.scheduled, attempts: 1, lastAt: NOW });
    await announceRuns(workspaceId, 1, NOW);
    await setSubscription(id, { rejections: runsYield(NOW + 1) });
    const { attempt } = subscriber(({ type }) =>
      type === "run.completed" ? answered(429, RETRY_AFTER_MAX_SECONDS) : OK,
    );
    await dispatchAt(NOW, [id], attempt);
    expect(await statesOf(id)).toEqual({ delivered: 1, pending: 1 });
  });

  test.each<[WebhookEvent, number]>([
    ["run.completed", 0],
    ["lead.created", 1],
  ])("begin with %s if older runs yield for %i ms more", async (type, ms) => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, NOW - 1);
    await announceLeads(workspaceId, 1, NOW);
    await setSubscription(id, { rejections: runsYield(NOW + ms) });
    const types: WebhookEvent[] = [];
    await dispatchAt(NOW, [id], async (delivery) => {
      types.push(delivery.type);
      return OK;
    });
    expect(types[0]).toBe(type);
  });

  test("of an accepted event type come first after the wait that another has begun", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await setSubscription(id, { concurrency: 2 });
    await announceLeads(workspaceId, 1, NOW - 1);
    await announceRuns(workspaceId, 1, NOW);
    const rejected = Promise.withResolvers<void>();
    await dispatchAt(NOW, [id], async ({ type }) => {
      // The success is of a request that was in flight when the wait began, so it ends the streak, but not the wait.
      if (type === "lead.created") return rejected.promise.then(() => OK);
      setTimeout(rejected.resolve, 10);
      return answered(429, RETRY_AFTER_MAX_SECONDS);
    });
    expect(await subscriptionRow(id)).toMatchObject({
      streak: null,
      blockedUntil: NOW + 30 * MINUTE_MS,
    });
    await announceRuns(workspaceId, 1, NOW + 1);
    await announceLeads(workspaceId, 1, NOW + 2);
    const types: WebhookEvent[] = [];
    await dispatchAt(NOW + 30 * MINUTE_MS, [id], async ({ type }) => {
      types.push(type);
      return type === "lead.created" ? OK : answered(429, RETRY_AFTER_MAX_SECONDS);
    });
    expect(types[0]).toBe("lead.created");
  });

  test("of an event type that is accepted again do not wait for the backlog of another", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    const clock = { now: NOW };
    let isDown = true;
    const { attempt } = subscriber(() => {
      clock.now += 3_000;
      return isDown ? { kind: "unreachable", status: null } : OK;
    });
    await announceRuns(workspaceId, 250, NOW);
    await announceLeads(workspaceId, 250, NOW);
    await workUntil(clock, id, NOW + 3 * MINUTE_MS, attempt);
    expect(Object.keys((await subscriptionRow(id)).rejections)).toHaveLength(2);
    isDown = false;
    await workUntil(clock, id, NOW + HOUR_MS, attempt);
    const settled = (await deliveriesTo(id)).toSorted(
      (a, b) => Number(a.settledAt) - Number(b.settledAt),
    );
    expect(settled.every(({ state }) => state === "delivered")).toBe(true);
    // All of them take 25 minutes.
    const types = settled.map(({ type }) => type);
    for (const type of ["lead.created", "run.completed"] as const)
      expect(types.indexOf(type)).toBeLessThan(200);
  });

  test("of one event type that are rejected leave every second turn to an accepted one", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 8, NOW);
    await announceLeads(workspaceId, 3, NOW);
    await setSubscription(id, {
      blockedUntil: NOW,
      streak: {
        startedAt: NOW - 1,
        events: 9,
        attempts: 9,
        outageStep: 0,
        unavailableSince: null,
        turns: {},
      },
    });
    const types: string[] = [];
    for (let i = 0; i < 6; i++) {
      await setSubscription(id, { blockedUntil: NOW });
      await dispatchAt(NOW + i, [id], async ({ type }) => {
        types.push(type);
        return REJECTED;
      });
    }
    expect(types.filter((type) => type === "lead.created")).toHaveLength(3);
  });

  test("are sent one at a time while requests are spaced", async () => {
    const { id } = await owed(10, NOW);
    await setSubscription(id, { concurrency: CONCURRENCY_MAX });
    const { posts, attempt } = subscriber(() => answered(503));
    await dispatchAt(NOW, [id], attempt);
    expect(posts.length).toBeLessThanOrEqual(CONCURRENCY_MAX);
    await dispatchAt(NOW + 1_000, [id], attempt);
    await dispatchAt(NOW + 3_000, [id], attempt);
    expect(posts.length).toBeLessThanOrEqual(CONCURRENCY_MAX + 2);
    expect((await subscriptionRow(id)).blockedUntil).toBe(NOW + 8_000);
  });

  test("include none that was delivered when the newest is next while requests are spaced", async () => {
    const { id } = await owed(3, NOW);
    const rows = await deliveriesTo(id);
    await setDeliveries(id, { state: "delivered", dueAt: NOW + 1 }, rows[2]?.eventId);
    await setSubscription(id, { blockedUntil: NOW });
    const { posts, attempt } = subscriber(() => REJECTED);
    await dispatchAt(NOW + 2, [id], attempt);
    expect(posts).toEqual([rows[1]?.eventId]);
  });

  test("that only failed during an outage are due at once when it ends", async () => {
    const { id } = await owed(30, NOW);
    for (let i = 0; i < 30; i++) {
      await setSubscription(id, { blockedUntil: NOW });
      await dispatchAt(NOW + i, [id], REJECTED);
    }
    expect((await deliveriesTo(id)).every(({ attempts }) => attempts === 1)).toBe(true);
    await setSubscription(id, { blockedUntil: NOW });
    await dispatchAt(NOW + 5_000, [id], REJECTED);
    const { attempt } = subscriber(() => OK);
    const first = (await deliveriesTo(id)).toSorted((a, b) => a.dueAt - b.dueAt)[0];
    await dispatchAt(Math.max(NOW + 400_000, first?.dueAt ?? 0), [id], attempt);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
  });

  test("that failed before an outage keep their own schedule when it ends", async () => {
    const { id, drafts } = await owed(2, NOW);
    const dueAt = NOW + HOUR_MS;
    await setDeliveries(
      id,
      { priority: PRIORITY.scheduled, attempts: 4, dueAt, lastAt: NOW - HOUR_MS },
      drafts[0]?.id,
    );
    await dispatchAt(NOW, [id], REJECTED);
    await dispatchAt(NOW + 20_000, [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 1, pending: 1 });
  });

  test("of 20 subscriptions that recover in one round are all due at once", async () => {
    const workspaceId = await createWorkspace();
    const ids: string[] = [];
    for (let i = 0; i < 20; i++) ids.push((await subscribe(workspaceId)).id);
    await announceLeads(workspaceId, 5, NOW - HOUR_MS);
    for (const id of ids) {
      const streak = {
        startedAt: NOW - HOUR_MS,
        events: 5,
        attempts: 9,
        outageStep: 9,
        unavailableSince: null,
        turns: {},
      };
      await setSubscription(id, { streak, blockedUntil: NOW - 1, streakRetryAt: NOW - 1 });
      const dueAt = NOW + 9 * HOUR_MS;
      await setDeliveries(id, {
        priority: PRIORITY.inStreak,
        attempts: 6,
        dueAt,
        lastAt: NOW - 1_000,
      });
    }
    const { attempt } = subscriber(() => OK);
    await dispatchAt(NOW, ids, attempt);
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: 5 });
  });
});

test("an event that cannot be read holds up no other event type while requests are spaced", async () => {
  const { id, workspaceId } = await subscribedToBoth();
  await announceRuns(workspaceId, 1, NOW - HOUR_MS);
  const failed = { priority: PRIORITY.inStreak, attempts: 1, lastAt: NOW - 10 * MINUTE_MS };
  await setDeliveries(id, { ...failed, dueAt: NOW + HOUR_MS });
  const spaced = { blockedUntil: NOW, streakRetryAt: NOW };
  await setSubscription(id, { ...streakSince(NOW - HOUR_MS, 9), ...spaced });
  await announceLeads(workspaceId, 1, NOW);
  const tried: WebhookEvent[] = [];
  await dispatchAt(NOW, [id], async ({ type }) => {
    tried.push(type);
    if (type === "lead.created") throw new UnreadableEvent();
    return REJECTED;
  });
  expect(tried).toEqual(["lead.created", "run.completed"]);
});

describe("a manual send of a delivery", () => {
  test("is sent although requests are blocked", async () => {
    const { id, drafts } = await owed(1, NOW);
    await dispatchAt(NOW, [id], answered(503));
    const { blockedUntil } = await subscriptionRow(id);
    await redeliver(id, [drafts[0]?.id ?? ""], NOW + 500);
    const { posts, attempt } = subscriber(() => OK);
    await dispatchAt(NOW + 500, [id], attempt);
    expect(blockedUntil).toBeGreaterThan(NOW + 500);
    expect(posts).toHaveLength(1);
  });

  test("leaves everything as it was if it fails", async () => {
    const { id, drafts } = await owed(1, NOW);
    await dispatchAt(NOW, [id], answered(503));
    const before = await subscriptionRow(id);
    const [{ dueAt, attempts } = {}] = await deliveriesTo(id);
    await redeliver(id, [drafts[0]?.id ?? ""], NOW + 500);
    await dispatchAt(NOW + 500, [id], answered(500));
    const after = await subscriptionRow(id);
    expect(after.streak).toEqual(before.streak);
    expect(after.blockedUntil).toBe(before.blockedUntil);
    expect((await deliveriesTo(id))[0]).toMatchObject({ dueAt, attempts, state: "pending" });
  });

  test.each([
    ["succeeds", OK],
    ["fails", answered(500)],
  ])("during an attempt in flight that %s is sent again", async (_, outcome) => {
    const { id, drafts } = await owed(1, NOW);
    await dispatchAt(NOW, [id], answered(503));
    await setDeliveries(id, { dueAt: NOW + HOUR_MS });
    await setSubscription(id, { streakRetryAt: NOW + 1_000 });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return OK;
      await redeliver(id, [drafts[0]?.id ?? ""], NOW + 2_000);
      return outcome;
    });
    for (const now of [NOW + 2_000, NOW + 3_000]) await dispatchAt(now, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

describe("another URL", () => {
  test("starts with a clean slate, and gets what failed at the former one at once", async () => {
    const { id } = await owed(30, NOW - 12 * HOUR_MS);
    const dueAt = NOW + 13 * HOUR_MS;
    const failed = { attempts: 8, dueAt, lastAt: NOW - HOUR_MS };
    await setDeliveries(id, { ...failed, priority: PRIORITY.inStreak });
    const [first] = await deliveriesTo(id);
    await setDeliveries(id, { ...failed, priority: PRIORITY.scheduled }, first?.eventId);
    const streak = {
      startedAt: 1,
      events: 30,
      attempts: 50,
      outageStep: 9,
      unavailableSince: null,
      turns: {},
    };
    await setSubscription(id, { streak, blockedUntil: dueAt, failures: 50, failingSince: 1 });
    await exports.Platform.updateWebhook({ webhookId: id, url: "https://ok-other.example/" });
    expect(await subscriptionRow(id)).toMatchObject({
      streak: null,
      blockedUntil: 0,
      failingSince: null,
      failures: 0,
    });
    const { attempt } = subscriber(() => OK);
    await dispatchAt(NOW, [id], attempt);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
  });

  test.each([
    ["fails", 8, REJECTED],
    ["fails as the last one of its schedule", 10, REJECTED],
    ["succeeds", 8, OK],
  ])(
    "gets a retry at once that was in flight to the former one, unless that succeeds: it %s",
    async (_, attempts, outcome) => {
      const { id } = await owed(1, NOW - DAY_MS);
      await setDeliveries(id, { attempts, priority: PRIORITY.scheduled, dueAt: NOW });
      const { posts, attempt } = subscriber(async () => {
        if (posts.length > 1) return OK;
        await exports.Platform.updateWebhook({ webhookId: id, url: "https://ok-other.example/" });
        return outcome;
      });
      for (const now of [NOW, NOW + 1]) await dispatchAt(now, [id], attempt);
      expect(posts).toHaveLength(outcome === OK ? 1 : 2);
      expect(await statesOf(id)).toEqual({ delivered: 1 });
    },
  );

  test("keeps the retry schedule of what was in flight to the former one, and is rejected by both", async () => {
    const { id } = await owed(1, NOW - DAY_MS);
    await setDeliveries(id, { attempts: 8, priority: PRIORITY.scheduled, dueAt: NOW });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return REJECTED;
      await exports.Platform.updateWebhook({ webhookId: id, url: "https://ok-other.example/" });
      return REJECTED;
    });
    for (const now of [NOW, NOW + 1]) await dispatchAt(now, [id], attempt);
    expect(posts).toHaveLength(2);
    const dueAt = NOW + (RETRY_WAITS_SECONDS[8] ?? 0) * 1000;
    expect(await deliveriesTo(id)).toMatchObject([{ state: "pending", attempts: 9, dueAt }]);
  });
});

describe("an event type that is removed from a subscription", () => {
  const leadsOnly = (webhookId: string) =>
    exports.Platform.updateWebhook({ webhookId, events: ["lead.created"] });

  test("is no longer sent", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 3, NOW);
    await announceLeads(workspaceId, 1, NOW);
    await leadsOnly(id);
    const { attempt } = subscriber(() => OK);
    await dispatchAt(NOW, [id], attempt, "slow");
    await dispatchAt(NOW, [id], attempt, "fast");
    expect(await statesOf(id)).toEqual({ cancelled: 3, delivered: 1 });
  });

  test("stays cancelled when it is listed again, while new events are sent", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 2, NOW);
    await leadsOnly(id);
    await exports.Platform.updateWebhook({
      webhookId: id,
      events: ["lead.created", "run.completed"],
    });
    await announceRuns(workspaceId, 1, NOW);
    const { attempt } = subscriber(() => OK);
    await dispatchAt(NOW, [id], attempt, "slow");
    await dispatchAt(NOW, [id], attempt, "fast");
    expect(await statesOf(id)).toEqual({ cancelled: 2, delivered: 1 });
  });

  test("takes its failures with it if nothing else has failed", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 3, NOW);
    await dispatchAt(NOW, [id], REJECTED);
    await leadsOnly(id);
    expect(await subscriptionRow(id)).toMatchObject({
      failingSince: null,
      streak: null,
      rejections: {},
    });
  });

  test("leaves the failures of a type that is still listed", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, NOW);
    await announceLeads(workspaceId, 1, NOW);
    await dispatchAt(NOW, [id], REJECTED);
    await leadsOnly(id);
    const row = await subscriptionRow(id);
    expect(row.failures).toBe(2);
    expect(Object.keys(row.rejections)).toEqual(["lead.created"]);
  });

  test("does not count if an attempt at it that is in flight fails afterwards", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, NOW);
    const held = await heldDispatch(NOW, id);
    await leadsOnly(id);
    await held.finish(answered(503));
    expect(await subscriptionRow(id)).toMatchObject({ streak: null, blockedUntil: 0 });
  });
});

describe("a dispatch", () => {
  test("leaves one delayed message for what waits, however often it looks", async () => {
    const { id, workspaceId } = await owed(1, Date.now() - HOUR_MS);
    const [waiting] = await deliveriesTo(id);
    const dueAt = Date.now() + 5 * HOUR_MS;
    await setDeliveries(id, { priority: PRIORITY.scheduled, attempts: 6, dueAt }, waiting?.eventId);
    const { env, fast, slow } = isolated();
    const { attempt } = subscriber(() => OK);
    for (let i = 0; i < 10; i++) {
      await announceLeads(workspaceId, 1, Date.now());
      await consumeFor([id], env, attempt);
    }
    const delayed = [...fast, ...slow].filter(({ delaySeconds }) => delaySeconds > 17_000);
    expect(delayed).toHaveLength(1);
  });

  test("sends a delayed message after one that came early, whatever else came with that", async () => {
    const { id } = await owed(1, Date.now() - HOUR_MS);
    const wakeAt = Date.now() + HOUR_MS;
    await setDeliveries(id, { priority: PRIORITY.scheduled, attempts: 6, dueAt: wakeAt });
    await setSubscription(id, { notedWakeAt: wakeAt });
    const { env, fast, slow } = isolated();
    const message = { subscriptionId: id, queue: "fast", database: DATABASE };
    await consumeBodies([{ ...message, wakeAt }, message], env, subscriber().attempt);
    expect([...fast, ...slow]).toMatchObject([{ subscriptionId: id, wakeAt }]);
  });

  test("sends a delayed message after one that has arrived, even if its own clock is behind", async () => {
    const now = Date.now();
    const { id } = await owed(2, now - HOUR_MS);
    const [first, second] = await deliveriesTo(id);
    const { manual } = PRIORITY;
    await setDeliveries(id, { priority: manual, dueAt: now }, first?.eventId);
    await setDeliveries(id, { priority: manual, dueAt: now + 100 }, second?.eventId);
    await setSubscription(id, { blockedUntil: now + HOUR_MS, notedWakeAt: now });
    const { env, fast } = isolated();
    const { attempt } = subscriber(() => REJECTED);
    const message = { subscriptionId: id, queue: "fast", database: DATABASE };
    jumpTo(now + 1_000);
    await consumeBodies([{ ...message, wakeAt: now }], env, attempt);
    jumpTo(now - 1_000);
    await consumeFor([id], env, attempt);
    expect(fast).toMatchObject([
      { subscriptionId: id, delaySeconds: 0 },
      { subscriptionId: id, wakeAt: now + 100 },
    ]);
  });

  test("notes no delayed message for a subscription that is disabled", async () => {
    const { id } = await owed(1, NOW);
    await setDeliveries(id, { dueAt: NOW + HOUR_MS });
    await exports.Platform.disableWebhook({ webhookId: id });
    await dispatchAt(NOW, [id], OK);
    expect((await subscriptionRow(id)).notedWakeAt).toBe(0);
  });

  test("records the outcomes of others though one workspace was locked in the meantime", async () => {
    const one = await owed(1, NOW);
    const other = await owed(1, NOW);
    let now = NOW;
    const bothSent = Promise.withResolvers<void>();
    let sent = 0;
    await dispatchAt(
      () => now,
      [one.id, other.id],
      async () => {
        if (++sent === 2) bothSent.resolve();
        await bothSent.promise;
        now = NOW + 20_100;
        const lock = { writeLock: "locked" as const, moveId: "m" };
        await db.update(workspaces).set(lock).where(eq(workspaces.id, one.workspaceId));
        return OK;
      },
    );
    expect(await statesOf(other.id)).toEqual({ delivered: 1 });
    expect(await statesOf(one.id)).toEqual({ pending: 1 });
  });
});

test("another URL leaves a resend its priority", async () => {
  const { id, drafts } = await owed(1, NOW);
  await dispatchAt(NOW, [id], REJECTED);
  const eventIds = drafts.map((draft) => draft.id);
  await redeliver(id, eventIds, NOW);
  await commit(db, updateSubscription(id, { url: subscriberUrl() }));
  expect(await deliveryTo(id)).toMatchObject({ priority: PRIORITY.manual });
});

test.each([
  ["changes the pace", {}],
  ["changes nothing else", { concurrency: 6, acceptedTypes: ["lead.created" as const] }],
])("a success that %s ends the note that deliveries were exhausted", async (_, pace) => {
  const { id } = await owed(1, NOW);
  await setSubscription(id, { ...pace, pendingExhaustedAt: NOW });
  await dispatchAt(NOW, [id], OK);
  expect((await subscriptionRow(id)).pendingExhaustedAt).toBe(null);
});

test.each([300, 400])(
  "a failure with status %i does not end the note that deliveries were exhausted",
  async (status) => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { pendingExhaustedAt: NOW });
    await dispatchAt(NOW, [id], answered(status));
    expect((await subscriptionRow(id)).pendingExhaustedAt).toBe(NOW);
  },
);

test("a success that is recorded again after a lost reply does not end a note made since", async () => {
  const { id } = await owed(1, NOW);
  const noteAt = async (trip: number) => {
    if (trip === 3) await setSubscription(id, { pendingExhaustedAt: NOW });
  };
  const { DB } = observedDatabase({ before: noteAt, after: failAtTrip(2) });
  await dispatchOn(DB, NOW, [id], OK);
  expect((await subscriptionRow(id)).pendingExhaustedAt).toBe(NOW);
});

test("no deliveries are exhausted while no more are pending than the bound", async () => {
  const { id } = await owed(3, NOW - MINUTE_MS);
  expect(await commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW))).toBe(0);
  expect(await statesOf(id)).toEqual({ pending: 3 });
});

test("as many pending deliveries as the bound allows are no reason to note an overflow", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  await insertNewer(PENDING_MAX - 1, "lead.created", { id, workspaceId });
  expect(await commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW))).toBe(0);
  expect(await subscriptionRow(id)).toMatchObject({ pendingExhaustedAt: null });
});

/** Inserts pending deliveries of events that are newer than all others. */
async function insertNewer(
  count: number,
  type: WebhookEvent,
  { id, workspaceId }: { id: string; workspaceId: string },
  { priority, dueAt }: { priority: Priority; dueAt: number } = {
    priority: PRIORITY.untried,
    dueAt: NOW,
  },
): Promise<void> {
  await insertDeliveries(
    Array.from({ length: count }, (_, i) => ({
      subscriptionId: id,
      eventId: `evt_z${i}`,
      workspaceId,
      type,
      priority,
      dueAt,
    })),
  );
}

test("deliveries of a removed event type displace no others before their rows are marked", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  await setSubscription(id, { events: ["lead.created", "run.completed"] });
  await insertNewer(PENDING_MAX + 5, "run.completed", { id, workspaceId });
  const database = openDatabase(WORKSPACE_DB);
  await commit(database, updateSubscription(id, { events: ["lead.created"] }));
  expect(await commit(database, exhaustOverflow(id, NOW + 1_000))).toBe(0);
  expect(await subscriptionRow(id)).toMatchObject({ cancelling: true, pendingExhaustedAt: null });
});

test("deliveries that a replay has scheduled count for the bound once they are due", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  const replayed = { priority: PRIORITY.scheduled, dueAt: NOW + HOUR_MS };
  await insertNewer(PENDING_MAX + 5, "lead.created", { id, workspaceId }, replayed);
  const exhaustAt = (now: number) => commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, now));
  expect(await exhaustAt(NOW + HOUR_MS - 1)).toBe(0);
  expect(await subscriptionRow(id)).toMatchObject({ pendingExhaustedAt: null });
  expect(await exhaustAt(NOW + HOUR_MS)).toBe(6);
});

test("deliveries beyond the bound stay pending while their workspace moves", async () => {
  const { id, workspaceId } = await owed(1, NOW);
  await insertNewer(PENDING_MAX, "lead.created", { id, workspaceId });
  const exhaust = () => commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW));
  const lock = (writeLock: "draining" | null) =>
    db.update(workspaces).set({ writeLock }).where(eq(workspaces.id, workspaceId));
  await lock("draining");
  expect(await exhaust()).toBe(0);
  expect(await subscriptionRow(id)).toMatchObject({ pendingExhaustedAt: null });
  await lock(null);
  expect(await exhaust()).toBe(1);
});

test("deliveries beyond the bound of a leased subscription are exhausted, but for the next hundred to send", async () => {
  const { id, workspaceId } = await owed(101, NOW - MINUTE_MS);
  const [first = ""] = (await deliveriesTo(id)).map(({ eventId }) => eventId).toSorted();
  const tomorrow = { priority: PRIORITY.scheduled, attempts: 1, dueAt: NOW + 24 * HOUR_MS };
  await setDeliveries(id, tomorrow, first);
  await insertNewer(PENDING_MAX - 99, "lead.created", { id, workspaceId });
  await setSubscription(id, { leasedUntil: NOW + 1 });
  expect(await commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW))).toBe(2);
  const rows = await deliveriesTo(id);
  const exhausted = rows.filter(({ state }) => state === "exhausted").map(({ eventId }) => eventId);
  const oldest = rows.map(({ eventId }) => eventId).toSorted();
  // The other hundred are next, so they are probably being sent.
  expect(exhausted.toSorted()).toEqual([first, oldest[101]]);
});

test("the oldest deliveries beyond the bound are exhausted, and can be sent again", async () => {
  const { id, workspaceId } = await owed(3, NOW - MINUTE_MS);
  const [first = "", second = ""] = (await deliveriesTo(id))
    .map(({ eventId }) => eventId)
    .toSorted();
  // With these, which are newer, two more than the bound are pending.
  await insertNewer(PENDING_MAX - 1, "lead.created", { id, workspaceId });
  const exhaust = () => commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW));
  expect([await exhaust(), await exhaust()]).toEqual([2, 0]);
  expect(await subscriptionRow(id)).toMatchObject({ pendingExhaustedAt: NOW });
  await announceLeads(workspaceId, 1, NOW + MINUTE_MS);
  expect(await commit(openDatabase(WORKSPACE_DB), exhaustOverflow(id, NOW + MINUTE_MS))).toBe(1);
  expect(await subscriptionRow(id)).toMatchObject({ pendingExhaustedAt: NOW });
  await WORKSPACE_DB.prepare(
    "DELETE FROM deliveries WHERE subscription_id = ? AND event_id LIKE 'evt_z%'",
  )
    .bind(id)
    .run();
  expect(await statesOf(id)).toEqual({ exhausted: 3, pending: 1 });
  const { items } = await exports.Platform.listDeliveries({ webhookId: id, state: "exhausted" });
  const lastAttempt = { at: isoTime(NOW), outcome: "overflow", status: null, durationMs: null };
  expect(items.slice(-2)).toMatchObject(
    [first, second].map((eventId) => ({ eventId, lastAttempt })).reverse(),
  );
  const eventIds = [first, second];
  expect(await exports.Platform.redeliver({ webhookId: id, eventIds })).toMatchObject({ count: 2 });
});

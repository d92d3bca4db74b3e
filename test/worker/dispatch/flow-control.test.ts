import { eq, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { randomId } from "../../../src/contract/ids.ts";
import { DISABLE_AFTER_MS, RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { PRIORITY, replays } from "../../../src/db/schema.ts";
import type { Outcome, PendingDelivery } from "../../../src/delivery/policy.ts";
import { CLAIM_MAX } from "../../../src/dispatch/claims.ts";
import { deliver } from "../../../src/dispatch/deliver.ts";
import { announce, draftEvent } from "../../../src/events/outbox.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import {
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  type Webhook,
} from "../../../src/subscriptions/subscriptions.ts";
import { eventsOf, openWorkspace, Platform } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  failAt,
  failAtTrip,
  failingSince,
  HOUR_MS,
  heldDispatch,
  MINUTE_MS,
  observedDatabase,
  owed,
  portsAt,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db } from "../../support/placement.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
const REJECTED = answered(400);
const BUSY = answered(503);
const FAR_URL = "https://ok-other.example/";

/** Announces completed runs. */
async function announceRuns(workspaceId: string, count: number, now: number) {
  const drafts = Array.from({ length: count }, () =>
    draftEvent("run.completed", { id: randomId("run") } as never, now),
  );
  const condition = () => sql`true`;
  await commit(db, announce(workspaceId, "run.completed", drafts, condition, now));
  return drafts.map(({ id }) => id);
}

/** A new subscription to leads and runs. */
async function subscribedToBoth() {
  const workspaceId = await createWorkspace();
  const events: WebhookEvent[] = ["lead.created", "run.completed"];
  return { workspaceId, ...(await subscribe(workspaceId, { events })) };
}

/** Dispatches whenever a wake-up message comes, until `until`. */
async function workUntil(
  clock: { now: number },
  id: string,
  until: number,
  attempt: Parameters<typeof dispatchAt>[2],
): Promise<void> {
  // The delayed message that was noted before has come.
  await setSubscription(id, { nextMessageAt: 0 });
  for (;;) {
    const [next] = await dispatchAt(() => clock.now, [id], attempt);
    if (!next || (next.wakeAt ?? 0) > until) break;
    clock.now = Math.max(clock.now + 1, next.wakeAt ?? 0);
  }
  clock.now = until;
}

const ofType = (type: WebhookEvent) => async (id: string) =>
  (await deliveriesTo(id)).filter((delivery) => delivery.type === type);
const leadsOf = ofType("lead.created");
const runsOf = ofType("run.completed");

describe("pending deliveries of a subscription", () => {
  test("are sent in the order of resends, first attempts, retries and replays", async () => {
    const { id, drafts } = await owed(4, NOW);
    const { replay, retry, untried, resend } = PRIORITY;
    for (const [i, priority] of [replay, retry, untried, resend].entries())
      await setDeliveries(id, { priority, dueAt: NOW - 4 + i }, drafts[i]?.id);
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toEqual(drafts.map((draft) => draft.id).toReversed());
  });

  test("of one priority are sent in the order of their due times, also beyond one claim", async () => {
    const { id, drafts } = await owed(CLAIM_MAX.fast + 1, NOW);
    for (const [i, draft] of drafts.entries())
      await setDeliveries(id, { dueAt: NOW - i }, draft.id);
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toEqual(drafts.map((draft) => draft.id).toReversed());
  });

  test("take turns by event type, so that none waits for the backlog of another", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    const resent = (await announceRuns(workspaceId, 122, NOW - HOUR_MS)).slice(0, 2);
    await announceLeads(workspaceId, 3, NOW);
    // Resends take no turn.
    for (const eventId of resent) await setDeliveries(id, { priority: PRIORITY.resend }, eventId);
    const posts: [type: WebhookEvent, isResent: boolean][] = [];
    await dispatchAt(NOW, [id], async ({ type, eventId }) => {
      posts.push([type, resent.includes(eventId)]);
      return OK;
    });
    expect(posts.slice(0, 3).map(([, isResent]) => isResent)).toEqual([true, true, false]);
    expect(posts.slice(0, 8).filter(([type]) => type === "lead.created")).toHaveLength(3);
  });
});

describe("an event type that an endpoint rejects", () => {
  // Each for long enough for its circuit to be open for as long as it may be.
  test.each<[string, waitMs: number, minutes: number, Outcome]>([
    ["with 400", 0, 3, REJECTED],
    ["asking for half an hour", 0, 2, answered(429, 1_800)],
    ["by timing out", 11_000, 10, { kind: "timed_out" }],
  ])("%s delays another one by %i ms at most", async (_, waitMs, minutes, outcome) => {
    const { id, workspaceId } = await subscribedToBoth();
    const clock = { now: NOW };
    const { attempt } = subscriber(({ type }) => {
      if (type === "lead.created") return OK;
      if (outcome.kind === "timed_out") clock.now += 10_000;
      return outcome;
    });
    for (let i = 1; i <= minutes; i++) {
      await announceRuns(workspaceId, 1, clock.now);
      await announceLeads(workspaceId, 1, clock.now);
      await workUntil(clock, id, Math.max(clock.now, NOW + i * MINUTE_MS), attempt);
    }
    const waits = (await leadsOf(id)).map(
      ({ dueAt, settledAt }) => (settledAt ?? clock.now) - dueAt,
    );
    expect(waits).toHaveLength(minutes);
    expect(Math.max(...waits)).toBeLessThanOrEqual(waitMs);
    expect((await runsOf(id)).every(({ state }) => state === "pending")).toBe(true);
  });
});

describe("an open circuit", () => {
  test("lets one request at a time probe the endpoint, at the times of its steps", async () => {
    const { id } = await owed(10, NOW);
    await setSubscription(id, { concurrency: 6 });
    const clock = { now: NOW };
    const times: number[] = [];
    await workUntil(clock, id, NOW + 50_000, async () => {
      times.push((clock.now - NOW) / 1000);
      return BUSY;
    });
    // Those in flight with the first one, and then after 1, 2, 5, 10 and 30 s.
    expect(times.filter((time) => time > 0)).toEqual([1, 3, 8, 18, 48]);
    expect((await deliveriesTo(id)).every(({ stepsUsed }) => stepsUsed === 0)).toBe(true);
  });

  test("starts nothing more of its event type, and goes on with the others", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 9, NOW);
    await announceLeads(workspaceId, 5, NOW);
    const { posts, attempt } = subscriber(({ type }) => (type === "lead.created" ? OK : BUSY));
    await dispatchAt(NOW, [id], attempt);
    // A second one was in flight when the first one opened the circuit.
    expect(posts.length - 5).toBeLessThanOrEqual(2);
    expect(await statesOf(id)).toEqual({ delivered: 5, pending: 9 });
  });

  test("closes with a success, and everything that waited is sent at once", async () => {
    const { id } = await owed(30, NOW);
    const clock = { now: NOW };
    await workUntil(clock, id, NOW + 10 * MINUTE_MS, BUSY);
    expect(await statesOf(id)).toEqual({ pending: 30 });
    const endedAt = clock.now;
    await workUntil(clock, id, endedAt + 300_000, OK);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
    expect(await subscriptionRow(id)).toMatchObject({ circuits: {}, failingSince: null });
  });

  test("closes, and what was first rejected before is due at once, but only once", async () => {
    const { id, drafts } = await owed(3, NOW);
    const bad = drafts[0]?.id;
    await setDeliveries(id, { dueAt: NOW - 1 }, bad);
    let attempts = 0;
    const attempt = async ({ eventId }: PendingDelivery) => {
      if (eventId === bad) attempts++;
      return eventId === bad ? REJECTED : OK;
    };
    await dispatchAt(NOW, [id], attempt);
    // It was rejected first, and then the others have succeeded.
    expect(attempts).toBe(2);
    const dueAt = NOW + (RETRY_WAITS_SECONDS[1] ?? 0) * 1000;
    const [row] = (await deliveriesTo(id)).filter(({ state }) => state === "pending");
    expect(row).toMatchObject({ eventId: bad, stepsUsed: 2, dueAt });
  });

  test("closes, and what is rejected after that waits as its own attempt has decided", async () => {
    const { id, drafts } = await owed(2, NOW);
    const [bad = ""] = drafts.map((draft) => draft.id);
    const { circuits } = failingSince(NOW, 0, 0);
    await setSubscription(id, {
      circuits: { "lead.created": { ...circuits["lead.created"], rejected: [bad] } },
    });
    await setDeliveries(id, { priority: PRIORITY.retry, stepsUsed: 1 }, bad);
    const { posts, attempt } = subscriber(({ eventId }) => (eventId === bad ? REJECTED : OK));
    await dispatchAt(NOW, [id], attempt);
    // The untried one comes first.
    expect(posts).toEqual([drafts[1]?.id, bad]);
    const dueAt = NOW + (RETRY_WAITS_SECONDS[1] ?? 0) * 1000;
    const pending = (await deliveriesTo(id)).filter(({ state }) => state === "pending");
    expect(pending).toMatchObject([{ eventId: bad, stepsUsed: 2, dueAt }]);
  });

  test.each([
    ["sent at once", PRIORITY.retry, true],
    ["left in its place, if a replay sends it", PRIORITY.replay, false],
  ])("closes, and what was rejected is %s", async (_, priority, isSent) => {
    const { id, drafts } = await owed(3, NOW);
    const [bad = "", retried] = drafts.map((draft) => draft.id);
    const { circuits } = failingSince(NOW, 0, 0);
    await setSubscription(id, {
      circuits: { "lead.created": { ...circuits["lead.created"], rejected: [bad] } },
    });
    await setDeliveries(id, { priority, dueAt: NOW + HOUR_MS }, bad);
    // It was first rejected before an earlier success, so it keeps its own time.
    await setDeliveries(id, { priority: PRIORITY.retry, dueAt: NOW + HOUR_MS }, retried);
    const { posts, attempt } = subscriber(() => OK);
    await dispatchAt(NOW, [id], attempt);
    expect(posts.includes(bad)).toBe(isSent);
    expect(posts).toHaveLength(isSent ? 2 : 1);
  });

  test.each([
    ["newest", 0, 3],
    ["oldest", 0.9, 1],
  ])("probes with the %s untried event if the random number is %d", async (_, random, probe) => {
    const { id, drafts } = await owed(4, NOW);
    await setSubscription(id, failingSince(NOW - HOUR_MS, 9, NOW));
    for (const [i, draft] of drafts.entries())
      await setDeliveries(id, { dueAt: NOW - 4 + i }, draft.id);
    await setDeliveries(id, { priority: PRIORITY.retry, firstAt: NOW - 1 }, drafts[0]?.id);
    const { posts, attempt } = subscriber(() => REJECTED);
    await deliver(db, id, "fast", { ...portsAt(NOW, attempt), random: () => random }, 6);
    expect(posts).toEqual([drafts[probe]?.id]);
  });
});

test("Open circuits of two event types each let a probe through", async () => {
  const { id, workspaceId } = await subscribedToBoth();
  await announceRuns(workspaceId, 2, NOW);
  await announceLeads(workspaceId, 2, NOW);
  const { circuits, ...failing } = failingSince(NOW - HOUR_MS, 9);
  const { "lead.created": circuit } = circuits;
  await setSubscription(id, { ...failing, circuits: { ...circuits, "run.completed": circuit } });
  const types: WebhookEvent[] = [];
  await dispatchAt(NOW, [id], async ({ type }) => {
    types.push(type);
    return REJECTED;
  });
  expect(types.toSorted()).toEqual(["lead.created", "run.completed"]);
});

describe("a resend", () => {
  test("is sent at once while the circuit is open, and its success closes it", async () => {
    const { id, drafts } = await owed(5, NOW);
    await dispatchAt(NOW, [id], answered(503, 1_800));
    await redeliver(id, [drafts[4]?.id ?? ""], NOW + 500);
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW + 500, [id], attempt);
    expect(posts[0]).toBe(drafts[4]?.id);
    expect(await statesOf(id)).toEqual({ delivered: 5 });
  });
});

describe("a replay", () => {
  test("comes last, and waits while the circuit is open", async () => {
    const { id, workspaceId, drafts } = await owed(1, NOW - HOUR_MS);
    await dispatchAt(NOW - HOUR_MS, [id], OK);
    const range = { since: NOW - DAY_MS, until: null, states: ["delivered"] } as const;
    expect(await redeliver(id, range, NOW)).toBe(1);
    const [fresh] = await announceLeads(workspaceId, 1, NOW);
    await setSubscription(id, failingSince(NOW, 1, NOW + 9));
    const { posts, attempt } = subscriber();
    await dispatchAt(NOW + 8, [id], attempt);
    expect(posts).toEqual([]);
    await dispatchAt(NOW + 9, [id], attempt);
    expect(posts).toEqual([fresh?.id, drafts[0]?.id]);
  });
});

describe("another URL", () => {
  test("starts with a clean slate, and gets what failed at the former one at once", async () => {
    const { id } = await owed(30, NOW - 12 * HOUR_MS);
    const failed = { stepsUsed: 8, dueAt: NOW + 13 * HOUR_MS, firstAt: NOW - 12 * HOUR_MS };
    await setDeliveries(id, { ...failed, priority: PRIORITY.retry });
    await setSubscription(id, { ...failingSince(1, 50, NOW + DAY_MS), concurrency: 4, slow: true });
    await Platform.updateWebhook({ webhookId: id, url: FAR_URL });
    const clean = { circuits: {}, failingSince: null, failures: 0, concurrency: 1, slow: false };
    expect(await subscriptionRow(id)).toMatchObject(clean);
    await dispatchAt(Date.now(), [id], OK);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
  });

  test.each([
    ["fails", 8, REJECTED, 2],
    ["fails as the last one of its schedule", 10, REJECTED, 2],
    ["succeeds", 8, OK, 1],
  ])(
    "gets at once what was in flight to the former one, unless that succeeds: it %s",
    async (_, stepsUsed, outcome, requests) => {
      const { id } = await owed(1, NOW - DAY_MS);
      await setDeliveries(id, { stepsUsed, priority: PRIORITY.retry, dueAt: NOW });
      const { posts, attempt } = subscriber(async () => {
        if (posts.length > 1) return OK;
        await Platform.updateWebhook({ webhookId: id, url: FAR_URL });
        return outcome;
      });
      for (const now of [NOW, NOW + 1]) await dispatchAt(now, [id], attempt);
      expect(posts).toHaveLength(requests);
      expect(await statesOf(id)).toEqual({ delivered: 1 });
    },
  );

  test("counts no failure at the former one for a replay", async () => {
    const { id } = await owed(1, NOW);
    await dispatchAt(NOW, [id], OK);
    await redeliver(id, { since: NOW, until: null, states: ["delivered"] }, NOW + 1);
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return OK;
      await Platform.updateWebhook({ webhookId: id, url: FAR_URL });
      return REJECTED;
    });
    for (const now of [NOW + 1, NOW + 2]) await dispatchAt(now, [id], attempt);
    const counted = await db.select().from(replays).where(eq(replays.subscriptionId, id));
    expect(counted).toMatchObject([{ delivered: 1, failed: 0 }]);
  });

  test.each([
    ["does not wait because of a request to the former one", { url: FAR_URL }, "delivered", 2],
    ["waits with another description alone", { description: "ERP" }, "pending", 1],
  ])("%s", async (_, change, state, requests) => {
    const { id } = await owed(1, NOW);
    await setSubscription(id, { concurrency: 6 });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return OK;
      await Platform.updateWebhook({ webhookId: id, ...change });
      return answered(503, 1_800);
    });
    await dispatchAt(NOW, [id], attempt);
    expect(posts).toHaveLength(requests);
    expect(await deliveryTo(id)).toMatchObject({ state });
    const { circuits, concurrency } = await subscriptionRow(id);
    expect(Object.keys(circuits)).toEqual(state === "pending" ? ["lead.created"] : []);
    // With a new URL, concurrency starts at 1, and one success raises it to 2.
    expect(concurrency).toBe(state === "pending" ? 3 : 2);
  });
});

describe("an event type that is removed from a subscription", () => {
  const leadsOnly = (webhookId: string) =>
    Platform.updateWebhook({ webhookId, events: ["lead.created"] });

  test("takes its failures with it if nothing else has failed", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 3, NOW);
    await dispatchAt(NOW, [id], REJECTED);
    expect((await subscriptionRow(id)).failures).toBeGreaterThan(0);
    await leadsOnly(id);
    const state = { failures: 0, failingSince: null, circuits: {} };
    expect(await subscriptionRow(id)).toMatchObject(state);
  });

  test("leaves the failures of a type that is still listed", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, NOW);
    await announceLeads(workspaceId, 1, NOW);
    await dispatchAt(NOW, [id], REJECTED);
    await leadsOnly(id);
    const row = await subscriptionRow(id);
    expect(row).toMatchObject({ failures: 2, failingSince: NOW });
    expect(Object.keys(row.circuits)).toEqual(["lead.created"]);
  });

  test("does not count if a request of it that is in flight fails afterwards", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, NOW);
    const held = await heldDispatch(NOW, id);
    await leadsOnly(id);
    await held.finish(BUSY);
    const state = { failures: 0, failingSince: null, circuits: {} };
    expect(await subscriptionRow(id)).toMatchObject(state);
  });
});

describe("a subscription is disabled", () => {
  const T0 = NOW;
  const END = T0 + DISABLE_AFTER_MS;
  /** Times an hour apart, starting at `T0`. */
  const hourly = (count: number) => Array.from({ length: count }, (_, i) => T0 + i * HOUR_MS);

  /** Fails from `T0` on, at two events if it has as many, and counts one failure less than it may have. */
  async function failNineTimes(id: string, outcome?: Parameters<typeof failAt>[2]) {
    await failAt(id, hourly(2), outcome);
    await setSubscription(id, { failures: 9 });
  }

  test.each([
    [1, null],
    [2, END],
  ])("by failures at %i events: at %j", async (events, disabledAt) => {
    const { id } = await owed(events, T0);
    await failNineTimes(id);
    await failAt(id, [END]);
    const disabledByFailures = disabledAt !== null;
    const row = { failures: 10, failingSince: T0, disabledAt, disabledByFailures };
    expect(await subscriptionRow(id)).toMatchObject(row);
  });

  test.each([
    ["cannot be read", { priority: PRIORITY.retry, lastOutcome: "unreadable" }],
    ["was never sent", { state: "exhausted", lastOutcome: "overflow" }],
  ] as const)("not by failures at one event beside another that %s", async (_, row) => {
    const { id, drafts } = await owed(2, T0);
    const other = drafts[0]?.id;
    await setDeliveries(id, { ...row, lastAt: T0 + 1, dueAt: END + HOUR_MS }, other);
    await failNineTimes(id);
    await failAt(id, [END]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 10, disabledAt: null });
    await setDeliveries(id, { lastOutcome: "answered" }, other);
    await failAt(id, [END + 2 * MINUTE_MS]);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END + 2 * MINUTE_MS });
  });

  test("by failures at two events beside any number that cannot be read", async () => {
    const { id, workspaceId } = await owed(20, T0);
    const unreadable = { priority: PRIORITY.retry, lastOutcome: "unreadable", lastAt: T0 + 1 };
    await setDeliveries(id, { ...unreadable, dueAt: END + HOUR_MS });
    await announceLeads(workspaceId, 2, T0);
    await failNineTimes(id);
    await failAt(id, [END]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 10, disabledAt: END });
  });

  test.each<[string, WebhookEvent[], object, number | null]>([
    ["by failures of one event of each type", ["lead.created", "run.completed"], {}, END],
    ["not by failures of a type that was removed since", ["lead.created"], { pending: 1 }, null],
  ])("%s", async (_, events, pending, disabledAt) => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 1, T0);
    await announceLeads(workspaceId, 1, T0);
    await failNineTimes(id);
    await Platform.updateWebhook({ webhookId: id, events });
    await failAt(id, [END]);
    expect(await statesOf(id)).toEqual({ cancelled: disabledAt ? 2 : 1, ...pending });
    expect(await subscriptionRow(id)).toMatchObject({ failingSince: T0, disabledAt });
  });

  test("not by failures from before its workspace lost access", async () => {
    const { id, workspaceId } = await owed(2, T0);
    await failNineTimes(id);
    await setSubscription(id, { concurrency: 4, slow: true });
    for (const granted of [false, true])
      await Platform.setWorkspaceAccess({ workspaceId, granted });
    expect(await subscriptionRow(id)).toMatchObject({ concurrency: 1, slow: false });
    await announceLeads(workspaceId, 2, END);
    await failAt(id, [END]);
    expect(await subscriptionRow(id)).toMatchObject({ failingSince: END, disabledAt: null });
  });

  test("alone, with its pending deliveries cancelled, and no event", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId, {
      events: ["lead.created", "automation.status_changed"],
    });
    await announceLeads(workspaceId, 12, T0);
    const other = await subscribe(workspaceId, { createdAt: 1 });
    await announceLeads(workspaceId, 1, T0);
    const shown = async () => (await api.get<PageBody<Webhook>>("/v1/webhooks")).body.data;
    expect(await shown()).toMatchObject([{ disabled_at: null }, { disabled_at: null }]);
    const events = await eventsOf(workspaceId);
    await failNineTimes(id);
    await failAt(id, [END]);
    expect(await shown()).toMatchObject([
      { id: other.id, disabled_at: null },
      { id, disabled_at: new Date(END).toISOString() },
    ]);
    expect(await eventsOf(workspaceId)).toEqual(events);
    expect(await statesOf(other.id)).toEqual({ pending: 1 });
    const cancelled = { state: "cancelled", settledAt: END };
    expect(await deliveriesTo(id)).toMatchObject(Array(13).fill(cancelled));
    const ledger = await Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 14, pending: 1, cancelled: 13, addsUp: true });
  });

  test("not while its endpoint accepts another event type", async () => {
    const { id, workspaceId } = await subscribedToBoth();
    await announceRuns(workspaceId, 15, T0);
    await failNineTimes(id, REJECTED);
    await announceLeads(workspaceId, 1, END - HOUR_MS);
    const { attempt } = subscriber(({ type }) => (type === "lead.created" ? OK : REJECTED));
    await dispatchAt(END - HOUR_MS, [id], attempt);
    await failAt(id, [END, END + HOUR_MS], REJECTED);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null });
  });

  test("by failures of two events since the last success, however many failed before it", async () => {
    const { id, drafts } = await owed(27, T0);
    const failed = { priority: PRIORITY.retry, lastOutcome: "answered", lastStatus: 400 };
    await setDeliveries(id, { ...failed, lastAt: T0 - HOUR_MS, dueAt: T0 });
    for (const draft of drafts.slice(-2))
      await setDeliveries(id, { ...failed, lastAt: T0, dueAt: END + HOUR_MS }, draft.id);
    await setSubscription(id, { ...failingSince(T0, 12, END) });
    await dispatchAt(END, [id], REJECTED);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END });
  });

  test("not by a resend, which does not prevent it either", async () => {
    const { id, drafts } = await owed(15, T0);
    await failAt(id, hourly(2));
    await setDeliveries(id, { priority: PRIORITY.resend, dueAt: END }, drafts[0]?.id);
    await setSubscription(id, { ...failingSince(T0, 12, END + HOUR_MS) });
    await dispatchAt(END, [id], BUSY);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 12, disabledAt: null });
    await setDeliveries(id, { priority: PRIORITY.resend, dueAt: END }, drafts[1]?.id);
    await setSubscription(id, { ...failingSince(T0, 12, END) });
    await dispatchAt(END + 1, [id], REJECTED);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 13, disabledAt: END + 1 });
  });

  test("not if it was deleted in the meantime", async () => {
    const { id, workspaceId } = await owed(15, T0);
    await failAt(id, hourly(2));
    await setSubscription(id, failingSince(T0, 10));
    const late = await heldDispatch(END, id);
    await commit(db, deleteSubscription(workspaceId, id, END));
    await late.finish(BUSY);
    expect(await subscriptionRow(id)).toMatchObject({ disabledByFailures: false });
  });

  test("not by failures from before it was enabled, if its pending deliveries were cancelled meanwhile", async () => {
    const { id } = await owed(15, T0);
    await setSubscription(id, failingSince(T0, 12));
    await commit(db, disableSubscription(id, END));
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip === 3) await commit(db, { enabled: enableSubscription(id) });
      },
    });
    await dispatchOn(DB, END, [id], BUSY);
    expect(await statesOf(id)).toEqual({ cancelled: 15 });
    const healthy = { disabledAt: null, failures: 0, failingSince: null, circuits: {} };
    expect(await subscriptionRow(id)).toMatchObject(healthy);
  });

  test("not by a request from before it was enabled again, even if the reply is lost", async () => {
    const { id } = await owed(15, T0);
    await failAt(id, hourly(2));
    await setSubscription(id, failingSince(T0, 10));
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip !== 2) return;
        await commit(db, disableSubscription(id, END));
        await commit(db, { enabled: enableSubscription(id) });
      },
      after: failAtTrip(2),
    });
    await dispatchOn(DB, END, [id], BUSY);
    const healthy = { disabledAt: null, failures: 0, failingSince: null, circuits: {} };
    expect(await subscriptionRow(id)).toMatchObject({ ...healthy, leasedUntil: 0 });
  });
});

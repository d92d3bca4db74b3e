import { exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { DISABLE_AFTER_MS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { PRIORITY } from "../../../src/db/schema.ts";
import type { Outcome } from "../../../src/delivery/outcome.ts";
import { announce } from "../../../src/events/outbox.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import {
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  type Webhook,
} from "../../../src/subscriptions/subscriptions.ts";
import { eventsOf, openWorkspace } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  draftLeads,
  endWait,
  failAt,
  failAtTrip,
  HOUR_MS,
  heldDispatch,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  statesOf,
  streakSince,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
/** When a subscription that has failed since `T0` may be disabled. */
const END = T0 + DISABLE_AFTER_MS;
const FAILED = answered(503);
const REJECTED = answered(400);

/** Times an hour apart, starting at `T0`. */
function hourly(count: number): number[] {
  return Array.from({ length: count }, (_, i) => T0 + i * HOUR_MS);
}

/** A subscription that has failed so often, and is owed more than it will fail. */
async function failing(times: number) {
  const about = await owed(15, T0);
  await failAt(about.id, hourly(times));
  await endWait(about.id);
  return about;
}

/** Disables a subscription, as an administrator does, and enables it again. */
async function disableAndEnable(id: string): Promise<void> {
  await commit(db, disableSubscription(id, END));
  await commit(db, { enabled: enableSubscription(id) });
}

describe("a subscription is disabled", () => {
  test.each([
    ["once it has failed for long enough, but not a millisecond earlier", 13, END - 1, END],
    ["at the tenth failure, but not at the ninth", 8, END + HOUR_MS, END + 2 * HOUR_MS],
  ])("%s", async (_, times, before, disabledAt) => {
    const { id } = await failing(times);
    await failAt(id, [before]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: times + 1, disabledAt: null });
    expect(await statesOf(id)).toEqual({ pending: 15 });
    await failAt(id, [disabledAt]);
    const disabled = {
      disabledAt,
      disabledByFailures: true,
      failingSince: T0,
      failures: times + 2,
    };
    expect(await subscriptionRow(id)).toMatchObject(disabled);
  });

  test("alone, with its pending deliveries cancelled", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId, {
      events: ["lead.created", "run.completed", "automation.status_changed"],
    });
    await announceLeads(workspaceId, 12, T0);
    const other = await subscribe(workspaceId, { createdAt: 1 });
    await announceLeads(workspaceId, 1, T0);
    const expectShown = async (disabled_at: string | null) => {
      const { body } = await api.get<PageBody<Webhook>>("/v1/webhooks");
      expect(body.data).toMatchObject([
        { id: other.id, disabled_at: null },
        { id, disabled_at },
      ]);
    };
    await expectShown(null);
    const events = await eventsOf(workspaceId);
    await failAt(id, [...hourly(10), END]);
    await expectShown(new Date(END).toISOString());
    expect(await eventsOf(workspaceId)).toEqual(events);
    expect(await statesOf(other.id)).toEqual({ pending: 1 });
    const cancelled = { state: "cancelled", settledAt: END };
    expect(await deliveriesTo(id)).toMatchObject(Array(13).fill(cancelled));
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 14, pending: 1, cancelled: 13, addsUp: true });
  });

  test("and a replay after it is enabled again waits for no slot that was taken before", async () => {
    const { id } = await owed(12, T0);
    await setSubscription(id, { replaySlotsUntil: END + HOUR_MS });
    await failAt(id, [...hourly(10), END]);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END, replaySlotsUntil: 0 });
  });

  test("but not by an event that is sent by hand", async () => {
    const { id, drafts } = await owed(15, T0);
    await failAt(id, hourly(12));
    await setDeliveries(id, { priority: PRIORITY.manual, dueAt: END }, drafts[0]?.id);
    const { posts, attempt } = subscriber(() => FAILED);
    await dispatchAt(END, [id], attempt);
    expect(posts).toEqual([drafts[0]?.id]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 12, disabledAt: null });
  });

  test("also if an event that is sent by hand fails right after the failure that disables it", async () => {
    const { id, drafts } = await owed(2, END);
    const rejections = { "lead.created": { since: T0, outcome: "answered", status: 400 } };
    await setSubscription(id, { ...streakSince(T0, 9), rejections, concurrency: 2 });
    await setDeliveries(id, { priority: PRIORITY.manual }, drafts[0]?.id);
    const other = Promise.withResolvers<void>();
    const { posts, attempt } = subscriber(async ({ eventId }) => {
      if (eventId === drafts[0]?.id) await other.promise;
      else setTimeout(other.resolve, 10);
      return REJECTED;
    });
    await dispatchAt(END, [id], attempt);
    expect(posts).toEqual(drafts.map((draft) => draft.id));
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END, disabledByFailures: true });
  });

  test("but not if it was deleted in the meantime", async () => {
    const { id, workspaceId } = await failing(10);
    const late = await heldDispatch(END, id);
    await commit(db, deleteSubscription(workspaceId, id, END));
    await late.finish(FAILED);
    expect(await subscriptionRow(id)).toMatchObject({ disabledByFailures: false });
    expect(await statesOf(id)).toEqual({ cancelled: 15 });
  });

  test("but not by a post that fails while its second to last failure is recorded, and it is enabled again", async () => {
    const { id } = await owed(2, END);
    const failed = streakSince(T0, 8);
    await setSubscription(id, { ...failed, concurrency: 2 });
    const second = Promise.withResolvers<Outcome>();
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 2 && (await disableAndEnable(id))),
      async after(trip) {
        if (trip !== 2) return;
        second.resolve(REJECTED);
        await sleep(10);
      },
    });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return second.promise;
      // Both are in flight when it ends.
      await sleep(1);
      return REJECTED;
    });
    // An outcome is recorded a second later, although another post is in flight.
    const startedAt = Date.now();
    await dispatchOn(DB, () => END + Date.now() - startedAt, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failures: 0 });
  });

  test("but not once it was enabled again, by a post that could not be made", async () => {
    const { id } = await owed(2, END);
    await setSubscription(id, { ...streakSince(T0, 9), concurrency: 2 });
    const second = Promise.withResolvers<Outcome>();
    const { DB } = observedDatabase({
      before: async (trip) => void (trip === 2 && (await disableAndEnable(id))),
      after(trip) {
        // The session knows by then that it was enabled.
        if (trip === 2) setTimeout(() => second.reject(new Error("no encryption key")), 20);
      },
    });
    const { posts, attempt } = subscriber(async () => {
      if (posts.length > 1) return second.promise;
      // Both are in flight when it ends.
      await sleep(1);
      return REJECTED;
    });
    const startedAt = Date.now();
    await dispatchOn(DB, () => END + Date.now() - startedAt, [id], attempt);
    expect(posts).toHaveLength(2);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failures: 0 });
  });

  test("but not again by a second try after a lost reply, if it was enabled in between", async () => {
    const { id } = await failing(10);
    const disabled: (number | null)[] = [];
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip !== 3) return;
        disabled.push((await subscriptionRow(id)).disabledAt);
        await commit(db, enableSubscription(id));
      },
      after: failAtTrip(2),
    });
    await dispatchOn(DB, END, [id], FAILED);
    expect(disabled).toEqual([END]);
    const healthy = {
      disabledAt: null,
      disabledByFailures: false,
      failures: 0,
      failingSince: null,
      streak: null,
    };
    expect(await subscriptionRow(id)).toMatchObject({
      ...healthy,
      blockedUntil: 0,
      leasedUntil: 0,
    });
  });
});

describe("a subscription that accepts one event type, and has rejected another for three days", () => {
  const TIMED_OUT: Outcome = { kind: "timed_out" };

  async function choosy() {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
    await announceLeads(workspaceId, 1, T0);
    await dispatchAt(T0, [id], answered(200));
    const runs = announce(workspaceId, "run.completed", draftLeads(15, T0), () => sql`true`, T0);
    await commit(db, runs);
    await failAt(id, hourly(12), REJECTED);
    expect((await subscriptionRow(id)).failures).toBeGreaterThanOrEqual(10);
    return { id, workspaceId };
  }

  test("is not disabled by a request that times out", async () => {
    const { id } = await choosy();
    await failAt(id, [END, END + HOUR_MS], TIMED_OUT);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failingSince: T0 });
    // The endpoint responds.
    await failAt(id, [END + 2 * HOUR_MS], REJECTED);
    await failAt(id, [END + DISABLE_AFTER_MS], TIMED_OUT);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failingSince: T0 });
  });

  test("is disabled once its endpoint has not responded for three days", async () => {
    const { id } = await choosy();
    await failAt(id, [END, END + DISABLE_AFTER_MS - 1], TIMED_OUT);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null });
    await failAt(id, [END + DISABLE_AFTER_MS], TIMED_OUT);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END + DISABLE_AFTER_MS });
  });

  test("is not disabled by the first failure of the accepted type, which is retried", async () => {
    const { id, workspaceId } = await choosy();
    await announceLeads(workspaceId, 1, END);
    await failAt(id, [END]);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null, failingSince: T0 });
    const { attempt } = subscriber(({ type }) =>
      type === "lead.created" ? answered(200) : REJECTED,
    );
    // The event types take turns.
    for (const hours of [1, 2]) await dispatchAt(END + hours * HOUR_MS, [id], attempt);
    expect((await deliveriesTo(id)).filter(({ type }) => type === "lead.created")).toMatchObject([
      { state: "delivered" },
      { state: "delivered" },
    ]);
  });

  test("is disabled once the other type has failed for three days, too", async () => {
    const { id, workspaceId } = await choosy();
    await announceLeads(workspaceId, 1, END);
    await failAt(id, [END, END + DISABLE_AFTER_MS - 1]);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: null });
    await failAt(id, [END + DISABLE_AFTER_MS]);
    expect(await subscriptionRow(id)).toMatchObject({ disabledAt: END + DISABLE_AFTER_MS });
  });
});

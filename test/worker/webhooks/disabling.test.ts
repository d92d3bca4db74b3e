import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { DISABLE_AFTER_MS, RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Outcome } from "../../../src/webhooks/outcome.ts";
import {
  deleteSubscription,
  enableSubscription,
  type Webhook,
} from "../../../src/webhooks/subscriptions.ts";
import { eventsOf, openWorkspace } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  endWait,
  failAt,
  failAtTrip,
  HOUR_MS,
  heldDispatch,
  MINUTE_MS,
  noticesOf,
  observedDatabase,
  once,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const FAILED = answered(503);
/** The duration of a lease. */
const LEASE_MS = 20_000;

/** Times an hour apart, starting at `T0`. */
function hourly(count: number): number[] {
  return Array.from({ length: count }, (_, i) => T0 + i * HOUR_MS);
}

/** A subscription with more deliveries than it will fail. */
async function subscribed() {
  const workspaceId = await createWorkspace();
  const { id, url } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 15, T0);
  return { workspaceId, id, url };
}

/** Acknowledges one delivery, whatever wait was in progress; the rest is left. */
async function succeedAt(id: string, now: number): Promise<void> {
  await endWait(id);
  await dispatchAt(now, [id], once(answered(200)));
}

async function disabledAt(id: string): Promise<number | null> {
  return (await subscriptionRow(id)).disabledAt;
}

describe("a subscription is disabled", () => {
  test("when it has failed for 72 h, but not after 71 h 59 min", async () => {
    const { id } = await subscribed();
    const end = T0 + 72 * HOUR_MS;
    await failAt(id, [...hourly(12), end - MINUTE_MS, end - 1]);
    expect(await disabledAt(id)).toBeNull();
    expect(await noticesOf(id)).toEqual([]);
    await failAt(id, [end]);
    expect(await disabledAt(id)).toBe(end);
    expect(await subscriptionRow(id)).toMatchObject({ failingSince: T0, failures: 15 });
  });

  test("at the tenth failure, but not at the ninth", async () => {
    const { id } = await subscribed();
    await failAt(id, [...hourly(8), T0 + 90 * HOUR_MS]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 9, disabledAt: null });
    expect(await statesOf(id)).toEqual({ pending: 15 });
    await failAt(id, [T0 + 91 * HOUR_MS]);
    expect(await disabledAt(id)).toBe(T0 + 91 * HOUR_MS);
  });

  test("counting from the first failure after the last success", async () => {
    const { id } = await subscribed();
    await failAt(id, hourly(11));
    await succeedAt(id, T0 + 60 * HOUR_MS);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
    const again = T0 + 61 * HOUR_MS;
    await failAt(id, [...hourly(10).map((time) => time + 61 * HOUR_MS), again + 71 * HOUR_MS]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 11, failingSince: again });
    expect(await disabledAt(id)).toBeNull();
    await failAt(id, [again + 72 * HOUR_MS]);
    expect(await disabledAt(id)).toBe(again + 72 * HOUR_MS);
  });

  test("not by a success among failures in one turn: failures after it count", async () => {
    const { id } = await subscribed();
    await failAt(id, hourly(11));
    const end = T0 + 80 * HOUR_MS;
    let attempts = 0;
    await endWait(id);
    const attempt = async () => (++attempts <= 2 ? answered(200) : FAILED);
    // The successful probe, and what then comes in the fast lane.
    for (let i = 0; i < 2; i++) await dispatchAt(end, [id], attempt);
    expect(await disabledAt(id)).toBeNull();
    const { failures, failingSince } = await subscriptionRow(id);
    expect([failures, failingSince]).toEqual([attempts - 2, end]);
    expect(failures).toBeGreaterThan(0);
  });

  test.each<[string, Outcome, { lastOutcome: string; lastStatus: number | null }]>([
    ["4xx", answered(410), { lastOutcome: "answered", lastStatus: 410 }],
    ["3xx", answered(302), { lastOutcome: "answered", lastStatus: 302 }],
    ["no answer in time", { kind: "timed_out" }, { lastOutcome: "timed_out", lastStatus: null }],
  ])("by any kind of failure, such as %s, which the e-mail mentions", async (_, outcome, last) => {
    const { id, url, workspaceId } = await subscribed();
    await failAt(id, [...hourly(9), T0 + 72 * HOUR_MS], outcome);
    expect(await disabledAt(id)).not.toBeNull();
    const about = { workspaceId, host: new URL(url).host, events: ["lead.created"] };
    const notice = { ...last, ...about, failingSince: T0, sentAt: null };
    expect(await noticesOf(id)).toMatchObject([notice]);
  });

  test("alone, and its pending deliveries are cancelled; the ledger adds up", async () => {
    const { id, workspaceId } = await subscribed();
    const other = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, T0);
    await failAt(id, [...hourly(10), T0 + 72 * HOUR_MS]);
    expect(await disabledAt(other.id)).toBeNull();
    expect(await statesOf(other.id)).toEqual({ pending: 1 });
    expect(await statesOf(id)).toEqual({ cancelled: 16 });
    for (const { settledAt } of await deliveriesTo(id)) expect(settledAt).toBe(T0 + 72 * HOUR_MS);
    const ledger = await exports.Platform.ledger({ workspaceId });
    expect(ledger).toMatchObject({ created: 17, pending: 1, cancelled: 16, addsUp: true });
  });

  test("which shows in GET /v1/webhooks, but no event announces it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const url = subscriberUrl();
    const kinds = ["lead.created", "run.completed", "automation.status_changed"] as const;
    const { id } = await subscribe(workspaceId, { url, events: [...kinds] });
    await announceLeads(workspaceId, 12, T0);
    const list = async () => (await api.get<Page<Webhook>>("/v1/webhooks")).body.data;
    expect(await list()).toMatchObject([{ id, disabled_at: null }]);
    const events = await eventsOf(workspaceId);
    await failAt(id, [...hourly(10), T0 + 72 * HOUR_MS]);
    expect(await list()).toMatchObject([{ id, url, disabled_at: "2026-01-08T12:00:00.000Z" }]);
    expect(await eventsOf(workspaceId)).toEqual(events);
  });

  test("once, with one e-mail, if two failing dispatches race: the lease decides", async () => {
    const { id } = await subscribed();
    await failAt(id, hourly(9));
    await endWait(id);
    const end = T0 + 72 * HOUR_MS;
    const [lost, held] = [await heldDispatch(end, id), await heldDispatch(end + LEASE_MS, id)];
    await Promise.all([lost.finish(FAILED), held.finish(FAILED)]);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 10, failingSince: T0 });
    expect(await disabledAt(id)).toBe(end + LEASE_MS);
    expect(await noticesOf(id)).toHaveLength(1);
    expect(await statesOf(id)).toEqual({ cancelled: 15 });
  });

  test("and posts in progress are not cancelled but recorded", async () => {
    const { id } = await subscribed();
    await failAt(id, hourly(10));
    const end = T0 + 72 * HOUR_MS;
    // Two are posted concurrently, as before it began to fail.
    await setSubscription(id, { postsAtOnce: 2, backoff: 0, nextAt: 0 });
    const answers = [Promise.withResolvers<Outcome>(), Promise.withResolvers<Outcome>()];
    let [posts, now] = [0, end];
    const dispatch = dispatchAt(
      () => now,
      [id],
      () => answers[posts++]?.promise ?? Promise.reject(new Error("a third post")),
    );
    await expect.poll(() => posts).toBe(2);
    answers[0]?.resolve(FAILED);
    await new Promise((resolve) => setTimeout(resolve, 10));
    now = end + 1_000;
    await expect.poll(() => disabledAt(id)).toBe(now);
    expect(await statesOf(id)).toEqual({ pending: 15 });
    answers[1]?.resolve(answered(200));
    await dispatch;
    expect(await disabledAt(id)).toBe(now);
    expect(await statesOf(id)).toEqual({ cancelled: 14, delivered: 1 });
    expect(await noticesOf(id)).toHaveLength(1);
  });

  test("but if it was deleted in the meantime, it is neither disabled nor mentioned in an e-mail", async () => {
    const { id, workspaceId } = await subscribed();
    await failAt(id, hourly(10));
    await endWait(id);
    const end = T0 + 72 * HOUR_MS;
    const late = await heldDispatch(end, id);
    await commit(db, deleteSubscription(workspaceId, id, end));
    await late.finish(FAILED);
    expect(await noticesOf(id)).toEqual([]);
    expect(await statesOf(id)).toEqual({ cancelled: 15 });
  });

  test("but not again by a second try after a lost reply, if it was enabled in between", async () => {
    const { id } = await subscribed();
    await failAt(id, hourly(10));
    await endWait(id);
    const end = T0 + 72 * HOUR_MS;
    const disabled: (number | null)[] = [];
    const { DB } = observedDatabase({
      before: async (trip) => {
        if (trip !== 3) return;
        disabled.push(await disabledAt(id));
        await commit(db, enableSubscription(id));
      },
      after: failAtTrip(2),
    });
    await dispatchOn(DB, end, [id], FAILED, "slow");
    expect(disabled).toEqual([end]);
    const healthy = { disabledAt: null, failures: 0, failingSince: null, backoff: 0 };
    expect(await subscriptionRow(id)).toMatchObject({ ...healthy, nextAt: 0, heldUntil: 0 });
    expect(await noticesOf(id)).toHaveLength(1);
  });

  test("by its failures, even if all its deliveries are exhausted", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, T0);
    let now = T0;
    for (let n = 0; n <= RETRY_WAITS_SECONDS.length && (await disabledAt(id)) === null; n++) {
      const disables = now >= T0 + DISABLE_AFTER_MS;
      if (disables) await setDeliveries(id, { attempts: RETRY_WAITS_SECONDS.length });
      await failAt(id, [now]);
      now = (await deliveriesTo(id))[0]?.dueAt ?? now;
    }
    expect(await disabledAt(id)).toBeGreaterThanOrEqual(T0 + DISABLE_AFTER_MS);
    expect(await statesOf(id)).toEqual({ exhausted: 1 });
    expect(await noticesOf(id)).toHaveLength(1);
  });
});

test("a subscription's health and the outcome that changed it commit together or not at all", async () => {
  const { id } = await subscribed();
  await failAt(id, hourly(9));
  const before = await subscriptionRow(id);
  await env.DB.prepare(
    "CREATE TRIGGER refuse BEFORE INSERT ON notices BEGIN SELECT raise(ABORT, 'refused'); END",
  ).run();
  await expect(failAt(id, [T0 + 72 * HOUR_MS])).rejects.toThrow("refused");
  await env.DB.prepare("DROP TRIGGER refuse").run();
  // It is still held, and nothing else has changed.
  const { heldBy, heldUntil } = await subscriptionRow(id);
  expect(heldUntil).toBe(T0 + 72 * HOUR_MS + LEASE_MS);
  expect(await subscriptionRow(id)).toEqual({ ...before, heldBy, heldUntil, nextAt: 0 });
  await failAt(id, [T0 + 73 * HOUR_MS]);
  expect(await disabledAt(id)).toBe(T0 + 73 * HOUR_MS);
});

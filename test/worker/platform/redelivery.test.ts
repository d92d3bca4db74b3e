import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { errorOf } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  HOUR_MS,
  owed,
  receivedBy,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const { Platform } = exports;

/**
 * A subscription with one event each that was delivered, exhausted, cancelled, missed and is
 * pending.
 */
async function inEveryState(startsAt: number) {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId);
  const { id } = subscription;
  const ids: Record<string, string> = {};
  const announceOne = async (name: string, at: number) => {
    const [draft] = await announceLeads(workspaceId, 1, at);
    ids[name] = draft?.id ?? "";
  };
  const states: DeliveryState[] = ["delivered", "exhausted", "cancelled", "pending"];
  for (const [i, state] of states.entries()) {
    await announceOne(state, startsAt + i);
    const settledAt = state === "pending" ? null : startsAt + 10;
    // The pending one waits for its next attempt.
    const wait = { attempts: 1, dueAt: startsAt + DAY_MS };
    await setDeliveries(id, { state, settledAt, ...wait }, ids[state]);
  }
  await setSubscription(id, { disabledAt: startsAt });
  await announceOne("missed", startsAt + 4);
  await setSubscription(id, { disabledAt: null });
  return { workspaceId, ...subscription, ids };
}

/** When each of the named events is due, in milliseconds from `now`. */
async function schedule(id: string, ids: Record<string, string>, now: number) {
  const rows = (await deliveriesTo(id)).filter(
    ({ dueAt, state }) => state === "pending" && dueAt < now + HOUR_MS,
  );
  const nameOf = (eventId: string) => Object.keys(ids).find((name) => ids[name] === eventId);
  return rows.map(({ eventId, dueAt }) => [nameOf(eventId), dueAt - now]);
}

describe("redeliver", () => {
  test("sends named events again, with the same ids and bytes, and returns how many", async () => {
    const now = Date.now();
    const { id, url, drafts, workspaceId } = await owed(3, now - HOUR_MS);
    await dispatchAt(now - HOUR_MS, [id], answered(200));
    const eventIds = drafts.slice(0, 2).map((draft) => draft.id);
    const redelivery = await Platform.redeliver({ webhookId: id, eventIds });
    expect(redelivery).toEqual({ count: 2, more: false });
    await expect.poll(() => receivedBy({ url }), { timeout: 5_000 }).toHaveLength(2);
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual({ delivered: 3 });
    const received = await receivedBy({ url });
    expect(received.map(({ headers, body }) => [headers["webhook-id"], body]).toSorted()).toEqual(
      drafts
        .slice(0, 2)
        .map((draft) => [draft.id, draft.body])
        .toSorted(),
    );
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 3, addsUp: true });
  });

  test("for a range waits for scheduled redeliveries, but not for a retry that is hours away", async () => {
    const { id, drafts } = await owed(4, T0);
    await dispatchAt(T0, [id], answered(200));
    const [late, ...ids] = drafts.map((draft) => draft.id).toSorted();
    const now = T0 + HOUR_MS;
    await redeliver(id, ids.slice(0, 2), now);
    await setDeliveries(id, { state: "pending", attempts: 3, dueAt: now + 20 * HOUR_MS }, late);
    const range = { since: T0, until: null, states: ["delivered"] as const };
    expect(await redeliver(id, range, now + 50)).toBe(1);
    const names = Object.fromEntries(ids.map((eventId) => [eventId, eventId]));
    expect(await schedule(id, names, now)).toEqual([
      [ids[0], 0],
      [ids[1], 100],
      [ids[2], 200],
    ]);
  });

  test.each(["delivered", "exhausted", "cancelled", "missed"] as const)(
    "includes only %s events if requested",
    async (state) => {
      const { id, ids } = await inEveryState(T0);
      const now = T0 + HOUR_MS;
      expect(await redeliver(id, { since: T0, until: null, states: [state] }, now)).toBe(1);
      expect(await schedule(id, ids, now)).toEqual([[state, 0]]);
    },
  );

  test("starts at since, ends before until, and includes only the given states", async () => {
    const startsAt = Date.now() - 2 * HOUR_MS;
    const { id, ids } = await inEveryState(startsAt);
    const { count } = await Platform.redeliver({
      webhookId: id,
      since: isoTime(startsAt + 1),
      until: isoTime(startsAt + 4),
      states: ["delivered", "exhausted", "missed"],
    });
    expect(count).toBe(1);
    const states = { delivered: 2, cancelled: 1, pending: 1 };
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual(states);
    expect((await deliveriesTo(id)).some(({ eventId }) => eventId === ids.missed)).toBe(false);
  });

  test("does not resend what was delivered after the call began", async () => {
    const { id, drafts } = await owed(1, T0);
    await dispatchAt(T0 + 1_000, [id], answered(200));
    const ids = drafts.map((draft) => draft.id);
    expect(await redeliver(id, ids, T0 + 999)).toBe(0);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("tries a failing subscription immediately, and a named event that is waiting", async () => {
    const now = Date.now();
    const { id, url, drafts } = await owed(2, now - HOUR_MS);
    await dispatchAt(now - HOUR_MS, [id], answered(503));
    await setSubscription(id, { backoff: 6, nextAt: now + 5 * HOUR_MS, slow: true });
    await setDeliveries(id, { dueAt: now + 5 * HOUR_MS });
    const [first] = drafts;
    const eventIds = [first?.id ?? ""];
    const redelivery = await Platform.redeliver({ webhookId: id, eventIds });
    expect(redelivery).toEqual({ count: 1, more: false });
    await expect.poll(async () => (await receivedBy({ url })).length).toBe(1);
    expect((await receivedBy({ url }))[0]?.body).toBe(first?.body);
    // Its success has ended the backoff; the other event keeps its own time.
    await expect.poll(() => statesOf(id)).toEqual({ delivered: 1, pending: 1 });
  });

  test("for a time range tries a failing subscription immediately, even if nothing is to be sent again", async () => {
    const now = Date.now();
    const { id, url } = await owed(1, now - HOUR_MS);
    await setSubscription(id, { backoff: 6, nextAt: now + 5 * HOUR_MS });
    const since = isoTime(now - 2 * HOUR_MS);
    expect(await Platform.redeliver({ webhookId: id, since })).toEqual({ count: 0, more: false });
    await expect.poll(async () => (await receivedBy({ url })).length).toBe(1);
  });

  test("starts a full ladder for each, and keeps every attempt, also what had succeeded", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    await dispatchAt(T0, [id], answered(500));
    await dispatchAt(T0 + HOUR_MS, [id], answered(200));
    await redeliver(id, [eventId], T0 + 2 * HOUR_MS);
    await dispatchAt(T0 + 2 * HOUR_MS, [id], answered(502));
    const delivery = await Platform.readDelivery({ webhookId: id, eventId });
    expect(delivery).toMatchObject({ state: "pending", attempts: 3 });
    expect(await deliveryTo(id)).toMatchObject({ attempts: 1 });
    expect(delivery.attemptLog.map(({ at, status }) => [at, status])).toEqual([
      [isoTime(T0), 500],
      [isoTime(T0 + HOUR_MS), 200],
      [isoTime(T0 + 2 * HOUR_MS), 502],
    ]);
  });

  test("rejects a subscription that is unknown, disabled or without access", async () => {
    const { id, drafts, workspaceId } = await owed(1, T0);
    const eventIds = [drafts[0]?.id ?? ""];
    const refused = (webhookId: string) => errorOf(Platform.redeliver({ webhookId, eventIds }));
    expect(await refused("whk_none")).toContain("webhookId");
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await refused(id)).toContain("webhookId");
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    await setSubscription(id, { disabledAt: T0 });
    expect(await refused(id)).toContain("disabled");
  });

  test("names an event that is unknown, of another workspace or of a kind not listed, and sends none", async () => {
    const { id, drafts } = await owed(1, T0);
    await dispatchAt(T0, [id], answered(200));
    const foreign = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    for (const other of ["evt_none", foreign.drafts[0]?.id ?? ""]) {
      const call = Platform.redeliver({ webhookId: id, eventIds: [eventId, other] });
      expect(await errorOf(call)).toContain("eventIds[1]");
    }
    const runs = await subscribe(foreign.workspaceId, { events: ["run.completed"] });
    const eventIds = [foreign.drafts[0]?.id ?? ""];
    const unlisted = Platform.redeliver({ webhookId: runs.id, eventIds });
    expect(await errorOf(unlisted)).toContain("eventIds[0]");
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test.each([
    ["eventIds", {}],
    ["since", { eventIds: ["evt_1"], since: isoTime(Date.now()) }],
    ["states", { eventIds: ["evt_1"], states: ["missed" as const] }],
    ["since", { since: isoTime(Date.now() - 31 * DAY_MS) }],
    ["until", { since: isoTime(Date.now()), until: "tomorrow" }],
    ["states", { since: isoTime(Date.now()), states: [] }],
  ])("says that %s is wrong", async (parameter, input) => {
    const message = await errorOf(Platform.redeliver({ webhookId: "whk_none", ...input }));
    expect(message).toContain(`redeliver: ${parameter}`);
  });
});

describe("enableWebhook", () => {
  test("returns how many events it will send", async () => {
    const startsAt = Date.now() - HOUR_MS;
    const { id } = await inEveryState(startsAt);
    await setSubscription(id, { disabledAt: startsAt });
    expect(await Platform.enableWebhook({ webhookId: id })).toEqual({ count: 0, more: false });
    const redeliverSince = isoTime(startsAt);
    const enabled = await Platform.enableWebhook({ webhookId: id, redeliverSince });
    expect(enabled).toEqual({ count: 3, more: false });
  });
});

import { describe, expect, test } from "vitest";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { errorOf, leadReport, openWorkspace, Platform } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
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
import { useThreeDatabases } from "../../support/placement.ts";

useThreeDatabases();

const T0 = Date.UTC(2026, 0, 5, 12);

/** A subscription with one event each that was delivered, exhausted, cancelled, is pending, and missed. */
async function inEveryState(startsAt: number) {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const states: DeliveryState[] = ["delivered", "exhausted", "cancelled", "pending"];
  for (const [i, state] of states.entries()) {
    const [draft] = await announceLeads(workspaceId, 1, startsAt + i);
    const settledAt = state === "pending" ? null : startsAt + 10;
    // The pending one waits for its next attempt.
    const last = { lastOutcome: "answered", lastStatus: state === "exhausted" ? 503 : 200 };
    const values = { state, settledAt, stepsUsed: 1, dueAt: startsAt + DAY_MS, ...last };
    await setDeliveries(id, values, draft?.id);
  }
  await setSubscription(id, { disabledAt: startsAt });
  await announceLeads(workspaceId, 1, startsAt + 4);
  await setSubscription(id, { disabledAt: null });
  return id;
}

describe("redeliver", () => {
  test("resends named events with the same ids and bytes", async () => {
    const now = Date.now();
    const { id, url, drafts, workspaceId } = await owed(3, now - HOUR_MS);
    await dispatchAt(now - HOUR_MS, [id], answered(200));
    const again = drafts.slice(0, 2);
    const eventIds = again.map((draft) => draft.id);
    const redelivery = await Platform.redeliver({ webhookId: id, eventIds });
    expect(redelivery).toEqual({ count: 2, nextCursor: null });
    await expect.poll(() => receivedBy({ url })).toHaveLength(2);
    await expect.poll(() => statesOf(id)).toEqual({ delivered: 3 });
    const received = await receivedBy({ url });
    expect(received.map(({ headers, body }) => [headers["webhook-id"], body]).toSorted()).toEqual(
      again.map((draft) => [draft.id, draft.body]).toSorted(),
    );
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 3, addsUp: true });
  });

  test("for a range does not wait for a retry that is hours away", async () => {
    const { id, drafts } = await owed(4, T0);
    await dispatchAt(T0, [id], answered(200));
    const [late, ...ids] = drafts.map((draft) => draft.id).toSorted();
    const now = T0 + HOUR_MS;
    await setDeliveries(id, { state: "pending", stepsUsed: 3, dueAt: now + 20 * HOUR_MS }, late);
    await setDeliveries(id, { state: "exhausted" }, ids[2]);
    const range = { since: T0, until: null };
    expect(await redeliver(id, { ...range, states: ["delivered"] }, now)).toBe(2);
    expect(await redeliver(id, { ...range, states: ["exhausted"] }, now + 50)).toBe(1);
    const rows = (await deliveriesTo(id)).map(({ dueAt, state }) => [state, dueAt - now]);
    const due = [20 * HOUR_MS, 0, 0, 50];
    expect(rows).toEqual(due.map((wait) => ["pending", wait]));
  });

  test("starts at since, ends before until, and includes only the given states", async () => {
    const startsAt = Date.now() - 2 * HOUR_MS;
    const id = await inEveryState(startsAt);
    const all = { webhookId: id, since: isoTime(startsAt), dryRun: true };
    for (const [status, found] of [
      [503, 1],
      [410, 0],
    ] as const)
      expect(await Platform.redeliver({ ...all, status })).toMatchObject({ count: found });
    const { count } = await Platform.redeliver({
      webhookId: id,
      since: isoTime(startsAt + 1),
      until: isoTime(startsAt + 4),
      states: ["delivered", "exhausted", "missed"],
    });
    expect(count).toBe(1);
    const states = { delivered: 2, cancelled: 1, pending: 1 };
    await expect.poll(() => statesOf(id)).toEqual(states);
  });

  test("rejects a subscription that is disabled or without access", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await setSubscription(id, { disabledAt: T0 });
    const [{ id: eventId = "" } = {}] = await announceLeads(workspaceId, 1, T0);
    const refused = () => errorOf(Platform.redeliver({ webhookId: id, eventIds: [eventId] }));
    expect(await refused()).toContain("disabled");
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await Platform.enableWebhook({ webhookId: id });
    expect(await refused()).toContain("webhookId");
    expect(await statesOf(id)).toEqual({});
  });

  test("names an event of another workspace or of a kind not listed, and sends none", async () => {
    const [{ id, drafts }, foreign] = [await owed(1, T0), await owed(1, T0)];
    await dispatchAt(T0, [id], answered(200));
    const [eventId = "", other = ""] = [...drafts, ...foreign.drafts].map((draft) => draft.id);
    const call = Platform.redeliver({ webhookId: id, eventIds: [eventId, other] });
    expect(await errorOf(call)).toContain("eventIds[1]");
    const runs = await subscribe(foreign.workspaceId, { events: ["run.completed"] });
    const unlisted = Platform.redeliver({ webhookId: runs.id, eventIds: [other] });
    expect(await errorOf(unlisted)).toContain("eventIds[0]");
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

test("A replay names the types of which no event is stored, because no webhook listed them", async () => {
  const { workspaceId, api } = await openWorkspace();
  const since = isoTime(Date.now() - HOUR_MS);
  const { id: webhookId } = await subscribe(workspaceId, { events: ["run.completed"] });
  const record = (reference: string) =>
    Platform.recordLeads({ workspaceId, leads: [leadReport(reference)] });
  await record("1");
  await Platform.updateWebhook({ webhookId, events: ["run.completed", "lead.created"] });
  const replay = (more: object = {}) =>
    Platform.redeliver({ webhookId, since, states: ["missed"], ...more });
  const none = { count: 0, nextCursor: null };
  expect(await replay()).toEqual({ ...none, notStored: ["run.completed", "lead.created"] });
  expect(await replay({ type: "lead.created" })).toEqual({ ...none, notStored: ["lead.created"] });
  expect(await replay({ states: ["exhausted"] })).toEqual(none);
  await record("2");
  expect(await replay({ type: "lead.created" })).toEqual(none);
  expect((await api.get<{ data: object[] }>("/v1/leads")).body.data).toHaveLength(2);
});

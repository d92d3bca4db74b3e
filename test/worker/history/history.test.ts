import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test, vi } from "vitest";
import type { DeliveryState } from "../../../src/contract/enumerations.ts";
import { eventIdAt } from "../../../src/contract/ids.ts";
import {
  LEAD_SEARCH_MAX_LENGTH,
  PENDING_COUNTED_MAX,
  RESPONSES_PER_DAY,
  RETRY_WAITS_SECONDS,
} from "../../../src/contract/limits.ts";
import { dayOf, isoTime } from "../../../src/contract/time.ts";
import { connect } from "../../../src/db/client.ts";
import { PRIORITY } from "../../../src/db/schema.ts";
import {
  DELIVERIES_EXAMINED_MAX,
  type DeliveryFilter,
  listDeliveriesOf,
} from "../../../src/history/deliveries.ts";
import { FAILURES_EXAMINED_MAX, listFailuresOf } from "../../../src/history/failing.ts";
import { findSubscriptionHealth, listSubscriptionHealth } from "../../../src/history/health.ts";
import {
  deployedWith,
  leadReport,
  openWorkspace,
  Platform,
  platformOf,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  dispatchAt,
  failAt,
  failingSince,
  HOUR_MS,
  isolated,
  jumpTo,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  subscribe,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { openPortal } from "../../support/portal.ts";
import { damageLead } from "../../support/record.ts";
import { insertSubscriptions } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";

const TODAY = Date.UTC(2026, 10, 21);
/** A subscription whose pending deliveries were cancelled, and whose rows still say otherwise. */
const CANCELLING: Parameters<typeof setSubscription>[1] = {
  epoch: 1,
  cancelledBefore: { "lead.created": 1 },
  hasToEnd: true,
};
const RETRYING = {
  state: "pending",
  priority: PRIORITY.retry,
  stepsUsed: 2,
  lastAt: TODAY,
  lastOutcome: "answered",
  lastStatus: 500,
} as const;

/** A subscription, and what stores events of the day that starts then, with deliveries to it. */
async function filling() {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const fill = (startsAt: number, count: number, state: DeliveryState = "delivered") =>
    storeEvents(workspaceId, id, count, startsAt + 1_000, state);
  return { workspaceId, id, fill };
}

/** One subscription with a delivery in each state, and their event ids by state. */
async function withEachState() {
  const { id, workspaceId, drafts } = await owed(5, TODAY);
  const [pending = "", retrying = "", delivered = "", exhausted = "", cancelled = ""] = drafts
    .map((draft) => draft.id)
    .toSorted();
  await setDeliveries(id, RETRYING, retrying);
  for (const [state, eventId] of [
    ["delivered", delivered],
    ["exhausted", exhausted],
    ["cancelled", cancelled],
  ] as const)
    await setDeliveries(id, { state, stepsUsed: 1, settledAt: TODAY }, eventId);
  return { id, workspaceId, ids: { pending, retrying, delivered, exhausted, cancelled } };
}

describe("the state of a delivery", () => {
  test("is retrying while it is pending after a failed attempt", async () => {
    const { id, drafts } = await owed(1, TODAY);
    const stateOf = async () => {
      const { items } = await Platform.listDeliveries({ webhookId: id });
      const eventId = drafts[0]?.id ?? "";
      const { state } = await Platform.readDelivery({ webhookId: id, eventId });
      expect(items).toMatchObject([{ eventId, state }]);
      return state;
    };
    expect(await stateOf()).toBe("pending");
    await failAt(id, [TODAY]);
    expect(await stateOf()).toBe("retrying");
    await dispatchAt(TODAY + HOUR_MS, [id], answered(200));
    expect(await stateOf()).toBe("delivered");
  });

  test("is new again when a delivery that failed for good is resent", async () => {
    const { id, drafts } = await owed(1, TODAY);
    await setDeliveries(id, { state: "exhausted", stepsUsed: 11, settledAt: TODAY });
    await Platform.redeliver({ webhookId: id, eventIds: drafts.map((draft) => draft.id) });
    const { items } = await Platform.listDeliveries({ webhookId: id, state: "pending" });
    expect(items).toHaveLength(1);
  });

  test("is waiting before its next attempt, whether it has failed or not", async () => {
    const { id, ids } = await withEachState();
    const { items } = await Platform.listDeliveries({ webhookId: id, state: "waiting" });
    expect(items.map(({ eventId }) => eventId)).toEqual([ids.retrying, ids.pending]);
  });

  test("filters the list, and each state finds its own", async () => {
    const { id, ids } = await withEachState();
    for (const [state, eventId] of Object.entries(ids)) {
      const { items } = await Platform.listDeliveries({
        webhookId: id,
        state: state as DeliveryState,
      });
      expect(items).toMatchObject([{ eventId, state }]);
    }
  });

  test("has a due time as long as another attempt follows", async () => {
    const { id } = await withEachState();
    const { items } = await Platform.listDeliveries({ webhookId: id });
    const due = items.filter(({ dueAt }) => dueAt !== null).map(({ state }) => state);
    expect(due.toSorted()).toEqual(["pending", "retrying"]);
  });
});

describe("the subject of a delivery", () => {
  const subjectsOf = async (webhookId: string) => {
    const { items } = await Platform.listDeliveries({ webhookId });
    return items.map(({ type, subject }) => [type, subject]);
  };

  test("is the name of its lead or automation", async () => {
    const { workspaceId, api } = await openWorkspace();
    const events = ["lead.created", "run.completed", "automation.status_changed"] as const;
    const { id } = await subscribe(workspaceId, { events: [...events] });
    const automationId = await recordAutomation(workspaceId, {
      type: "crm_source",
      name: "CRM",
      status: "paused",
    });
    expect((await api.patch(`/v1/automations/${automationId}`, { status: "active" })).status).toBe(
      200,
    );
    await Platform.recordRuns({ workspaceId, runs: [runReport("run", automationId)] });
    await Platform.recordLeads({ workspaceId, leads: [leadReport("lead", { name: "Zoé" })] });
    expect((await subjectsOf(id)).toSorted()).toEqual([
      ["automation.status_changed", "CRM"],
      ["lead.created", "Zoé"],
      ["run.completed", "CRM"],
    ]);
  });

  test("is null if the lead has no name, or cannot be decrypted", async () => {
    const { workspaceId } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    const { ids } = await Platform.recordLeads({
      workspaceId,
      leads: [leadReport("nameless", { name: null }), leadReport("damaged", { name: "Zoé" })],
    });
    await damageLead(ids[1] ?? "");
    expect(await subjectsOf(id)).toEqual([
      ["lead.created", null],
      ["lead.created", null],
    ]);
  });
});

describe("listFailures", () => {
  test("lists what is retried or failed for good, at all webhooks, newest event first", async () => {
    const first = await withEachState();
    const second = await subscribe(first.workspaceId);
    const [event] = await announceLeads(first.workspaceId, 1, TODAY + 1);
    await setDeliveries(second.id, RETRYING, event?.id);
    await setDeliveries(first.id, RETRYING, event?.id);
    const { items, nextCursor } = await Platform.listFailures({ workspaceId: first.workspaceId });
    const both = [first.id, second.id].toSorted().toReversed();
    expect(items.map(({ webhookId, eventId, state }) => [webhookId, eventId, state])).toEqual([
      ...both.map((id) => [id, event?.id, "retrying"]),
      [first.id, first.ids.exhausted, "exhausted"],
      [first.id, first.ids.retrying, "retrying"],
    ]);
    expect(nextCursor).toBe(null);
  });

  test("lists one of the two states on demand", async () => {
    const { workspaceId, ids } = await withEachState();
    for (const state of ["retrying", "exhausted"] as const) {
      const { items } = await Platform.listFailures({ workspaceId, state });
      expect(items).toMatchObject([{ state, eventId: ids[state] }]);
      expect(items).toHaveLength(1);
    }
  });

  test("lists none that has left the state since it was found", async () => {
    const { id, workspaceId, ids } = await withEachState();
    const { DB } = observedDatabase({
      before: async (trip) =>
        void (trip === 2 && (await setDeliveries(id, { state: "exhausted" }, ids.retrying))),
    });
    const filter = { state: "retrying" as const };
    const request = { limit: 10, after: null };
    const { items } = await listFailuresOf(connect(DB), env, workspaceId, filter, request);
    expect(items).toEqual([]);
  });

  test("has a next page if one webhook alone has more failures than fit on one", async () => {
    const { id, workspaceId } = await owed(3, TODAY);
    await setDeliveries(id, RETRYING);
    const first = await Platform.listFailures({ workspaceId, limit: 2 });
    const cursor = first.nextCursor;
    const second = await Platform.listFailures({ workspaceId, limit: 2, cursor });
    expect([first.items.length, second.items.length]).toEqual([2, 1]);
  });

  test.each([
    ["of both states", async () => (await withEachState()).workspaceId],
    [
      "of one state of one webhook",
      async () => {
        const { id, workspaceId } = await owed(2, TODAY);
        await setDeliveries(id, RETRYING);
        return workspaceId;
      },
    ],
  ])("ends with a page that is just full %s", async (_, fill) => {
    const request = { workspaceId: await fill(), limit: 2 };
    expect(await Platform.listFailures(request)).toMatchObject({
      items: [{}, {}],
      nextCursor: null,
    });
  });

  test("shows each failure on one page, also an event that failed at several webhooks", async () => {
    const workspaceId = await createWorkspace();
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push((await subscribe(workspaceId)).id);
    const events = await announceLeads(workspaceId, 3, TODAY);
    for (const id of ids) await setDeliveries(id, RETRYING);
    const found: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof Platform.listFailures>> = await Platform.listFailures({
        workspaceId,
        limit: 2,
        cursor,
      });
      found.push(...page.items.map(({ eventId, webhookId }) => `${eventId} ${webhookId}`));
      cursor = page.nextCursor;
    } while (cursor);
    const all = events.flatMap((event) => ids.map((id) => `${event.id} ${id}`));
    expect(found).toEqual(all.toSorted().toReversed());
  });

  test("leaves out deleted webhooks, and what is being cancelled", async () => {
    const { id, workspaceId } = await owed(1, TODAY);
    const kept = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, TODAY);
    for (const one of [id, kept.id]) await setDeliveries(one, RETRYING);
    const webhooks = async () =>
      (await Platform.listFailures({ workspaceId })).items.map(({ webhookId }) => webhookId);
    expect(new Set(await webhooks())).toEqual(new Set([id, kept.id]));
    await setSubscription(id, { deletedAt: TODAY });
    expect(new Set(await webhooks())).toEqual(new Set([kept.id]));
    await setSubscription(kept.id, CANCELLING);
    expect(await webhooks()).toEqual([]);
  });

  test("reads some pages of each webhook at most, whatever else is stored", async () => {
    const { workspaceId, id, fill } = await filling();
    for (const state of ["delivered", "cancelled", "exhausted"] as const)
      await fill(TODAY, 400, state);
    const retrying = await fill(TODAY - DAY_MS, 400, "pending");
    await setDeliveries(id, { priority: PRIORITY.retry }, retrying[0]);
    const { DB, rows } = meteredDatabase();
    const request = { limit: 10, after: null };
    const { items } = await listFailuresOf(connect(DB), env, workspaceId, {}, request);
    expect(items).toHaveLength(10);
    expect(rows.read).toBeLessThan(300);
  });

  test("reads none of the failures of earlier pages", async () => {
    const { workspaceId, fill } = await filling();
    const [oldest] = await fill(TODAY - DAY_MS, 1, "exhausted");
    await fill(TODAY, 200, "exhausted");
    const { DB, rows } = meteredDatabase();
    const request = { limit: 10, after: { at: 0, id: eventIdAt(TODAY) } };
    const page = await listFailuresOf(connect(DB), env, workspaceId, {}, request);
    expect(page.items.map(({ eventId }) => eventId)).toEqual([oldest]);
    expect(rows.read).toBeLessThan(50);
  });

  /** A workspace with each state at one webhook, and a rejected event at another. */
  let rejected: { workspaceId: string; second: string };
  beforeAll(async () => {
    const { workspaceId } = await withEachState();
    const { id: second } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, TODAY);
    await setDeliveries(second, { ...RETRYING, lastStatus: 404 });
    rejected = { workspaceId, second };
  });
  test.each([
    ["webhookId", 1, (second: string) => ({ webhookId: second })],
    ["event type", 3, () => ({ type: "lead.created" as const })],
    ["other event type", 0, () => ({ type: "run.completed" as const })],
    ["status", 1, () => ({ status: "4xx" as const })],
    ["time", 3, () => ({ since: isoTime(TODAY), until: isoTime(TODAY + HOUR_MS) })],
    ["a later time", 0, () => ({ since: isoTime(TODAY + HOUR_MS) })],
  ])("lists and counts those of one %s on demand", async (_, number, filterOf) => {
    const { workspaceId, second } = rejected;
    const filter = { workspaceId, ...filterOf(second) };
    const { items } = await Platform.listFailures(filter);
    expect(items).toHaveLength(number);
    const counts = (await Platform.countFailures(filter)).items;
    expect(counts.reduce((sum, one) => sum + one.retrying + one.exhausted, 0)).toBe(number);
    // A webhook without any is not listed.
    expect(counts.filter(({ retrying, exhausted }) => retrying + exhausted === 0)).toEqual([]);
  });

  test("lists and counts those of a workspace without a webhook, and of several in one state", async () => {
    const workspaceId = await createWorkspace();
    const filter = { workspaceId, state: "retrying" as const, status: 500 };
    expect((await Platform.listFailures(filter)).items).toEqual([]);
    expect((await Platform.countFailures(filter)).items).toEqual([]);
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push((await subscribe(workspaceId)).id);
    await announceLeads(workspaceId, 1, TODAY);
    for (const id of ids) await setDeliveries(id, RETRYING);
    expect((await Platform.listFailures(filter)).items).toHaveLength(3);
    const one = { retrying: 1, exhausted: 0, hasMore: false };
    expect((await Platform.countFailures(filter)).items).toMatchObject([one, one, one]);
  });

  test("looks on behind those that a filter leaves out, and says when it has not seen all", async () => {
    const { workspaceId, id, fill } = await filling();
    const [oldest] = await fill(TODAY - DAY_MS, 1, "pending");
    await setDeliveries(id, { lastStatus: 410 }, oldest);
    await fill(TODAY - DAY_MS, 1, "exhausted");
    // Of one webhook in one state, all that is examined is its share.
    await fill(TODAY, FAILURES_EXAMINED_MAX, "pending");
    const filter = { workspaceId, status: 410, state: "retrying" as const };
    const first = await Platform.listFailures(filter);
    expect(first.items).toEqual([]);
    expect((await Platform.countFailures(filter)).items).toMatchObject([
      { retrying: 0, hasMore: true },
    ]);
    // There may be more in one state, though not in the other.
    expect((await Platform.countFailures({ workspaceId })).items).toMatchObject([
      { retrying: FAILURES_EXAMINED_MAX / 2, exhausted: 1, hasMore: true },
    ]);
    const second = await Platform.listFailures({ ...filter, cursor: first.nextCursor });
    expect(second).toMatchObject({ items: [{ eventId: oldest }], nextCursor: null });
  });
});

describe("the deliveries of a lead are found", () => {
  const leads = [
    leadReport("zoe", { name: "Zoé  Dürand", email: "Zoe.D@Example.com", phone: null }),
    leadReport("max", { name: "Max", email: null, phone: "+33 6 12 34 56 78" }),
    leadReport("none", { name: null, email: null, phone: null }),
  ];
  let webhookId: string;
  let portal: Awaited<ReturnType<typeof openPortal>>;
  beforeAll(async () => {
    const { workspaceId } = await openWorkspace();
    ({ id: webhookId } = await subscribe(workspaceId));
    // No message wakes the subscription, so they stay failures.
    await platformOf(isolated().env).recordLeads({ workspaceId, leads });
    await setDeliveries(webhookId, RETRYING);
    portal = await openPortal(workspaceId);
  });

  test.each([
    ["a name in any spelling", "durand ZOE", ["Zoé  Dürand"]],
    ["a part of a name", "ma", ["Max"]],
    ["an e-mail address", "zoe.d@example.com", ["Zoé  Dürand"]],
    ["three characters of an address", "D@e", ["Zoé  Dürand"]],
    ["a phone number in any spelling", "06.12.34.56.78", ["Max"]],
    ["digits alone", "0612345678", ["Max"]],
    ["its last seven digits", "2345678", ["Max"]],
    ["its last six digits", "345678", []],
    ["a name that nobody has", "Zorro", []],
    ["two characters of an address", "@e", []],
    ["a name beside a phone number", "Max 0612345678", []],
    ["a blank text", " ", []],
  ])("by %s", async (_, lead, names) => {
    const found = await Platform.listDeliveries({ webhookId, lead });
    expect(found.items.map(({ subject }) => subject)).toEqual(names);
    expect(found.nextCursor).toBe(null);
    // Among failures, too, and over HTTPS, where a number is a text.
    const failures = await portal.get(`/failures?lead=${encodeURIComponent(lead)}`);
    expect(failures.status).toBe(200);
    expect(failures).toMatchObject({ body: { items: names.map((subject) => ({ subject })) } });
  });

  test("without normalizing a text for each lead, or more than the beginning of a name", async () => {
    const { workspaceId } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const costly = ["a", "b", "c"].map((reference) =>
      leadReport(reference, { name: "\ufdfa".repeat(1_000), phone: "1234567,2345678" }),
    );
    await Platform.recordLeads({ workspaceId, leads: costly });
    const lead = Array.from({ length: 25 }, (_, i) => 7_000_000 + i).join();
    const normalize = vi.spyOn(String.prototype, "normalize");
    const portal = await openPortal(workspaceId, deployedWith({}));
    const found = await portal.get(`/webhooks/${webhookId}/deliveries?lead=${lead}`);
    expect(found).toMatchObject({ status: 200, body: { items: [] } });
    const texts = normalize.mock.contexts.map(String);
    expect(texts.filter((text) => text.startsWith("\ufdfa"))).toEqual(
      Array(3).fill("\ufdfa".repeat(LEAD_SEARCH_MAX_LENGTH)),
    );
    // Its words, whether it is a number, and which.
    expect(texts.filter((text) => text === lead)).toHaveLength(3);
  });

  test("page by page, and none of them twice", async () => {
    const { workspaceId } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const same = ["a", "b", "c"].map((reference) => leadReport(reference, { name: "Zoé" }));
    await Platform.recordLeads({ workspaceId, leads: same });
    const request = { webhookId, lead: "zoé", limit: 2 };
    const first = await Platform.listDeliveries(request);
    const second = await Platform.listDeliveries({ ...request, cursor: first.nextCursor });
    const ids = [...first.items, ...second.items].map(({ eventId }) => eventId);
    expect([first.items.length, new Set(ids).size, second.nextCursor]).toEqual([2, 3, null]);
  });
});

describe("the health of a subscription", () => {
  const healthOf = async (webhookId: string) => {
    const { days, ...health } = await Platform.readWebhook({ webhookId });
    return health;
  };

  test("counts what is new and what is retried apart", async () => {
    const { id } = await withEachState();
    expect(await healthOf(id)).toMatchObject({ pending: 1, retrying: 1 });
  });

  test("counts nothing that is being cancelled", async () => {
    const { id } = await withEachState();
    await setSubscription(id, CANCELLING);
    expect(await healthOf(id)).toMatchObject({ pending: 0, retrying: 0, lastFailure: null });
  });

  test("has the success rate and the attempts of its last seven days", async () => {
    const now = Date.now();
    jumpTo(now);
    const { id, workspaceId } = await owed(3, now);
    expect(await healthOf(id)).toMatchObject({ successRate: null });
    const { id: failing } = await owed(1, now);
    await failAt(failing, [now]);
    expect(await healthOf(failing)).toMatchObject({ successRate: 0 });
    await dispatchAt(now, [id], answered(200));
    const [draft] = await announceLeads(workspaceId, 1, now);
    await dispatchAt(now + 1, [id], answered(400));
    // Its last attempt fails, and the other one has another.
    await announceLeads(workspaceId, 1, now + 2);
    await setDeliveries(id, { stepsUsed: RETRY_WAITS_SECONDS.length, dueAt: now }, draft?.id);
    await dispatchAt(now + 3, [id], answered(400));
    const { items } = await Platform.listWebhooks({ workspaceId });
    const [day] = items[0]?.days.slice(-1) ?? [];
    expect(day).toEqual({
      date: new Date(now).toISOString().slice(0, 10),
      delivered: 3,
      failed: 2,
      exhausted: 1,
    });
    expect(items[0]?.successRate).toBe(3 / 6);
    expect(items[0]?.days).toHaveLength(7);
  });

  test("shows the last failure of what is retried or exhausted, whichever failed last", async () => {
    const { id, ids } = await withEachState();
    const status = (lastStatus: number, lastAt: number) => ({
      lastStatus,
      lastAt,
      lastOutcome: "answered",
    });
    await setDeliveries(id, status(500, TODAY + 1), ids.retrying);
    await setDeliveries(id, status(410, TODAY + 2), ids.exhausted);
    // Of the deliveries in one state, the newest counts.
    await setDeliveries(id, { ...status(404, TODAY + 4), state: "exhausted" }, ids.pending);
    const failure = { type: "lead.created", outcome: "answered" };
    expect((await healthOf(id)).lastFailure).toMatchObject({
      ...failure,
      eventId: ids.exhausted,
      status: 410,
    });
    await setDeliveries(id, status(500, TODAY + 3), ids.retrying);
    expect((await healthOf(id)).lastFailure).toMatchObject({
      ...failure,
      eventId: ids.retrying,
      status: 500,
    });
  });

  test("is rejecting as soon as one type fails and others succeed", async () => {
    const { id } = await owed(1, TODAY);
    const { circuits } = failingSince(TODAY, 1);
    await setSubscription(id, { circuits });
    expect(await healthOf(id)).toMatchObject({
      state: "rejecting",
      rejected: [{ type: "lead.created", since: isoTime(TODAY), outcome: "answered", status: 500 }],
    });
    // Everything has failed since: it rejects no type in particular.
    await setSubscription(id, { failingSince: TODAY });
    expect(await healthOf(id)).toMatchObject({ state: "failing", rejected: [] });
    // An attempt that could not be made is no rejection.
    const untried = { ...circuits["lead.created"], outcome: null };
    await setSubscription(id, { circuits: { "lead.created": untried }, failingSince: null });
    expect(await healthOf(id)).toMatchObject({ rejected: [] });
  });

  test("rejects no type while the subscription is disabled", async () => {
    const { id } = await owed(1, TODAY);
    const { circuits } = failingSince(TODAY, 1);
    await setSubscription(id, { circuits, disabledAt: TODAY });
    expect(await healthOf(id)).toMatchObject({ state: "disabled", rejected: [] });
  });

  test("is failing once nothing has succeeded for a day, although a type was rejected before", async () => {
    const now = Date.now();
    const { id } = await owed(1, now);
    const { circuits } = failingSince(now - 3 * DAY_MS, 1);
    await setSubscription(id, { circuits, failingSince: now - DAY_MS + HOUR_MS });
    expect((await healthOf(id)).state).toBe("rejecting");
    await setSubscription(id, { failingSince: now - DAY_MS - 1 });
    expect((await healthOf(id)).state).toBe("failing");
  });

  test("is behind if a delivery could have been sent for more than a minute", async () => {
    const now = Date.now();
    const { id } = await owed(1, now - 50_000);
    expect((await healthOf(id)).state).toBe("healthy");
    await setDeliveries(id, { dueAt: now - 61_000 });
    expect((await healthOf(id)).state).toBe("backlog");
    await setSubscription(id, { slow: true });
    expect((await healthOf(id)).state).toBe("slow");
    await setSubscription(id, { disabledAt: now });
    expect(await healthOf(id)).toMatchObject({ state: "disabled", nextAttemptAt: null });
  });

  test("shows until when an earlier secret signs, while it does", async () => {
    const { id } = await owed(0, TODAY);
    const until = Date.now() + HOUR_MS;
    const secretUntil = (time: number) => ({ sealedSecret: "sealed", until: time });
    const earlierSecrets = [until - 1, until, until - 2].map(secretUntil);
    await setSubscription(id, { earlierSecrets });
    expect((await healthOf(id)).overlapEndsAt).toBe(new Date(until).toISOString());
    await setSubscription(id, { earlierSecrets: [secretUntil(TODAY)] });
    expect((await healthOf(id)).overlapEndsAt).toBe(null);
  });

  test("counts a bounded number of pending deliveries, and each of fewer", async () => {
    const { id, fill } = await filling();
    await fill(TODAY, 500, "pending");
    await setDeliveries(id, { priority: PRIORITY.untried });
    await fill(TODAY - DAY_MS, 200, "pending");
    const { DB, rows } = meteredDatabase();
    const health = await findSubscriptionHealth(connect(DB), env, id);
    expect(health).toMatchObject({ pending: 500, retrying: 200 });
    expect(rows.read).toBeLessThan(700 + 100);
    await fill(TODAY - 2 * DAY_MS, PENDING_COUNTED_MAX, "pending");
    rows.read = 0;
    const more = await findSubscriptionHealth(connect(DB), env, id);
    expect(more).toMatchObject({ pending: 500, retrying: PENDING_COUNTED_MAX });
    expect(rows.read).toBeLessThan(500 + PENDING_COUNTED_MAX + 100);
  });

  test("counts only what was made pending since a cancellation, while it goes on", async () => {
    const { id, fill } = await filling();
    await fill(TODAY, 500, "pending");
    await setSubscription(id, CANCELLING);
    await fill(TODAY + 1_000, 300, "pending");
    await env.DB.prepare("UPDATE deliveries SET pending_since_epoch = 1 WHERE event_id >= ?")
      .bind(eventIdAt(TODAY + 2_000))
      .run();
    const { DB, rows } = meteredDatabase();
    const health = await findSubscriptionHealth(connect(DB), env, id);
    expect(health).toMatchObject({ pending: 0, retrying: 300 });
    expect(rows.read).toBeLessThan(800 + 100);
  });

  test("of each webhook in a list is its own, that of the newest webhook first", async () => {
    const workspaceId = await createWorkspace();
    const idOf = (name: string) => `whk_${name}${workspaceId}`;
    const createdAt = Object.entries({ a: 2, b: 1, c: 3 });
    await insertSubscriptions(
      createdAt.map(([name, at]) => ({
        ...{ id: idOf(name), workspaceId, createdAt: at },
        events: ["lead.created" as const],
      })),
    );
    await announceLeads(workspaceId, 1, TODAY);
    await setDeliveries(idOf("b"), RETRYING);
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items.map(({ webhookId, lastFailure }) => [webhookId, lastFailure?.status])).toEqual([
      [idOf("c"), undefined],
      [idOf("a"), undefined],
      [idOf("b"), 500],
    ]);
  });

  test("of a list is read without counting deliveries", async () => {
    const { workspaceId, fill } = await filling();
    await fill(TODAY, 500, "pending");
    const { DB, rows } = meteredDatabase();
    await listSubscriptionHealth(connect(DB), env, workspaceId);
    expect(rows.read).toBeLessThan(100);
  });

  test("shows since when too many deliveries were pending", async () => {
    const { id, workspaceId } = await owed(1, TODAY);
    expect(await healthOf(id)).toMatchObject({ pendingExhaustedAt: null });
    await setSubscription(id, { pendingExhaustedAt: TODAY });
    const pendingExhaustedAt = new Date(TODAY).toISOString();
    expect(await healthOf(id)).toMatchObject({ pendingExhaustedAt });
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items).toMatchObject([{ pendingExhaustedAt }]);
  });

  test("shows whether the responses of today have reached their limit", async () => {
    const { id } = await owed(1, TODAY);
    const now = Date.now();
    jumpTo(now);
    const store = (yesterday: number, today: number) => {
      const days = { [dayOf(now - DAY_MS)]: yesterday, [dayOf(now)]: today };
      const dailyCounts = Object.entries(days).map(([day, responses]) => [day, { responses }]);
      return setSubscription(id, { dailyCounts: Object.fromEntries(dailyCounts) });
    };
    await store(RESPONSES_PER_DAY, RESPONSES_PER_DAY - 1);
    expect(await healthOf(id)).toMatchObject({ responseLimitReached: false });
    await store(0, RESPONSES_PER_DAY);
    expect(await healthOf(id)).toMatchObject({ responseLimitReached: true });
  });
});

test("A page of deliveries or failures has 25 by default", async () => {
  const { id, workspaceId } = await owed(26, TODAY);
  await setDeliveries(id, RETRYING);
  const deliveries = await Platform.listDeliveries({ webhookId: id });
  const failures = await Platform.listFailures({ workspaceId });
  expect([deliveries.items.length, failures.items.length]).toEqual([25, 25]);
});

describe("a filtered list of deliveries", () => {
  /** The lengths of the pages of two, and the most rows that one of them read. */
  async function pagesOf(id: string, filter: DeliveryFilter) {
    const { DB, rows } = meteredDatabase();
    const database = connect(DB);
    const lengths: number[] = [];
    let [after, read] = [null, 0] as [{ at: number; id: string } | null, number];
    do {
      rows.read = 0;
      const page = await listDeliveriesOf(database, env, id, filter, { limit: 2, after });
      read = Math.max(read, rows.read);
      lengths.push(page.items.length);
      after = page.next;
    } while (after);
    return { lengths, read };
  }

  test("examines a limited number per page", async () => {
    const { id, fill } = await filling();
    const old = await fill(TODAY - DAY_MS, 3);
    await fill(TODAY, 2 * DELIVERIES_EXAMINED_MAX);
    const recent = await fill(TODAY + HOUR_MS, 3);
    for (const eventId of [...old, ...recent])
      await setDeliveries(id, { lastStatus: 201 }, eventId);
    const { lengths, read } = await pagesOf(id, { status: 201 });
    expect(lengths).toEqual([2, 1, 0, 2, 1]);
    expect(read).toBeLessThan(5 * DELIVERIES_EXAMINED_MAX);
  });

  test("shows the last delivery that a page examines, and the first of the next page", async () => {
    const { id, fill } = await filling();
    const failed = await fill(TODAY, DELIVERIES_EXAMINED_MAX + 1, "exhausted");
    for (const eventId of failed.slice(0, 2)) await setDeliveries(id, { lastStatus: 201 }, eventId);
    expect((await pagesOf(id, { state: "exhausted", status: 201 })).lengths).toEqual([1, 1]);
  });

  test.each(["exhausted", "retrying"] as const)(
    "finds what is %s without reading the rest",
    async (state) => {
      const { id, fill } = await filling();
      const failed = await fill(TODAY - DAY_MS, 4, state === "retrying" ? "pending" : state);
      await fill(TODAY, 200);
      expect(failed).toHaveLength(4);
      const { lengths, read } = await pagesOf(id, { state });
      expect(lengths).toEqual([2, 2]);
      expect(read).toBeLessThan(60);
    },
  );

  test("reads the rows that it shows plus one if there is no filter", async () => {
    const { id, fill } = await filling();
    await fill(TODAY, 100);
    const { DB, rows } = meteredDatabase();
    await listDeliveriesOf(connect(DB), env, id, {}, { limit: 25, after: null });
    expect(rows.read).toBeLessThan(60);
  });
});

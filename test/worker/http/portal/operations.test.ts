import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import type { ErrorDetails } from "../../../../src/contract/errors.ts";
import { RESENDS_PENDING_MAX } from "../../../../src/contract/limits.ts";
import { commit } from "../../../../src/db/client.ts";
import { PRIORITY } from "../../../../src/db/schema.ts";
import { deleteSubscription } from "../../../../src/subscriptions/subscriptions.ts";
import { deployedWith, openWorkspace, Platform, SOME_TIME } from "../../../support/api.ts";
import { HOUR_MS, setDeliveries, statesOf, subscriberUrl } from "../../../support/deliveries.ts";
import { db } from "../../../support/placement.ts";
import { openOwed, openPortal, portalRefusal, portalSuccess } from "../../../support/portal.ts";
import { insertDeliveries } from "../../../support/rows.ts";

const TWO_HOURS_AGO = new Date(Date.now() - 2 * HOUR_MS).toISOString();

describe("the portal shows", () => {
  test("of the workspace, its webhooks and deliveries what the Platform does", async () => {
    const { workspaceId, webhookId, eventIds, portal, path } = await openOwed();
    const [eventId] = eventIds;
    const shown = {
      "/workspace": Platform.readWorkspace({ workspaceId }),
      "/keys": Platform.listApiKeys({ workspaceId }),
      "/webhooks": Platform.listWebhooks({ workspaceId }),
      [path]: Platform.readWebhook({ webhookId }),
      [`${path}/deliveries`]: Platform.listDeliveries({ webhookId }),
      [`${path}/deliveries/${eventId}`]: Platform.readDelivery({ webhookId, eventId }),
    };
    for (const [each, there] of Object.entries(shown))
      expect(await portal.get(each), each).toEqual(portalSuccess(200, await there));
  });

  test("deliveries by page, state, type and status, in a query", async () => {
    const { webhookId, eventIds, portal, path } = await openOwed();
    type Shown = { items: { eventId: string }[]; nextCursor: string };
    const idsOf = async (query: string) => {
      const { body } = await portal.get<Shown>(`${path}/deliveries?${query}`);
      return { ids: body.items.map(({ eventId }) => eventId), next: body.nextCursor };
    };
    const { ids, next } = await idsOf("limit=2");
    expect(ids).toEqual([eventIds[2], eventIds[1]]);
    expect(await idsOf(`limit=2&cursor=${next}`)).toEqual({ ids: [eventIds[0]], next: null });
    expect((await idsOf("state=pending&type=lead.created")).ids).toHaveLength(3);
    expect((await idsOf("type=run.completed")).ids).toEqual([]);
    await setDeliveries(webhookId, { lastStatus: 503 }, eventIds[1]);
    expect((await idsOf("status=503")).ids).toEqual([eventIds[1]]);
    await Platform.disableWebhook({ webhookId });
    expect((await idsOf("state=pending")).ids).toEqual([]);
    expect((await idsOf("state=&type=")).ids).toHaveLength(3);
  });

  test("how many webhooks the workspace may have, and how long events are kept", async () => {
    const { workspaceId } = await openWorkspace();
    await Platform.updateWorkspace({ workspaceId, webhooksMax: 50 });
    const portal = await openPortal(workspaceId, deployedWith({ EVENTS_KEPT_DAYS: 7 as never }));
    const own = { workspaceId, name: "Agence Lumière", webhooksMax: 50, retentionDays: 7 };
    expect(await portal.get("/workspace")).toEqual(
      portalSuccess(200, { ...own, events: WebhookEvent.options }),
    );
  });
});

test("Resends by id get 429 while a hundred are pending", async () => {
  const { webhookId, eventIds, portal, path, workspaceId } = await openOwed();
  await setDeliveries(webhookId, { state: "exhausted" });
  await insertDeliveries(
    Array.from({ length: RESENDS_PENDING_MAX - 2 }, (_, i) => ({
      subscriptionId: webhookId,
      eventId: `evt_${i}`,
      workspaceId,
      priority: PRIORITY.resend,
      dueAt: Date.now() + HOUR_MS,
    })),
  );
  const answer = await portal.post(`${path}/redeliver`, { eventIds });
  expect(answer).toMatchObject({ status: 429, body: { error: { code: "rate_limited" } } });
  expect(answer.headers["retry-after"]).toBe("10");
  expect(await statesOf(webhookId)).toMatchObject({ exhausted: 3 });
});

test("webhooks are created and deleted as by the API", async () => {
  const { workspaceId, api } = await openWorkspace();
  const portal = await openPortal(workspaceId);
  const [url, events] = [subscriberUrl(), ["lead.created", "lead.created"]];
  const created = await portal.post<{ id: string }>("/webhooks", { url, events });
  const { id } = created.body;
  const shown = { id, url, events: ["lead.created"], created_at: SOME_TIME, disabled_at: null };
  expect(created).toEqual(portalSuccess(201, { ...shown, secret: expect.any(String) }));
  expect((await api.get("/v1/webhooks")).body).toMatchObject({ data: [shown] });
  expect(await portal.delete(`/webhooks/${id}`)).toMatchObject({ status: 204, body: null });
  expect(await portal.delete(`/webhooks/${id}`)).toEqual(portalRefusal(404, "webhook_not_found"));
  const invalid = [{ url: "https://10.0.0.1/" }, { events: [] }, { events: ["x"] }, { more: 1 }];
  for (const body of [
    {},
    ...invalid.map((each) => ({ url, events, ...each })),
    " ".repeat(20_000),
  ]) {
    const { status, body: there } = await api.post("/v1/webhooks", body);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(await portal.post("/webhooks", body)).toMatchObject({ status, body: there });
  }
  const text = await portal.send("/webhooks", { method: "POST", body: "url=1" });
  expect(text).toEqual(portalRefusal(415, "invalid_request", { reason: "unsupported_media_type" }));
});

type Owed = Awaited<ReturnType<typeof openOwed>>;
const SECRET = expect.stringMatching(/^whsec_/);
const CHANGED = { description: "CRM", events: ["run.completed"] };
const TESTED = { outcome: "answered", status: 503, durationMs: expect.any(Number) };
test.each<[string, (owed: Owed) => object, answer: object, shown?: object]>([
  ["disable", () => ({}), {}, { state: "disabled" }],
  ["enable", () => ({}), { count: 0, nextCursor: null }, { disabledAt: null }],
  ["enable", () => ({ redeliverSince: TWO_HOURS_AGO }), { count: 3, nextCursor: null }],
  ["redeliver", ({ eventIds }) => ({ eventIds }), { count: 3, nextCursor: null }],
  ["secret", () => ({}), { secret: SECRET, overlapEndsAt: SOME_TIME }],
  ["secret", () => ({ overlapSeconds: 0 }), { secret: SECRET, overlapEndsAt: null }],
  [
    "test",
    () => ({ type: "lead.created" }),
    { ...TESTED, eventId: expect.stringMatching(/^evt_/) },
  ],
  ["update", () => CHANGED, {}, CHANGED],
])("the portal's %s does and returns what the Platform does", async (...row) => {
  const [action, bodyOf, answer, shown = {}] = row;
  const owed = await openOwed("status-503");
  const { webhookId, portal, path } = owed;
  await Platform.disableWebhook({ webhookId });
  if (action !== "enable") await Platform.enableWebhook({ webhookId });
  expect(await portal.post(`${path}/${action}`, bodyOf(owed))).toEqual(portalSuccess(200, answer));
  expect(await Platform.readWebhook({ webhookId })).toMatchObject(shown);
});

const OUT_OF_RANGE = { reason: "out_of_range" } as const;
const UNKNOWN = { since: TWO_HOURS_AGO, states: ["pending"] };
const STATES = ["delivered", "exhausted", "cancelled", "missed", "retrying"];
test.each<[string, object | null, string, ErrorDetails]>([
  ["deliveries?limit=0", null, "limit", { ...OUT_OF_RANGE, min: 1 }],
  ["deliveries?cursor=x", null, "cursor", { reason: "unreadable" }],
  ["deliveries?state=a&state=b", null, "state", { reason: "invalid_type" }],
  ["enable", { redeliverSince: "2020-01-01T00:00:00Z" }, "redeliverSince", OUT_OF_RANGE],
  ["secret", { overlapSeconds: -1 }, "overlapSeconds", { ...OUT_OF_RANGE, min: 0 }],
  ["secret", { overlapSeconds: 604_801 }, "overlapSeconds", { ...OUT_OF_RANGE, max: 604_800 }],
  ["test", {}, "type", { reason: "required" }],
  ["update", { description: "\u001b[2J" }, "description", { reason: "invalid_type" }],
  ["redeliver", {}, "eventIds", { reason: "required" }],
  ["redeliver", UNKNOWN, "states.0", { reason: "unknown_value", allowed: STATES }],
])(
  "the portal names what is invalid in %s with %j: %s",
  async (action, body, parameter, details) => {
    const { portal, path } = await openOwed();
    const request = `${path}/${action}`;
    const answer = await (body === null ? portal.get(request) : portal.post(request, body));
    expect(answer).toEqual(portalRefusal(400, "invalid_request", { parameter, ...details }));
  },
);

test("the portal shows no deliveries of a deleted webhook whose row is still stored", async () => {
  const { workspaceId, webhookId, portal, path } = await openOwed();
  await commit(db, deleteSubscription(workspaceId, webhookId, Date.now()));
  const unknown = portalRefusal(404, "webhook_not_found");
  expect(await portal.get(`${path}/deliveries`)).toEqual(unknown);
});

test("the portal names an event that is unknown or foreign, with 404", async () => {
  const [{ portal, path, eventIds }, foreign] = [await openOwed(), await openOwed()];
  const named = (parameter: string) => portalRefusal(404, "webhook_not_found", { parameter });
  for (const event of [foreign.eventIds[0], "x"]) {
    expect(await portal.get(`${path}/deliveries/${event}`)).toEqual(named("eventId"));
    const request = { eventIds: [eventIds[0], event] };
    expect(await portal.post(`${path}/redeliver`, request)).toEqual(named("eventIds.1"));
  }
});

import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import type { ErrorDetails } from "../../../../src/contract/errors.ts";
import { REDELIVERY_RANGES_MAX } from "../../../../src/webhooks/redelivery/ranges.ts";
import { deployedWith, openWorkspace } from "../../../support/api.ts";
import {
  announceLeads,
  HOUR_MS,
  receivedBy,
  setSubscription,
  statesOf,
  subscribe,
  subscriberUrl,
} from "../../../support/deliveries.ts";
import { openPortal, portalRefusal, portalSuccess } from "../../../support/portal.ts";
import { until } from "../../../support/until.ts";

const { Platform } = exports;
const SOME_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const SECRET = expect.stringMatching(/^whsec_/);
const TWO_HOURS_AGO = new Date(Date.now() - 2 * HOUR_MS).toISOString();

/** A webhook with three pending deliveries that are an hour old, oldest first. */
async function openOwed(behaviour = "ok") {
  const { workspaceId, api } = await openWorkspace();
  const subscription = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const eventIds: string[] = [];
  for (let i = 0; i < 3; i++) {
    const [draft] = await announceLeads(workspaceId, 1, Date.now() - HOUR_MS + i * 1_000);
    eventIds.push(draft?.id ?? "");
  }
  const portal = await openPortal(workspaceId);
  const { id: webhookId } = subscription;
  return {
    workspaceId,
    webhookId,
    api,
    subscription,
    eventIds,
    portal,
    path: `/webhooks/${webhookId}`,
  };
}

describe("the portal shows what the Platform does", () => {
  test.each<[string, (of: Awaited<ReturnType<typeof openOwed>>) => [string, Promise<object>]]>([
    ["the workspace", ({ workspaceId }) => ["/workspace", Platform.readWorkspace({ workspaceId })]],
    ["its webhooks", ({ workspaceId }) => ["/webhooks", Platform.listWebhooks({ workspaceId })]],
    ["a webhook", ({ webhookId, path }) => [path, Platform.readWebhook({ webhookId })]],
    [
      "its deliveries",
      ({ webhookId, path }) => [`${path}/deliveries`, Platform.listDeliveries({ webhookId })],
    ],
    [
      "a delivery",
      ({ webhookId, path, eventIds: [eventId = ""] }) => [
        `${path}/deliveries/${eventId}`,
        Platform.readDelivery({ webhookId, eventId }),
      ],
    ],
  ])("of %s", async (_, requestOf) => {
    const owed = await openOwed();
    const [path, shown] = requestOf(owed);
    expect(await owed.portal.get(path)).toEqual(portalSuccess(200, await shown));
  });

  test("of deliveries by page, state and kind, in a query", async () => {
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
    await Platform.disableWebhook({ webhookId });
    expect((await idsOf("state=pending")).ids).toEqual([]);
    expect((await idsOf("state=&type=")).ids).toHaveLength(3);
  });
});

test("the portal knows how many webhooks the workspace may have, and how long events are kept", async () => {
  const { workspaceId } = await openWorkspace();
  await Platform.updateWorkspace({ workspaceId, webhooksMax: 50 });
  const body = { workspaceId, name: "Agence Lumière", webhooksMax: 50, retentionDays: 7 };
  for (const name of ["DELIVERED_KEPT_DAYS", "UNDELIVERED_KEPT_DAYS"]) {
    const portal = await openPortal(workspaceId, deployedWith({ [name]: 7 as never }));
    expect(await portal.get("/workspace")).toEqual(
      portalSuccess(200, { ...body, events: WebhookEvent.options }),
    );
  }
});

test("webhooks are created as by POST /v1/webhooks, and deleted", async () => {
  const { workspaceId, api } = await openWorkspace();
  const portal = await openPortal(workspaceId);
  const url = subscriberUrl();
  const created = await portal.post<{ id: string }>("/webhooks", {
    url,
    events: ["lead.created", "lead.created"],
  });
  const { id } = created.body;
  const shown = { id, url, events: ["lead.created"], created_at: SOME_TIME, disabled_at: null };
  expect(created).toEqual(portalSuccess(201, { ...shown, secret: SECRET }));
  expect((await api.get("/v1/webhooks")).body).toMatchObject({ data: [shown] });
  const { status, body } = await portal.delete(`/webhooks/${id}`);
  expect([status, body]).toEqual([204, null]);
  expect(await portal.delete(`/webhooks/${id}`)).toEqual(portalRefusal(404, "webhook_not_found"));
});

test("invalid webhooks are rejected as by POST /v1/webhooks", async () => {
  const { workspaceId, api } = await openWorkspace();
  const portal = await openPortal(workspaceId);
  for (const body of [
    {},
    { url: "http://a.example/", events: ["lead.created"] },
    { url: "https://10.0.0.1/", events: ["lead.created"] },
    { url: "https://a.example/", events: [] },
    { url: "https://a.example/", events: ["lead.lost"] },
    { url: "https://a.example/", events: ["lead.created"], more: 1 },
    "x".repeat(20_000),
  ]) {
    const here = await portal.post("/webhooks", body);
    const there = await api.post("/v1/webhooks", body);
    expect(here.status).toBeGreaterThanOrEqual(400);
    expect([here.status, here.body]).toEqual([there.status, there.body]);
  }
  const text = await portal.send("/webhooks", { method: "POST", body: "url=1" });
  expect(text).toEqual(portalRefusal(415, "invalid_request", { reason: "unsupported_media_type" }));
});

describe("a webhook in the portal", () => {
  test("is disabled and re-enabled, and gets what it has missed if requested", async () => {
    const { webhookId, portal, path } = await openOwed();
    for (const [body, count] of [
      [{}, 0],
      [{ redeliverSince: TWO_HOURS_AGO }, 3],
    ] as const) {
      expect(await portal.post(`${path}/disable`, {})).toEqual(portalSuccess(200, {}));
      expect((await Platform.readWebhook({ webhookId })).state).toBe("disabled");
      const answer = await portal.post(`${path}/enable`, body);
      expect(answer).toEqual(portalSuccess(200, { count, more: false }));
    }
    await until(async () => (await statesOf(webhookId)).delivered === 3);
  });

  test("is described, and gets other events", async () => {
    const { webhookId, portal, path } = await openOwed();
    const changed = { description: "CRM", events: ["run.completed"] };
    expect(await portal.post(`${path}/update`, changed)).toEqual(portalSuccess(200, {}));
    expect(await Platform.readWebhook({ webhookId })).toMatchObject(changed);
  });

  test("gets events again by their ids", async () => {
    const { webhookId, subscription, eventIds, portal, path } = await openOwed();
    await Platform.disableWebhook({ webhookId });
    await Platform.enableWebhook({ webhookId });
    const wanted = eventIds.slice(0, 2);
    const answer = await portal.post(`${path}/redeliver`, { eventIds: wanted });
    expect(answer).toEqual(portalSuccess(200, { count: 2, more: false }));
    await until(async () => (await statesOf(webhookId)).delivered === 2);
    const received = await receivedBy(subscription);
    expect(received.map(({ body }) => JSON.parse(body).id).sort()).toEqual(wanted);
  });

  test("gets new secrets, until too many are valid", async () => {
    const { portal, path } = await openOwed();
    const rotate = (body: object) => portal.post(`${path}/secret`, body);
    expect(await rotate({})).toEqual(
      portalSuccess(200, { secret: SECRET, overlapEndsAt: SOME_TIME }),
    );
    for (let i = 0; i < 3; i++) await rotate({ overlapSeconds: 60 });
    const details = { parameter: "webhookId", reason: "out_of_range" } as const;
    expect(await rotate({ overlapSeconds: 60 })).toEqual(
      portalRefusal(400, "invalid_request", details),
    );
    expect(await rotate({ overlapSeconds: 0 })).toEqual(
      portalSuccess(200, { secret: SECRET, overlapEndsAt: null }),
    );
  });

  test("is posted a test event, whose result is shown", async () => {
    const { subscription, portal, path } = await openOwed("status-503");
    const answer = await portal.post<{ eventId: string }>(`${path}/test`, { type: "lead.created" });
    const { eventId } = answer.body;
    const result = { eventId, outcome: "answered", status: 503, durationMs: expect.any(Number) };
    expect(answer).toEqual(portalSuccess(200, result));
    const received = await receivedBy(subscription);
    expect(received.map(({ body }) => JSON.parse(body).id)).toEqual([eventId]);
  });

  test("has no more ranges redelivered at once than it may: 429", async () => {
    const { webhookId, eventIds, portal, path } = await openOwed();
    const range = { from: "evt_", before: null, states: [], askedAt: 0, after: "evt_" };
    const ranges = Array.from({ length: REDELIVERY_RANGES_MAX }, () => range);
    await setSubscription(webhookId, { ranges });
    const since = TWO_HOURS_AGO;
    const refusal = portalRefusal(429, "rate_limited", { retry_after_seconds: 60 });
    expect(await portal.post(`${path}/redeliver`, { since })).toEqual(refusal);
    expect(await portal.post(`${path}/enable`, { redeliverSince: since })).toEqual(refusal);
    expect(await portal.post(`${path}/redeliver`, { eventIds })).toMatchObject({ status: 200 });
  });
});

test.each<[string, object | null, ErrorDetails]>([
  ["deliveries?limit=0", null, { parameter: "limit", reason: "out_of_range", min: 1 }],
  ["deliveries?cursor=x", null, { parameter: "cursor", reason: "unreadable" }],
  ["deliveries?state=a&state=b", null, { parameter: "state", reason: "invalid_type" }],
  [
    "enable",
    { redeliverSince: "2020-01-01T00:00:00Z" },
    { parameter: "redeliverSince", reason: "out_of_range" },
  ],
  [
    "secret",
    { overlapSeconds: -1 },
    { parameter: "overlapSeconds", reason: "out_of_range", min: 0 },
  ],
  [
    "secret",
    { overlapSeconds: 604_801 },
    { parameter: "overlapSeconds", reason: "out_of_range", max: 604_800 },
  ],
  ["test", {}, { parameter: "type", reason: "required" }],
  ["redeliver", {}, { parameter: "eventIds", reason: "required" }],
  [
    "redeliver",
    { since: TWO_HOURS_AGO, states: ["pending"] },
    {
      parameter: "states.0",
      reason: "unknown_value",
      allowed: ["delivered", "exhausted", "cancelled", "missed"],
    },
  ],
])("the portal names what is invalid in %s with %j", async (action, body, details) => {
  const { portal, path } = await openOwed();
  const request = `${path}/${action}`;
  const answer = await (body === null ? portal.get(request) : portal.post(request, body));
  expect(answer).toEqual(portalRefusal(400, "invalid_request", details));
});

import { exports } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import type { ErrorDetails } from "../../../../src/contract/errors.ts";
import { subscriptions } from "../../../../src/db/schema.ts";
import { REDELIVERY_RANGES_MAX } from "../../../../src/webhooks/redelivery/ranges.ts";
import { openWorkspace } from "../../../support/api.ts";
import {
  announceLeads,
  db,
  HOUR_MS,
  receivedBy,
  statesOf,
  subscribe,
  subscriberUrl,
} from "../../../support/deliveries.ts";
import { openPortal, portalRefusal, portalSuccess } from "../../../support/portal.ts";
import { until } from "../../../support/until.ts";

const { Platform } = exports;
const SOME_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

interface Shown {
  items: { eventId: string; state: string }[];
  nextCursor: string;
}

/** A webhook with three pending deliveries that are an hour old, oldest first. */
async function openOwed(behaviour = "ok") {
  const { workspaceId } = await openWorkspace();
  const subscription = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const at = Date.now() - HOUR_MS;
  const eventIds: string[] = [];
  for (let i = 0; i < 3; i++) {
    const [draft] = await announceLeads(workspaceId, 1, at + i * 1000);
    eventIds.push(JSON.parse(draft?.body ?? "").id);
  }
  const portal = await openPortal(workspaceId);
  return { workspaceId, subscription, eventIds, portal, path: `/webhooks/${subscription.id}` };
}

describe("deliveries in the portal", () => {
  test("are listed newest first, page by page", async () => {
    const { eventIds, portal, path } = await openOwed();
    const first = await portal.get<Shown>(`${path}/deliveries?limit=2`);
    const pending = (eventId: string | undefined) => ({
      eventId,
      type: "lead.created",
      createdAt: SOME_TIME,
      state: "pending",
      attempts: 0,
      dueAt: SOME_TIME,
      settledAt: null,
      lastAttempt: null,
    });
    expect(first).toEqual(
      portalSuccess(200, {
        items: [pending(eventIds[2]), pending(eventIds[1])],
        nextCursor: expect.any(String),
      }),
    );
    const { nextCursor } = first.body;
    expect(await portal.get(`${path}/deliveries?limit=2&cursor=${nextCursor}`)).toEqual(
      portalSuccess(200, { items: [pending(eventIds[0])], nextCursor: null }),
    );
  });

  test("are filtered by state and type", async () => {
    const { subscription, portal, path } = await openOwed();
    const lengthOf = async (query: string) =>
      (await portal.get<Shown>(`${path}/deliveries?${query}`)).body.items.length;
    expect(await lengthOf("state=pending&type=lead.created")).toBe(3);
    expect(await lengthOf("state=cancelled")).toBe(0);
    expect(await lengthOf("type=run.completed")).toBe(0);
    expect(await lengthOf("state=&type=")).toBe(3);
    await Platform.disableWebhook({ webhookId: subscription.id });
    expect(await lengthOf("state=pending")).toBe(0);
    expect(await lengthOf("state=cancelled")).toBe(3);
  });

  test.each<[string, ErrorDetails]>([
    ["limit=0", { parameter: "limit", reason: "out_of_range", min: 1 }],
    ["cursor=x", { parameter: "cursor", reason: "unreadable" }],
    ["state=a&state=b", { parameter: "state", reason: "invalid_type" }],
  ])("reject %s", async (query, details) => {
    const { portal, path } = await openOwed();
    expect(await portal.get(`${path}/deliveries?${query}`)).toEqual(
      portalRefusal(400, "invalid_request", details),
    );
  });

  test("are shown one by one, too", async () => {
    const { eventIds, portal, path } = await openOwed();
    expect(await portal.get(`${path}/deliveries/${eventIds[0]}`)).toMatchObject({
      status: 200,
      body: { eventId: eventIds[0], failedAttempts: [], body: expect.any(String) },
    });
  });
});

describe("POST /portal/api/webhooks/{id}/redeliver", () => {
  test("redelivers events by id", async () => {
    const { subscription, eventIds, portal, path } = await openOwed();
    await Platform.disableWebhook({ webhookId: subscription.id });
    await Platform.enableWebhook({ webhookId: subscription.id });
    const wanted = eventIds.slice(0, 2);
    expect(await portal.post(`${path}/redeliver`, { eventIds: wanted })).toEqual(
      portalSuccess(200, { count: 2, more: false }),
    );
    await until(async () => (await statesOf(subscription.id)).delivered === 2);
    const received = await receivedBy(subscription);
    expect(received.map(({ body }) => JSON.parse(body).id).sort()).toEqual(wanted);
  });

  test.each<[object, ErrorDetails]>([
    [{}, { parameter: "eventIds", reason: "required" }],
    [
      { since: new Date().toISOString(), states: ["pending"] },
      {
        parameter: "states.0",
        reason: "unknown_value",
        allowed: ["delivered", "exhausted", "cancelled", "missed"],
      },
    ],
  ])("rejects %o", async (body, details) => {
    const { portal, path } = await openOwed();
    expect(await portal.post(`${path}/redeliver`, body)).toEqual(
      portalRefusal(400, "invalid_request", details),
    );
  });

  test("of a range is refused while as many as possible are being redelivered", async () => {
    const { subscription, eventIds, portal, path } = await openOwed();
    const range = { from: "evt_", before: null, states: [], askedAt: 0, after: "evt_" };
    const ranges = Array.from({ length: REDELIVERY_RANGES_MAX }, () => range);
    await db.update(subscriptions).set({ ranges }).where(eq(subscriptions.id, subscription.id));
    const since = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    const refusal = portalRefusal(429, "rate_limited", { retry_after_seconds: 60 });
    expect(await portal.post(`${path}/redeliver`, { since })).toEqual(refusal);
    expect(await portal.post(`${path}/enable`, { redeliverSince: since })).toEqual(refusal);
    expect(await portal.post(`${path}/redeliver`, { eventIds })).toMatchObject({
      status: 200,
    });
  });
});

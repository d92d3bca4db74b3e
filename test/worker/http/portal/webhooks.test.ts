import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { PORTAL_DAYS } from "../../../../src/webhooks/days.ts";
import { openApi, openWorkspace } from "../../../support/api.ts";
import {
  announceLeads,
  DAY_MS,
  HOUR_MS,
  receivedBy,
  statesOf,
  subscribe,
  subscriberUrl,
} from "../../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";
import { openPortal, portalRefusal, portalSuccess } from "../../../support/portal.ts";
import { until } from "../../../support/until.ts";

const { Platform } = exports;
const SOME_TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const SECRET = expect.stringMatching(/^whsec_/);

async function openSubscribed(behaviour = "ok") {
  const { workspaceId, api } = await openWorkspace();
  const subscription = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const portal = await openPortal(workspaceId);
  return { workspaceId, api, subscription, portal, path: `/webhooks/${subscription.id}` };
}

/** Counts of the last days, all zero except today's. */
function days(today: Record<string, unknown> = {}) {
  const none = {
    delivered: 0,
    exhausted: 0,
    cancelled: 0,
    pending: 0,
    attempts: 0,
    truncated: false,
  };
  return Array.from({ length: PORTAL_DAYS }, (_, i) => {
    const ago = PORTAL_DAYS - 1 - i;
    const date = new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10);
    return { date, ...none, ...(ago === 0 && today) };
  });
}

describe("GET /portal/api/workspace", () => {
  test("returns the workspace", async () => {
    const { workspaceId } = await openWorkspace();
    expect(await (await openPortal(workspaceId)).get("/workspace")).toEqual(
      portalSuccess(200, {
        workspaceId,
        name: "Agence Lumière",
        webhooksMax: 20,
        retentionDays: 30,
        events: ["run.completed", "lead.created", "automation.status_changed"],
      }),
    );
  });

  test("returns the agreed number of subscriptions", async () => {
    const { workspaceId } = await openWorkspace();
    await Platform.updateWorkspace({ workspaceId, webhooksMax: 50 });
    const { body } = await (await openPortal(workspaceId)).get("/workspace");
    expect(body).toMatchObject({ webhooksMax: 50 });
  });
});

describe("webhooks in the portal", () => {
  test("are created as by POST /v1/webhooks, listed with their health, and deleted", async () => {
    const { workspaceId, api } = await openWorkspace();
    const portal = await openPortal(workspaceId);
    expect(await portal.get("/webhooks")).toEqual(
      portalSuccess(200, { items: [], nextCursor: null }),
    );
    const url = subscriberUrl();
    const events = ["lead.created", "lead.created"];
    const created = await portal.post<{ id: string }>("/webhooks", { url, events });
    const { id } = created.body;
    const common = { url, events: ["lead.created"] };
    const shown = { id, ...common, created_at: SOME_TIME, disabled_at: null };
    expect(created).toEqual(portalSuccess(201, { ...shown, secret: SECRET }));
    const healthy = {
      ...{ webhookId: id, ...common, createdAt: SOME_TIME, disabledAt: null },
      ...{ state: "healthy", failingSince: null, failures: 0, pending: 0 },
      ...{ nextAttemptAt: null, lastAttempt: null },
    };
    expect(await portal.get("/webhooks")).toEqual(
      portalSuccess(200, { items: [healthy], nextCursor: null }),
    );
    expect((await api.get("/v1/webhooks")).body).toMatchObject({ data: [shown] });
    expect(await portal.get(`/webhooks/${id}`)).toEqual(
      portalSuccess(200, { ...healthy, days: days() }),
    );
    const { status, body } = await portal.delete(`/webhooks/${id}`);
    expect([status, body]).toEqual([204, null]);
    expect(await portal.delete(`/webhooks/${id}`)).toEqual(portalRefusal(404, "webhook_not_found"));
    expect(await portal.get("/webhooks")).toEqual(
      portalSuccess(200, { items: [], nextCursor: null }),
    );
  });

  test("reject invalid input as /v1 does", async () => {
    const { workspaceId, apiKey } = await openWorkspace();
    const [portal, api] = [await openPortal(workspaceId), openApi(apiKey)];
    const bodies = [
      {},
      { url: "http://a.example/", events: ["lead.created"] },
      { url: "https://10.0.0.1/", events: ["lead.created"] },
      { url: "https://a.example/", events: [] },
      { url: "https://a.example/", events: ["lead.lost"] },
      { url: "https://a.example/", events: ["lead.created"], more: 1 },
      "x".repeat(20_000),
    ];
    for (const body of bodies) {
      const [here, there] = [
        await portal.post("/webhooks", body),
        await api.post("/v1/webhooks", body),
      ];
      expect(here.status).toBeGreaterThanOrEqual(400);
      expect([here.status, here.body]).toEqual([there.status, there.body]);
    }
    const text = await portal.send("/webhooks", { method: "POST", body: "url=1" });
    const reason = "unsupported_media_type";
    expect(text).toEqual(portalRefusal(415, "invalid_request", { reason }));
  });

  test("show the states of the last days' deliveries", async () => {
    const { workspaceId, portal, path } = await openSubscribed("status-500");
    const now = Date.now();
    await announceLeads(workspaceId, 3, now);
    // Today is the seventh day: events from before the first day do not count.
    await announceLeads(workspaceId, 2, now - 6 * DAY_MS);
    await announceLeads(workspaceId, 5, now - 7 * DAY_MS);
    const { results } = await WORKSPACE_DB.prepare(
      "SELECT event_id AS id FROM deliveries WHERE workspace_id = ? ORDER BY event_id DESC",
    )
      .bind(workspaceId)
      .all<{ id: string }>();
    const set = (id: string | undefined, state: string, attempts: number) =>
      WORKSPACE_DB.prepare("UPDATE deliveries SET state = ?, attempts = ? WHERE event_id = ?")
        .bind(state, attempts, id)
        .run();
    await set(results[0]?.id, "delivered", 1);
    await set(results[1]?.id, "exhausted", 11);
    await set(results[3]?.id, "cancelled", 2);
    const { body } = await portal.get<{ days: ReturnType<typeof days> }>(path);
    const today = { delivered: 1, exhausted: 1, pending: 1, attempts: 12 };
    const [first, ...later] = days(today);
    expect(body.days).toEqual([{ ...first, cancelled: 1, pending: 1, attempts: 2 }, ...later]);
  });
});

describe("what the portal does to a webhook", () => {
  test("enable re-enables it, and redelivers what it has missed", async () => {
    const { workspaceId, subscription, portal, path } = await openSubscribed();
    await announceLeads(workspaceId, 2, Date.now() - HOUR_MS);
    await Platform.disableWebhook({ webhookId: subscription.id });
    expect((await portal.get(path)).body).toMatchObject({
      state: "disabled",
      disabledAt: SOME_TIME,
    });
    expect(await portal.post(`${path}/enable`, {})).toEqual(
      portalSuccess(200, { count: 0, more: false }),
    );
    expect((await portal.get(path)).body).toMatchObject({ state: "healthy", disabledAt: null });
    await Platform.disableWebhook({ webhookId: subscription.id });
    const redeliverSince = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    expect(await portal.post(`${path}/enable`, { redeliverSince })).toEqual(
      portalSuccess(200, { count: 2, more: false }),
    );
    await until(async () => (await statesOf(subscription.id)).delivered === 2);
  });

  test("secret rotates the secret, until too many are valid", async () => {
    const { portal, path } = await openSubscribed();
    const rotated = await portal.post(`${path}/secret`, {});
    expect(rotated).toEqual(portalSuccess(200, { secret: SECRET, overlapEndsAt: SOME_TIME }));
    for (let i = 0; i < 3; i++) await portal.post(`${path}/secret`, { overlapSeconds: 60 });
    const details = { parameter: "webhookId", reason: "out_of_range" } as const;
    expect(await portal.post(`${path}/secret`, { overlapSeconds: 60 })).toEqual(
      portalRefusal(400, "invalid_request", details),
    );
    expect(await portal.post(`${path}/secret`, { overlapSeconds: 0 })).toEqual(
      portalSuccess(200, { secret: SECRET, overlapEndsAt: null }),
    );
  });

  test("test posts a sample, and returns the result", async () => {
    const { subscription, portal, path } = await openSubscribed("status-503");
    const answer = await portal.post<{ eventId: string }>(`${path}/test`, {
      type: "lead.created",
    });
    const { eventId } = answer.body;
    const expected = {
      eventId,
      outcome: "answered",
      status: 503,
      durationMs: expect.any(Number),
    };
    expect(answer).toEqual(portalSuccess(200, expected));
    const received = await receivedBy(subscription);
    expect(received.map(({ body }) => JSON.parse(body).id)).toEqual([eventId]);
  });

  test.each([
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
    ["test", {}, { parameter: "type", reason: "required" }],
  ] as const)("%s rejects %o", async (action, body, details) => {
    const { portal, path } = await openSubscribed();
    expect(await portal.post(`${path}/${action}`, body)).toEqual(
      portalRefusal(400, "invalid_request", details as object),
    );
  });
});

import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { randomId } from "../../../../src/contract/ids.ts";
import { signPortalToken } from "../../../../src/platform/portal-token.ts";
import { deployedWith, openWorkspace, send } from "../../../support/api.ts";
import { announceLeads, receivedBy, subscribe } from "../../../support/deliveries.ts";
import { countHops } from "../../../support/hops.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";
import {
  openPortal,
  PORTAL_ANSWER,
  portalOf,
  portalRefusal,
  sessionToken,
} from "../../../support/portal.ts";

const { Platform } = exports;
const lines = keepLog();
const UNAUTHORIZED = portalRefusal(401, "invalid_api_key");
const NO_WEBHOOK = portalRefusal(404, "webhook_not_found");
const LATER = Date.now() + 60_000;

/** Every route for this webhook and event, with a valid body. */
function routes(webhook: string, event: string): [string, string, object?][] {
  const path = `/webhooks/${webhook}`;
  return [
    ["GET", path],
    ["GET", `${path}/deliveries`],
    ["GET", `${path}/deliveries/${event}`],
    ["POST", `${path}/disable`, {}],
    ["POST", `${path}/enable`, {}],
    ["POST", `${path}/overlap`, {}],
    ["POST", `${path}/secret`, {}],
    ["POST", `${path}/test`, { type: "lead.created" }],
    ["POST", `${path}/redeliver`, { eventIds: [event] }],
    ["DELETE", path],
  ];
}

const GENERAL: [string, string, object?][] = [
  ["GET", "/workspace"],
  ["GET", "/keys"],
  ["GET", "/webhooks"],
  ["POST", "/webhooks", { url: "https://hooks.example.com/", events: ["lead.created"] }],
  ["GET", "/nothing"],
];

type Portal = ReturnType<typeof portalOf>;

function call(portal: Portal, [method, path, body]: [string, string, object?]) {
  const json = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return portal.send(path, { method, ...(body && json) });
}

/** A workspace with a webhook that is owed an event. */
async function openOwed() {
  const { workspaceId } = await openWorkspace();
  const { id, url } = await subscribe(workspaceId);
  const [draft] = await announceLeads(workspaceId, 1, Date.now());
  const eventId: string = JSON.parse(draft?.body ?? "").id;
  return { workspaceId, id, url, eventId, all: [...GENERAL, ...routes(id, eventId)] };
}

/** Everything stored for a webhook and its deliveries. */
async function stored(id: string) {
  const [webhook, deliveries] = await WORKSPACE_DB.batch([
    WORKSPACE_DB.prepare("SELECT * FROM subscriptions WHERE id = ?").bind(id),
    WORKSPACE_DB.prepare("SELECT * FROM deliveries WHERE subscription_id = ?").bind(id),
  ]);
  return [webhook?.results, deliveries?.results];
}

describe("the portal API answers 401 for", () => {
  test("a missing, forged or expired token, on every route", async () => {
    const { workspaceId, id, all } = await openOwed();
    const before = await stored(id);
    const forged = await signPortalToken(`x:${btoa("x".repeat(32))}`, "session", {
      workspaceId,
      endsAt: LATER,
    });
    const ended = await signPortalToken(env.PORTAL_SIGNING_KEYS, "session", {
      workspaceId,
      endsAt: Date.now(),
    });
    for (const token of [forged, ended, "x"])
      for (const route of all) expect(await call(portalOf(token), route)).toEqual(UNAUTHORIZED);
    for (const [method, path] of all)
      expect(await send(`/portal/api${path}`, { method })).toEqual(UNAUTHORIZED);
    expect(await stored(id)).toEqual(before);
  });

  test("an API key, as /v1 does for a token", async () => {
    const { workspaceId, apiKey, api } = await openWorkspace();
    expect(await portalOf(apiKey).get("/webhooks")).toEqual(UNAUTHORIZED);
    const token = await sessionToken(workspaceId);
    const headers = { Authorization: `Bearer ${token}` };
    expect(await send("/v1/webhooks", { headers })).toMatchObject({ status: 401 });
    expect(await api.get("/v1/webhooks")).toMatchObject({ status: 200 });
  });

  test("a workspace that was erased", async () => {
    const { workspaceId, all } = await openOwed();
    const portal = await openPortal(workspaceId);
    while (!(await Platform.eraseWorkspace({ workspaceId })).done);
    for (const route of all) expect(await call(portal, route)).toEqual(UNAUTHORIZED);
    expect(lines.filter((line) => line.includes("request_failed"))).toEqual([]);
  });
});

test("the portal API answers 403 once the workspace has no access, and changes nothing", async () => {
  const { workspaceId, id, all } = await openOwed();
  const portal = await openPortal(workspaceId);
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  const before = await stored(id);
  const denied = portalRefusal(403, "workspace_access_denied");
  for (const route of all) expect(await call(portal, route)).toEqual(denied);
  expect(await stored(id)).toEqual(before);
  await Platform.setWorkspaceAccess({ workspaceId, granted: true });
  expect(await portal.get("/webhooks")).toMatchObject({ status: 200 });
});

test("the portal API answers 429 for one workspace's excess, and affects no other", async () => {
  const { workspaceId, id, url } = await openOwed();
  const [portal, other] = [await openPortal(workspaceId), await openOwed()];
  const several = <T>(count: number, request: () => Promise<T>) =>
    Promise.all(Array.from({ length: count }, request));
  let accepted = 0;
  let refused: Awaited<ReturnType<typeof portal.post>>[] = [];
  // Locally, requests are counted by the clock's minutes: one of two rounds is within a minute.
  for (let round = 0; round < 2 && refused.length === 0; round++) {
    const asked = await several(285, () => portal.get("/workspace"));
    if (round === 0) expect(new Set(asked.map(({ status }) => status))).toEqual(new Set([200]));
    const sent = await several(16, () =>
      portal.post(`/webhooks/${id}/test`, { type: "lead.created" }),
    );
    refused = sent.filter(({ status }) => status !== 200);
    accepted += sent.length - refused.length;
  }
  expect(refused.length).toBeGreaterThan(0);
  for (const { headers, ...answer } of refused) {
    const details = { retry_after_seconds: 60 };
    expect(answer).toMatchObject({
      status: 429,
      body: { error: { code: "rate_limited", details } },
    });
    expect(headers["retry-after"]).toBe("60");
  }
  expect((await receivedBy({ url })).length).toBe(accepted);
  expect(await (await openPortal(other.workspaceId)).get("/webhooks")).toMatchObject({
    status: 200,
  });
});

describe("another workspace's", () => {
  test("webhook is answered like an unknown or deleted one, whatever the request, and stays unchanged", async () => {
    const foreign = await openOwed();
    const { workspaceId } = await openWorkspace();
    const own = await openPortal(workspaceId);
    const before = await stored(foreign.id);
    const gone = await subscribe(workspaceId);
    await own.delete(`/webhooks/${gone.id}`);
    for (const id of [foreign.id, gone.id, randomId("webhook"), "x", `%77${foreign.id.slice(1)}`])
      for (const route of routes(id, foreign.eventId))
        expect(await call(own, route), route.join(" ")).toEqual(NO_WEBHOOK);
    expect(await stored(foreign.id)).toEqual(before);
    expect((await own.get<{ items: [] }>("/webhooks")).body.items).toEqual([]);
  });

  test("workspace or webhook is not reached by naming it in a query or a body", async () => {
    const [foreign, own] = [await openOwed(), await openOwed()];
    const portal = await openPortal(own.workspaceId);
    const before = await stored(foreign.id);
    const names = { workspaceId: foreign.workspaceId, webhookId: foreign.id };
    for (const [name, value] of Object.entries(names))
      for (const [method, path, body] of own.all) {
        const named = { ...body, [name]: value };
        const answer = await call(
          portal,
          body ? [method, path, named] : [method, `${path}?${name}=${value}`],
        );
        for (const id of Object.values(names)) expect(JSON.stringify(answer)).not.toContain(id);
      }
    expect(await stored(foreign.id)).toEqual(before);
  });

  test("event is answered like an unknown one", async () => {
    const [foreign, own] = [await openOwed(), await openOwed()];
    const portal = await openPortal(own.workspaceId);
    for (const event of [foreign.eventId, randomId("event"), "x"]) {
      expect(await portal.get(`/webhooks/${own.id}/deliveries/${event}`)).toEqual(
        portalRefusal(404, "webhook_not_found", { parameter: "eventId" }),
      );
      const eventIds = [own.eventId, event];
      expect(await portal.post(`/webhooks/${own.id}/redeliver`, { eventIds })).toEqual(
        portalRefusal(404, "webhook_not_found", { parameter: "eventIds.1" }),
      );
    }
  });

  test("keys are not shown", async () => {
    await openWorkspace();
    const { workspaceId, keyId } = await openWorkspace();
    const { body } = await (await openPortal(workspaceId)).get("/keys");
    expect(body).toMatchObject({ items: [{ keyId }] });
  });
});

test("an unknown path or method gets 404, and HEAD what GET gets, without the body", async () => {
  const portal = await openPortal((await openWorkspace()).workspaceId);
  for (const [method, path] of [
    ["GET", "/nothing"],
    ["PUT", "/webhooks"],
    ["OPTIONS", "/keys"],
  ] as const)
    expect(await portal.send(path, { method })).toEqual(portalRefusal(404, "route_not_found"));
  const head = await portal.send("/workspace", { method: "HEAD" });
  expect(head).toMatchObject({ status: 200, headers: PORTAL_ANSWER, body: null });
});

test("a read makes one round trip to the database, and a write makes one before its own", async () => {
  const { workspaceId, id } = await openOwed();
  const { overrides, taken } = countHops();
  const portal = await openPortal(workspaceId, deployedWith(overrides));
  for (const path of ["/workspace", "/webhooks", `/webhooks/${id}`, `/webhooks/${id}/deliveries`]) {
    expect(await portal.get(path)).toMatchObject({ status: 200 });
    expect([path, taken()]).toEqual([path, 1]);
  }
  await portal.post(`/webhooks/${id}/enable`, {});
  expect(taken()).toBe(2);
});

test("without webhooks in SERVED_ROUTES, the portal has none", async () => {
  const { workspaceId, id, eventId } = await openOwed();
  const portal = await openPortal(workspaceId, deployedWith({ SERVED_ROUTES: "leads" }));
  for (const route of [["GET", "/webhooks"] as [string, string], ...routes(id, eventId)])
    expect(await call(portal, route)).toEqual(portalRefusal(404, "route_not_found"));
  expect(await portal.get("/workspace")).toMatchObject({ status: 200 });
});

test("no log line contains a token, and one contains the workspace", async () => {
  const { workspaceId, all } = await openOwed();
  const token = await sessionToken(workspaceId);
  const ended = await signPortalToken(env.PORTAL_SIGNING_KEYS, "session", {
    workspaceId,
    endsAt: 1,
  });
  for (const route of all) await call(portalOf(token), route);
  for (const route of all) await call(portalOf(`${token}x`), route);
  for (const route of all) await call(portalOf(ended), route);
  const broken = deployedWith({ DB: {} as D1Database });
  expect(await portalOf(token, broken).get("/webhooks")).toEqual(
    portalRefusal(500, "internal_error"),
  );
  const own = lines.filter((line) => line.includes(workspaceId));
  expect(own.length).toBeGreaterThanOrEqual(all.length);
  expect(lines.length).toBeGreaterThan(3 * all.length);
  const parts = [token, ended].flatMap((each) => each.split(".").slice(3));
  expect(parts).toHaveLength(2);
  for (const part of parts) expect(lines.filter((line) => line.includes(part))).toEqual([]);
});

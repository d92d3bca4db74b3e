import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { signPortalToken } from "../../../../src/platform/portal-token.ts";
import {
  type Answer,
  deployedWith,
  EVERY_ANSWER,
  openWorkspace,
  Platform,
} from "../../../support/api.ts";
import { countHops } from "../../../support/hops.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { DATABASE, useThreeDatabases, WORKSPACE_DB } from "../../../support/placement.ts";
import {
  exchange,
  grantOf,
  linkToken,
  openOwed,
  openPortal,
  portalOf,
  portalRefusal,
  sessionToken,
} from "../../../support/portal.ts";

useThreeDatabases();

const lines = keepLog();
const UNAUTHORIZED = portalRefusal(401, "invalid_api_key");
const DENIED = portalRefusal(403, "workspace_access_denied");
const NO_ROUTE = portalRefusal(404, "route_not_found");

type Route = [method: string, path: string, body?: object];

/** Every route for this webhook and event, with a valid body. */
function routesOf(webhook: string, event: string): Route[] {
  const path = `/webhooks/${webhook}`;
  return [
    ["GET", path],
    ["GET", `${path}/changes`],
    ["GET", `${path}/deliveries`],
    ["GET", `${path}/deliveries/${event}`],
    ["POST", `${path}/disable`, {}],
    ["POST", `${path}/enable`, {}],
    ["POST", `${path}/overlap`, {}],
    ["POST", `${path}/update`, { description: "x" }],
    ["POST", `${path}/secret`, {}],
    ["POST", `${path}/test`, { type: "lead.created" }],
    ["POST", `${path}/redeliver`, { eventIds: [event] }],
    ["DELETE", path],
  ];
}

/** Every route of a workspace with this webhook. */
function allRoutes({ webhookId, eventIds }: Awaited<ReturnType<typeof openOwed>>): Route[] {
  return [
    ["GET", "/workspace"],
    ["GET", "/keys"],
    ["GET", "/webhooks"],
    ["POST", "/webhooks", { url: "https://hooks.example.com/", events: ["lead.created"] }],
    ["GET", "/nothing"],
    ...routesOf(webhookId, eventIds[0]),
  ];
}

function call(portal: ReturnType<typeof portalOf>, [method, path, body]: Route) {
  const json = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return portal.send(path, { method, ...(body && json) });
}

/** Everything stored for a webhook and its deliveries. */
async function stored(id: string) {
  const tables = ["subscriptions WHERE id", "deliveries WHERE subscription_id"];
  const found = await WORKSPACE_DB.batch(
    tables.map((table) => WORKSPACE_DB.prepare(`SELECT * FROM ${table} = ?`).bind(id)),
  );
  return found.map(({ results }) => results);
}

const signed = (workspaceId: string, inMs: number, ring = env.PORTAL_SIGNING_KEYS) =>
  signPortalToken(ring, "session", grantOf(workspaceId, Date.now() + inMs));

test.each<[what: string, tokenOf: (workspaceId: string) => Promise<string>, refusal: Answer]>([
  ["401 for no token", async () => "", UNAUTHORIZED],
  [
    "401 for a workspace that was erased",
    async (workspaceId) => {
      const token = await sessionToken(workspaceId);
      while (!(await Platform.eraseWorkspace({ workspaceId })).done);
      return token;
    },
    UNAUTHORIZED,
  ],
  [
    "403 for a workspace without access",
    async (workspaceId) => {
      await Platform.setWorkspaceAccess({ workspaceId, granted: false });
      // Its dispatch cancels what is pending.
      const hasToEnd = "SELECT 1 FROM subscriptions WHERE workspace_id = ? AND has_to_end";
      const ending = WORKSPACE_DB.prepare(hasToEnd).bind(workspaceId);
      await expect.poll(async () => (await ending.all()).results).toEqual([]);
      return signed(workspaceId, 60_000);
    },
    DENIED,
  ],
])("every route of the portal API answers %s, and changes nothing", async (_, tokenOf, refusal) => {
  const owed = await openOwed();
  const token = await tokenOf(owed.workspaceId);
  const before = await stored(owed.webhookId);
  for (const route of allRoutes(owed))
    expect(await call(portalOf(token), route), route.join(" ")).toEqual(refusal);
  expect(await stored(owed.webhookId)).toEqual(before);
  expect(lines.filter((line) => line.includes("request_failed"))).toEqual([]);
});

test.each<[string, (workspaceId: string) => Promise<string>]>([
  ["a link, which only opens a session", linkToken],
  ["a forged token", (id) => signed(id, 60_000, `x:${btoa("x".repeat(32))}`)],
  ["an expired token", (id) => signed(id, 0)],
])("the portal API answers 401 for %s", async (_, tokenOf) => {
  const { workspaceId } = await openWorkspace();
  expect(await portalOf(await tokenOf(workspaceId)).get("/workspace")).toEqual(UNAUTHORIZED);
});

test("the portal API responds with 429 to the excess of one workspace alone", async () => {
  const [{ workspaceId, path, portal, eventIds }, other] = [await openOwed(), await openOwed()];
  const several = <T>(count: number, request: () => Promise<T>) =>
    Promise.all(Array.from({ length: count }, request));
  const sent: Answer[] = [];
  const refused = () => sent.filter(({ status }) => status !== 200);
  // Locally, requests are counted by the clock's minutes: one of two rounds is within a minute.
  for (let round = 0; round < 2 && refused().length === 0; round++) {
    // Most requests are only counted.
    await several(275, () => env.PORTAL_REQUESTS.limit({ key: workspaceId }));
    const asked = await several(10, () => portal.get("/workspace"));
    if (round === 0) for (const { status } of asked) expect(status).toBe(200);
    sent.push(...(await several(16, () => portal.post(`${path}/redeliver`, { eventIds }))));
  }
  expect(refused().length).toBeGreaterThan(0);
  for (const answer of refused()) {
    expect(answer).toEqual(portalRefusal(429, "rate_limited", { retry_after_seconds: 60 }));
    expect(answer.headers["retry-after"]).toBe("60");
  }
  expect(await other.portal.get("/webhooks")).toMatchObject({ status: 200 });
});

test("another workspace or its webhook is not reached by naming it in a query or a body", async () => {
  const { workspaceId, webhookId } = await openOwed();
  const before = await stored(webhookId);
  for (const [name, value] of Object.entries({ workspaceId, webhookId })) {
    // The last route deletes its webhook.
    const own = await openOwed();
    for (const [method, path, body] of allRoutes(own)) {
      const route: Route = body
        ? [method, path, { ...body, [name]: value }]
        : [method, `${path}?${name}=${value}`];
      const { status, ...answer } = await call(own.portal, route);
      // A 404 would mean that an earlier round had deleted it.
      if (method === "DELETE") expect(status).toBe(204);
      const text = JSON.stringify(answer);
      expect([workspaceId, webhookId].filter((id) => text.includes(id))).toEqual([]);
    }
  }
  expect(await stored(webhookId)).toEqual(before);
});

test("an unknown path or method gets 404, and HEAD what GET gets, without the body", async () => {
  const { workspaceId } = await openWorkspace();
  const portal = await openPortal(workspaceId);
  for (const route of [
    ["GET", "/nothing"],
    ["PUT", "/webhooks"],
    ["OPTIONS", "/keys"],
  ] as Route[])
    expect(await call(portal, route)).toEqual(NO_ROUTE);
  const link = portalOf(await linkToken(workspaceId));
  for (const method of ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
    expect((await link.send("/session", { method })).status, method).toBe(404);
  const head = await portal.send("/workspace", { method: "HEAD" });
  expect(head).toMatchObject({ status: 200, headers: EVERY_ANSWER, body: null });
});

test("a link takes one round trip to the database, and any other request two", async () => {
  const { workspaceId, path } = await openOwed();
  const { overrides, respond, taken } = countHops();
  const far = deployedWith(overrides, respond);
  const { body } = await exchange(await linkToken(workspaceId), far);
  expect(taken()).toBe(1);
  const portal = portalOf(body.token, far);
  for (const each of ["/workspace", "/webhooks", path, `${path}/deliveries`]) {
    expect(await portal.get(each)).toMatchObject({ status: 200 });
    expect([each, taken()]).toEqual([each, 2]);
  }
  // A change takes one to read what was before, and one for the audit trail. That is in the directory, which is only
  // counted if the workspace lives there.
  expect((await portal.post(`${path}/disable`, {})).status).toBe(200);
  expect(taken()).toBe(DATABASE === "DB" ? 4 : 3);
});

test("without webhooks in SERVED_ROUTES, the portal has none", async () => {
  const owed = await openOwed();
  const portal = await openPortal(owed.workspaceId, deployedWith({ SERVED_ROUTES: "leads" }));
  for (const route of allRoutes(owed).slice(2)) expect(await call(portal, route)).toEqual(NO_ROUTE);
  expect(await portal.get("/workspace")).toMatchObject({ status: 200 });
});

test("a log line names the webhook and the event of its request, and no text in place of an id", async () => {
  const { portal, path, webhookId, eventIds } = await openOwed();
  const [eventId = ""] = eventIds;
  for (const odd of ["/webhooks/camille@example.com", `${path}/deliveries/camille@example.com`])
    expect((await portal.get(odd)).status).toBe(404);
  expect((await portal.get(`${path}/deliveries/${eventId}`)).status).toBe(200);
  const named = lines.map((line) => JSON.parse(line)).filter(({ event }) => event === "request");
  const shown = named.map((line) => [line.operation, line.webhookId, line.eventId]);
  expect(shown.slice(-3)).toEqual([
    [undefined, undefined, undefined],
    ["readDelivery", webhookId, undefined],
    ["readDelivery", webhookId, eventId],
  ]);
  expect(lines.join("\n")).not.toContain("camille");
});

test("no log line contains a token, and one contains the workspace", async () => {
  const owed = await openOwed();
  const { workspaceId } = owed;
  const [token, ended] = [await sessionToken(workspaceId), await signed(workspaceId, -1)];
  const all = allRoutes(owed);
  for (const route of all) await call(portalOf(token), route);
  for (const each of [`${token}x`, ended]) await portalOf(each).get("/workspace");
  const broken = portalOf(token, deployedWith({ DB: {} as D1Database }));
  expect(await broken.get("/webhooks")).toEqual(portalRefusal(500, "internal_error"));
  expect(lines.length).toBeGreaterThan(all.length + 2);
  expect(lines.filter((line) => line.includes(workspaceId)).length).toBeGreaterThanOrEqual(
    all.length,
  );
  for (const secret of [token, ended].flatMap((each) => each.split(".").slice(-1)))
    expect(lines.join("\n")).not.toContain(secret);
});

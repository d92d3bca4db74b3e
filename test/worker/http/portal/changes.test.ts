import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { encodeCursor } from "../../../../src/contract/cursor.ts";
import { randomId } from "../../../../src/contract/ids.ts";
import { CLEANUP_MAX } from "../../../../src/db/budget.ts";
import { connect } from "../../../../src/db/client.ts";
import type { Redelivered } from "../../../../src/history/views.ts";
import { sleep } from "../../../../src/primitives/timing.ts";
import { REDELIVERY_EXAMINED_MAX } from "../../../../src/replay/replay.ts";
import { insertAuditEntry } from "../../../../src/workspaces/audit-trail.ts";
import {
  deployedWith,
  errorOf,
  openApi,
  openWorkspace,
  Platform,
  platformOf,
  SOME_TIME,
} from "../../../support/api.ts";
import {
  HOUR_MS,
  jumpTo,
  setDeliveries,
  subscribe,
  subscriberUrl,
} from "../../../support/deliveries.ts";
import { interposed } from "../../../support/interposed.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { inDatabase, WORKSPACE_DB } from "../../../support/placement.ts";
import { exchange, openOwed, openPortal, portalOf, sessionToken } from "../../../support/portal.ts";
import { storeEvents } from "../../../support/stored-events.ts";

const lines = keepLog();
const ALL = ["lead.created", "run.completed"];
const ACTOR = "Élodie Durand";

/** The portal of a workspace, opened by a person. */
async function openAs(workspaceId: string, actor = ACTOR, validMinutes?: number) {
  const { url } = await Platform.createPortalLink({ workspaceId, actor, validMinutes });
  return portalOf((await exchange(new URL(url).hash.slice(1))).body.token);
}

type WorkspaceChange = Awaited<ReturnType<typeof Platform.listWorkspaceChanges>>["items"][number];
type Change = Awaited<ReturnType<typeof Platform.listWebhookChanges>>["items"][number];

/** The changes of a subscription, oldest first, as its portal shows them. */
async function changesIn(portal: ReturnType<typeof portalOf>, path: string): Promise<Change[]> {
  return (await portal.get<{ items: Change[] }>(`${path}/changes`)).body.items.toReversed();
}

test("Each change in the portal is listed with its actor and what it was before", async () => {
  const { workspaceId, webhookId, path, eventIds, url } = await openOwed();
  const portal = await openAs(workspaceId);
  const token = "Bearer gateway-secret";
  const calls: [action: string, body: object][] = [
    ["update", { headers: { Authorization: token }, description: "CRM" }],
    ["update", { url: "https://ok-new.example/", events: ALL }],
    ["secret", { overlapSeconds: 60 }],
    ["overlap", {}],
    ["disable", {}],
    ["enable", {}],
    ["test", { type: "run.completed" }],
    ["redeliver", { eventIds: eventIds.slice(0, 1) }],
  ];
  for (const [action, body] of calls)
    expect([action, (await portal.post(`${path}/${action}`, body)).status]).toEqual([action, 200]);
  const changes = await changesIn(portal, path);
  const change = (method: string, before: object | null = null, after: object | null = null) => ({
    at: SOME_TIME,
    method,
    actor: ACTOR,
    via: "portal",
    key: null,
    replay: null,
    result: "ok",
    before,
    after,
  });
  expect(changes).toEqual([
    change(
      "updateWebhook",
      { description: null, headers: [] },
      { description: "CRM", headers: ["Authorization"] },
    ),
    change(
      "updateWebhook",
      { url, events: ["lead.created"], headers: ["Authorization"] },
      { url: "https://ok-new.example/", events: ALL, headers: [] },
    ),
    change("rotateWebhookSecret", { rotatedAt: null }, { rotatedAt: SOME_TIME }),
    change("endSecretOverlap"),
    change("disableWebhook", { disabledAt: null }, { disabledAt: SOME_TIME }),
    change("enableWebhook", { disabledAt: SOME_TIME }, { disabledAt: null }),
    change("sendTestEvent"),
    change("redeliver"),
  ]);
  expect((await Platform.listWebhookChanges({ webhookId })).items.toReversed()).toEqual(changes);
  const { items } = await Platform.listAuditTrail({ workspaceId });
  const ofPortal = items.filter(({ via, webhookId }) => via === "portal" && webhookId !== null);
  expect(ofPortal).toHaveLength(changes.length);
  const { results } = await env.DB.prepare("SELECT * FROM audit_trail").all();
  expect(JSON.stringify(results) + lines.join()).not.toContain("gateway-secret");
  expect(lines.join()).not.toContain(ACTOR);
});

test("A change in the portal is listed once it has its response, however slow the directory is", async () => {
  const { workspaceId, path } = await openOwed();
  const DB = interposed(env.DB, async ({ texts, go }) => {
    if (texts.some((text) => text.startsWith('insert into "audit_trail"'))) await sleep(100);
    return go();
  });
  const portal = await openPortal(workspaceId, deployedWith({ DB }));
  const beside = await openAs(workspaceId);
  expect((await portal.post(`${path}/disable`, {})).status).toBe(200);
  expect(await changesIn(beside, path)).toMatchObject([{ method: "disableWebhook", result: "ok" }]);
});

test("The platform's own changes are listed with those of the portal", async () => {
  const { workspaceId, webhookId, path } = await openOwed();
  const portal = await openAs(workspaceId);
  await Platform.disableWebhook({ webhookId, actor: "support-7" });
  expect(await changesIn(portal, path)).toMatchObject([
    { method: "disableWebhook", actor: "support-7", via: "rpc", before: { disabledAt: null } },
  ]);
});

test("What is rejected, changes nothing or only shows something is no change", async () => {
  const { workspaceId, path, url } = await openOwed();
  const portal = await openAs(workspaceId);
  const headers = { Authorization: "Bearer gateway-secret" };
  const since = new Date().toISOString();
  const statuses: number[] = [];
  for (const [action, body] of [
    ["update", { headers }],
    ["update", { url: "https://10.0.0.1/" }],
    ["update", { url, events: ["lead.created"], description: "" }],
    ["update", { headers }],
    ["update", { setHeaders: headers, removeHeaders: ["X-Other"] }],
    ["enable", {}],
    ["overlap", {}],
    ["enable", { redeliverSince: since }],
    ["redeliver", { since }],
  ] as const)
    statuses.push((await portal.post(`${path}/${action}`, body)).status);
  await portal.get(`${path}/deliveries`);
  expect(statuses).toEqual([200, 400, ...Array(7).fill(200)]);
  expect(await changesIn(portal, path)).toMatchObject([{ after: { headers: ["Authorization"] } }]);
});

test("A change that failed is listed, because it may have happened", async () => {
  const { workspaceId, webhookId, path } = await openOwed();
  const insert = env.DB.prepare(
    `INSERT INTO audit_trail (at, id, method, workspace_id, ids, via, result, duration_ms, webhook_id)
      VALUES (1, ?1 || ?3, 'updateWebhook', ?2, '[]', 'rpc', ?1, 0, ?3)`,
  );
  for (const result of ["failed", "unknown_property"])
    await insert.bind(result, workspaceId, webhookId).run();
  const changes = await changesIn(await openAs(workspaceId), path);
  expect(changes.map(({ result }) => result)).toEqual(["failed"]);
});

/** A range of events that takes two calls. */
async function owedRange(state: "exhausted" | "delivered" = "exhausted") {
  const owed = await openOwed();
  const [id, now] = [owed.webhookId, Date.now()];
  await storeEvents(owed.workspaceId, id, REDELIVERY_EXAMINED_MAX, now - HOUR_MS, state);
  return { ...owed, since: new Date(now - 2 * HOUR_MS).toISOString() };
}

test("A range that is sent again is one change, however many calls it takes", async () => {
  const { workspaceId, path, since } = await owedRange();
  const portal = await openAs(workspaceId);
  const send = async (more: object) => {
    const answer = await portal.post<Redelivered>(`${path}/redeliver`, { since, ...more });
    expect(answer.status).toBe(200);
    return answer.body.nextCursor;
  };
  await send({ dryRun: true });
  await send({ cursor: await send({}) });
  expect(await changesIn(portal, path)).toHaveLength(1);
});

test.each([
  ["redeliver", (since: string) => ({ since, states: ["exhausted"] })],
  ["enable", (since: string) => ({ redeliverSince: since })],
])("A replay that has nothing to send in its first part is a change: %s", async (action, body) => {
  const { portal, path, since } = await owedRange("delivered");
  const begun = await portal.post<Redelivered>(`${path}/${action}`, body(since));
  expect(begun.body).toEqual({ count: 0, nextCursor: expect.any(String) });
  expect(await changesIn(portal, path)).toMatchObject([{ replay: { since } }]);
});

test("A subscription that is disabled twice and enabled in two calls is changed twice", async () => {
  const { workspaceId, path, since } = await owedRange();
  const portal = await openAs(workspaceId);
  const post = async (action: string, body: object) => {
    const answer = await portal.post<Redelivered>(`${path}/${action}`, body);
    expect(answer.status).toBe(200);
    return answer.body.nextCursor;
  };
  for (const _ of [1, 2]) await post("disable", {});
  const cursor = await post("enable", { redeliverSince: since });
  await post("enable", { redeliverSince: since, cursor });
  const changes = await changesIn(portal, path);
  expect(changes.map(({ method }) => method)).toEqual(["disableWebhook", "enableWebhook"]);
});

test.each([
  ["redeliver", "since"],
  ["enable", "redeliverSince"],
])(
  "A call of %s whose cursor names no replay of the subscription sends nothing",
  async (...row) => {
    const [action, name] = row;
    const { workspaceId, path, webhookId, eventIds } = await openOwed();
    const since = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    const portal = await openAs(workspaceId);
    for (const id of [eventIds[0], randomId("replay")]) {
      const cursor = encodeCursor("redelivery", { at: Date.now(), id });
      const { status } = await portal.post(`${path}/${action}`, { [name]: since, cursor });
      expect(status).toBe(404);
    }
    expect(await changesIn(portal, path)).toEqual([]);
    expect((await Platform.listReplays({ webhookId })).items).toEqual([]);
  },
);

test("Another workspace's changes are not shown, whatever the query says", async () => {
  const [own, other] = [await openOwed(), await openOwed()];
  await Platform.disableWebhook({ webhookId: other.webhookId });
  expect((await own.portal.get(`${other.path}/changes`)).status).toBe(404);
  const { status, body } = await own.portal.get(`${own.path}/changes?webhookId=${other.webhookId}`);
  expect([status, body]).toEqual([200, { items: [], nextCursor: null }]);
});

test("An erased workspace leaves no URL, description or header name in the trail", async () => {
  const { workspaceId, webhookId } = await openOwed();
  // The names are before the second change, and after the first.
  for (const changes of [
    { description: "Jean Dupont", url: "https://canari.example/" },
    { description: "", url: "https://other.example/" },
  ])
    await Platform.updateWebhook({ webhookId, ...changes });
  const trail = async () => {
    const all = env.DB.prepare("SELECT * FROM audit_trail WHERE workspace_id = ?");
    return JSON.stringify((await all.bind(workspaceId).all()).results);
  };
  // More than a transaction clears.
  await fillTrail(workspaceId, "portal", CLEANUP_MAX, 0);
  expect(await trail()).toMatch(/Dupont.*canari|canari.*Dupont/);
  while (!(await Platform.eraseWorkspace({ workspaceId })).done);
  expect(await trail()).not.toMatch(/Dupont|canari/);
  expect(await countVia(workspaceId, "portal")).toBe(0);
  expect(await trail()).toContain("updateWebhook");
});

/** Stores entries of changes, a millisecond apart. */
const fillTrail = (workspaceId: string, via: string, count: number, at: number, lasting = false) =>
  env.DB.prepare(
    `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
      INSERT INTO audit_trail (at, id, method, workspace_id, ids, via, result, duration_ms, webhook_id, lasting)
      SELECT ?4 + i, 'stored' || i || ?4 || ?2, 'updateWebhook', ?1, '[]', ?2, 'ok', 0, 'whk_0', ?5 FROM n`,
  )
    .bind(workspaceId, via, count, at, lasting ? 1 : 0)
    .run();

const countVia = (workspaceId: string, via: string) =>
  env.DB.prepare(
    "SELECT count(*) AS n FROM audit_trail WHERE workspace_id = ? AND webhook_id IS NOT NULL AND via = ?",
  )
    .bind(workspaceId, via)
    .first<number>("n");

test("A workspace's audit trail keeps the newest 2,000 changes in its portal, and all with API keys", async () => {
  const { workspaceId, api, keyId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId);
  await Platform.disableWebhook({ webhookId });
  // The entries of the platform and of the API key are the oldest, so only their channel keeps them.
  await env.DB.prepare("UPDATE audit_trail SET at = 0 WHERE webhook_id = ?").bind(webhookId).run();
  await fillTrail(workspaceId, `api:${keyId}`, 50, 0, true);
  await fillTrail(workspaceId, "portal", 2_005, 100);
  await (await openAs(workspaceId)).post(`/webhooks/${webhookId}/enable`, {});
  expect((await api.delete(`/v1/webhooks/${webhookId}`)).status).toBe(204);
  const ways = ["portal", `api:${keyId}`, "rpc"];
  await expect
    .poll(() => Promise.all(ways.map((via) => countVia(workspaceId, via))))
    .toEqual([2_000, 51, 1]);
});

test("The first 100 changes of a day with an API key are entries, and one says that there were more", async () => {
  jumpTo(Date.now());
  const { workspaceId, api, keyId } = await openWorkspace();
  const other = await Platform.createApiKey({ workspaceId });
  const [via, day] = [`api:${keyId}`, Date.now() - (Date.now() % 86_400_000)];
  await fillTrail(workspaceId, via, 100, day - 1_000, true);
  await fillTrail(workspaceId, via, 99, day, true);
  const subscribeWith = async (client: typeof api, url: string) => {
    const creation = { url, events: ["lead.created"] };
    const { status, body } = await client.post<{ id: string }>("/v1/webhooks", creation);
    expect(status).toBe(201);
    return body.id;
  };
  const changes = async () =>
    (await Platform.listWorkspaceChanges({ workspaceId })).items
      .filter(
        ({ method }) => !["updateWebhook", "createWorkspace", "createApiKey"].includes(method),
      )
      .map(({ method, via, after }) => [method, via, after?.url]);
  const [url, theirs] = [subscriberUrl(), subscriberUrl()];
  await subscribeWith(api, url);
  await expect.poll(changes).toEqual([["createWebhook", via, url]]);
  for (let i = 0; i < 3; i++) {
    const id = await subscribeWith(api, subscriberUrl());
    expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
  }
  await expect.poll(changes).toEqual(
    expect.arrayContaining([
      ["omitChanges", via, undefined],
      ["createWebhook", via, url],
    ]),
  );
  // Another key has its own maximum.
  await subscribeWith(openApi(other.apiKey), theirs);
  await expect.poll(async () => (await changes()).length).toBe(3);
  expect(await changes()).toContainEqual(["createWebhook", `api:${other.keyId}`, theirs]);
  expect(await countVia(workspaceId, via)).toBe(200);
});

test("The last change with an API key that is an entry is no omission if it is tried again", async () => {
  const { workspaceId, keyId } = await openWorkspace();
  const via = `api:${keyId}`;
  await fillTrail(workspaceId, via, 99, Date.UTC(2026, 0, 5), true);
  const about = { workspaceId, via, webhookId: "whk_0", ids: ["whk_0"], lasting: true };
  const at = Date.UTC(2026, 0, 5, 12);
  const entry = { ...about, at, id: "same", method: "createWebhook", result: "ok", durationMs: 0 };
  const omissions = async () => {
    const { items } = await Platform.listAuditTrail({ workspaceId });
    return items.filter(({ method }) => method === "omitChanges").map((one) => one.at);
  };
  for (let i = 0; i < 2; i++) await insertAuditEntry(connect(env.DB), entry);
  expect(await omissions()).toEqual([]);
  await insertAuditEntry(connect(env.DB), { ...entry, id: "next" });
  expect(await omissions()).toEqual([new Date(at).toISOString()]);
});

test("An entry about a URL, a secret or a header is pushed out by nothing", async () => {
  const { workspaceId, path, webhookId } = await openOwed();
  const portal = await openAs(workspaceId);
  const change = async (action: string, body: object) =>
    expect((await portal.post(`${path}/${action}`, body)).status).toBe(200);
  await change("update", { url: "https://attacker.example/leads" });
  await change("update", { headers: { Authorization: "Bearer x" } });
  await change("secret", {});
  await change("overlap", {});
  await fillTrail(workspaceId, "portal", 2_100, Date.now());
  for (let i = 0; i < 12; i++) await change("update", { description: `${i}` });
  const { results } = await env.DB.prepare(
    "SELECT method FROM audit_trail WHERE webhook_id = ? AND lasting ORDER BY at, id",
  )
    .bind(webhookId)
    .all();
  expect(results.map(({ method }) => method)).toEqual([
    "updateWebhook",
    "updateWebhook",
    "rotateWebhookSecret",
    "endSecretOverlap",
  ]);
  expect(await countVia(workspaceId, "portal")).toBe(2_004);
});

test("The portal changes URLs, secrets and headers 300 times a day, and then still disables and deletes", async () => {
  const { workspaceId, path, webhookId, url } = await openOwed();
  const other = await openOwed();
  const portal = await openAs(workspaceId);
  const fill = (count: number, at: number) => fillTrail(workspaceId, "portal", count, at, true);
  const now = Date.now();
  await fill(500, now - 86_400_000 - 1_000);
  await fill(299, now - 3_600_000);
  // A change of the platform counts for nothing.
  await Platform.updateWebhook({ webhookId, url: `${url}?platform` });
  const change = () => portal.post(`${path}/update`, { url: `${url}?n=${crypto.randomUUID()}` });
  expect((await change()).status).toBe(200);
  const creation = { url: subscriberUrl(), events: ["lead.created"] };
  const shown = async () => {
    const { url, headers, overlapEndsAt } = await Platform.readWebhook({ webhookId });
    return { url, headers, overlapEndsAt };
  };
  const before = await shown();
  const refused = [
    await change(),
    await portal.post(`${path}/update`, { headers: { "X-A": "1" } }),
    await portal.post(`${path}/secret`, {}),
    await portal.post("/webhooks", creation),
  ];
  for (const { status, headers } of refused) {
    expect(status).toBe(429);
    expect(Number(headers["retry-after"])).toBeGreaterThan(82_000);
    expect(Number(headers["retry-after"])).toBeLessThanOrEqual(82_801);
  }
  expect(await shown()).toEqual(before);
  expect((await portal.get<{ items: object[] }>("/webhooks")).body.items).toHaveLength(1);
  for (const [action, body] of [
    ["update", { description: "x" }],
    ["disable", {}],
  ] as const)
    expect((await portal.post(`${path}/${action}`, body)).status).toBe(200);
  // Neither the platform nor another workspace is limited by this.
  await Platform.rotateWebhookSecret({ webhookId });
  expect((await other.portal.post(`${other.path}/secret`, {})).status).toBe(200);
  // The entries of deletions are bounded as well.
  await fill(300, now - 1_800_000);
  expect((await portal.delete(path)).status).toBe(429);
  await env.DB.prepare(
    "DELETE FROM audit_trail WHERE at = (SELECT max(at) FROM audit_trail WHERE workspace_id = ? AND id GLOB 'stored*')",
  )
    .bind(workspaceId)
    .run();
  expect((await portal.delete(path)).status).toBe(204);
});

test("A deletion that another workspace's key tried, and that failed, is no change of the webhook", async () => {
  const [{ webhookId, path, portal }, other] = [await openOwed(), await openWorkspace()];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    if (texts.some((text) => text.startsWith('update "subscriptions"')))
      throw new Error("D1_ERROR: Internal error.");
    return go();
  });
  const api = openApi(other.apiKey, deployedWith(inDatabase({ DB })));
  expect((await api.delete(`/v1/webhooks/${webhookId}`)).status).toBe(500);
  const { workspaceId } = other;
  await expect
    .poll(async () => (await Platform.listWorkspaceChanges({ workspaceId })).items)
    .toContainEqual(expect.objectContaining({ method: "deleteWebhook", result: "failed" }));
  expect(await changesIn(portal, path)).toEqual([]);
});

test.each(["portal", "API"])(
  "A creation or deletion through the %s that failed after it happened is an entry, and one that was refused is none",
  async (way) => {
    const { workspaceId, apiKey } = await openWorkspace();
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      const result = await go();
      if (texts.some((text) => /^(insert into|update) "subscriptions"/i.test(text)))
        throw new Error("D1_ERROR: Internal error.");
      return result;
    });
    const fetch = deployedWith(inDatabase({ DB }));
    const portal = await openPortal(workspaceId, fetch);
    const api = openApi(apiKey, fetch);
    const create = (url: string) => {
      const body = { url, events: ["lead.created"] };
      return way === "portal" ? portal.post("/webhooks", body) : api.post("/v1/webhooks", body);
    };
    const remove = (id: string) =>
      way === "portal" ? portal.delete(`/webhooks/${id}`) : api.delete(`/v1/webhooks/${id}`);
    const url = subscriberUrl();
    expect((await create("https://10.0.0.1/")).status).toBe(400);
    expect((await create(url)).status).toBe(500);
    const [created] = (await Platform.listWebhooks({ workspaceId })).items;
    expect(created).toMatchObject({ url });
    const { webhookId } = created ?? expect.unreachable("it was not created");
    const entriesOf = async (wanted: string) =>
      (await Platform.listAuditTrail({ workspaceId })).items.filter(
        ({ method }) => method === wanted,
      );
    const after = { url, events: ["lead.created"] };
    await expect
      .poll(() => entriesOf("createWebhook"))
      .toMatchObject([{ result: "failed", webhookId, after }]);
    const lasting = env.DB.prepare(
      "SELECT count(*) AS n FROM audit_trail WHERE workspace_id = ? AND lasting",
    );
    expect(await lasting.bind(workspaceId).first("n")).toBe(1);
    expect((await remove(webhookId)).status).toBe(500);
    expect((await Platform.listWebhooks({ workspaceId })).items).toEqual([]);
    await expect
      .poll(() => entriesOf("deleteWebhook"))
      .toMatchObject([{ result: "failed", webhookId }]);
    expect(await lasting.bind(workspaceId).first("n")).toBe(2);
  },
);

test.each([
  ["updateWebhook", { description: "CRM" }],
  ["disableWebhook", {}],
  ["rotateWebhookSecret", {}],
  ["endSecretOverlap", {}],
  ["deleteWebhook", {}],
  ["redeliver", { since: new Date(Date.now() - 2 * HOUR_MS).toISOString() }],
] as const)("A change that failed after it happened is an entry: %s", async (method, changes) => {
  const { workspaceId, webhookId } = await openOwed();
  await Platform.rotateWebhookSecret({ webhookId });
  await setDeliveries(webhookId, { state: "exhausted" });
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const result = await go();
    const isWrite = texts.some((text) => /^\s*(insert|update|delete)/i.test(text));
    if (isWrite && !texts.join().includes("audit_trail"))
      throw new Error("D1_ERROR: Internal error.");
    return result;
  });
  const platform = platformOf({ ...env, ...inDatabase({ DB }) });
  expect(await errorOf(platform[method]({ webhookId, ...changes }))).toContain("Internal error");
  const { items } = await Platform.listWorkspaceChanges({ workspaceId });
  expect(items[0]).toMatchObject({ method, result: "failed", webhookId });
});

test("What an active webhook is sent again is an entry, although the call failed after it began", async () => {
  const { workspaceId, path, since } = await owedRange();
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const result = await go();
    if (texts.some((text) => /^insert into "replays"/i.test(text)))
      throw new Error("D1_ERROR: Internal error.");
    return result;
  });
  const portal = await openPortal(workspaceId, deployedWith(inDatabase({ DB })));
  expect((await portal.post(`${path}/enable`, { redeliverSince: since })).status).toBe(500);
  expect(await changesIn(portal, path)).toMatchObject([
    { method: "enableWebhook", result: "failed" },
  ]);
});

const HALVES: [
  method: string,
  action: string,
  first: RegExp,
  body: (webhookId: string) => object,
][] = [
  [
    "enableWebhook",
    "enable",
    /^update "subscriptions" set .*"disabled_at"/,
    () => ({ redeliverSince: new Date(Date.now() - 2 * HOUR_MS).toISOString() }),
  ],
  ["sendTestEvent", "test", /^update "workspaces" set "test_events"/, () => ({ type: ALL[0] })],
  ["stopReplay", "stop", /^update "replays" set/, (replayId) => ({ replayId })],
];

test.each(HALVES)(
  "A change whose session ends halfway is an entry that says that it may have happened: %s",
  async (method, action, first, bodyOf) => {
    const { workspaceId, webhookId, path } = await openOwed();
    await setDeliveries(webhookId, { state: "exhausted" });
    const since = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    await Platform.redeliver({ webhookId, since });
    const [replay] = (await Platform.listReplays({ webhookId })).items;
    if (action === "enable") await Platform.disableWebhook({ webhookId });
    let isDone = false;
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      const result = await go();
      if (!isDone && texts.some((text) => first.test(text))) {
        isDone = true;
        await Platform.endPortalSessions({ workspaceId });
      }
      return result;
    });
    const portal = await openPortal(workspaceId, deployedWith(inDatabase({ DB })));
    const { status } = await portal.post(`${path}/${action}`, bodyOf(String(replay?.replayId)));
    expect([isDone, status]).toEqual([true, 500]);
    const { items } = await Platform.listWebhookChanges({ webhookId });
    expect(items[0]).toMatchObject({ method, result: "failed", via: "portal" });
    // The next request of the session is a refusal.
    expect((await portal.post(`${path}/disable`, {})).status).toBe(401);
    expect((await Platform.listWebhookChanges({ webhookId })).items).toEqual(items);
  },
);

test("Links that have the same time of issue have an entry each", async () => {
  jumpTo(Date.now());
  const { workspaceId } = await openWorkspace();
  const other = await openWorkspace();
  for (const [workspace, actor, validMinutes] of [
    [workspaceId, "Ada", 60],
    [other.workspaceId, "Ada", 60],
    [workspaceId, "Ada", 30],
    [workspaceId, "Zoé", 60],
  ] as const)
    await openAs(workspace, actor, validMinutes);
  const opened = async (of: string) => {
    const { items } = await Platform.listWorkspaceChanges({ workspaceId: of });
    const sessions = items.filter(({ method }) => method === "openPortalSession");
    return sessions.map(({ actor }) => actor).toSorted();
  };
  await expect.poll(() => opened(workspaceId)).toEqual(["Ada", "Ada", "Zoé"]);
  await expect.poll(() => opened(other.workspaceId)).toEqual(["Ada"]);
});

test("The changes of a webhook show which replay one of them has begun", async () => {
  const { webhookId, portal, path } = await openOwed();
  await setDeliveries(webhookId, { state: "exhausted" });
  const since = new Date(Date.now() - 2 * HOUR_MS).toISOString();
  expect((await portal.post(`${path}/redeliver`, { since })).body).toMatchObject({ count: 3 });
  const { items } = await Platform.listReplays({ webhookId });
  const changes = await changesIn(portal, path);
  const replayId = String(items[0]?.replayId);
  expect(changes).toMatchObject([
    { method: "redeliver", after: { replayId }, replay: { replayId, since } },
  ]);
});

test("A creation that is repeated with its Idempotency-Key, at once or later, has one entry", async () => {
  const { workspaceId } = await openWorkspace();
  const token = await sessionToken(workspaceId);
  const body = JSON.stringify({ url: subscriberUrl(), events: ["lead.created"] });
  const headers = { "Content-Type": "application/json", "Idempotency-Key": "k1" };
  const ids: string[] = [];
  const create = async (from?: Parameters<typeof portalOf>[1]) => {
    const init = { method: "POST", headers, body };
    ids.push((await portalOf(token, from).send<{ id: string }>("/webhooks", init)).body.id);
  };
  const DB = interposed(env.DB, async ({ texts, go }) => {
    const isInserting = texts.some((text) => text.startsWith('insert into "subscriptions"'));
    if (isInserting && ids.length === 0) await create();
    return go();
  });
  await create(deployedWith({ DB }));
  await create();
  expect([ids.length, new Set(ids).size]).toEqual([3, 1]);
  const { items } = await Platform.listAuditTrail({ workspaceId });
  expect(items.filter(({ method }) => method === "createWebhook")).toHaveLength(1);
});

test("A reading of a lead in the portal can be told from the log", async () => {
  const { portal, path, webhookId, eventIds } = await openOwed();
  await portal.get(`${path}/deliveries/${eventIds[0]}`);
  const requests = lines.map((line) => JSON.parse(line)).filter(({ event }) => event === "request");
  expect(requests.at(-1)).toMatchObject({
    route: "/portal/api/webhooks/:webhookId/deliveries/:eventId",
    operation: "readDelivery",
    webhookId,
    eventId: eventIds[0],
    address: expect.any(String),
  });
});

test("The history of a workspace has the calls that changed its name, keys, access, sessions and leads", async () => {
  const { workspaceId, keyId } = await openWorkspace();
  await Platform.updateWorkspace({ workspaceId, name: "Groupe Horizon" });
  await Platform.updateApiKey({ keyId, requestsPerWindow: 7 });
  const { keyId: next } = await Platform.rollApiKey({ keyId, overlapSeconds: 60 });
  await Platform.revokeApiKey({ keyId: next });
  await Platform.eraseLeads({ workspaceId, references: ["1"] });
  await Platform.endPortalSessions({ workspaceId });
  // It only reads.
  await Platform.exportWorkspace({ workspaceId });
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  const { items } = await Platform.listWorkspaceChanges({ workspaceId });
  expect(items.map(({ method }) => method).slice(0, 7)).toEqual([
    "setWorkspaceAccess",
    "endPortalSessions",
    "eraseLeads",
    "revokeApiKey",
    "rollApiKey",
    "updateApiKey",
    "updateWorkspace",
  ]);
});

test("The history of a workspace says who deleted a webhook, and who opened the portal", async () => {
  const { workspaceId } = await Platform.createWorkspace({ name: "Groupe Horizon" });
  const { keyId, apiKey } = await Platform.createApiKey({ workspaceId, name: "CRM" });
  const api = openApi(apiKey);
  const [first, second] = [subscriberUrl(), subscriberUrl()];
  const wanted = { url: first, events: ["lead.created"] };
  const { body: ours } = await api.post<{ id: string }>("/v1/webhooks", wanted);
  const { url } = await Platform.createPortalLink({ workspaceId, actor: ACTOR });
  const link = new URL(url).hash.slice(1);
  // A link that is opened again has one entry.
  await exchange(link);
  const portal = portalOf((await exchange(link)).body.token);
  const { body: theirs } = await portal.post<{ id: string }>("/webhooks", {
    ...wanted,
    url: second,
  });
  expect((await portal.delete(`/webhooks/${ours.id}`)).status).toBe(204);
  expect((await api.delete(`/v1/webhooks/${theirs.id}`)).status).toBe(204);
  expect((await api.delete(`/v1/webhooks/${theirs.id}`)).status).toBe(404);
  // A call that only reads is no change, and neither is one that is rejected.
  await Platform.readWorkspace({ workspaceId });
  const rejected = Platform.createApiKey({ workspaceId, requestsPerWindow: 0 });
  expect(await errorOf(rejected)).toContain("requestsPerWindow");
  const label = expect.stringMatching(/^CRM/);
  const madeOf = (url: string) => ({ before: null, after: { ...wanted, url } });
  const changes = () => portal.get<{ items: WorkspaceChange[] }>("/changes");
  await expect.poll(async () => (await changes()).body.items.length).toBe(8);
  expect((await changes()).body.items.toReversed()).toMatchObject([
    { method: "createWorkspace", via: "rpc" },
    { method: "createApiKey", via: "rpc", webhookId: null },
    { method: "createWebhook", via: `api:${keyId}`, key: label, webhookId: ours.id },
    { method: "createPortalLink", via: "rpc", actor: ACTOR },
    { method: "openPortalSession", via: "portal", actor: ACTOR, webhookId: null },
    {
      method: "createWebhook",
      via: "portal",
      actor: ACTOR,
      webhookId: theirs.id,
      ...madeOf(second),
    },
    { method: "deleteWebhook", via: "portal", actor: ACTOR, before: wanted, after: null },
    { method: "deleteWebhook", via: `api:${keyId}`, key: label, before: { url: second } },
  ]);
  const other = await openWorkspace();
  const { items } = await Platform.listWorkspaceChanges({ workspaceId: other.workspaceId });
  expect(JSON.stringify(items)).not.toContain(ACTOR);
});

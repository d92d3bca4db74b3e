import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test } from "vitest";
import type { AddressGate } from "../../../src/rate-limit/address-gate.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import {
  type Answer,
  authorizedBy,
  deployedWith,
  freshAddress,
  inventedKey,
  openApi,
  openWorkspace,
  Platform,
  rateLimitOf,
  recordAutomation,
  refusal,
  send,
  unknownKey,
} from "../../support/api.ts";
import { jumpTo } from "../../support/deliveries.ts";
import { operationsOf } from "../../support/document.ts";
import { idFor, openFilledWorkspace } from "../../support/filled.ts";
import { countHops } from "../../support/hops.ts";
import { interposedObjects } from "../../support/interposed.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const far = countHops();
const fetchFromAfar = deployedWith(far.overrides, far.respond);

/** The status of a response, and how many sequential network hops it took. */
async function hopsOf(answer: Promise<Answer>): Promise<[status: number, hops: number]> {
  const { status } = await answer;
  return [status, far.taken()];
}

async function openFarWorkspace(key: { requestsPerWindow?: number } = {}) {
  const workspace = await openWorkspace(key);
  const path = `/v1/automations/${await recordAutomation(workspace.workspaceId)}`;
  return { ...workspace, path, api: openApi(workspace.apiKey, fetchFromAfar) };
}

beforeEach(() => void far.taken());

const { body: document } = await send<object>("/openapi.json");
const reads = operationsOf(document).filter(({ method }) => method === "GET");

describe("a read", () => {
  test.each(reads)("by $operationId takes two hops if its key is new, then one", async (read) => {
    const { workspaceId, ids } = await openFilledWorkspace();
    const { apiKey } = await Platform.createApiKey({ workspaceId });
    const api = openApi(apiKey, fetchFromAfar);
    const path = read.path.replace(/\{\w+\}/, idFor(read, ids));
    expect(await hopsOf(api.get(path))).toEqual([200, 2]);
    expect(await hopsOf(api.get(path))).toEqual([200, 1]);
    expect(await hopsOf(api.get(`${path}?limit=1`))).toEqual([200, 1]);
    expect(await hopsOf(api.send(path, { method: "HEAD" }))).toEqual([200, 1]);
  });

  test("that is rejected waits only for the gate", async () => {
    const { api } = await openFarWorkspace();
    await api.get("/v1/leads");
    far.taken();
    expect(await hopsOf(api.get("/v1/leads?limit=0"))).toEqual([400, 1]);
    expect(await hopsOf(api.get("/v1/automations/aut_unknown"))).toEqual([404, 1]);
    expect(await hopsOf(api.get("/v1/nowhere"))).toEqual([404, 1]);
  });
});

test.each([
  [{ retryable: true }, "5"],
  [{ durableObjectReset: true }, "5"],
  [{ overloaded: true }, "5"],
  [{}, undefined],
])(
  "a read whose gate fails with %j reads once, and says when to retry: %s",
  async (marks, after) => {
    const { apiKey, api } = await openFarWorkspace();
    await api.get("/v1/leads");
    const { DB, rows } = meteredDatabase();
    const failing = () => Promise.reject(Object.assign(new Error("gone"), marks));
    const KEY_GATE = { getByName: () => ({ admit: failing }) } as unknown as Env["KEY_GATE"];
    const answer = await openApi(apiKey, deployedWith({ DB, KEY_GATE })).get("/v1/leads");
    expect([answer.status, answer.headers["retry-after"], rows.queries]).toEqual([500, after, 1]);
  },
);

describe("a write", () => {
  test("waits for the gate and its own queries", async () => {
    const { api, path } = await openFarWorkspace();
    expect(await hopsOf(api.patch(path, { status: "paused" }))).toEqual([200, 3]);
    expect(await hopsOf(api.patch(path, { status: "paused" }))).toEqual([200, 2]);
    expect((await api.get(path)).body).toMatchObject({ status: "paused" });
    expect(far.taken()).toBe(1);
    const subscription = { url: "https://hooks.example/in", events: ["lead.created"] };
    const created = await api.post<{ id: string }>("/v1/webhooks", subscription);
    // The first secret that this isolate encrypts takes a look-up of the workspace's data key.
    expect([created.status, far.taken()]).toEqual([201, 3]);
    expect(await hopsOf(api.post("/v1/webhooks", subscription))).toEqual([201, 2]);
    const webhook = `/v1/webhooks/${created.body.id}`;
    expect(await hopsOf(api.delete(webhook))).toEqual([204, 2]);
    expect(await hopsOf(api.delete(webhook))).toEqual([404, 2]);
  });

  test("never starts before the gate has admitted it", async () => {
    const { api, path, keyId, workspaceId } = await openFarWorkspace();
    await api.get("/v1/automations");
    await Platform.revokeApiKey({ keyId });
    far.taken();
    // The gate and the address that is charged; nothing of the write.
    expect(await hopsOf(api.patch(path, { status: "paused" }))).toEqual([401, 2]);
    const { apiKey } = await Platform.createApiKey({ workspaceId });
    expect((await openApi(apiKey).get(path)).body).toMatchObject({ status: "active" });
  });
});

describe("a flood", () => {
  test.each([
    ["a key over its quota", 429, 1, true],
    ["a workspace without access whose quota is used up", 403, 3, false],
  ])(
    "from %s is rejected here with %i, and asks the gate again after two seconds",
    async (_, status, requestsPerWindow, granted) => {
      const { api, workspaceId } = await openFarWorkspace({ requestsPerWindow });
      // The clock stands still: a busy machine may take longer than two seconds.
      jumpTo(Date.now());
      await api.get("/v1/leads");
      await Platform.setWorkspaceAccess({ workspaceId, granted });
      far.taken();
      const asked = Math.max(1, requestsPerWindow - 1);
      for (let left = asked - 1; left >= 0; left--) {
        const answer = await api.get("/v1/leads");
        const found = [answer.status, rateLimitOf(answer).remaining, far.taken()];
        expect(found).toEqual([status, left, 1]);
      }
      for (let i = 0; i < 20; i++) {
        const answer = await api.get("/v1/leads");
        const { limit, remaining, resetSeconds } = rateLimitOf(answer);
        const limited = refusal(429, "rate_limited", { retry_after_seconds: resetSeconds });
        expect(answer).toEqual(granted ? limited : refusal(403, "workspace_access_denied"));
        expect([limit, remaining, far.taken()]).toEqual([requestsPerWindow, 0, 0]);
        expect(answer.headers["retry-after"]).toBe(granted ? String(resetSeconds) : undefined);
      }
      expect(await hopsOf(api.patch("/v1/automations/aut_1", {}))).toEqual([status, 0]);
      jumpTo(Date.now() + 2_100);
      expect(await hopsOf(api.get("/v1/leads"))).toEqual([status, 1]);
      expect(await hopsOf(api.get("/v1/leads"))).toEqual([status, 0]);
      await Platform.setWorkspaceAccess({ workspaceId, granted: true });
      expect((await api.get("/v1/leads")).status).toBe(429);
    },
  );

  test.each([1, 10])("of reads at once reads no more than its window of %i admits", async (max) => {
    const { apiKey } = await openWorkspace({ requestsPerWindow: max });
    const { DB, rows } = meteredDatabase();
    const api = openApi(apiKey, deployedWith({ DB }));
    const flood = async () => {
      rows.queries = 0;
      const answers = await Promise.all(Array.from({ length: 50 }, () => api.get("/v1/runs")));
      return answers.filter(({ status }) => status === 200).length;
    };
    await api.get("/v1/runs");
    expect(await flood()).toBe(max - 1);
    // One that was admitted may be another than one that began early.
    expect(rows.queries).toBeLessThanOrEqual(2 * (max - 1));
    jumpTo(Date.now() + 2_100);
    expect([await flood(), rows.queries]).toEqual([0, 0]);
  });

  test("of refusals never outlasts the key's window, however late its gate responds", async () => {
    const { apiKey } = await openWorkspace({ requestsPerWindow: 1 });
    const KEY_GATE = interposedObjects(env.KEY_GATE, async (go) => {
      const decision = await go();
      jumpTo(Date.now() + 900);
      return decision;
    });
    const api = openApi(apiKey, deployedWith({ KEY_GATE }));
    const hash = await hashApiKey(apiKey);
    // A window that closes in a second.
    const now = Date.now();
    jumpTo(now - 59_000);
    await env.KEY_GATE.getByName(hash).admit(hash);
    jumpTo(now);
    for (let i = 0; i < 2; i++) expect((await api.get("/v1/leads")).status).toBe(429);
    jumpTo(now + 1_050);
    expect((await api.get("/v1/leads")).status).toBe(200);
  });

  test("from a blocked address is rejected without a hop or a look-up, unless its key could be valid", async () => {
    const { apiKey } = await openFarWorkspace();
    // The clock stands still, because what an isolate has cached is used for two seconds.
    jumpTo(Date.now());
    const invented = await inventedKey();
    const headers = { "CF-Connecting-IP": freshAddress() };
    const from = (key: string) =>
      send("/v1/leads", { headers: { ...headers, Authorization: `Bearer ${key}` } }, fetchFromAfar);
    expect(await hopsOf(from(invented))).toEqual([401, 1]);
    expect(await hopsOf(from(await unknownKey()))).toEqual([401, 2]);
    for (let i = 0; i < 19; i++) await from(invented);
    far.taken();
    expect(await hopsOf(from(invented))).toEqual([429, 0]);
    expect(await hopsOf(from(await unknownKey()))).toEqual([429, 1]);
    expect(await hopsOf(from(apiKey))).toEqual([200, 2]);
  });
});

describe("strangers", () => {
  const UNUSED_WINDOW = { limit: 20, remaining: 20, resetSeconds: 300 };

  /** The answers to more requests than may fail, and how many hops they took together. */
  async function several(ask: (i: number) => Promise<Answer>) {
    far.taken();
    const answers: Answer[] = [];
    for (let i = 0; i < 25; i++) answers.push(await ask(i));
    return { answers, hops: far.taken() };
  }

  test.each([
    ["/nowhere, from a network each", 404, "/nowhere", (i: number) => `3fff:${i}::1`],
    ["/openapi.json, from one address", 200, "/openapi.json", () => "203.0.113.9"],
  ])("who ask many times for %s, call no gate, and see an unused window", async (...row) => {
    const [, status, path, from] = row;
    const { answers, hops } = await several((i) =>
      send(path, { headers: { "CF-Connecting-IP": from(i) } }, fetchFromAfar),
    );
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([status]));
    expect(answers.map(rateLimitOf)).toEqual(Array(25).fill(UNUSED_WINDOW));
    expect(hops).toBe(0);
  });

  test("whose browsers send many preflights call no gate", async () => {
    const asked = {
      "CF-Connecting-IP": freshAddress(),
      Origin: "https://page.example",
      "Access-Control-Request-Method": "GET",
      "Access-Control-Request-Headers": "authorization",
    };
    const preflight = (more = {}) =>
      send("/v1/leads", { method: "OPTIONS", headers: { ...asked, ...more } }, fetchFromAfar);
    const { answers, hops } = await several(() => preflight());
    expect(hops).toBe(0);
    for (const answer of answers) {
      expect(answer).toEqual(refusal(401, "invalid_api_key"));
      expect(rateLimitOf(answer)).toEqual(UNUSED_WINDOW);
    }
    // With a key it is no preflight, but a guess.
    const guess = { Authorization: `Bearer ${await inventedKey()}` };
    expect(await hopsOf(preflight(guess))).toEqual([401, 1]);
    expect(rateLimitOf(await preflight())).toMatchObject({ limit: 20, remaining: 19 });
    jumpTo(Date.now());
    for (let i = 0; i < 19; i++) await authorizedBy(null, asked["CF-Connecting-IP"]);
    expect(await hopsOf(preflight())).toEqual([429, 0]);
  });

  const METHOD = { "Access-Control-Request-Method": "GET" };
  const ORIGIN = { Origin: "https://page.example" };
  test.each([
    ["OPTIONS without Origin", "OPTIONS", METHOD],
    ["OPTIONS without Access-Control-Request-Method", "OPTIONS", ORIGIN],
    ["GET with the headers of a preflight", "GET", { ...METHOD, ...ORIGIN }],
  ])("who send %s send no preflight, so that it counts", async (_, method, headers) => {
    const from = { "CF-Connecting-IP": freshAddress() };
    const answer = await send("/v1/leads", { method, headers: { ...from, ...headers } });
    expect(answer).toEqual(refusal(401, "invalid_api_key"));
    expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining: 19 });
  });

  test("with IPv6 are shown the failures of their /64, outside the API too", async () => {
    const leftTo = async (address: string, path: string) =>
      rateLimitOf(await send(path, { headers: { "CF-Connecting-IP": address } })).remaining;
    expect(await leftTo("2001:db8:64:1::1", "/v1/leads")).toBe(19);
    expect(await leftTo("2001:db8:64:1::2", "/nowhere")).toBe(19);
    expect(await leftTo("2001:db8:64:2::1", "/nowhere")).toBe(20);
  });

  test("with IPv6 are shown that their /48 is blocked, outside the API too", async () => {
    const network = "2001:db8:65";
    const gate = env.ADDRESS_GATE.getByName(`${network}::/48`);
    const blocks = Array.from({ length: 320 }, (_, i) => `${network}:f${i % 16}::/64`);
    await runInDurableObject(gate, (object: AddressGate) =>
      Promise.all(blocks.map((block) => object.fail(block))),
    );
    for (const [path, status] of [
      ["/v1/leads", 429],
      ["/nowhere", 404],
    ] as const) {
      const headers = { "CF-Connecting-IP": `${network}:1::1` };
      const answer = await send(path, { headers });
      expect([answer.status, rateLimitOf(answer).remaining]).toEqual([status, 0]);
    }
  });

  test("with a revoked key, from a blocked address, call each gate once in two seconds", async () => {
    const { keyId, apiKey, api } = await openFarWorkspace();
    const address = freshAddress();
    expect((await api.get("/v1/leads")).status).toBe(200);
    await Platform.revokeApiKey({ keyId });
    for (let i = 0; i < 20; i++) await authorizedBy(null, address);
    const headers = { "CF-Connecting-IP": address, Authorization: `Bearer ${apiKey}` };
    const ask = () => send("/v1/leads", { headers }, fetchFromAfar);
    const now = Date.now();
    jumpTo(now);
    const { answers, hops } = await several(ask);
    // The address is known to be blocked.
    expect(hops).toBe(1);
    for (const answer of answers) {
      expect(answer.status).toBe(429);
      expect(rateLimitOf(answer)).toMatchObject({ limit: 20, remaining: 0 });
    }
    jumpTo(now + 2_100);
    expect(await hopsOf(ask())).toEqual([429, 2]);
  });
});

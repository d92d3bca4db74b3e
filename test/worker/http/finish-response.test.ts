import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { D1_ERRORS } from "../../../src/db/errors.ts";
import { app } from "../../../src/http/app.ts";
import { agentFamily } from "../../../src/http/finish-response.ts";
import {
  type Answer,
  deployedWith,
  EVERY_ANSWER,
  freshAddress,
  invalid,
  inventedKey,
  openApi,
  openWorkspace,
  Platform,
  rateLimitOf,
  recordAutomation,
  recordLead,
  refusal,
  revokedKey,
  send,
  withoutRateLimit,
} from "../../support/api.ts";
import { BROKEN } from "../../support/deliveries.ts";
import { operationsOf } from "../../support/document.ts";
import { idFor, openFilledWorkspace } from "../../support/filled.ts";
import { interposed, interposedObjects } from "../../support/interposed.ts";
import { keepLog } from "../../support/log-lines.ts";
import { shortenTimers } from "../../support/timers.ts";

const UNKNOWN = "/v1/automations/aut_unknown";
const NO_KEY = refusal(401, "invalid_api_key");
const NO_ACCESS = refusal(403, "workspace_access_denied");
const NO_ROUTE = refusal(404, "route_not_found");
const NO_AUTOMATION = refusal(404, "automation_not_found");
const { body: document } = await send<object>("/openapi.json");
const operations = operationsOf(document);
const lines = keepLog();

/** The request log lines since the last call. */
function requests(): Record<string, unknown>[] {
  const logged = lines.splice(0).map((line) => JSON.parse(line));
  return logged.filter(({ event }) => event === "request");
}

/** Expects `RateLimit` and `RateLimit-Policy` to say what `X-RateLimit-*` do. */
function expectSameByTheIetf(answer: Answer, limit: number, windowSeconds: number) {
  const { remaining, resetSeconds } = rateLimitOf(answer);
  expect(answer.headers).toMatchObject({
    "ratelimit-policy": `"default";q=${limit};w=${windowSeconds}`,
    ratelimit: `"default";r=${remaining};t=${resetSeconds}`,
  });
}

describe("every response", () => {
  test("counts down the key's rate limit in the contract's headers and in the IETF's", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 9 });
    const draft = await recordAutomation(workspaceId, { status: "draft" });
    const creation = { url: "https://ok-headers.example/", events: ["lead.created"] };
    const created = await api.post<{ id: string }>("/v1/webhooks", creation);
    const answers: [number, Answer][] = [
      [201, created],
      [200, await api.get("/v1/automations")],
      [204, await api.delete(`/v1/webhooks/${created.body.id}`)],
      [400, await api.get("/v1/leads?limit=none")],
      [404, await api.get("/v1/nowhere")],
      [413, await api.post("/v1/webhooks", " ".repeat(16_385))],
      [415, await api.send("/v1/webhooks", { method: "POST", body: "text" })],
      [422, await api.patch(`/v1/automations/${draft}`, { status: "active" })],
      [200, await api.get("/v1/leads")],
    ];
    for (const [i, [status, answer]] of answers.entries()) {
      expect([i, answer.status]).toEqual([i, status]);
      expect(answer.headers).toMatchObject(EVERY_ANSWER);
      expect(answer.headers).not.toHaveProperty("retry-after");
      const resetSeconds = expect.closeTo(57, -1);
      expect(rateLimitOf(answer)).toEqual({ limit: 9, remaining: 8 - i, resetSeconds });
      expectSameByTheIetf(answer, 9, env.QUOTA_WINDOW_SECONDS);
    }
    expectSameByTheIetf(await send("/v1/leads"), 20, env.AUTH_FAILURE_WINDOW_SECONDS);
  });

  test("is no-store outside /v1, too, with the failure window of the address", async () => {
    for (const path of ["/", "/v2/leads", "/V1/leads", "//v1/leads", "/v1%2fleads"])
      expect(await send(path), path).toEqual(NO_ROUTE);
    expect(rateLimitOf(await send("/"))).toEqual({ limit: 20, remaining: 20, resetSeconds: 300 });
  });
});

describe("what does not exist is 404:", () => {
  test("a route, whatever the method, and never 405", async () => {
    const { api } = await openWorkspace();
    for (const path of new Set(operations.map((operation) => operation.path))) {
      const served = operations.filter((one) => one.path === path).map(({ method }) => method);
      if (served.includes("GET")) served.push("HEAD");
      const all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"];
      for (const method of all.filter((one) => !served.includes(one))) {
        const answer = await api.send(path.replace("{id}", "aut_1"), { method });
        const expected = method === "HEAD" ? { ...NO_ROUTE, body: null } : NO_ROUTE;
        expect(answer, `${method} ${path}`).toEqual(expected);
      }
    }
  });

  test("a path that is not exactly one of the contract's", async () => {
    const { api } = await openWorkspace();
    const leads = ["/v1/Leads", "/v1//leads", "/v1/leads/", "/v1/leads%20"];
    const runs = ["/v1/automations/aut_1/runs/", "/v1/automations/aut_1/leads"];
    const paths = ["/v1", "/v1/", "/v1/%ff", "/v1/%00", `/v1/${"a".repeat(10_000)}`];
    for (const path of [...leads, ...runs, ...paths])
      expect(await api.get(path), path.slice(0, 60)).toEqual(NO_ROUTE);
    // Which takes Hono's fastest router.
    expect(app.router.name).toBe("SmartRouter + RegExpRouter");
  });

  test("an id, of an automation, its runs, its PATCH and a subscription, in the least different", async () => {
    const { workspaceId, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId);
    const alike = [id.slice(4), `lea_${id.slice(4)}`, id.toUpperCase(), `${id}0`, `${id}%20`];
    const escapes = ["%ff", "%00", "%zz", "%", "%2f", "aut_1%2fruns", `aut_${"%00".repeat(2_000)}`];
    for (const other of [...alike, ...escapes, "aut_😀", "aut_'%20OR%201=1--", ":id"]) {
      const path = `/v1/automations/${other}`;
      for (const answer of [api.get(path), api.get(`${path}/runs`)])
        expect(await answer, other).toEqual(NO_AUTOMATION);
      expect(await api.patch(path, { status: "paused" }), other).toEqual(NO_AUTOMATION);
      const noWebhook = refusal(404, "webhook_not_found");
      expect(await api.delete(`/v1/webhooks/${other}`), other).toEqual(noWebhook);
    }
  });
});

test("HEAD gets the response of GET, without the body", async () => {
  const { api, ids } = await openFilledWorkspace();
  const anonymous = await send("/v1/leads", { method: "HEAD" });
  expect(anonymous).toEqual({ ...NO_KEY, body: null });
  const reads = operations.filter(({ method }) => method === "GET");
  const paths = reads.map((read) => read.path.replace("{id}", idFor(read, ids)));
  for (const path of [...paths, "/v1/leads?limit=0", UNKNOWN, "/v1/nowhere"]) {
    const asked = await api.get(path);
    const head = await api.send(path, { method: "HEAD" });
    expect(withoutRateLimit(head), path).toEqual({ ...withoutRateLimit(asked), body: null });
    expect(rateLimitOf(head).remaining).toBe(rateLimitOf(asked).remaining - 1);
  }
});

test("an unknown query parameter is ignored, also by a route that has none", async () => {
  const { workspaceId, api } = await openWorkspace();
  await recordLead(workspaceId);
  const path = `/v1/automations/${await recordAutomation(workspaceId)}`;
  const names = ["workspace_id=wks_1", "Limit=0", "limit[]=0", "a=1&a=2", "%ff=%00", "=", "&&"];
  for (const [each, queries] of [
    ["/v1/leads", names],
    [path, ["limit=0&cursor=x"]],
  ] as const) {
    const plain = await api.get(each);
    expect(plain.status).toBe(200);
    for (const query of queries)
      expect(withoutRateLimit(await api.get(`${each}?${query}`)), query).toEqual(
        withoutRateLimit(plain),
      );
  }
});

describe("the order of the checks", () => {
  /** A body of another type that is too large. */
  const odd = (method: string, body = " ".repeat(20_000)) => ({
    method,
    headers: { "Content-Type": "text/plain" },
    body,
  });

  test("key before route, content type, body and parameters, however the path is spelt", async () => {
    const spellings = ["/%76%31/leads", "/v%31/leads", "/v1/%6ceads", "/v1\\leads", "/./v1/leads"];
    for (const path of ["/v1", "/v1/", "/v1/nowhere", "/v1/leads?limit=0", ...spellings])
      expect(await send(path), path).toEqual(NO_KEY);
    expect(await send("/v1/leads", { method: "DELETE" })).toEqual(NO_KEY);
    expect(await send("/v1/webhooks", odd("POST"))).toEqual(NO_KEY);
  });

  test("key before workspace before quota before route", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    expect((await api.get("/v1/nowhere")).status).toBe(429);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    for (const path of ["/v1/leads", "/v1/nowhere"]) expect(await api.get(path)).toEqual(NO_ACCESS);
    await Platform.revokeApiKey({ keyId });
    expect(await api.get("/v1/leads")).toEqual(NO_KEY);
  });

  test("route before content type before size before the body's content", async () => {
    const { api } = await openWorkspace();
    for (const path of ["/v1/nowhere", "/v1/leads"])
      expect(await api.send(path, odd("POST"))).toEqual(NO_ROUTE);
    const unsupported = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
    for (const body of [" ".repeat(20_000), "{", '{"status":"nonsense"}'])
      expect(await api.send(UNKNOWN, odd("PATCH", body))).toEqual(unsupported);
    expect((await api.patch(UNKNOWN, "{".repeat(16_385))).status).toBe(413);
  });

  test("body and parameters before the resource, and that before its status", async () => {
    const [{ workspaceId, api }, other] = [await openWorkspace(), await openWorkspace()];
    const draft = `/v1/automations/${await recordAutomation(workspaceId, { status: "draft" })}`;
    for (const path of [UNKNOWN, draft])
      expect(await api.patch(path, { status: "draft" })).toEqual(
        invalid("status", "unknown_value", { allowed: ["active", "paused"] }),
      );
    const unreadable = invalid("cursor", "unreadable");
    expect(await api.get(`${UNKNOWN}/runs?cursor=nonsense`)).toEqual(unreadable);
    expect(await other.api.patch(draft, { status: "active" })).toEqual(NO_AUTOMATION);
  });
});

describe("an error on our side", () => {
  test("is a generic 500, logged without the parameters of a query", async () => {
    const { apiKey } = await openWorkspace();
    const DB = interposed(env.DB, () => Promise.reject(BROKEN));
    const cursor = btoa('[1,"leads",1,"camille@example.com"]').replaceAll("=", "");
    const api = openApi(apiKey, deployedWith({ DB }));
    const answer = await api.get(`/v1/leads?cursor=${cursor}`);
    expect(answer).toEqual(refusal(500, "internal_error"));
    const [failed] = lines.filter((line) => line.includes("request_failed"));
    expect(failed).toContain(answer.headers["x-request-id"]);
    expect(failed).toContain("disk I/O error");
    expect(lines.join("\n")).not.toContain("camille");
  });

  test("that will probably pass says when to ask again", async () => {
    const { apiKey } = await openWorkspace();
    const later = { retry_after_seconds: 5 };
    // The waits between its tries.
    shortenTimers((ms) => ms < 1_000);
    for (const { message, fault } of D1_ERRORS) {
      const DB = interposed(env.DB, () => Promise.reject(new Error(`D1_ERROR: ${message}`)));
      const { status, headers, body } = await openApi(apiKey, deployedWith({ DB })).get(
        "/v1/leads",
      );
      const details = fault === "query" ? {} : later;
      expect({ status, body }, message).toEqual({
        status: 500,
        body: refusal(500, "internal_error", details).body,
      });
      expect(headers["retry-after"]).toBe(fault === "query" ? undefined : "5");
    }
  });

  test.each([
    "Durable Object reset because its code was updated.",
    "The Durable Object's code has been updated, this version can no longer access storage.",
  ])("of a key's gate without flags is tried again, and says when to ask: %s", async (message) => {
    const { apiKey } = await openWorkspace();
    shortenTimers((ms) => ms < 1_000);
    const failing = (times: number) =>
      interposedObjects(env.KEY_GATE, (go) =>
        times-- > 0 ? Promise.reject(new Error(message)) : go(),
      );
    const once = openApi(apiKey, deployedWith({ KEY_GATE: failing(1) }));
    expect((await once.get("/v1/leads")).status).toBe(200);
    const always = openApi(apiKey, deployedWith({ KEY_GATE: failing(100) }));
    const { status, headers } = await always.get("/v1/leads");
    expect({ status, after: headers["retry-after"] }).toEqual({ status: 500, after: "5" });
  });

  test("that keeps a read waiting ends it after ten seconds", async () => {
    const { apiKey } = await openWorkspace();
    // Ten seconds pass within 50 ms.
    shortenTimers(10_000);
    const { promise: failure, reject: fail } = Promise.withResolvers<never>();
    // On a busy machine, the request may only get to the database once it has been given up.
    failure.catch(() => {});
    const api = openApi(apiKey, deployedWith({ DB: interposed(env.DB, () => failure) }));
    const { status, headers } = await api.get("/v1/leads");
    expect({ status, after: headers["retry-after"] }).toEqual({ status: 500, after: "5" });
    // The database fails at last. What the request left behind then ends, before the next test begins.
    fail(new Error("late"));
    await expect.poll(() => lines.join("\n")).toContain('"message":"late"');
  });

  test("in the address's gate still gets the error body, and is not stored", async () => {
    const overloaded = () => Promise.reject(new Error("Durable Object is overloaded"));
    const gates = { getByName: () => ({ fail: overloaded }) } as unknown as Env["ADDRESS_GATE"];
    const answer = await send("/v1/leads", {}, deployedWith({ ADDRESS_GATE: gates }));
    expect(answer).toEqual(refusal(500, "internal_error"));
    expect(rateLimitOf(answer)).toEqual({ limit: 20, remaining: 20, resetSeconds: 300 });
  });
});

describe("the log line of a request", () => {
  test("has the id of its response, and never one that a client made up", async () => {
    const nameOf = async (ray: string) =>
      (await send("/", { headers: { "CF-Ray": ray } })).headers["x-request-id"];
    for (const ray of ["9c1f2e6a4b7d8035-CDG", "9c1f2e6a4b7d8035"])
      expect(await nameOf(ray)).toBe(ray);
    for (const other of ["<script>", "9c1f2e6a4b7d8035-CDG<script>", "<script>9c1f2e6a4b7d8035"])
      expect(await nameOf(other)).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  });

  test("has the key's id and the address's pseudonym, whatever the result", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 3 });
    const answers: Answer[] = [];
    const ask = async (path: string) => void answers.push(await api.get(path));
    // The last one is refused from the isolate's memory.
    for (const query of ["", "?limit=0", "/nowhere", "", ""]) await ask(`/v1/leads${query}`);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await ask("/v1/leads");
    await ask("/openapi.json");
    const ids = answers.map(({ headers }) => headers["x-request-id"]);
    expect(new Set(ids).size).toBe(7);
    expect(
      requests().map(({ requestId, ...line }) => [
        ...[requestId, line.status, line.keyId, line.workspaceId, line.address],
      ]),
    ).toEqual([
      ...[200, 400, 404, 429, 429, 403].map((status, i) => [
        ...[ids[i], status, keyId, workspaceId, expect.stringMatching(/^[0-9a-f]{16}$/)],
      ]),
      [ids[6], 200, undefined, undefined, undefined],
    ]);
  });

  test("contains no key, no path of the client's and nothing about the workspace's people", async () => {
    const { workspaceId, apiKey, api } = await openWorkspace();
    const person = { name: "Camille Durand", email: "camille@example.com", phone: "+33600000000" };
    await recordLead(workspaceId, { ...person, customFields: { note: "confidentiel" } });
    expect((await api.get("/v1/leads?q=confidentiel")).status).toBe(200);
    const answers = [
      await api.get("/v1/automations/camille@example.com"),
      await api.get("/v1/people/camille@example.com"),
      await api.post("/v1/webhooks", { url: "https://camille:secret@example.com/", events: [] }),
      await openApi(`${apiKey}x`).get("/v1/leads"),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 400, 401]);
    expect(lines.length).toBeGreaterThanOrEqual(4);
    expect(lines.join("\n")).not.toMatch(/Camille|camille|33600|confidentiel|secret|key_live_/);
  });

  test("names the webhook that a request deletes, because its row is lost with the database", async () => {
    const { api } = await openWorkspace();
    const creation = { url: "https://ok-log.example/", events: ["lead.created"] };
    const { body } = await api.post<{ id: string }>("/v1/webhooks", creation);
    requests();
    expect((await api.delete(`/v1/webhooks/${body.id}`)).status).toBe(204);
    expect((await api.delete("/v1/webhooks/camille")).status).toBe(404);
    expect(requests().map(({ webhookId }) => webhookId)).toEqual([body.id, undefined]);
  });

  /** The log line of a request with a key. */
  async function lineOf(
    address: string,
    key = "nonsense",
    { agent = "curl/8.5.0", fetch = deployedWith({}) } = {},
  ) {
    requests();
    const headers = { "CF-Connecting-IP": address, Authorization: `Bearer ${key}` };
    await send("/v1/leads", { headers: { ...headers, "User-Agent": agent } }, fetch);
    expect(lines.join("\n")).not.toContain(address);
    expect(lines.join("\n")).not.toMatch(/Zoe|8\.5\.0/);
    return requests()[0];
  }

  test("names the client's family and a pseudonym of its IP address, in no text of the client", async () => {
    const { apiKey, keyId } = await openWorkspace();
    const elsewhere = deployedWith({ API_KEY_CHECKSUM_KEYS: `other:${btoa("o".repeat(32))}` });
    const address = freshAddress();
    const failed = await lineOf(address);
    const { address: alias } = failed ?? {};
    expect(alias).toMatch(/^[0-9a-f]{16}$/);
    expect(failed).not.toHaveProperty("keyId");
    for (const [agent, family] of [
      ["curl/8.5.0", "curl"],
      ["python-requests/2.32", "python"],
      ["Zoe's script", "other"],
      ["", "none"],
    ] as const) {
      const line = { status: 200, keyId, address: alias, agent: family };
      expect(await lineOf(address, apiKey, { agent })).toMatchObject(line);
    }
    for (const key of [await inventedKey(), await revokedKey(), ...Array(17).fill("nonsense")])
      expect(await lineOf(address, key)).toMatchObject({ status: 401, address: alias });
    expect(await lineOf(address)).toMatchObject({ status: 429, address: alias });
    const { address: network } = (await lineOf("2001:db8:9:9::1")) ?? {};
    expect(network).not.toBe(alias);
    expect(await lineOf("2001:db8:9:9::2")).toMatchObject({ address: network });
    expect((await lineOf("2001:db8:9:a::1"))?.address).not.toBe(network);
    expect((await lineOf("2001:db8:9:9::1", "x", { fetch: elsewhere }))?.address).not.toBe(network);
  });
});

test.each([
  ["curl/8.5.0", "curl"],
  ["Wget/1.24", "wget"],
  ["python-requests/2.32", "python"],
  ["aiohttp/3.9", "python"],
  ["node", "javascript"],
  ["undici", "javascript"],
  ["axios/1.7", "javascript"],
  ["got (https://github.com/sindresorhus/got)", "javascript"],
  ["Deno/2.1", "javascript"],
  ["Bun/1.2", "javascript"],
  ["gotham/1", "other"],
  ["GuzzleHttp/7", "php"],
  ["PHP-SOAP/8.3", "php"],
  ["Symfony HttpClient/Curl", "php"],
  ["Go-http-client/2.0", "go"],
  ["Java/21", "java"],
  ["okhttp/4.12", "java"],
  ["Apache-HttpClient/5.4 (Java/21)", "java"],
  ["Ruby", "ruby"],
  ["Faraday v2.9", "ruby"],
  ["rest-client/2.1", "ruby"],
  ["PostmanRuntime/7.39", "api tool"],
  ["insomnia/10.3", "api tool"],
  ["bruno-runtime/1.38", "api tool"],
  ["HTTPie/3.2", "api tool"],
  ["Mozilla/5.0 (compatible; Zapier)", "zapier"],
  ["Make/production", "make"],
  ["Integromat/production", "make"],
  ["axon n8n", "n8n"],
  ["Mozilla/5.0 (X11; Linux x86_64)", "browser"],
  ["my curl", "other"],
  ["", "none"],
  [undefined, "none"],
])("The client family of the User-Agent %j is %s", (userAgent, family) => {
  expect(agentFamily(userAgent)).toBe(family);
});

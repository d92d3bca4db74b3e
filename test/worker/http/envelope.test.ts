import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  type Answer,
  deployedWith,
  EVERY_ANSWER,
  freshAddress,
  leadReport,
  openApi,
  openWorkspace,
  rateLimitOf,
  recordAutomation,
  refusal,
  send,
  withoutRateLimit,
} from "../../support/api.ts";
import { BROKEN } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { keepLog } from "../../support/log-lines.ts";

const NOT_FOUND = refusal(404, "route_not_found");
const DATABASE_DOWN = interposed(env.DB, () =>
  Promise.reject(new Error("D1_ERROR: no such table: leads for camille.durand@example.com")),
);

const lines = keepLog();

describe("every answer", () => {
  test("is no-store and counts down the key's quota in its headers: 200, 201, 204, 400, 404, 413, 415, 422, 429", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 9 });
    const draft = await recordAutomation(workspaceId, { status: "draft" });
    const url = "https://ok-headers.example/";
    const json = { "Content-Type": "application/json" };
    const created = await api.post<{ id: string }>("/v1/webhooks", {
      url,
      events: ["lead.created"],
    });
    const answers = [
      created,
      await api.get("/v1/automations"),
      await api.delete(`/v1/webhooks/${created.body.id}`),
      await api.get("/v1/leads?limit=none"),
      await api.get("/v1/nowhere"),
      await api.send("/v1/webhooks", { method: "POST", headers: json, body: " ".repeat(16_385) }),
      await api.send("/v1/webhooks", { method: "POST", body: "text" }),
      await api.patch(`/v1/automations/${draft}`, { status: "active" }),
      await api.get("/v1/leads"),
      await api.get("/v1/leads"),
    ];
    expect(answers.map(({ status }) => status)).toEqual([
      201, 200, 204, 400, 404, 413, 415, 422, 200, 429,
    ]);
    for (const answer of answers) {
      expect(answer.headers).toMatchObject(EVERY_ANSWER);
      expect(rateLimitOf(answer)).toMatchObject({ limit: 9 });
      expect(rateLimitOf(answer).resetSeconds).toBeCloseTo(57, -1);
    }
    expect(answers.map((answer) => rateLimitOf(answer).remaining)).toEqual([
      8, 7, 6, 5, 4, 3, 2, 1, 0, 0,
    ]);
    expect(answers.filter(({ headers }) => "retry-after" in headers)).toEqual([answers.at(-1)]);
    const { headers, body } = answers.at(-1) as Answer;
    const seconds = Number(headers["x-ratelimit-reset"]);
    expect(headers["retry-after"]).toBe(String(seconds));
    expect(body).toEqual(refusal(429, "rate_limited", { retry_after_seconds: seconds }).body);
  });

  test("has them outside /v1 too: the address's rate limit, without being charged to it", async () => {
    const address = freshAddress();
    const headers = { "CF-Connecting-IP": address };
    for (const path of ["/", "/v2/leads", "/V1/leads", "//v1/leads", "/v1%2fleads"]) {
      const answer = await send(path, { headers });
      expect(answer, path).toEqual(NOT_FOUND);
      expect(rateLimitOf(answer)).toEqual({ limit: 20, remaining: 20, resetSeconds: 300 });
    }
  });
});

describe("a route that does not exist", () => {
  test("is 404, whatever the method, and never 405", async () => {
    const { api } = await openWorkspace();
    const routes: Record<string, string[]> = {
      "/v1/automations": ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
      "/v1/automations/aut_1": ["POST", "PUT", "DELETE", "OPTIONS"],
      "/v1/automations/aut_1/runs": ["POST", "PATCH", "OPTIONS"],
      "/v1/leads": ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"],
      "/v1/runs": ["POST", "DELETE", "OPTIONS"],
      "/v1/webhooks": ["PUT", "PATCH", "DELETE", "OPTIONS"],
      "/v1/webhooks/whk_1": ["GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS"],
    };
    for (const [path, methods] of Object.entries(routes))
      for (const method of methods) {
        const answer = await api.send(path, { method });
        const expected = method === "HEAD" ? { ...NOT_FOUND, body: null } : NOT_FOUND;
        expect(answer, `${method} ${path}`).toEqual(expected);
        expect(answer.headers).not.toHaveProperty("allow");
      }
  });

  test("is 404 if its path is not exactly one of the contract's", async () => {
    const { api } = await openWorkspace();
    const paths = [
      "/v1",
      "/v1/",
      "/v1/automations/",
      "/v1/automations/aut_1/runs/",
      "/v1/automations/aut_1/leads",
      "/v1/Leads",
      "/v1//leads",
      "/v1/leads%20",
      "/v1/webhooks/",
      "/v1/%ff",
      "/v1/%00",
      `/v1/${"a".repeat(10_000)}`,
    ];
    for (const path of paths) expect(await api.get(path), path.slice(0, 60)).toEqual(NOT_FOUND);
  });
});

describe("an id that does not exist", () => {
  const JUNK = [
    "%ff",
    "%00",
    "%zz",
    "%",
    "%2f",
    "aut_1%2fruns",
    "aut_😀",
    "aut_'%20OR%201=1--",
    ":id",
    `aut_${"%00".repeat(2_000)}`,
  ];

  test.each(JUNK)(
    "is a plain 404 for an automation, its runs, its PATCH and a subscription: %.30s",
    async (id) => {
      const { api } = await openWorkspace();
      const unknown = refusal(404, "automation_not_found");
      const path = `/v1/automations/${id}`;
      expect(await api.get(path)).toEqual(unknown);
      expect(await api.get(`${path}/runs`)).toEqual(unknown);
      expect(await api.patch(path, { status: "paused" })).toEqual(unknown);
      expect(await api.delete(`/v1/webhooks/${id}`)).toEqual(refusal(404, "webhook_not_found"));
    },
  );
});

describe("HEAD", () => {
  test("is answered like GET, without the body", async () => {
    const { workspaceId, api } = await openWorkspace();
    const anonymous = await send("/v1/leads", { method: "HEAD" });
    expect(anonymous).toEqual({ ...refusal(401, "invalid_api_key"), body: null });
    const id = await recordAutomation(workspaceId);
    const paths = [
      "/v1/automations",
      `/v1/automations/${id}`,
      `/v1/automations/${id}/runs`,
      "/v1/leads",
      "/v1/runs",
      "/v1/webhooks",
      "/v1/leads?limit=0",
      "/v1/automations/aut_unknown",
      "/v1/nowhere",
    ];
    for (const path of paths) {
      const asked = await api.get(path);
      const head = await api.send(path, { method: "HEAD" });
      expect(withoutRateLimit(head), path).toEqual({ ...withoutRateLimit(asked), body: null });
      expect(rateLimitOf(head).remaining).toBe(rateLimitOf(asked).remaining - 1);
    }
  });
});

describe("an unknown query parameter", () => {
  test("is ignored, also by a route that has none", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    const plain = await api.get<{ data: { id: string }[] }>("/v1/leads");
    expect(plain.body.data.map(({ id }) => id)).toEqual(ids);
    for (const query of [
      "workspace_id=wks_1",
      "Limit=0",
      "limit[]=0",
      "a=1&a=2",
      "%ff=%00",
      "=",
      "&&",
    ])
      expect(withoutRateLimit(await api.get(`/v1/leads?${query}`)), query).toEqual(
        withoutRateLimit(plain),
      );
    const id = await recordAutomation(workspaceId);
    expect((await api.get(`/v1/automations/${id}?limit=0&cursor=x`)).status).toBe(200);
  });
});

describe("an error on our side", () => {
  test("is a 500 with a generic message, and is logged with the id of the request", async () => {
    const { apiKey } = await openWorkspace();
    const answer = await openApi(apiKey, deployedWith({ DB: DATABASE_DOWN })).get("/v1/leads");
    expect(answer).toEqual(refusal(500, "internal_error"));
    expect(JSON.stringify(answer)).not.toMatch(/D1_ERROR|camille|table/);
    expect(lines.join()).toMatch(new RegExp(`request_failed.*${answer.headers["x-request-id"]}`));
  });

  test("in the address's gate still gets the error body, and is not stored", async () => {
    const unreachable = {
      getByName: () => ({
        fail: () => Promise.reject(new Error("Durable Object is overloaded")),
        peek: () => Promise.reject(new Error("Durable Object is overloaded")),
      }),
    } as unknown as Env["ADDRESS_GATE"];
    const fetch = deployedWith({ ADDRESS_GATE: unreachable });
    const answers: Answer[] = [await send("/v1/leads", {}, fetch), await send("/", {}, fetch)];
    for (const { status, headers, body } of answers) {
      expect(status).toBeGreaterThanOrEqual(400);
      expect(body).toHaveProperty("error.code");
      expect(headers).toHaveProperty("cache-control", "no-store");
    }
  });
});

describe("the id of a request", () => {
  test("is the same in its response and in its log line, for every kind of request", async () => {
    const { api } = await openWorkspace();
    const answers = [
      await api.get("/v1/leads"),
      await api.get("/v1/leads?limit=0"),
      await api.get("/v1/nowhere"),
      await send("/v1/leads"),
      await send("/nowhere"),
      await send("/openapi.json"),
    ];
    const names = answers.map(({ headers }) => headers["x-request-id"]);
    expect(new Set(names).size).toBe(answers.length);
    const logged = lines.map((line) => JSON.parse(line)).filter(({ event }) => event === "request");
    expect(logged.map(({ requestId }) => requestId)).toEqual(names);
  });

  test("is the one that Cloudflare assigned, and never one that a client made up", async () => {
    const nameOf = async (ray: string) =>
      (await send("/", { headers: { "CF-Ray": ray } })).headers["x-request-id"];
    expect(await nameOf("9c1f2e6a4b7d8035-CDG")).toBe("9c1f2e6a4b7d8035-CDG");
    expect(await nameOf("<script>")).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  });
});

describe("the log", () => {
  test("of a request contains no key, no path of the client's and nothing about the workspace's people", async () => {
    const { workspaceId, apiKey, api } = await openWorkspace();
    const lead = leadReport("1", {
      name: "Camille Durand",
      email: "camille@example.com",
      phone: "+33600000000",
      customFields: { note: "confidentiel" },
    });
    await exports.Platform.recordLeads({ workspaceId, leads: [lead] });
    expect((await api.get("/v1/leads?q=confidentiel")).status).toBe(200);
    await api.get("/v1/automations/camille@example.com");
    await api.post("/v1/webhooks", { url: "https://camille:secret@example.com/", events: [] });
    await openApi(`${apiKey}x`).get("/v1/leads");
    expect(lines.length).toBeGreaterThanOrEqual(4);
    expect(lines.join("\n")).not.toMatch(/Camille|camille|33600|confidentiel|secret|key_live_/);
  });

  test("of a failed query contains none of its parameters", async () => {
    const { apiKey } = await openWorkspace();
    const failing = interposed(env.DB, () => Promise.reject(BROKEN));
    const api = openApi(apiKey, deployedWith({ DB: failing }));
    const cursor = btoa('[1,"leads",1,"camille@example.com"]').replaceAll("=", "");
    expect(await api.get(`/v1/leads?cursor=${cursor}`)).toEqual(refusal(500, "internal_error"));
    expect(lines.join("\n")).toContain("disk I/O error");
    expect(lines.join("\n")).not.toContain("camille");
  });
});

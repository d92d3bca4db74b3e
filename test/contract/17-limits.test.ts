import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import {
  AGENT,
  AN_ERROR,
  type Answer,
  type Api,
  anError,
  type ErrorBody,
  EVENTS,
  failTooOften,
  isElsewhere,
  openApi,
  openWorkspace,
  type Page,
  platform,
  sendUnauthenticated,
  TOO_LARGE,
} from "./support.ts";

const limitOf = ({ headers }: Answer) => Number(headers.get("X-RateLimit-Limit"));
const remainingOf = ({ headers }: Answer) => Number(headers.get("X-RateLimit-Remaining"));
const resetOf = ({ headers }: Answer) => Number(headers.get("X-RateLimit-Reset"));

/** A key whose requests of this window are used up, and the answer to one more. */
async function openUsedUp() {
  const workspace = await openWorkspace({ requestsPerWindow: 2 });
  const { api } = workspace;
  for (let i = 0; i < 2; i++) await api.get("/leads");
  return { ...workspace, refused: await api.get("/leads") };
}

describe("Limits: page size", () => {
  const SOCIAL = { type: "lead_ads", provider: "facebook", agent: AGENT, status: "active" };
  const RUN = { status: "success", triggerType: "comment" };

  // A workspace may have fewer subscriptions than that.
  describe.each([
    ["/automations", "recordAutomations", "automations", SOCIAL],
    ["/leads", "recordLeads", "leads", { source: "social", agent: AGENT }],
    ["/runs", "recordRuns", "runs", RUN],
    ["/automations/{id}/runs", "recordRuns", "runs", RUN],
  ])("`GET %s` of 101 items", (list, method, kind, report) => {
    let [api, path] = [{} as Api, ""];
    beforeAll(async () => {
      const workspace = await openWorkspace();
      const { workspaceId } = workspace;
      const automationId = kind === "runs" ? await workspace.recordAutomation() : undefined;
      const item = () => ({ ...report, automationId, reference: randomUUID() });
      for (const length of [100, 1])
        await platform(method, { workspaceId, [kind]: Array.from({ length }, item) });
      api = workspace.api;
      path = list.replace("{id}", String(automationId));
    });

    test("`limit` is 25 by default", async () => {
      expect((await api.get<Page>(path)).body.data).toHaveLength(25);
    });

    test("`limit=100` is never corrected", async () => {
      expect((await api.get<Page>(`${path}?limit=100`)).body.data).toHaveLength(100);
    });
  });
});

describe("Limits: request quota", () => {
  test("`X-RateLimit-Limit` is the number of requests allowed per window", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 17 });
    expect(limitOf(await api.get("/leads"))).toBe(17);
  });

  test("`X-RateLimit-Remaining` is the number of requests left", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 17 });
    expect(remainingOf(await api.get("/leads"))).toBe(16);
    expect(remainingOf(await api.get("/unknown"))).toBe(15);
  });

  test("`X-RateLimit-Reset` is the seconds left until the window resets, not a timestamp", async () => {
    const { api } = await openWorkspace();
    const first = resetOf(await api.get("/leads"));
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThanOrEqual(86_400);
    await sleep(1_100);
    expect(resetOf(await api.get("/leads"))).toBeLessThan(first);
  });

  describe("Beyond the rate limit,", () => {
    let refused: Answer<ErrorBody>;
    beforeAll(async () => {
      ({ refused } = await openUsedUp());
    });

    test("a request gets 429 `rate_limited`", () => {
      expect(refused).toMatchObject({ status: 429, body: anError("rate_limited") });
    });

    test("`X-RateLimit-Remaining` is 0", () => {
      expect(remainingOf(refused)).toBe(0);
    });

    test("`Retry-After` is integer seconds, as in `details`", () => {
      const { headers, body } = refused;
      expect(headers.get("Retry-After")).toMatch(/^\d+$/);
      expect(body.error.details.retry_after_seconds).toBe(Number(headers.get("Retry-After")));
    });
  });

  test("After `Retry-After`, a request is served", { timeout: 180_000 }, async () => {
    const { api, refused } = await openUsedUp();
    await sleep(Number(refused.headers.get("Retry-After")) * 1000);
    expect((await api.get("/leads")).status).toBe(200);
  });

  test("The quota is per key: another key of the workspace is served", async () => {
    const { createKey } = await openUsedUp();
    const { apiKey } = await createKey();
    expect((await openApi(apiKey).get("/leads")).status).toBe(200);
  });

  describe.skipIf(isElsewhere)("where the contract is silent on concurrent requests", () => {
    test("The quota is exact", async () => {
      const { api } = await openWorkspace({ requestsPerWindow: 10 });
      const answers = await Promise.all(Array.from({ length: 25 }, () => api.get("/leads")));
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(10);
      expect(answers.filter(({ status }) => status === 429)).toHaveLength(15);
    });
  });
});

describe("Limits: authentication failures", () => {
  let refused: Answer<ErrorBody>;
  beforeAll(async () => {
    refused = await failTooOften();
  });

  test("Too many from one address give 429 `rate_limited`", () => {
    expect(refused).toMatchObject({ status: 429, body: anError("rate_limited") });
  });

  test("`Retry-After` of that 429 is integer seconds, as in `details`", () => {
    const { headers, body } = refused;
    expect(headers.get("Retry-After")).toMatch(/^\d+$/);
    expect(body.error.details.retry_after_seconds).toBe(Number(headers.get("Retry-After")));
  });

  test("A 401 counts against the limit of the address", async () => {
    const answer = await sendUnauthenticated(null);
    expect(limitOf(answer)).toBeGreaterThan(remainingOf(answer));
  });
});

describe("Limits: subscriptions per workspace", () => {
  test("A ceiling exists", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 2_000 });
    const body = { url: "https://hooks.example.com/", events: EVENTS };
    let created = 0;
    let answer = await api.post("/webhooks", body);
    for (; answer.status === 201 && created < 1_000; created++)
      answer = await api.post("/webhooks", body);
    expect(answer.status).toBeLessThan(500);
    expect(answer.body).toEqual(AN_ERROR);
    expect(created).toBeGreaterThan(0);
  });
});

describe("Limits: request body size", () => {
  test.each([
    ["POST", "/webhooks"],
    ["PATCH", "/automations/aut_0"],
  ])("A too large body of `%s %s` gives 413 `invalid_request`", async (method, path) => {
    const { api } = await openWorkspace();
    const answer = await api.call(method, path, TOO_LARGE);
    expect(answer).toMatchObject({ status: 413, body: anError("invalid_request") });
  });
});

// The signature's tolerance and the 10 seconds of an acknowledgement are in 15-delivery.test.ts.

import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { openWorkspace, rateLimitOf, refusal } from "../../support/api.ts";

describe("the quota", () => {
  test("counts down in the headers of every response, errors included", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 5 });
    const answers = [
      await api.get("/v1/leads"),
      await api.get("/v1/leads?limit=0"),
      await api.get("/v1/nowhere"),
      await api.get("/v1/automations/aut_unknown"),
      await api.post("/v1/webhooks", {}),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 400, 404, 404, 400]);
    expect(answers.map((answer) => rateLimitOf(answer).remaining)).toEqual([4, 3, 2, 1, 0]);
    for (const answer of answers) {
      const { limit, resetSeconds } = rateLimitOf(answer);
      expect(limit).toBe(5);
      expect(resetSeconds).toBeGreaterThan(50);
      expect(resetSeconds).toBeLessThanOrEqual(60);
    }
  });

  test("that is used up gives 429 with consistent Retry-After, X-RateLimit-Reset and details", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    const answer = await api.get("/v1/leads");
    const { resetSeconds } = rateLimitOf(answer);
    expect(answer).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
    expect(answer.headers["retry-after"]).toBe(String(resetSeconds));
    expect(rateLimitOf(answer)).toMatchObject({ limit: 1, remaining: 0 });
    expect(resetSeconds).toBeGreaterThan(50);
  });

  test("is exact under 120 concurrent requests against a limit of 50", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 50 });
    const answers = await Promise.all(Array.from({ length: 120 }, () => api.get("/v1/leads")));
    const admitted = answers.filter(({ status }) => status === 200);
    const left = admitted.map((answer) => rateLimitOf(answer).remaining);
    expect(left.sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i));
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(70);
  });

  test("is not charged for 429 responses", async () => {
    const { api, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
    for (let i = 0; i < 10; i++) await api.get("/v1/leads");
    const keyHash = await hashApiKey(apiKey);
    const nextWindow = Date.now() + 61_000;
    expect(await env.KEY_GATE.getByName(keyHash).admit(keyHash, nextWindow)).toMatchObject({
      verdict: "admitted",
      rateLimit: { limit: 1, remaining: 0, resetMs: 60_000 },
    });
  });
});

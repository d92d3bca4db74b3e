import { describe, expect, test } from "vitest";
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
});

import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  authorizedBy,
  EMPTY_PAGE,
  figuresOf,
  freshAddress,
  inventedKey,
  openWorkspace,
  refusal,
  revokedKey,
  success,
  unknownKey,
} from "../../../support/api.ts";

describe("an address that fails to authenticate", () => {
  test("gets 401 twenty times, counted down, and then 429", async () => {
    const address = freshAddress();
    for (let remaining = 19; remaining >= 0; remaining--) {
      const answer = await authorizedBy(null, address);
      expect(answer).toEqual(refusal(401, "invalid_api_key"));
      expect(figuresOf(answer)).toMatchObject({ limit: 20, remaining });
    }
    const answer = await authorizedBy(null, address);
    const { resetSeconds } = figuresOf(answer);
    expect(answer).toEqual(refusal(429, "rate_limited", { retry_after_seconds: resetSeconds }));
    expect(answer.headers["retry-after"]).toBe(String(resetSeconds));
    expect(figuresOf(answer)).toMatchObject({ limit: 20, remaining: 0 });
    expect(resetSeconds).toBeGreaterThan(290);
    expect(resetSeconds).toBeLessThanOrEqual(300);
  });

  test("is blocked whatever the failure: missing, malformed, invented, unknown or revoked key", async () => {
    const address = freshAddress();
    const revoked = await revokedKey();
    const keys = ["nonsense", await inventedKey(), await unknownKey(), revoked];
    const failures = [null, ...keys.map((key) => `Bearer ${key}`)];
    for (let i = 0; i < 20; i++) await authorizedBy(failures[i % 5] ?? null, address);
    for (const failure of failures)
      expect((await authorizedBy(failure, address)).status, String(failure)).toBe(429);
  });

  test("is blocked after exactly 20 failures, even with 60 at once", async () => {
    const address = freshAddress();
    const answers = await Promise.all(
      Array.from({ length: 60 }, async () => authorizedBy(`Bearer ${await unknownKey()}`, address)),
    );
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(20);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(40);
  });

  test("is still served with a valid key when blocked, with the key's figures", async () => {
    const { apiKey } = await openWorkspace();
    const address = freshAddress();
    for (let i = 0; i < 21; i++) await authorizedBy(null, address);
    const answer = await authorizedBy(`Bearer ${apiKey}`, address);
    expect(answer).toEqual(success(200, EMPTY_PAGE));
    expect(figuresOf(answer)).toEqual({ limit: 600, remaining: 599, resetSeconds: 60 });
    expect((await authorizedBy(null, address)).status).toBe(429);
  });

  test("does not share its failures with another address", async () => {
    const address = freshAddress();
    for (let i = 0; i < 21; i++) await authorizedBy(null, address);
    const answer = await authorizedBy(null, freshAddress());
    expect(answer).toEqual(refusal(401, "invalid_api_key"));
    expect(figuresOf(answer)).toMatchObject({ remaining: 19 });
  });

  test("shares them with its /64 if it is IPv6, and with nobody else", async () => {
    for (let i = 0; i < 20; i++) await authorizedBy(null, `2001:db8:7:7:${i}::1`);
    expect((await authorizedBy(null, "2001:db8:7:7:ffff:ffff:ffff:ffff")).status).toBe(429);
    expect((await authorizedBy(null, "2001:db8:7:8::1")).status).toBe(401);
  });

  test("is not charged for a valid key, a workspace without access or a used-up quota", async () => {
    const { workspaceId, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
    const address = freshAddress();
    for (let i = 0; i < 3; i++) await authorizedBy(`Bearer ${apiKey}`, address);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await authorizedBy(`Bearer ${apiKey}`, address);
    expect(figuresOf(await authorizedBy(null, address))).toMatchObject({ remaining: 19 });
  });
});

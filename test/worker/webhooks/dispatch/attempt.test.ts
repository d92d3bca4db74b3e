import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { parseEncryptionKeys, seal } from "../../../../src/encryption/seal.ts";
import { createAttempt } from "../../../../src/webhooks/dispatch/attempt.ts";
import { mintSecret } from "../../../../src/webhooks/signature.ts";
import {
  answered,
  expectedSignatures,
  owed,
  postOf,
  receivedBy,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5);

afterEach(() => void vi.restoreAllMocks());

describe("the attempts of a dispatch", () => {
  test("share a timer of ten seconds: an invocation may only have 10,000", async () => {
    const { drafts, ...about } = await owed(1, NOW);
    const post = await postOf(about, drafts, NOW);
    const timers = vi.spyOn(globalThis, "setTimeout");
    const timeouts = vi.spyOn(AbortSignal, "timeout");
    const attempt = createAttempt(env);
    for (let i = 0; i < 20; i++) expect(await attempt(...post)).toMatchObject(answered(200));
    expect(await receivedBy(about)).toHaveLength(20);
    expect(timers.mock.calls.length + timeouts.mock.calls.length).toBeLessThan(20);
    const seconds = timers.mock.calls.map(([, ms]) => Math.round(Number(ms) / 1000));
    expect(seconds).toContain(10);
  });

  test("are signed with the secret of their claim, which may have been rotated since the last", async () => {
    const { drafts, ...about } = await owed(1, NOW);
    const [delivery, target] = await postOf(about, drafts, NOW);
    const rotated = mintSecret();
    const sealedSecret = await seal(parseEncryptionKeys(env.ENCRYPTION_KEYS), about.id, rotated);
    const attempt = createAttempt(env);
    await attempt(delivery, target);
    await attempt(delivery, { ...target, sealedSecret });
    for (const [i, { headers, body }] of (await receivedBy(about)).entries()) {
      const timestamp = headers["webhook-timestamp"] ?? "";
      const secret = [about.secret, rotated][i] ?? "";
      const { service } = await expectedSignatures(secret, "", timestamp, body);
      expect(headers["x-service-signature"]).toBe(service);
    }
  });
});

import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { parseEncryptionKeys, seal } from "../../../../src/encryption/seal.ts";
import { createAttempt } from "../../../../src/webhooks/dispatch/attempt.ts";
import type { Draft } from "../../../../src/webhooks/outbox.ts";
import { mintSecret } from "../../../../src/webhooks/signature.ts";
import {
  answered,
  claimedOf,
  expectedSignatures,
  owed,
  receivedBy,
  subscriptionRow,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5);

afterEach(() => void vi.restoreAllMocks());

/** A delivery, and where it goes, as it is claimed. */
async function claimed() {
  const { id, url, secret, workspaceId, drafts } = await owed(1, NOW);
  const { sealedSecret } = await subscriptionRow(id);
  const delivery = claimedOf(id, drafts[0] as Draft, NOW);
  const target = { workspaceId, dataKey: null, url, sealedSecret, earlierSecrets: [] };
  return { id, url, secret, delivery, target };
}

describe("the attempts of a dispatch", () => {
  test("share a single timer: an invocation may only have 10,000", async () => {
    const { url, delivery, target } = await claimed();
    const timers = vi.spyOn(globalThis, "setTimeout");
    const timeouts = vi.spyOn(AbortSignal, "timeout");
    const attempt = createAttempt(env);
    for (let i = 0; i < 20; i++)
      expect(await attempt(delivery, target)).toMatchObject(answered(200));
    expect(await receivedBy({ url })).toHaveLength(20);
    expect(timers.mock.calls.length + timeouts.mock.calls.length).toBeLessThan(20);
  });

  test("are signed with the secret of their claim, which may have been rotated since the last", async () => {
    const { id, url, secret, delivery, target } = await claimed();
    const rotated = mintSecret();
    const sealedSecret = await seal(parseEncryptionKeys(env.ENCRYPTION_KEYS), id, rotated);
    const attempt = createAttempt(env);
    await attempt(delivery, target);
    await attempt(delivery, { ...target, sealedSecret });
    for (const [i, { headers, body }] of (await receivedBy({ url })).entries()) {
      const timestamp = headers["webhook-timestamp"] ?? "";
      const signed = await expectedSignatures([secret, rotated][i] ?? "", "", timestamp, body);
      expect(headers["x-service-signature"]).toBe(signed.service);
    }
  });
});

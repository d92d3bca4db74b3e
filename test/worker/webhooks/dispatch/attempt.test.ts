import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { createAttempt } from "../../../../src/webhooks/dispatch/attempt.ts";
import type { Draft } from "../../../../src/webhooks/outbox.ts";
import {
  answered,
  claimedOf,
  owed,
  receivedBy,
  subscriptionRow,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5);

afterEach(() => void vi.restoreAllMocks());

describe("the attempts of a dispatch", () => {
  test("share a single timer: an invocation may only have 10,000", async () => {
    const { id, url, workspaceId, drafts } = await owed(1, NOW);
    const { sealedSecret } = await subscriptionRow(id);
    const delivery = claimedOf(id, drafts[0] as Draft, NOW);
    const target = { workspaceId, dataKey: null, url, sealedSecret, earlierSecrets: [] };
    const timers = vi.spyOn(globalThis, "setTimeout");
    const timeouts = vi.spyOn(AbortSignal, "timeout");
    const attempt = createAttempt(env);
    for (let i = 0; i < 20; i++)
      expect(await attempt(delivery, target)).toMatchObject(answered(200));
    expect(await receivedBy({ url })).toHaveLength(20);
    expect(timers.mock.calls.length + timeouts.mock.calls.length).toBeLessThan(20);
  });
});

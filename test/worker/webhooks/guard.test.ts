import { env } from "cloudflare:workers";
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { createAttempt } from "../../../src/webhooks/dispatch/attempt.ts";
import type { Draft } from "../../../src/webhooks/outbox.ts";
import { claimedOf, jumpTo, owed, receivedBy, subscriptionRow } from "../../support/deliveries.ts";

const RESOLVER = "https://dns.example/dns-query";
const NOW = Date.UTC(2026, 0, 5);

/** A subscription whose host name the resolver answers as `behaviour` says, and a post to it. */
async function posting(behaviour: string, bindings: Partial<Env> = {}) {
  const { id, url, workspaceId, drafts } = await owed(1, NOW, { behaviour });
  const { sealedSecret } = await subscriptionRow(id);
  const checked: Env = { ...env, DNS_OVER_HTTPS_URL: RESOLVER, ...bindings };
  const delivery = claimedOf(id, drafts[0] as Draft, NOW);
  const target = { workspaceId, dataKey: null, url, sealedSecret, earlierSecrets: [] };
  const dispatch = () => {
    const attempt = createAttempt(checked);
    return async () => (await attempt(delivery, target)).kind;
  };
  const asked = async () => {
    const answer = await fetch(`https://dns.example/asked?name=${new URL(url).hostname}`);
    return answer.json();
  };
  return { dispatch, asked, received: async () => (await receivedBy({ url })).length };
}

// The first connection of a runtime takes longer than the resolver's timeout.
beforeAll(async () => void (await fetch("https://dns.example/asked?name=nobody")));
beforeEach(() => jumpTo(NOW));
afterEach(() => void vi.useRealTimers());

describe("a name that is resolved again before a post", () => {
  test("is posted to while all its addresses are public", async () => {
    const { dispatch, received, asked } = await posting("public");
    expect(await dispatch()()).toBe("answered");
    expect(await received()).toBe(1);
    expect(await asked()).toBe(1);
  });

  test.each([
    ["refused, and not posted to, if one address is private", "half-private", "refused", 0],
    ["posted to if the result is inconclusive", "half-public", "answered", 1],
    ["posted to if it does not exist", "nxdomain", "answered", 1],
  ])("is %s", async (_, behaviour, outcome, posts) => {
    const { dispatch, received } = await posting(behaviour);
    expect(await dispatch()()).toBe(outcome);
    expect(await received()).toBe(posts);
  });

  test("is cached for its TTL by all dispatches of the isolate, and no longer", async () => {
    const { dispatch, received, asked } = await posting("turns-private");
    const attempt = dispatch();
    expect(await attempt()).toBe("answered");
    jumpTo(NOW + 59_999);
    expect(await attempt()).toBe("answered");
    expect(await dispatch()()).toBe("answered");
    expect(await asked()).toBe(1);
    jumpTo(NOW + 60_000);
    expect(await attempt()).toBe("refused");
    expect(await dispatch()()).toBe("refused");
    expect(await asked()).toBe(2);
    expect(await received()).toBe(3);
  });

  test("is resolved once for posts that start together", async () => {
    const { dispatch, asked } = await posting("public");
    const attempt = dispatch();
    await Promise.all(Array.from({ length: 6 }, attempt));
    expect(await asked()).toBe(1);
  });

  test("does not delay a post by as much as a second; a later answer counts for the next one", async () => {
    // The resolver answers after a second, and would have the first post refused.
    const { dispatch } = await posting("late-private");
    const attempt = dispatch();
    expect(await attempt()).toBe("answered");
    await expect.poll(attempt, { timeout: 10_000 }).toBe("refused");
  });

  test.each<Partial<Env>>([{ DNS_OVER_HTTPS_URL: "" }, { ALLOW_LOCAL_WEBHOOKS: "true" }])(
    "is not resolved with %o",
    async (bindings) => {
      const { dispatch, asked } = await posting("private", bindings);
      expect(await dispatch()()).toBe("answered");
      expect(await asked()).toBe(0);
    },
  );
});

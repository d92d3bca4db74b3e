import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { commit } from "../../../src/db/client.ts";
import { createSender } from "../../../src/delivery/send.ts";
import { deliver } from "../../../src/dispatch/deliver.ts";
import {
  createGuard,
  DNS_BEFORE_POST_MS,
  type Resolution,
  resolveHost,
} from "../../../src/endpoints/resolve.ts";
import { updateSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { deployedWith, invalid, openApi, openWorkspace } from "../../support/api.ts";
import { Connections } from "../../support/connections.ts";
import { jumpTo, owed, portsAt, postOf, receivedBy, subscribe } from "../../support/deliveries.ts";
import { db } from "../../support/placement.ts";
import { openPortal } from "../../support/portal.ts";
import { lengthenTimers, shortenTimers, steadyClock } from "../../support/timers.ts";

const RESOLVER = "https://dns.example/dns-query?dnssec=1";
const NOW = Date.UTC(2026, 0, 5);

/** A subscription whose host name the resolver answers as `behaviour` says, and a post to it. */
async function posting(behaviour: string, bindings: Partial<Env> = {}) {
  const { url, drafts, ...about } = await owed(1, NOW, { behaviour });
  const dispatch = () => {
    const sender = createSender({ ...env, DNS_OVER_HTTPS_URL: RESOLVER, ...bindings });
    return async () => {
      const request = await postOf({ ...about, url }, drafts, NOW, sender);
      return (await sender.attempt(...request)).kind;
    };
  };
  return {
    dispatch,
    asked: () => lookUpsOf(url),
    received: async () => (await receivedBy({ url })).length,
  };
}

/** Reads how often the resolver was asked for the host of `url`. */
async function lookUpsOf(url: string): Promise<unknown> {
  const answer = await fetch(`https://dns.example/asked?name=${new URL(url).hostname}`);
  return answer.json();
}

test.each<[Resolution, names: string]>([
  ["public", "public nov6-public digits"],
  ["private", "private privatev4 privatev6 mixed publicv6 half-private"],
  ["unresolvable", "nxdomain"],
  ["unknown", "half-public halfnx servfail empty garbage odd null nulls down"],
  ["unknown", "8.8.8.8 [2606:4700:4700::1111]"],
])("a host resolves to %s: %s", async (resolution, names) => {
  for (const name of names.split(" ")) {
    const host = /^[a-z]/.test(name) ? `${name}.example` : name;
    expect(await resolveHost(RESOLVER, host), name).toBe(resolution);
  }
});

describe("POST /webhooks with a resolver", () => {
  async function subscribeTo(host: string, overrides: Partial<Env> = {}) {
    const { apiKey } = await openWorkspace();
    const api = openApi(apiKey, deployedWith({ DNS_OVER_HTTPS_URL: RESOLVER, ...overrides }));
    return api.post("/v1/webhooks", { url: `https://${host}/in`, events: ["lead.created"] });
  }

  test.each([
    ["private_address", "mixed.example"],
    ["private_address", "127.0.0.1"],
    ["unresolvable_host", "nxdomain.example"],
  ] as const)("refuses, with %s: %s", async (reason, host) => {
    expect(await subscribeTo(host)).toEqual(invalid("url", reason));
  });

  test.each([
    ["public.example", "has public addresses", {}],
    ["half-public.example", "is inconclusive", {}],
    ["private.example", "is not resolved", { DNS_OVER_HTTPS_URL: "" }],
    ["private.example", "may be local", { ALLOW_LOCAL_WEBHOOKS: "true" }],
  ])("accepts %s, which %s", async (host, _, overrides) => {
    expect((await subscribeTo(host, overrides)).status).toBe(201);
  });

  test("applies to another URL of a webhook, too", async () => {
    const { workspaceId } = await openWorkspace();
    const resolving = deployedWith({ DNS_OVER_HTTPS_URL: RESOLVER });
    const portal = await openPortal(workspaceId, resolving);
    const { id } = await subscribe(workspaceId);
    const change = async (host: string) =>
      (await portal.post(`/webhooks/${id}/update`, { url: `https://${host}/in` })).status;
    expect([await change("mixed.example"), await change("public.example")]).toEqual([400, 200]);
  });

  test("accepts a host if the resolver does not respond within 2 s", async () => {
    shortenTimers(2_000);
    const startedAt = Date.now();
    expect((await subscribeTo("silent.example")).status).toBe(201);
    // It would answer after 5 s.
    expect(Date.now() - startedAt).toBeLessThan(4_900);
    vi.restoreAllMocks();
  });
});

describe("a name that is resolved again before a request", () => {
  beforeEach(() => {
    jumpTo(NOW);
    lengthenTimers(DNS_BEFORE_POST_MS);
  });
  test.each([
    ["posted to while all its addresses are public", "public", "answered", 1],
    ["refused, and not posted to, if one address is private", "half-private", "refused", 0],
    [
      "refused without waiting for AAAA if the address of A is private",
      "latev6-private",
      "refused",
      0,
    ],
    ["posted to if the result is inconclusive", "half-public", "answered", 1],
    ["posted to if it does not exist", "nxdomain", "answered", 1],
  ])("is %s", async (_, behaviour, outcome, posts) => {
    const { dispatch, received, asked } = await posting(behaviour);
    expect(await dispatch()()).toBe(outcome);
    expect([await received(), await asked()]).toEqual([posts, 1]);
  });

  test("is not resolved while its delivery still waits for a connection", async () => {
    const { url, drafts, ...about } = await owed(1, NOW, { behaviour: "public" });
    const sender = createSender({ ...env, DNS_OVER_HTTPS_URL: RESOLVER });
    const delivery = await postOf({ ...about, url }, drafts, NOW, sender);
    expect(await lookUpsOf(url)).toBe(0);
    await sender.attempt(...delivery);
    expect(await lookUpsOf(url)).toBe(1);
  });

  test("is resolved again if the URL has changed since its delivery was claimed", async () => {
    const { id } = await owed(3, NOW, { behaviour: "public" });
    const sender = createSender({ ...env, DNS_OVER_HTTPS_URL: RESOLVER });
    const outcomes: string[] = [];
    const clock = steadyClock();
    const ports = portsAt(
      () => NOW + clock.passedMs,
      async (delivery, target) => {
        const outcome = await sender.attempt(delivery, target, Date.now());
        outcomes.push(outcome.kind);
        if (outcomes.length > 1) return outcome;
        const url = `https://private-${crypto.randomUUID()}.example/`;
        await commit(db, updateSubscription(id, { url }, NOW));
        clock.passedMs += 1_900;
        return outcome;
      },
    );
    await deliver(db, id, "fast", ports, 1);
    vi.restoreAllMocks();
    expect(outcomes).toEqual(["answered", "refused"]);
  });

  test("is cached for a minute by all dispatches of the isolate, and no longer", async () => {
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

  test("is forgotten once a thousand others have been resolved", async () => {
    const hosts: (string | null)[] = [];
    vi.spyOn(globalThis, "fetch").mockImplementation(async (url) => {
      hosts.push(new URL(String(url)).searchParams.get("name"));
      return Response.json({ Status: 0, Answer: [{ type: 1, data: "8.8.8.8" }] });
    });
    const isForbidden = createGuard({ ...env, DNS_OVER_HTTPS_URL: RESOLVER });
    const isResolved = async (n: number) => {
      const before = hosts.length;
      await isForbidden(`https://host-${n}.example/`);
      return hosts.length > before;
    };
    for (let n = 0; n <= 1_000; n++) await isResolved(n);
    const results = [await isResolved(1), await isResolved(0)];
    vi.restoreAllMocks();
    expect(results).toEqual([false, true]);
  });

  test("is resolved once for requests that start together", async () => {
    const { dispatch, asked } = await posting("public");
    const attempt = dispatch();
    await Promise.all(Array.from({ length: 6 }, attempt));
    expect(await asked()).toBe(1);
  });

  test("does not delay a request by as much as a second", async () => {
    vi.restoreAllMocks();
    // The resolver answers after a second, and would have the first post refused.
    const { dispatch } = await posting("late-private");
    const attempt = dispatch();
    expect(await attempt()).toBe("answered");
    await expect.poll(attempt).toBe("refused");
  });

  test("is resolved, and refused, while five other requests of the invocation hang", async () => {
    const { dispatch, received } = await posting("turns-private");
    expect(await dispatch()()).toBe("answered");
    jumpTo(NOW + 60_000);
    const connections = new Connections();
    const real = globalThis.fetch;
    vi.spyOn(globalThis, "fetch").mockImplementation((...call: Parameters<typeof fetch>) =>
      connections.use(() => real(...call)),
    );
    for (let hanging = 0; hanging < 5; hanging++) connections.use(() => new Promise(() => {}));
    expect(await dispatch()()).toBe("refused");
    vi.restoreAllMocks();
    expect(await received()).toBe(1);
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

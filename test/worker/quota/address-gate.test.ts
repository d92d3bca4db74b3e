import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { nameAddress } from "../../../src/quota/address.ts";

const LIMIT = env.AUTH_FAILURES;
const NETWORK_LIMIT = 16 * LIMIT;
const WINDOW_MS = env.AUTH_FAILURE_WINDOW_SECONDS * 1000;

const BLOCK = "2001:db8:1:1::/64";

function openGate() {
  return env.ADDRESS_GATE.getByName(crypto.randomUUID());
}

function stored(gate: ReturnType<typeof openGate>): Promise<unknown[]> {
  return runInDurableObject(gate, async (_, { storage }) => [...(await storage.list()).values()]);
}

describe("an address", () => {
  test("is free again when the window opened by its first failure is over", async () => {
    const gate = openGate();
    const now = Date.now();
    for (let i = 0; i < LIMIT; i++) await gate.fail(BLOCK, now + i);
    expect(await gate.fail(BLOCK, now + WINDOW_MS - 1)).toEqual({
      blocked: "block",
      rateLimit: { limit: LIMIT, remaining: 0, resetMs: 1 },
    });
    expect(await gate.fail(BLOCK, now + WINDOW_MS)).toEqual({
      blocked: null,
      rateLimit: { limit: LIMIT, remaining: LIMIT - 1, resetMs: 300_000 },
    });
  });

  test("shares a larger limit with its network, whose other blocks are refused with it", async () => {
    const gate = openGate();
    const now = Date.now();
    const blocks = Array.from({ length: NETWORK_LIMIT + 100 }, (_, i) => `block ${i}`);
    const failures = await Promise.all(blocks.map((block) => gate.fail(block, now)));
    expect(failures.filter(({ blocked }) => blocked === null)).toHaveLength(NETWORK_LIMIT);
    expect(failures.filter(({ blocked }) => blocked === "network")).toHaveLength(100);
    const refused = { limit: LIMIT, remaining: 0, resetMs: WINDOW_MS };
    expect(failures.at(-1)?.rateLimit).toEqual(refused);
    expect(await gate.peek("another block", now)).toEqual(refused);
    expect(await gate.fail("another block", now + WINDOW_MS)).toMatchObject({ blocked: null });
  });

  test("is told what its network leaves it, if that is less", async () => {
    const gate = openGate();
    const now = Date.now();
    const others = Array.from({ length: NETWORK_LIMIT - 3 }, (_, i) => `block ${i}`);
    await Promise.all(others.map((block) => gate.fail(block, now)));
    const { rateLimit } = await gate.fail(BLOCK, now + 1_000);
    expect(rateLimit).toEqual({ limit: LIMIT, remaining: 2, resetMs: WINDOW_MS - 1_000 });
  });

  test("takes no more than its own limit from its network's", async () => {
    const gate = openGate();
    const now = Date.now();
    const failures = Array.from({ length: NETWORK_LIMIT + 1 }, () => gate.fail(BLOCK, now));
    await Promise.all(failures);
    expect(await gate.fail("another block", now)).toMatchObject({ blocked: null });
  });

  test("does not count a look at its window", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(BLOCK, now);
    const left = { limit: LIMIT, remaining: LIMIT - 1, resetMs: 290_000 };
    expect(await gate.peek(BLOCK, now + 10_000)).toEqual(left);
    expect(await gate.peek(BLOCK, now + 10_000)).toEqual(left);
    const other = openGate();
    const untouched = { limit: LIMIT, remaining: LIMIT, resetMs: 300_000 };
    expect(await other.peek(BLOCK, now)).toEqual(untouched);
    expect(await stored(other)).toEqual([]);
  });

  test("keeps its failures when the object is evicted", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(BLOCK, now);
    await gate.fail(BLOCK, now);
    await evictDurableObject(gate);
    const { rateLimit } = await gate.fail(BLOCK, now + 1_000);
    expect(rateLimit).toEqual({ limit: LIMIT, remaining: LIMIT - 3, resetMs: 299_000 });
  });
});

describe("the storage of an address", () => {
  test("is deleted when its window is over", async () => {
    const gate = openGate();
    await gate.fail(BLOCK, Date.now() - WINDOW_MS);
    await vi.waitFor(async () => expect(await stored(gate)).toEqual([]));
    expect(await runDurableObjectAlarm(gate)).toBe(false);
  });

  test("is kept while its window is open, and deleted after that", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(BLOCK, now);
    expect(await runDurableObjectAlarm(gate)).toBe(true);
    const window = { startedAt: now, count: 1 };
    const windows = { network: window, blocks: new Map([[BLOCK, window]]) };
    expect(await stored(gate)).toEqual([windows]);
    expect(await gate.peek(BLOCK, now)).toMatchObject({ remaining: LIMIT - 1 });
    const alarm = await runInDurableObject(gate, (_, { storage }) => storage.getAlarm());
    expect(alarm).toBe(now + WINDOW_MS);
  });
});

describe("the storage of a network", () => {
  test("is bounded, however many of its blocks fail", async () => {
    const gate = openGate();
    const start = Date.now();
    const failAt = (at: number, count: number) => {
      const blocks = Array.from({ length: count }, () => crypto.randomUUID());
      return Promise.all(blocks.map((block) => gate.fail(block, at)));
    };
    const countBlocks = async () => {
      const [{ blocks }] = (await stored(gate)) as [{ blocks: Map<string, unknown> }];
      return blocks.size;
    };
    // Two windows of the network, with as many blocks in as little time as possible.
    await failAt(start, 1);
    await failAt(start + WINDOW_MS - 1, NETWORK_LIMIT + 50);
    await failAt(start + WINDOW_MS, NETWORK_LIMIT + 50);
    expect(await countBlocks()).toBe(2 * NETWORK_LIMIT - 1);
    await failAt(start + 2 * WINDOW_MS, 1);
    expect(await countBlocks()).toBe(1);
  });
});

describe("the name of an address", () => {
  test.each([
    ["192.0.2.1", "192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"],
    ["2001:DB8:1:2::1", "2001:db8:1:2::/64", "2001:db8:1::/48"],
    ["2001:0db8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64", "2001:db8:1::/48"],
    ["2001:db8:1:3::1", "2001:db8:1:3::/64", "2001:db8:1::/48"],
    ["::1", "0:0:0:0::/64", "0:0:0::/48"],
    [undefined, "unknown", "unknown"],
    ["", "unknown", "unknown"],
    ["somebody", "unknown", "unknown"],
  ])(
    "of %s is %s in %s: IPv4 addresses individually, IPv6 addresses by /64 in their /48",
    (address, block, network) => {
      expect(nameAddress(address)).toEqual({ block, network });
    },
  );
});

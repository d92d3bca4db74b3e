import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { AddressGate } from "../../../src/rate-limit/address-gate.ts";

const LIMIT = env.AUTH_FAILURES;
const NETWORK_LIMIT = 16 * LIMIT;
const WINDOW_MS = env.AUTH_FAILURE_WINDOW_SECONDS * 1000;
const NOW = Date.now();
const BLOCK = "2001:db8:1:1::/64";

const openGate = () => env.ADDRESS_GATE.getByName(crypto.randomUUID());
type Gate = ReturnType<typeof openGate>;

const stored = (gate: Gate): Promise<unknown[]> =>
  runInDurableObject(gate, async (_, { storage }) => [...(await storage.list()).values()]);

/** Lets as many blocks fail once, or one block as often. */
const fail = (gate: Gate, count: number, now: number, block?: string) =>
  runInDurableObject(gate, (object: AddressGate) =>
    Promise.all(Array.from({ length: count }, (_, i) => object.fail(block ?? `${now} ${i}`, now))),
  );

const left = (remaining: number, resetMs = WINDOW_MS) => ({ limit: LIMIT, remaining, resetMs });

describe("an address", () => {
  test("is free again when the window opened by its first failure is over", async () => {
    const gate = openGate();
    await gate.fail(BLOCK, NOW);
    await fail(gate, LIMIT - 1, NOW + 50, BLOCK);
    const blocked = { blocked: "block", rateLimit: left(0, 1) };
    expect(await gate.fail(BLOCK, NOW + WINDOW_MS - 1)).toEqual(blocked);
    const counted = { blocked: null, rateLimit: left(LIMIT - 1) };
    expect(await gate.fail(BLOCK, NOW + WINDOW_MS)).toEqual(counted);
  });

  test("shares a larger limit with its network, whose other blocks are rejected with it", async () => {
    const gate = openGate();
    const failures = await fail(gate, NETWORK_LIMIT + 100, NOW);
    expect(failures.filter(({ blocked }) => blocked === null)).toHaveLength(NETWORK_LIMIT);
    expect(failures.filter(({ blocked }) => blocked === "network")).toHaveLength(100);
    expect(failures.at(-1)?.rateLimit).toEqual(left(0));
    const other = { blocked: "network", rateLimit: left(0) };
    expect(await gate.fail("another block", NOW)).toEqual(other);
    expect(await gate.fail("another block", NOW + WINDOW_MS)).toMatchObject({ blocked: null });
  });

  test("is told what its network leaves it, if that is less", async () => {
    const [gate, other] = [openGate(), openGate()];
    await fail(gate, NETWORK_LIMIT - 3, NOW);
    const { rateLimit } = await gate.fail(BLOCK, NOW + 1_000);
    expect(rateLimit).toEqual(left(2, WINDOW_MS - 1_000));
    await fail(other, NETWORK_LIMIT + 1, NOW, BLOCK);
    expect(await other.fail("another block", NOW)).toMatchObject({ blocked: null });
  });

  test("is blocked until the end of its network's window, if that is later", async () => {
    const gate = openGate();
    await fail(gate, 1, NOW - 250_000);
    await fail(gate, LIMIT, NOW - 10_000, BLOCK);
    // The window of the network has ended, and opens again.
    await fail(gate, NETWORK_LIMIT, NOW + 60_000);
    const { rateLimit } = await gate.fail(BLOCK, NOW + 100_000);
    expect(rateLimit).toEqual(left(0, WINDOW_MS - 40_000));
  });

  test("is blocked beyond the end of its network's window alone, if its own ends later", async () => {
    const gate = openGate();
    await fail(gate, NETWORK_LIMIT - LIMIT, NOW);
    await fail(gate, LIMIT, NOW + 50_000, BLOCK);
    const own = { blocked: "block", rateLimit: left(0, WINDOW_MS) };
    expect(await gate.fail(BLOCK, NOW + 50_000)).toEqual(own);
    const other = { blocked: "network", rateLimit: left(0, WINDOW_MS - 50_000) };
    expect(await gate.fail("another block", NOW + 50_000)).toEqual(other);
  });

  test("keeps its failures when the object is evicted", async () => {
    const gate = openGate();
    await fail(gate, 2, NOW, BLOCK);
    await evictDurableObject(gate);
    const { rateLimit } = await gate.fail(BLOCK, NOW + 1_000);
    expect(rateLimit).toEqual(left(LIMIT - 3, 299_000));
  });
});

test("the storage of an address is deleted when its window is over", async () => {
  const gate = openGate();
  await gate.fail(BLOCK, NOW - WINDOW_MS);
  await expect.poll(() => stored(gate)).toEqual([]);
  expect(await runDurableObjectAlarm(gate)).toBe(false);
});

test("the storage of an address is kept while its window is open", async () => {
  const gate = openGate();
  const now = Date.now();
  await gate.fail(BLOCK, now);
  expect(await runDurableObjectAlarm(gate)).toBe(true);
  const window = { startedAt: now, count: 1 };
  expect(await stored(gate)).toEqual([{ network: window, blocks: new Map([[BLOCK, window]]) }]);
  const alarm = await runInDurableObject(gate, (_, { storage }) => storage.getAlarm());
  expect(alarm).toBe(now + WINDOW_MS);
});

test("the storage of an address is kept while the window of its network is open, if that is later", async () => {
  const gate = openGate();
  const now = Date.now();
  await gate.fail("another block", now);
  await gate.fail(BLOCK, now + WINDOW_MS / 2);
  // The window of the network opens again.
  await gate.fail(BLOCK, now + WINDOW_MS);
  expect(await runDurableObjectAlarm(gate)).toBe(true);
  const alarm = await runInDurableObject(gate, (_, { storage }) => storage.getAlarm());
  expect(alarm).toBe(now + 2 * WINDOW_MS);
});

test("the alarm of an address is set for its first window alone", async () => {
  const gate = openGate();
  await fail(gate, 1, NOW, BLOCK);
  await fail(gate, 1, NOW + 50, BLOCK);
  const alarm = await runInDurableObject(gate, (_, { storage }) => storage.getAlarm());
  expect(alarm).toBe(NOW + WINDOW_MS);
});

test("the storage of a network is bounded, however many of its blocks fail", async () => {
  const gate = openGate();
  const countBlocks = async () => {
    const [{ blocks }] = (await stored(gate)) as [{ blocks: Map<string, unknown> }];
    return blocks.size;
  };
  // Two windows of the network, with as many blocks in as little time as possible.
  await fail(gate, 1, NOW);
  await fail(gate, NETWORK_LIMIT + 50, NOW + WINDOW_MS - 1);
  await fail(gate, NETWORK_LIMIT + 50, NOW + WINDOW_MS);
  expect(await countBlocks()).toBe(2 * NETWORK_LIMIT - 1);
  await fail(gate, 1, NOW + 2 * WINDOW_MS);
  expect(await countBlocks()).toBe(1);
});

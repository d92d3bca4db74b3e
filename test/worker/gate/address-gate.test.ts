import { evictDurableObject, runDurableObjectAlarm, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { addressName } from "../../../src/gate/address-gate.ts";

const LIMIT = env.AUTH_FAILURES;
const WINDOW_MS = env.AUTH_FAILURE_WINDOW_SECONDS * 1000;

function openGate() {
  return env.ADDRESS_GATE.getByName(crypto.randomUUID());
}

function stored(gate: ReturnType<typeof openGate>): Promise<unknown[]> {
  return runInDurableObject(gate, async (_, { storage }) => [...(await storage.list()).values()]);
}

describe("an address", () => {
  test("may fail as often as the limit says, and is blocked from then on", async () => {
    const gate = openGate();
    const now = Date.now();
    for (let remaining = LIMIT - 1; remaining >= 0; remaining--)
      expect(await gate.fail(now)).toEqual({
        blocked: false,
        figures: { limit: LIMIT, remaining, resetMs: 300_000 },
      });
    const blocked = {
      blocked: true,
      figures: { limit: LIMIT, remaining: 0, resetMs: 300_000 },
    };
    expect(await gate.fail(now)).toEqual(blocked);
    expect(await gate.fail(now)).toEqual(blocked);
  });

  test("is blocked after exactly that many failures, however many come at once", async () => {
    const gate = openGate();
    const now = Date.now();
    const failures = await Promise.all(Array.from({ length: 100 }, () => gate.fail(now)));
    expect(failures.filter(({ blocked }) => !blocked)).toHaveLength(LIMIT);
  });

  test("is free again when the window opened by its first failure is over", async () => {
    const gate = openGate();
    const now = Date.now();
    for (let i = 0; i < LIMIT; i++) await gate.fail(now + i);
    expect(await gate.fail(now + WINDOW_MS - 1)).toEqual({
      blocked: true,
      figures: { limit: LIMIT, remaining: 0, resetMs: 1 },
    });
    expect(await gate.fail(now + WINDOW_MS)).toEqual({
      blocked: false,
      figures: { limit: LIMIT, remaining: LIMIT - 1, resetMs: 300_000 },
    });
  });

  test("does not count a look at its window", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(now);
    const left = { limit: LIMIT, remaining: LIMIT - 1, resetMs: 290_000 };
    expect(await gate.peek(now + 10_000)).toEqual(left);
    expect(await gate.peek(now + 10_000)).toEqual(left);
    const other = openGate();
    expect(await other.peek(now)).toEqual({ limit: LIMIT, remaining: LIMIT, resetMs: 300_000 });
    expect(await stored(other)).toEqual([]);
  });

  test("keeps its failures when the object is evicted", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(now);
    await gate.fail(now);
    await evictDurableObject(gate);
    expect(await gate.fail(now + 1_000)).toEqual({
      blocked: false,
      figures: { limit: LIMIT, remaining: LIMIT - 3, resetMs: 299_000 },
    });
  });
});

describe("the storage of an address", () => {
  test("is deleted when its window is over", async () => {
    const gate = openGate();
    await gate.fail(Date.now() - WINDOW_MS);
    await vi.waitFor(async () => expect(await stored(gate)).toEqual([]));
    expect(await runDurableObjectAlarm(gate)).toBe(false);
  });

  test("is kept while its window is open, and deleted after that", async () => {
    const gate = openGate();
    const now = Date.now();
    await gate.fail(now);
    expect(await runDurableObjectAlarm(gate)).toBe(true);
    expect(await stored(gate)).toEqual([{ startedAt: now, count: 1 }]);
    expect(await gate.peek(now)).toMatchObject({ remaining: LIMIT - 1 });
    expect(await runInDurableObject(gate, (_, { storage }) => storage.getAlarm())).toBe(
      now + WINDOW_MS,
    );
  });
});

describe("the name of an address", () => {
  test.each([
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:DB8:1:2::1", "2001:db8:1:2::/64"],
    ["2001:0db8:0001:0002:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"],
    ["2001:db8:1:3::1", "2001:db8:1:3::/64"],
    ["::1", "0:0:0:0::/64"],
    [undefined, "unknown"],
    ["", "unknown"],
    ["somebody", "unknown"],
  ])("of %s is %s: IPv4 addresses individually, IPv6 addresses by /64", (address, name) => {
    expect(addressName(address)).toBe(name);
  });
});

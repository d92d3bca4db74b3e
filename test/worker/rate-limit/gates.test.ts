import { runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import {
  FailingAddresses,
  invalidateKey,
  KeyResults,
  REFUSING_MS,
} from "../../../src/rate-limit/gates.ts";
import type { GateResult, KeyAdmission, KeyRefusal } from "../../../src/rate-limit/key-gate.ts";
import {
  authorizedBy,
  deployedWith,
  EVERY_ANSWER,
  freshAddress,
  openApi,
  rateLimitOf,
  recordAutomation,
} from "../../support/api.ts";
import { openKey } from "../../support/gates.ts";

/** Resets an object during whatever calls it, as a deployment does. */
async function reset(gate: DurableObjectStub): Promise<void> {
  // The call that resets it is one of those that fail.
  await runInDurableObject(gate, (_, state) => state.abort("reset by the test")).catch(() => {});
}

const WAVE = 25;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The statuses of a wave of requests during which an object is reset. */
async function underReset(
  gate: DurableObjectStub,
  request: (i: number) => Promise<{ status: number }>,
): Promise<number[]> {
  const wave = Array.from({ length: WAVE }, async (_, i) => {
    // So that some are being answered and others are on their way.
    await wait(i % 5);
    return (await request(i)).status;
  });
  await wait(2);
  await reset(gate);
  return Promise.all(wave);
}

describe("objects that are reset under load", () => {
  test("cost no client a request: reads and writes succeed", async () => {
    const { workspaceId, api, gate } = await openKey(100_000);
    const path = `/v1/automations/${await recordAutomation(workspaceId)}`;
    const errors = vi.spyOn(console, "error");
    for (let wave = 0; wave < 2; wave++) {
      const statuses = await underReset(gate(), (i) =>
        i % 4 ? api.get(path) : api.patch(path, { status: i % 8 ? "paused" : "active" }),
      );
      expect(statuses).toEqual(Array(WAVE).fill(200));
    }
    expect(errors).not.toHaveBeenCalled();
    const used = 100_000 - rateLimitOf(await api.get(path)).remaining - 1;
    // Requests counted but not answered are counted again; counts not written yet are lost.
    expect(used).toBeGreaterThan(0);
    expect(used).toBeLessThanOrEqual(4 * WAVE);
  });

  test("cost no stranger a 401, and no response its headers", async () => {
    const address = freshAddress();
    const gate = () => env.ADDRESS_GATE.getByName(address);
    const failed = await underReset(gate(), async () => {
      const answer = await authorizedBy(null, address);
      expect(answer.headers).toMatchObject(EVERY_ANSWER);
      return answer;
    });
    expect(failed.filter((status) => status !== 401 && status !== 429)).toEqual([]);
  });

  test("cost the platform no revocation", async () => {
    for (let round = 0; round < 3; round++) {
      const { keyId, api, gate } = await openKey();
      await api.get("/v1/leads");
      const revoking = exports.Platform.revokeApiKey({ keyId });
      await reset(gate());
      expect(await revoking).toMatchObject({ keyId });
      expect((await api.get("/v1/leads")).status).toBe(401);
    }
  });
});

/** The local runtime has no jurisdictions: objects that can only be reached through one. */
function restricted<T extends Env["KEY_GATE"] | Env["ADDRESS_GATE"]>(objects: T, asked: string[]) {
  return {
    getByName: () => expect.unreachable("an object outside the jurisdiction"),
    jurisdiction: (name: string) => {
      asked.push(name);
      return objects;
    },
  } as unknown as T;
}

test("with JURISDICTION, every Durable Object is one of that jurisdiction, if the runtime has any", async () => {
  const keys: string[] = [];
  const addresses: string[] = [];
  const overrides = {
    JURISDICTION: "eu",
    KEY_GATE: restricted(env.KEY_GATE, keys),
    ADDRESS_GATE: restricted(env.ADDRESS_GATE, addresses),
  };
  const { apiKey, keyHash } = await openKey();
  const statusIn = async (key: string, bindings: Partial<Env>) =>
    (await openApi(key, deployedWith(bindings)).get("/v1/leads")).status;
  expect(await statusIn(apiKey, overrides)).toBe(200);
  expect(await statusIn("key_live_invented", overrides)).toBe(401);
  await invalidateKey({ ...env, ...overrides }, { keyHash, lastUsedAt: 1 });
  expect([keys, addresses]).toEqual([["eu", "eu"], ["eu"]]);
  // As a plain `wrangler dev` starts it, with the jurisdiction of wrangler.toml.
  expect(await statusIn(apiKey, { JURISDICTION: "eu" })).toBe(200);
});

const RATE_LIMIT = { limit: 5, remaining: 0, resetMs: 60_000 };
const LIMITED: KeyRefusal = {
  verdict: "rate_limited",
  keyId: "key_1",
  workspaceId: "wks_1",
  rateLimit: RATE_LIMIT,
};
const DENIED: KeyRefusal = { ...LIMITED, verdict: "access_denied" };
const DENIED_BRIEFLY = { ...DENIED, rateLimit: { ...RATE_LIMIT, resetMs: 1_500 } };
const UNKNOWN = { verdict: "unknown_key" } as const;
const ADMITTED: KeyAdmission = {
  verdict: "admitted",
  keyId: "key_1",
  workspaceId: "wks_1",
  rateLimit: { ...RATE_LIMIT, remaining: 2 },
  database: "DB",
  statusReadAt: 1,
};

/** The results of gates in an isolate that called the one of `hash` at 0. */
function cached(result: GateResult) {
  const results = new KeyResults();
  results.set("hash", result, 0);
  return results;
}

test.each([
  [
    "keys",
    () => {
      const results = new KeyResults();
      return {
        note: (name: string) => results.set(name, ADMITTED, 0),
        isKnown: (name: string) => results.beginEarlyRead(name) !== null,
      };
    },
  ],
  [
    "addresses",
    () => {
      const failing = new FailingAddresses();
      return {
        note: (name: string) => failing.set(name, RATE_LIMIT, 0),
        isKnown: (name: string) => failing.find({ network: "none", block: name }, 0) !== null,
      };
    },
  ],
])("an isolate forgets the %s that it used longest ago, beyond ten thousand", (_, open) => {
  const { note, isKnown } = open();
  for (let i = 0; i < 10_000; i++) note(`name_${i}`);
  note("name_0");
  note("name_new");
  const found = ["name_0", "name_1", "name_2", "name_new"].map(isKnown);
  expect(found).toEqual([true, false, true, true]);
});

test("as many reads begin early as the window had left, and none after a refusal", () => {
  const results = cached(ADMITTED);
  expect(results.beginEarlyRead("hash")?.known).toEqual(ADMITTED);
  expect(results.beginEarlyRead("hash")?.known).toEqual(ADMITTED);
  expect(results.beginEarlyRead("hash")).toBe(null);
  for (const refusal of [LIMITED, DENIED, UNKNOWN]) {
    results.set("hash", ADMITTED, 0);
    results.set("hash", refusal, 0);
    expect(results.beginEarlyRead("hash")).toBe(null);
  }
});

test("as many reads as the window has left begin early, less those about which the gate has not decided", () => {
  const results = cached({ ...ADMITTED, rateLimit: { ...RATE_LIMIT, remaining: 3 } });
  const ends: (() => void)[] = [];
  const early = () => {
    const before = ends.length;
    for (let read = results.beginEarlyRead("hash"); read; read = results.beginEarlyRead("hash"))
      ends.push(read.end);
    return ends.length - before;
  };
  const decided = (remaining: number) => {
    results.set("hash", { ...ADMITTED, rateLimit: { ...RATE_LIMIT, remaining } }, 1);
    ends.shift()?.();
  };
  expect(early()).toBe(3);
  decided(2);
  expect(early()).toBe(0);
  decided(1);
  decided(0);
  expect(early()).toBe(0);
});

test("early reads whose clients hang up, so that none of them ends, are counted until their window ends", () => {
  const results = cached(ADMITTED);
  const early = () => results.beginEarlyRead("hash");
  const [first] = [early(), early()];
  expect(early()).toBe(null);
  results.set("hash", ADMITTED, RATE_LIMIT.resetMs - 1);
  expect(early()).toBe(null);
  results.set("hash", ADMITTED, 2 * RATE_LIMIT.resetMs);
  const second = [early(), early()].at(-1);
  expect(early()).toBe(null);
  // The end of a read makes room in its own window only.
  first?.end();
  expect(early()).toBe(null);
  second?.end();
  expect(early()).not.toBe(null);
  expect(early()).toBe(null);
});

describe("an isolate repeats a refusal", () => {
  test.each<[string, GateResult, number]>([
    ["for two seconds", LIMITED, REFUSING_MS],
    ["of an unknown key for two seconds", UNKNOWN, REFUSING_MS],
    ["until its window ends", DENIED_BRIEFLY, 1_500],
  ])("%s, to the millisecond", (_, refusal, end) => {
    const results = cached(refusal);
    const left = "rateLimit" in refusal ? refusal.rateLimit.resetMs - end + 1 : undefined;
    const shown = left === undefined ? {} : { rateLimit: { ...RATE_LIMIT, resetMs: left } };
    expect(results.repeatRefusal("hash", end - 1)).toEqual({ ...refusal, ...shown });
    expect(results.repeatRefusal("hash", end)).toBe(null);
  });

  test.each([
    ["was admitted last", { ...ADMITTED, rateLimit: RATE_LIMIT }],
    ["has requests left", { ...DENIED, rateLimit: { ...RATE_LIMIT, remaining: 1 } }],
  ])("unless the key %s", (_, result) => {
    expect(cached(result).repeatRefusal("hash", 1)).toBe(null);
  });

  test("unless the reply of a later call says otherwise, and however late that of an earlier one comes", () => {
    const results = new KeyResults();
    results.set("hash", LIMITED, 10);
    results.set("hash", ADMITTED, 9);
    expect(results.repeatRefusal("hash", 20)).toMatchObject({ verdict: "rate_limited" });
    results.set("hash", ADMITTED, 10);
    expect(results.repeatRefusal("hash", 20)).toBe(null);
  });

  test("until the platform changes the key", () => {
    const results = cached(LIMITED);
    results.stopRepeating("hash");
    expect(results.repeatRefusal("hash", Date.now())).toBe(null);
  });
});

test("each repeated 429 is passed to one call of the gate, and no 403 is", () => {
  const results = cached(LIMITED);
  results.repeatRefusal("hash", 1);
  results.repeatRefusal("hash", 2);
  expect(results.takeUncounted("hash")).toEqual({ count: 2, at: 2 });
  // During the call, or before a change of the key.
  results.repeatRefusal("hash", 3);
  results.set("hash", DENIED, 2);
  results.repeatRefusal("hash", 4);
  results.stopRepeating("hash");
  expect(results.takeUncounted("hash")).toEqual({ count: 1, at: 3 });
  expect(results.takeUncounted("hash")).toBeUndefined();
});

const ADDRESS = { network: "network", block: "block" };

describe("an isolate that has cached the window of an IP address", () => {
  const find = (remaining: number, resetMs: number, now: number) => {
    const addresses = new FailingAddresses();
    addresses.set("network", { limit: 5, remaining, resetMs }, 0);
    return [addresses.find(ADDRESS, now), addresses.findUsedUp(ADDRESS, now)];
  };

  test.each([REFUSING_MS, 1_500])("blocks it for two seconds, or until it ends", (end) => {
    const resetMs = end === REFUSING_MS ? 60_000 : end;
    const left = { ...RATE_LIMIT, resetMs: resetMs - end + 1 };
    expect(find(0, resetMs, end - 1)).toEqual([left, left]);
    const [shown, blocked] = find(0, resetMs, end);
    expect([shown?.resetMs ?? 0, blocked]).toEqual([resetMs - end, null]);
  });

  test("blocks it however late the reply of an earlier call comes", () => {
    const addresses = new FailingAddresses();
    addresses.set("block", RATE_LIMIT, 10);
    addresses.set("block", { ...RATE_LIMIT, remaining: 1 }, 9);
    expect(addresses.findUsedUp(ADDRESS, 20)).toMatchObject({ remaining: 0 });
  });

  test.each([
    [90_000, 60_000],
    [60_000, 90_000],
  ])("names the window that ends last if both are used up: %i and %i ms", (network, block) => {
    const addresses = new FailingAddresses();
    addresses.set("network", { ...RATE_LIMIT, resetMs: network }, 0);
    addresses.set("block", { ...RATE_LIMIT, resetMs: block }, 0);
    const last = { ...RATE_LIMIT, resetMs: 89_999 };
    expect([addresses.find(ADDRESS, 1), addresses.findUsedUp(ADDRESS, 1)]).toEqual([last, last]);
  });

  test("does not block it if it has failures left", () => {
    expect(find(1, 60_000, 1)).toEqual([{ ...RATE_LIMIT, remaining: 1, resetMs: 59_999 }, null]);
  });
});

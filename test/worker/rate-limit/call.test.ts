import { runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { invalidateKey } from "../../../src/rate-limit/call.ts";
import {
  authorizedBy,
  deployedWith,
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
    const failed = await underReset(gate(), () => authorizedBy(null, address));
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

test("with JURISDICTION, every Durable Object is one of that jurisdiction", async () => {
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
});

import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test } from "vitest";
import { listApiKeys, revokeApiKey } from "../../../src/platform/api-keys.ts";
import {
  deployedWith,
  freshAddress,
  openApi,
  rateLimitOf,
  recordAutomation,
  send,
} from "../../support/api.ts";
import { jumpTo } from "../../support/deliveries.ts";
import { openKey } from "../../support/gates.ts";

/*
 * After a deployment, gates may run the former code beside the new Worker for minutes, or the other way
 * round, and either may find what the other has stored. What is frozen here is what the former version
 * calls, answers and stores: change it in the deployment after the one that no longer needs it.
 */

const NOW = Date.now();
const HOUR = {
  ...{ startsAt: Math.floor(NOW / 3_600_000) * 3_600_000, requests: 3 },
  ...{ refused: 1, busiest: 3 },
};
const RATE_LIMIT = { limit: 20, remaining: 17, resetMs: 29_001 };
const SHOWN = { limit: 20, remaining: 17, resetSeconds: 30 };

/** A workspace, its key, and what a former gate says about it and stores. */
async function openFormer() {
  const key = await openKey(20);
  const { keyId, workspaceId } = key;
  const known = { keyId, workspaceId, rateLimit: RATE_LIMIT };
  const status = {
    ...{ keyId, workspaceId, database: "DB", requestsPerWindow: 20, accessGranted: true },
    ...{ lastUsedAt: NOW, expiresAt: null },
  };
  return {
    ...key,
    ADMITTED: { verdict: "admitted", ...known, database: "DB" },
    QUOTA_EXCEEDED: { verdict: "rate_limited", ...known, expiresAt: null },
    ACCESS_DENIED: { verdict: "access_denied", ...known, expiresAt: null },
    STORED: {
      status: { status, until: NOW + 3_600_000 },
      counted: { window: { startedAt: NOW, count: 3 }, hours: [HOUR] },
    },
  };
}
const windowsOf = (block: string, count: number) => ({
  network: { startedAt: NOW, count },
  blocks: new Map([[block, { startedAt: NOW, count }]]),
});

/** The same in any other situation: numbers and times differ. */
function like(value: object): object {
  return JSON.parse(JSON.stringify(value), (_, field) =>
    typeof field === "number" ? expect.any(Number) : field,
  );
}

type Method = "admit" | "forget" | "usage" | "fail";
type Gate = Record<Method, (...args: unknown[]) => Promise<unknown>>;

/** A gate of this version, as called by another one; it may begin anew, with what is stored. */
function gateOf(binding: "KEY_GATE" | "ADDRESS_GATE", name: string) {
  // A stub does not outlive a restart.
  const stub = () => env[binding].getByName(name) as DurableObjectStub;
  const inside = <T>(run: (state: DurableObjectState) => T) =>
    runInDurableObject(stub(), (_, state) => run(state));
  return {
    get gate() {
      return stub() as unknown as Gate;
    },
    stored: () => inside(({ storage }) => Object.fromEntries(storage.kv.list())),
    restartWith: async (stored: object) => {
      await inside(({ storage }) => {
        for (const [key, value] of Object.entries(stored)) storage.kv.put(key, value);
      });
      // The call that resets it fails.
      await inside((state) => state.abort("restarted")).catch(() => {});
    },
  };
}

/** A binding whose objects know these calls only, each with its parameters and its answer. */
function formerGate(calls: Partial<Record<Method, [parameters: unknown[], answer?: unknown]>>) {
  const made: string[] = [];
  const methods = Object.entries(calls).map(([method, [parameters, answer]]) => [
    method,
    async (...given: unknown[]) => {
      // It ignores what a later version says beyond that.
      expect(given.slice(0, parameters.length)).toEqual(parameters);
      made.push(method);
      return answer;
    },
  ]);
  return { binding: { getByName: () => Object.fromEntries(methods) } as never, made };
}

// In the window, and in the hour, that former gates have counted in.
beforeEach(() => jumpTo(NOW));

describe("this version's Worker, beside former gates", () => {
  test.each([
    ["ADMITTED", 200],
    ["QUOTA_EXCEEDED", 429],
    ["ACCESS_DENIED", 403],
  ] as const)("serves a key that is %s with %d", async (verdict, status) => {
    const former = await openFormer();
    const { binding } = formerGate({ admit: [[former.keyHash], former[verdict]] });
    const api = openApi(former.apiKey, deployedWith({ KEY_GATE: binding }));
    const answer = await api.get("/v1/automations");
    expect([answer.status, rateLimitOf(answer)]).toEqual([status, SHOWN]);
    const path = `/v1/automations/${await recordAutomation(former.workspaceId)}`;
    expect((await api.patch(path, { status: "paused" })).status).toBe(status);
  });

  test("tells them of changes, and reads what they counted", async () => {
    const { workspaceId, keyId, api } = await openFormer();
    // Its own gate notes that the key is used.
    await api.get("/v1/leads");
    const { binding, made } = formerGate({ usage: [[], [HOUR]], forget: [[]] });
    const call = { env: { ...env, KEY_GATE: binding }, ctx: { waitUntil: () => {} } };
    const { items } = await listApiKeys.run(call, { workspaceId, cursor: null });
    expect(items[0]?.hours.at(-1)).toMatchObject({ requests: 3, refused: 1 });
    await revokeApiKey.run(call, { keyId });
    expect(made).toEqual(expect.arrayContaining(["usage", "forget"]));
  });

  test.each([
    [null, 401],
    ["block", 429],
  ])("rejects strangers whose address is blocked by %s, with %i", async (blocked, status) => {
    const address = freshAddress();
    const { binding } = formerGate({
      fail: [[address], { blocked, rateLimit: RATE_LIMIT }],
    });
    const headers = { "CF-Connecting-IP": address };
    const answer = await send("/v1/leads", { headers }, deployedWith({ ADDRESS_GATE: binding }));
    expect([answer.status, rateLimitOf(answer)]).toEqual([status, SHOWN]);
  });
});

test("this version's gates go on from what former gates stored, and store what these can read", async () => {
  const { keyHash, ADMITTED, STORED } = await openFormer();
  const key = gateOf("KEY_GATE", keyHash);
  await key.restartWith(STORED);
  // A later version may say more.
  const later = { fromALaterVersion: true };
  // Not read from the database, where the key was never used.
  expect(await key.gate.admit(keyHash, undefined, later)).toMatchObject({
    ...like(ADMITTED),
    rateLimit: { limit: 20, remaining: 16 },
  });
  expect(await key.gate.usage()).toEqual([{ ...HOUR, requests: 4, busiest: 4 }]);
  expect(await key.stored()).toMatchObject(like(STORED));
  const block = freshAddress();
  const address = gateOf("ADDRESS_GATE", block);
  await address.restartWith({ windows: windowsOf(block, 3) });
  const failed = { blocked: null, rateLimit: { limit: 20, remaining: 16 } };
  expect(await address.gate.fail(block, undefined, later)).toMatchObject(failed);
  expect(await address.stored()).toEqual({ windows: windowsOf(block, 4) });
});

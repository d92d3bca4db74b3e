import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { listKeyUsage, revokeApiKey } from "../../../src/platform/api-keys.ts";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import {
  deployedWith,
  freshAddress,
  openApi,
  openWorkspace,
  rateLimitOf,
  recordAutomation,
  send,
} from "../../support/api.ts";

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
const RATE_LIMIT = { limit: 20, remaining: 17, resetMs: 30_000 };
const NO_SUCH_KEY = { verdict: "unknown_key" };

/** A workspace, its key, and what a former gate says about it. */
async function openFormer() {
  const workspace = await openWorkspace({ requestsPerWindow: 20 });
  const { keyId, workspaceId } = workspace;
  const known = { keyId, workspaceId, rateLimit: RATE_LIMIT };
  return {
    ...workspace,
    keyHash: await hashApiKey(workspace.apiKey),
    ADMITTED: { verdict: "admitted", ...known, database: "DB", bookmark: null },
    QUOTA_EXCEEDED: { verdict: "quota_exceeded", ...known, expiresAt: null },
    ACCESS_DENIED: { verdict: "access_denied", ...known, expiresAt: null },
    STANDING: {
      standing: {
        ...{ keyId, workspaceId, requestsPerWindow: 20, accessGranted: true, isLeaving: false },
        ...{ lastUsedAt: NOW, expiresAt: null },
      },
      until: NOW + 3_600_000,
    },
  };
}
const COUNTED = { window: { startedAt: NOW, count: 3 }, hours: [HOUR] };
const windowsOf = (block: string, count: number) => ({
  network: { startedAt: NOW, count },
  blocks: new Map([[block, { startedAt: NOW, count }]]),
});

/** The same in any other situation: numbers, times and bookmarks differ. */
function like(value: unknown): unknown {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "number") return expect.any(Number);
  if (typeof value !== "object") return value;
  const fields = Object.entries(value).filter(([name]) => name !== "bookmark");
  return Array.isArray(value)
    ? value.map(like)
    : Object.fromEntries(fields.map(([name, field]) => [name, like(field)]));
}

type Method = "admit" | "advance" | "forget" | "usage" | "fail" | "peek";
type Gate = Record<Method, (...args: unknown[]) => Promise<unknown>>;
type Named = [binding: "KEY_GATE" | "ADDRESS_GATE", name: string];
const stubOf = (...[binding, name]: Named) => env[binding].getByName(name) as DurableObjectStub;
const gateOf = (...named: Named) => stubOf(...named) as unknown as Gate;

/** A binding whose objects know these calls only, each with its parameters and its answer. */
function formerGate(calls: Record<string, [parameters: unknown[], answer?: unknown]>) {
  const made: string[] = [];
  const gate = Object.fromEntries(
    Object.entries(calls).map(([method, [parameters, answer]]) => [
      method,
      async (...given: unknown[]) => {
        // It ignores what a later version says beyond that.
        expect(given.slice(0, parameters.length)).toEqual(parameters);
        made.push(method);
        return answer;
      },
    ]),
  );
  return { binding: { getByName: () => gate } as never, made };
}

const ANY = expect.any(String);

describe("this version's Worker, beside former gates", () => {
  const address = freshAddress();
  const addressGate = formerGate({
    fail: [[address], { blocked: null, rateLimit: RATE_LIMIT }],
    peek: [[address], RATE_LIMIT],
  });
  const from = { headers: { "CF-Connecting-IP": address } };
  const shown = { limit: 20, remaining: 17, resetSeconds: 30 };

  test.each([
    ["ADMITTED", 200],
    ["QUOTA_EXCEEDED", 429],
    ["ACCESS_DENIED", 403],
  ] as const)("serves a key that is %s with %d", async (verdict, status) => {
    const former = await openFormer();
    const { binding } = formerGate({
      admit: [[former.keyHash], former[verdict]],
      advance: [[ANY, "DB"]],
    });
    const api = openApi(former.apiKey, deployedWith({ KEY_GATE: binding }));
    const answer = await api.get("/v1/automations");
    expect([answer.status, rateLimitOf(answer)]).toEqual([status, shown]);
    const path = `/v1/automations/${await recordAutomation(former.workspaceId)}`;
    expect((await api.patch(path, { status: "paused" })).status).toBe(status);
  });

  test("tells them of writes and changes, and reads what they counted", async () => {
    const { workspaceId, keyId, keyHash, apiKey, api, ADMITTED } = await openFormer();
    const id = await recordAutomation(workspaceId);
    // Its own gate notes that the key is used.
    await api.get("/v1/leads");
    const { binding, made } = formerGate({
      admit: [[keyHash], ADMITTED],
      advance: [[ANY, "DB"]],
      usage: [[], [HOUR]],
      forget: [[]],
    });
    const beside = openApi(apiKey, deployedWith({ KEY_GATE: binding }));
    await beside.patch(`/v1/automations/${id}`, { status: "paused" });
    const call = { env: { ...env, KEY_GATE: binding }, ctx: { waitUntil: () => {} } };
    const { items } = await listKeyUsage.run(call, { workspaceId, cursor: null });
    expect(items[0]?.hours?.at(-1)).toMatchObject({ requests: 3, refused: 1 });
    await revokeApiKey.run(call, { keyId });
    expect(made).toEqual(expect.arrayContaining(["admit", "advance", "usage", "forget"]));
  });

  test("refuses strangers", async () => {
    const { apiKey, keyHash } = await openFormer();
    const unknown = formerGate({ admit: [[keyHash], NO_SUCH_KEY] });
    const fetch = deployedWith({ KEY_GATE: unknown.binding, ADDRESS_GATE: addressGate.binding });
    const headers = { ...from.headers, Authorization: `Bearer ${apiKey}` };
    const refused = await send("/v1/leads", { headers }, fetch);
    expect([refused.status, rateLimitOf(refused)]).toEqual([401, shown]);
    const preflight = { Origin: "https://a.example", "Access-Control-Request-Method": "GET" };
    const asked = { method: "OPTIONS", headers: { ...from.headers, ...preflight } };
    expect(rateLimitOf(await send("/v1/leads", asked, fetch))).toEqual(shown);
    expect(addressGate.made).toEqual(["fail", "peek"]);
    const blocked = formerGate({
      fail: [[address], { blocked: "block", rateLimit: { ...RATE_LIMIT, remaining: 0 } }],
    });
    const blocking = deployedWith({ ADDRESS_GATE: blocked.binding });
    expect((await send("/v1/leads", from, blocking)).status).toBe(429);
  });
});

describe("this version's gates, beside a former Worker", () => {
  test("answer it, and a later one that says more", async () => {
    const { keyHash, ADMITTED, QUOTA_EXCEEDED, ACCESS_DENIED, workspaceId } = await openFormer();
    const gate = gateOf("KEY_GATE", keyHash);
    const later = { fromALaterVersion: true };
    expect(await gate.admit(keyHash, undefined, undefined)).toMatchObject(like(ADMITTED) as object);
    await gate.advance("0", "DB", later);
    const elsewhere = { count: 1, at: NOW };
    const admitted = await gate.admit(keyHash, undefined, elsewhere, later);
    expect(admitted).toMatchObject({ verdict: "admitted", rateLimit: { remaining: 18 } });
    expect(admitted).toHaveProperty("bookmark");
    const far = NOW + 10_000_000;
    for (let i = 0; i < 20; i++) await gate.admit(keyHash, far);
    expect(await gate.admit(keyHash, far)).toMatchObject(like(QUOTA_EXCEEDED) as object);
    expect(await gate.usage(later)).toContainEqual(like(HOUR));
    const deny = env.DB.prepare("UPDATE workspaces SET access_granted = 0 WHERE id = ?");
    await deny.bind(workspaceId).run();
    await gate.forget(later);
    expect(await gate.admit(keyHash)).toMatchObject(like(ACCESS_DENIED) as object);
    expect(await gateOf("KEY_GATE", "none").admit("none")).toEqual(NO_SUCH_KEY);
    const block = freshAddress();
    const address = gateOf("ADDRESS_GATE", block);
    const failed = { blocked: null, rateLimit: { limit: 20, remaining: 19 } };
    expect(await address.fail(block)).toMatchObject(failed);
    expect(await address.peek(block, undefined, later)).toMatchObject(failed.rateLimit);
    for (let i = 0; i < 19; i++) await address.fail(block);
    expect(await address.fail(block)).toMatchObject({ blocked: "block" });
  });

  test("go on from what former gates stored", async () => {
    const { keyHash, ADMITTED, STANDING } = await openFormer();
    await restartWith("KEY_GATE", keyHash, {
      ...{ standing: STANDING, counted: COUNTED },
      ...{ database: "DB", bookmark: "00000001" },
    });
    // Not read from the database, where the key was never used.
    expect(await gateOf("KEY_GATE", keyHash).admit(keyHash)).toMatchObject({
      ...(like(ADMITTED) as object),
      rateLimit: { limit: 20, remaining: 16 },
      bookmark: "00000001",
    });
    expect(await gateOf("KEY_GATE", keyHash).usage()).toEqual([
      { ...HOUR, requests: 4, busiest: 4 },
    ]);
    const block = freshAddress();
    await restartWith("ADDRESS_GATE", block, { windows: windowsOf(block, 3) });
    const address = gateOf("ADDRESS_GATE", block);
    expect(await address.peek(block)).toMatchObject({ limit: 20, remaining: 17 });
    await address.fail(block);
    await runInDurableObject(stubOf("ADDRESS_GATE", block), (_, { storage }) =>
      expect(storage.kv.get("windows")).toEqual(windowsOf(block, 4)),
    );
  });

  test("store what former ones can read", async () => {
    const { keyHash, STANDING } = await openFormer();
    await gateOf("KEY_GATE", keyHash).admit(keyHash);
    await gateOf("KEY_GATE", keyHash).advance("f", "DB");
    const stored = await runInDurableObject(stubOf("KEY_GATE", keyHash), (_, { storage }) =>
      Object.fromEntries(storage.kv.list()),
    );
    expect(stored).toMatchObject({
      ...(like({ counted: COUNTED }) as object),
      standing: { ...(like(STANDING) as object) },
      bookmark: "f",
    });
  });
});

/** Makes an object begin anew, with what is stored. */
async function restartWith(binding: Named[0], name: string, stored: object): Promise<void> {
  await runInDurableObject(stubOf(binding, name), (_, { storage }) => {
    for (const [key, value] of Object.entries(stored)) storage.kv.put(key, value);
  });
  // The call that resets it fails.
  const reset = runInDurableObject(stubOf(binding, name), (_, state) => state.abort("restarted"));
  await reset.catch(() => {});
}

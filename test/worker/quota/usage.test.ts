import { evictDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { countUsage, type HourUsage, lastHours } from "../../../src/quota/usage.ts";
import { type Answer, deployedWith, openApi, openWorkspace } from "../../support/api.ts";
import { HOUR_MS, jumpTo } from "../../support/deliveries.ts";
import { openKey } from "../../support/gates.ts";
import { openPortal } from "../../support/portal.ts";

const HOUR = Math.floor(1_790_000_000_000 / HOUR_MS) * HOUR_MS;

afterEach(() => void vi.useRealTimers());

interface ShownKey {
  keyId: string;
  hours: { hour: string; requests: number; refused: number; busiest: number }[];
}

describe("the usage of a key", () => {
  test("counts requests within the quota and beyond it, hour by hour, and the most in one window", async () => {
    const { gate, admit } = await openKey(2);
    for (let i = 0; i < 5; i++) await admit(HOUR + HOUR_MS - 1);
    await admit(HOUR + 2 * HOUR_MS);
    for (let i = 0; i < 3; i++) await admit(HOUR + 2 * HOUR_MS + 90_000);
    await admit(HOUR + 2 * HOUR_MS + 180_000);
    expect(await gate().usage()).toEqual([
      { startsAt: HOUR, requests: 2, refused: 3, busiest: 2 },
      { startsAt: HOUR + 2 * HOUR_MS, requests: 4, refused: 1, busiest: 2 },
    ]);
  });

  test("counts a request without access, as the quota does", async () => {
    const { workspaceId, gate, admit } = await openKey(1);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await admit(HOUR)).toMatchObject({ verdict: "access_denied" });
    expect(await admit(HOUR)).toMatchObject({ verdict: "access_denied" });
    expect(await gate().usage()).toEqual([{ startsAt: HOUR, requests: 1, refused: 0, busiest: 1 }]);
  });

  test("does not count as beyond the quota what an isolate refused for lack of access", async () => {
    const { workspaceId, api, gate } = await openKey(1);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    // The isolate repeats the gate's refusal for two seconds, and then asks it again.
    for (let i = 0; i < 3; i++) expect((await api.get("/v1/leads")).status).toBe(403);
    jumpTo(Date.now() + 2_100);
    expect((await api.get("/v1/leads")).status).toBe(403);
    const [hour] = await gate().usage();
    expect(hour).toMatchObject({ requests: 1, refused: 0 });
  });

  test("survives eviction of the object, including the last refusals", async () => {
    const { gate, admit } = await openKey(1);
    await admit(HOUR);
    await evictDurableObject(gate());
    await admit(HOUR);
    await admit(HOUR);
    await evictDurableObject(gate());
    expect(await gate().usage()).toEqual([{ startsAt: HOUR, requests: 1, refused: 2, busiest: 1 }]);
  });

  test("is limited to one day", () => {
    let hours: HourUsage[] = [];
    for (let i = 0; i < 100; i++) hours = countUsage(hours, HOUR + i * HOUR_MS, { requests: 1 });
    expect(hours).toHaveLength(24);
    expect(hours.at(-1)?.startsAt).toBe(HOUR + 99 * HOUR_MS);
    // Requests of a clock that was set back count in their own hour, in order.
    hours = countUsage(hours, HOUR + 98 * HOUR_MS, { refused: 1 });
    expect(hours.slice(-2)).toEqual([
      { startsAt: HOUR + 98 * HOUR_MS, requests: 1, refused: 1, busiest: 0 },
      { startsAt: HOUR + 99 * HOUR_MS, requests: 1, refused: 0, busiest: 0 },
    ]);
    const shown = lastHours(hours, HOUR + 101 * HOUR_MS + 5);
    expect(shown).toHaveLength(24);
    expect(shown.map(({ requests }) => requests)).toEqual([...Array(22).fill(1), 0, 0]);
    expect(shown[0]?.startsAt).toBe(HOUR + 78 * HOUR_MS);
  });
});

describe("GET /portal/api/keys", () => {
  test("shows the keys newest first, each with its last 24 hours", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 3 });
    for (let i = 0; i < 10; i++) await api.get("/v1/leads");
    const other = await exports.Platform.createApiKey({ workspaceId });
    await exports.Platform.revokeApiKey({ keyId: other.keyId });
    const portal = await openPortal(workspaceId);
    const { status, body } = await portal.get<{ items: ShownKey[] }>("/keys");
    expect(status).toBe(200);
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const common = { createdAt: time, expiresAt: null, windowSeconds: 60 };
    expect(body.items).toMatchObject([
      { ...common, keyId: other.keyId, requestsPerWindow: 600, lastUsedAt: null, revokedAt: time },
      { ...common, keyId, requestsPerWindow: 3, lastUsedAt: time, revokedAt: null },
    ]);
    const hours = body.items[1]?.hours ?? [];
    expect(hours).toHaveLength(24);
    const hour = new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS).toISOString();
    expect(hours.at(-1)).toMatchObject({ hour: hour.replace(".000Z", "Z"), requests: 3 });
    for (const hour of hours.slice(0, -1)) expect(hour).toMatchObject({ requests: 0, refused: 0 });
    expect(body.items[0]?.hours.every(({ requests }) => requests === 0)).toBe(true);
  });

  test("shows the other keys if the gate of one fails", async () => {
    const { workspaceId, keyId, apiKey, api } = await openWorkspace();
    const other = await exports.Platform.createApiKey({ workspaceId });
    await api.get("/v1/leads");
    await openApi(other.apiKey).get("/v1/leads");
    const broken = await hashApiKey(apiKey);
    const getByName = (name: string) => {
      if (name === broken) throw new Error("the object is unreachable");
      return env.KEY_GATE.getByName(name);
    };
    const fetch = deployedWith({ KEY_GATE: { getByName } as unknown as Env["KEY_GATE"] });
    const portal = await openPortal(workspaceId, fetch);
    const { status, body } = await portal.get<{ items: ShownKey[] }>("/keys");
    expect(status).toBe(200);
    const hours = new Map(body.items.map((key) => [key.keyId, key.hours]));
    expect(hours.get(keyId)).toBeNull();
    expect(hours.get(other.keyId)?.at(-1)?.requests).toBe(1);
  });

  test("counts requests refused without asking the gate, once the gate is asked again", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 1 });
    for (let i = 0; i < 10; i++) await api.get("/v1/leads");
    // For two seconds an isolate refuses by itself.
    jumpTo(Date.now() + 2_100);
    await api.get("/v1/leads");
    const { body } = await (await openPortal(workspaceId)).get<{ items: ShownKey[] }>("/keys");
    const total = (body.items[0]?.hours ?? []).reduce((sum, { refused }) => sum + refused, 0);
    expect(total).toBe(10);
  });

  test("calls at most 20 gates a request: the rest of the keys is on further pages", async () => {
    const { workspaceId, keyId } = await openWorkspace();
    const created = [keyId];
    for (let i = 1; i < 45; i++)
      created.push((await exports.Platform.createApiKey({ workspaceId })).keyId);
    const use = env.DB.prepare("UPDATE api_keys SET last_used_at = ? WHERE workspace_id = ?");
    await use.bind(Date.now(), workspaceId).run();
    let called = 0;
    const getByName = () => ({
      usage: async () => {
        called++;
        return [];
      },
    });
    const fetch = deployedWith({ KEY_GATE: { getByName } as unknown as Env["KEY_GATE"] });
    const portal = await openPortal(workspaceId, fetch);
    const pages: string[][] = [];
    let next: string | null = "";
    while (next !== null) {
      called = 0;
      const answer: Answer<{ items: ShownKey[]; nextCursor: string | null }> = await portal.get(
        `/keys?cursor=${next}`,
      );
      const { items, nextCursor } = answer.body;
      expect(called).toBe(items.length);
      pages.push(items.map(({ keyId }) => keyId));
      next = nextCursor;
    }
    expect(pages.map(({ length }) => length)).toEqual([20, 20, 5]);
    expect(pages.flat().toSorted()).toEqual(created.toSorted());
  });
});

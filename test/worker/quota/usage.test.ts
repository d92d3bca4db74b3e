import { evictDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { countUsage, type HourUsage, lastHours } from "../../../src/quota/usage.ts";
import { type Answer, deployedWith, SOME_TIME } from "../../support/api.ts";
import { HOUR_MS, jumpTo } from "../../support/deliveries.ts";
import { openKey } from "../../support/gates.ts";
import { openPortal } from "../../support/portal.ts";

const { Platform } = exports;
const HOUR = Math.floor(1_790_000_000_000 / HOUR_MS) * HOUR_MS;

describe("the usage of a key", () => {
  test("counts requests within the quota and beyond it, hour by hour, the most in one window, and survives an eviction", async () => {
    const { gate, admit } = await openKey(2);
    const admitAll = async (times: number, now: number) => {
      for (let i = 0; i < times; i++) await admit(now);
    };
    await admitAll(5, HOUR + HOUR_MS - 1);
    await admitAll(1, HOUR + 2 * HOUR_MS);
    await admitAll(2, HOUR + 2 * HOUR_MS + 90_000);
    await admitAll(1, HOUR + 2 * HOUR_MS + 180_000);
    await evictDurableObject(gate());
    await admitAll(3, HOUR + 2 * HOUR_MS + 180_000);
    await evictDurableObject(gate());
    expect(await gate().usage()).toEqual([
      { startsAt: HOUR, requests: 2, refused: 3, busiest: 2 },
      { startsAt: HOUR + 2 * HOUR_MS, requests: 5, refused: 2, busiest: 2 },
    ]);
  });

  test.each([
    ["quota, as beyond it", true, [1, 10]],
    ["access, as the quota does", false, [1, 0]],
  ])("counts requests without %s, refused by the isolate or not", async (_, granted, counted) => {
    const { workspaceId, api, gate } = await openKey(1);
    await Platform.setWorkspaceAccess({ workspaceId, granted });
    for (let i = 0; i < 10; i++) await api.get("/v1/leads");
    // The isolate repeats the gate's refusal for two seconds, and then asks it again.
    jumpTo(Date.now() + 2_100);
    await api.get("/v1/leads");
    const hours = await gate().usage();
    const sum = (of: "requests" | "refused") => hours.reduce((all, hour) => all + hour[of], 0);
    expect([sum("requests"), sum("refused")]).toEqual(counted);
  });

  test("is limited to one day", () => {
    let hours: HourUsage[] = [];
    for (let i = 0; i < 100; i++) hours = countUsage(hours, HOUR + i * HOUR_MS, { requests: 1 });
    expect(hours).toHaveLength(24);
    // Requests of a clock that was set back count in their own hour, in order.
    hours = countUsage(hours, HOUR + 98 * HOUR_MS, { refused: 1 });
    expect(hours.slice(-2)).toEqual([
      { startsAt: HOUR + 98 * HOUR_MS, requests: 1, refused: 1, busiest: 0 },
      { startsAt: HOUR + 99 * HOUR_MS, requests: 1, refused: 0, busiest: 0 },
    ]);
    const shown = lastHours(hours, HOUR + 101 * HOUR_MS + 5);
    expect(shown.map(({ requests }) => requests)).toEqual([...Array(22).fill(1), 0, 0]);
    expect(Date.parse(shown[0]?.hour ?? "")).toBe(HOUR + 78 * HOUR_MS);
  });
});

describe("GET /portal/api/keys", () => {
  type Shown = { items: { keyId: string; hours: HourUsage[] }[]; nextCursor: string | null };

  /** The portal of a deployment with other gates. */
  const openBeside = (workspaceId: string, getByName: (name: string) => object) =>
    openPortal(
      workspaceId,
      deployedWith({ KEY_GATE: { getByName } as unknown as Env["KEY_GATE"] }),
    );

  test("shows the keys newest first, each with its last 24 hours", async () => {
    const { workspaceId, keyId, api } = await openKey(3);
    for (let i = 0; i < 10; i++) await api.get("/v1/leads");
    const other = await Platform.createApiKey({ workspaceId });
    await Platform.revokeApiKey({ keyId: other.keyId });
    const { status, body } = await (await openPortal(workspaceId)).get<Shown>("/keys");
    const common = { createdAt: SOME_TIME, expiresAt: null, windowSeconds: 60 };
    const unused = { requests: 0, refused: 0 };
    const start = new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS).toISOString();
    const used = { hour: start.replace(".000Z", "Z"), requests: 3 };
    expect(status).toBe(200);
    expect(body.items).toMatchObject([
      {
        ...{ ...common, keyId: other.keyId, requestsPerWindow: 600 },
        ...{ lastUsedAt: null, revokedAt: SOME_TIME, hours: Array(24).fill(unused) },
      },
      {
        ...{ ...common, keyId, requestsPerWindow: 3 },
        ...{ lastUsedAt: SOME_TIME, revokedAt: null, hours: [...Array(23).fill(unused), used] },
      },
    ]);
  });

  test("asks no gate of a key that was never used", async () => {
    const { workspaceId } = await openKey();
    const usage = vi.fn(async () => []);
    await (await openBeside(workspaceId, () => ({ usage }))).get("/keys");
    expect(usage).not.toHaveBeenCalled();
  });

  test("calls at most 20 gates a request: the rest of the keys is on further pages", async () => {
    const { workspaceId, keyId } = await openKey();
    const creations = Array.from({ length: 44 }, () => Platform.createApiKey({ workspaceId }));
    const created = [keyId, ...(await Promise.all(creations)).map((key) => key.keyId)];
    const use = env.DB.prepare("UPDATE api_keys SET last_used_at = ? WHERE workspace_id = ?");
    await use.bind(Date.now(), workspaceId).run();
    const usage = vi.fn(async () => []);
    const portal = await openBeside(workspaceId, () => ({ usage }));
    const pages: string[][] = [];
    for (let next: string | null = ""; next !== null; ) {
      usage.mockClear();
      const { body }: Answer<Shown> = await portal.get(`/keys?cursor=${next}`);
      expect(usage).toHaveBeenCalledTimes(body.items.length);
      pages.push(body.items.map((key) => key.keyId));
      next = body.nextCursor;
    }
    expect(pages.map(({ length }) => length)).toEqual([20, 20, 5]);
    expect(pages.flat().toSorted()).toEqual(created.toSorted());
  });
});

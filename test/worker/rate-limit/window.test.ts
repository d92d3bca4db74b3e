import { evictDurableObject } from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { countUsage, type HourUsage } from "../../../src/rate-limit/window.ts";
import { Platform } from "../../support/api.ts";
import { HOUR_MS, jumpTo } from "../../support/deliveries.ts";
import { openKey } from "../../support/gates.ts";

const HOUR = Math.floor(1_790_000_000_000 / HOUR_MS) * HOUR_MS;

describe("the usage of a key", () => {
  test("counts requests within and beyond the rate limit by hour", async () => {
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
    for (const { startsAt } of hours) expect(startsAt).toBeGreaterThan(Date.now() - 2 * HOUR_MS);
  });

  test("is limited to one day", () => {
    let hours: HourUsage[] = [];
    // An isolate may tell the gate late what it has refused, so hours come in any order.
    for (let i = 0; i < 100; i++)
      hours = countUsage(hours, HOUR + ((i * 37) % 100) * HOUR_MS, { requests: 1 });
    expect(hours).toHaveLength(24);
    // Requests of a clock that was set back count in their own hour, in order.
    hours = countUsage(hours, HOUR + 98 * HOUR_MS, { refused: 1 });
    expect(hours.slice(-2)).toEqual([
      { startsAt: HOUR + 98 * HOUR_MS, requests: 1, refused: 1, busiest: 0 },
      { startsAt: HOUR + 99 * HOUR_MS, requests: 1, refused: 0, busiest: 0 },
    ]);
  });
});

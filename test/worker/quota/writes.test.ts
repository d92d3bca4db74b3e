import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import type { HourUsage } from "../../../src/quota/usage.ts";
import { observeWrites, openKey } from "../../support/gates.ts";

const LIMIT = 10_000;

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe("the window of a key", () => {
  test("is written at most twice per second, however many requests there are", async () => {
    const { keyHash, gate } = await openKey(LIMIT);
    await runInDurableObject(gate(), async (_, state) => {
      const writes = observeWrites(state.storage);
      const gate = new KeyGate(state, env);
      const startedAt = Date.now();
      let requests = 0;
      for (; Date.now() - startedAt < 1_800; requests += 10) {
        await Promise.all(Array.from({ length: 10 }, () => gate.admit(keyHash)));
        await wait(5);
      }
      expect(requests).toBeGreaterThan(100);
      // The last write has all of them.
      const last = { window: { count: requests } };
      await expect.poll(() => writes.at(-1)?.value).toMatchObject(last);
      expect(writes.length).toBeGreaterThanOrEqual(2);
      for (const [i, { name, at }] of writes.entries()) {
        expect(name).toBe("counted");
        expect(at - (writes[i - 1]?.at ?? 0)).toBeGreaterThanOrEqual(495);
      }
      const { hours } = (await state.storage.get("counted")) as { hours: HourUsage[] };
      expect(hours.reduce((sum, hour) => sum + hour.requests, 0)).toBe(requests);
    });
  });

  test("is written even if the clock is set back", async () => {
    const { keyHash, gate } = await openKey(LIMIT);
    await runInDurableObject(gate(), async (_, state) => {
      const gate = new KeyGate(state, env);
      await gate.admit(keyHash);
      const startedAt = Date.now() - 3_600_000;
      const clock = vi.spyOn(Date, "now").mockReturnValue(startedAt);
      await gate.admit(keyHash);
      clock.mockRestore();
      expect(await state.storage.get("counted")).toMatchObject({ window: { startedAt } });
    });
  });

  test("is complete when the object is evicted, however soon after a request", async () => {
    const { gate, admit } = await openKey(LIMIT);
    for (let used = 1; used <= 12; used += 4) {
      await Promise.all([admit(), admit(), admit()]);
      await evictDurableObject(gate());
      expect(await admit()).toMatchObject({ rateLimit: { remaining: LIMIT - used - 3 } });
    }
  });
});

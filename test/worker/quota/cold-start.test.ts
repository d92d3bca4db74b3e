import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { KeyGate } from "../../../src/quota/key-gate.ts";
import { openKey } from "../../support/gates.ts";
import { orderedDatabase } from "../../support/ordered-database.ts";

const NOW = 1_790_000_000_000;
const LIMIT = 5;
const REQUESTS = 20;

/**
 * How many cold requests at the given times are admitted, if look-ups return in the given order, and
 * how many look-ups they take.
 */
async function admit(times: (number | undefined)[], order: number[], forgetAfter: number[]) {
  const key = await openKey(LIMIT);
  const { keyHash } = key;
  return runInDurableObject(key.gate(), async (_, state) => {
    const { db, count, releaseInOrder } = orderedDatabase();
    const gate = new KeyGate(state, { ...env, DB: db });
    const admissions: ReturnType<KeyGate["admit"]>[] = [];
    for (const [i, now] of times.entries()) {
      admissions.push(gate.admit(keyHash, now));
      // The runtime's clock only advances with I/O.
      if (now === undefined) await new Promise((resolve) => setTimeout(resolve, 2));
      if (forgetAfter.includes(i)) gate.forget();
    }
    await releaseInOrder(order, Promise.all(admissions));
    const verdicts = (await Promise.all(admissions)).map(({ verdict }) => verdict);
    const admitted = verdicts.filter((verdict) => verdict === "admitted").length;
    return { admitted, lookUps: count() };
  });
}

describe("a quota of 5 and 20 requests that find the gate cold", () => {
  const ascending = Array.from({ length: REQUESTS }, (_, i) => i);

  test("admits exactly 5, after one look-up for all", async () => {
    const times = ascending.map(() => undefined);
    const found = await admit(times, ascending.toReversed(), []);
    expect(found).toEqual({ admitted: LIMIT, lookUps: 1 });
  });

  test("admits exactly 5 in every order, at any times, and however often the standing is forgotten", async () => {
    const orders = fc.shuffledSubarray(ascending, { minLength: REQUESTS });
    const times = fc.shuffledSubarray(
      ascending.map((i) => NOW + i * 1_000),
      { minLength: REQUESTS },
    );
    const forgetting = fc.subarray(ascending, { maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(times, orders, forgetting, async (moments, order, forgetAfter) => {
        expect((await admit(moments, order, forgetAfter)).admitted).toBe(LIMIT);
      }),
      { numRuns: 30 },
    );
  });
});

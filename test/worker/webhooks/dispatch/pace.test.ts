import { describe, expect, test } from "vitest";
import { sleep } from "../../../../src/timing.ts";
import {
  answered,
  consumeFor,
  dispatchAt,
  isolated,
  owed,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

/** A subscriber that counts its concurrent posts; each takes a few milliseconds. */
function counting(answer = OK) {
  const underWay: number[] = [];
  let current = 0;
  const { posts, attempt } = subscriber(async () => {
    underWay.push(++current);
    await sleep(5);
    current--;
    return answer;
  });
  return { posts, attempt, underWay };
}

describe("the concurrent posts to a subscription", () => {
  test("are what it has earned, from one to six, whichever consumers are at work", async () => {
    const { id } = await owed(300, Date.now());
    const { posts, attempt, underWay } = counting();
    const { env: bindings } = isolated();
    const batch = Array(5).fill(id);
    await Promise.all(Array.from({ length: 20 }, () => consumeFor(batch, bindings, attempt)));
    expect([posts.length, new Set(posts).size]).toEqual([300, 300]);
    expect(await statesOf(id)).toEqual({ delivered: 300 });
    expect(Math.max(...underWay)).toBe(6);
    // Each success earns one more post; the first is posted alone.
    expect(underWay.slice(0, 3)).toEqual([1, 1, 2]);
    expect(await subscriptionRow(id)).toMatchObject({ postsAtOnce: 6 });
  });

  test("start where the last dispatch ended", async () => {
    const { id } = await owed(8, NOW);
    await setSubscription(id, { postsAtOnce: 4 });
    const { attempt, underWay } = counting();
    await dispatchAt(NOW, [id], attempt);
    expect(underWay.slice(0, 4)).toEqual([1, 2, 3, 4]);
  });
});

describe("a subscription that fails", () => {
  test("is probed with one post at a time, after each wait, by however many consumers", async () => {
    const { id } = await owed(50, NOW);
    await setSubscription(id, { postsAtOnce: 6 });
    const { posts, attempt, underWay } = counting(answered(500));
    await dispatchAt(NOW, [id], attempt);
    const opened = posts.length;
    // Six, then three, then one failed.
    expect(opened).toBeLessThanOrEqual(10);
    expect(await subscriptionRow(id)).toMatchObject({ backoff: 1, postsAtOnce: 1 });
    underWay.length = 0;
    for (let probe = 1; probe <= 4; probe++) {
      const { nextAt } = await subscriptionRow(id);
      await dispatchAt(nextAt - 1, [id], attempt);
      expect(posts).toHaveLength(opened + probe - 1);
      await Promise.all(Array.from({ length: 5 }, () => dispatchAt(nextAt, [id], attempt, "slow")));
      expect(posts).toHaveLength(opened + probe);
      expect(await subscriptionRow(id)).toMatchObject({ backoff: probe + 1 });
    }
    expect(underWay).toEqual([1, 1, 1, 1]);
  });
});

test("slow answers move a subscription to the slow lane, and fast ones move it back", async () => {
  const { id } = await owed(20, NOW);
  await setSubscription(id, { postsAtOnce: 4 });
  let now = NOW;
  let durationMs = 2_000;
  const { posts, attempt } = subscriber(() => {
    now += durationMs;
    return OK;
  });
  const [left] = await dispatchAt(() => now, [id], attempt);
  const before = posts.length;
  // Those already started when the first was slow.
  expect(before).toBeLessThanOrEqual(4);
  const released = { slow: true, backoff: 0, leasedElsewhereUntil: null };
  expect(left?.subscription).toMatchObject(released);
  expect(await subscriptionRow(id)).toMatchObject({ slow: true, heldUntil: 0 });
  durationMs = 100;
  for (const [lane, more] of [["fast", 0] as const, ["slow", 1] as const, ["slow", 1] as const]) {
    await dispatchAt(() => now, [id], attempt, lane);
    expect(posts).toHaveLength(before + more);
  }
  expect(await subscriptionRow(id)).toMatchObject({ slow: false });
  await dispatchAt(() => now, [id], attempt, "fast");
  expect(await statesOf(id)).toEqual({ delivered: 20 });
});

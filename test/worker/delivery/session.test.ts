import { describe, expect, test, vi } from "vitest";
import { openDatabase } from "../../../src/db/client.ts";
import { STUCK_MS } from "../../../src/delivery/connections.ts";
import { DISPATCH_STATEMENTS_MAX, dispatch } from "../../../src/delivery/dispatch.ts";
import type { WakeUp } from "../../../src/delivery/messages.ts";
import { InvocationLimit, type Outcome } from "../../../src/delivery/outcome.ts";
import { LEASE_MS } from "../../../src/delivery/round.ts";
import type { DispatchPorts } from "../../../src/delivery/session.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import {
  answered,
  consumeBodies,
  consumeFor,
  db,
  deliveriesTo,
  deliveryTo,
  dispatchAt,
  dispatchOn,
  isolated,
  observedDatabase,
  owed,
  owedToMany,
  portsAt,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { DATABASE, WORKSPACE_DB } from "../../support/placement.ts";
import { insertDeliveries } from "../../support/rows.ts";
import { shortenTimers } from "../../support/timers.ts";
import { until } from "../../support/until.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

keepLog();

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

describe("the concurrent requests to a subscription", () => {
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
    expect(await subscriptionRow(id)).toMatchObject({ concurrency: 6 });
  });
});

test("slow responses move a subscription to the slow queue", async () => {
  const { id } = await owed(20, NOW);
  await setSubscription(id, { concurrency: 4 });
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
  const released = { slow: true, blockedUntil: 0, leasedElsewhereUntil: null };
  expect(left).toMatchObject(released);
  expect(await subscriptionRow(id)).toMatchObject({ slow: true, leasedUntil: 0 });
  durationMs = 100;
  await dispatchAt(() => now, [id], attempt, "fast");
  expect(posts).toHaveLength(before);
  await dispatchAt(() => now, [id], attempt, "slow");
  expect(posts.length).toBeGreaterThan(before);
  expect(await subscriptionRow(id)).toMatchObject({ slow: false });
  await dispatchAt(() => now, [id], attempt, "fast");
  expect(await statesOf(id)).toEqual({ delivered: 20 });
});

test("an attempt during which the clock is set back took no time", async () => {
  const { id } = await owed(1, NOW - 10_000);
  let now = NOW;
  const attempt = async () => {
    now -= 5_000;
    return OK;
  };
  await dispatchAt(() => now, [id], attempt);
  expect(await deliveryTo(id)).toMatchObject({ state: "delivered", lastDurationMs: 0 });
});

test("what is due is sent, although the database takes longer than a session waits for a connection", async () => {
  const { id } = await owed(3, NOW);
  const { DB } = observedDatabase({ after: () => sleep(STUCK_MS + 50) });
  await dispatchOn(DB, NOW, [id], OK);
  expect(await statesOf(id)).toEqual({ delivered: 3 });
});

/** A dispatch whose attempts end as `attempt` says, and the subscriptions it has finished with. */
function begin(ids: string[], now: () => number, attempt: DispatchPorts["attempt"]) {
  const ended: string[] = [];
  const ports: DispatchPorts = {
    ...portsAt(now, attempt),
    finished: ({ subscriptionId }) => void ended.push(subscriptionId),
  };
  const run = dispatch(db, new Map(ids.map((id) => [id, 0])), ports, { queue: "fast" });
  return { run, ended };
}

test("a wake-up that is noted while a request outlasts its lease is sent at the end", async () => {
  const { id, drafts } = await owed(3, NOW);
  await setSubscription(id, { concurrency: 2 });
  const wakeAt = NOW + 3_600_000;
  await setDeliveries(id, { dueAt: wakeAt }, drafts[0]?.id);
  shortenTimers((ms) => ms > 50 && ms <= 1_000);
  const start = performance.now();
  let lateMs = 0;
  // Twenty times as fast as the real one.
  const now = () => Math.floor(NOW + lateMs + 20 * (performance.now() - start));
  const answer = Promise.withResolvers<Outcome>();
  const { posts, attempt } = subscriber(async () => {
    if (posts.length === 2) return answer.promise;
    await until(() => posts.length === 2);
    lateMs = LEASE_MS;
    return OK;
  });
  const wakeUps: (WakeUp | null)[] = [];
  const ports: DispatchPorts = {
    ...portsAt(now, attempt),
    finished: (_, wakeUp) => void wakeUps.push(wakeUp),
  };
  const run = dispatch(db, new Map([[id, 0]]), ports, { queue: "fast" });
  await expect.poll(() => subscriptionRow(id)).toMatchObject({ notedWakeAt: wakeAt });
  answer.resolve(OK);
  await run;
  expect(wakeUps).toMatchObject([{ subscriptionId: id, wakeAt }]);
});

describe("subscriptions that share a dispatch", () => {
  test("each get their first request before any gets a second", async () => {
    const ids = await owedToMany(20, 5, NOW);
    await setSubscription(ids[0] as string, { concurrency: 6 });
    const begun: string[] = [];
    await dispatchAt(NOW, ids, async ({ subscriptionId }) => {
      begun.push(subscriptionId);
      await sleep(2);
      return OK;
    });
    expect(begun).toHaveLength(100);
    expect(new Set(begun.slice(0, 20)).size).toBe(20);
  });

  test("get the next connection if their workspace has the fewest, however many others wait", async () => {
    const crowds = [await owedToMany(5, 2, NOW), await owedToMany(5, 2, NOW)];
    const { id: one } = await owed(1, NOW);
    const begun: string[] = [];
    await dispatchAt(NOW, [...crowds.flat(), one], async ({ subscriptionId }) => {
      begun.push(subscriptionId);
      await sleep(2);
      return OK;
    });
    expect(begun.slice(0, 3)).toContain(one);
  });

  test("leave two connections to another workspace, and one to wake-up messages and rounds", async () => {
    const many = await owedToMany(10, 3, NOW);
    const { id: one } = await owed(1, NOW);
    const measure = async (ids: string[]) => {
      const { attempt, underWay } = counting();
      // Until then, the other workspace is served.
      const isOver = () => underWay.length === 15;
      await dispatchAt(NOW, ids, async (delivery) =>
        delivery.subscriptionId === one ? until(isOver).then(() => OK) : attempt(delivery),
      );
      return Math.max(...underWay);
    };
    expect(await measure([...many.slice(0, 5), one])).toBe(3);
    expect(await measure(many.slice(5))).toBe(5);
  });

  test("take the connections of another workspace once it has its deliveries", async () => {
    const many = await owedToMany(3, 6, NOW);
    for (const id of many) await setSubscription(id, { concurrency: 6 });
    const { id: one } = await owed(1, NOW);
    let [underWay, most] = [0, 0];
    const five = Promise.withResolvers<void>();
    const { run, ended } = begin(
      [...many, one],
      () => NOW,
      async (delivery) => {
        if (delivery.subscriptionId === one) return OK;
        await until(() => ended.includes(one));
        most = Math.max(most, ++underWay);
        if (underWay === 5) five.resolve();
        await five.promise;
        await sleep(5);
        underWay--;
        return OK;
      },
    );
    await run;
    expect(most).toBe(5);
  });

  test("do not wait for hanging ones: what has not started is released after half a second", async () => {
    const ids = await owedToMany(9, 2, NOW);
    // The first event of `fast` is posted before all connections are taken.
    const [fast, hanging, waiting] = [ids.slice(0, 1), ids.slice(1, 6), ids.slice(6)];
    // They wait for a second connection each.
    for (const id of hanging) await setSubscription(id, { concurrency: 2 });
    let now = NOW;
    const answer = Promise.withResolvers<Outcome>();
    const { posts, attempt } = subscriber(({ subscriptionId }) =>
      fast.includes(subscriptionId) ? OK : answer.promise,
    );
    const { run, ended } = begin(ids, () => now, attempt);
    await expect.poll(() => posts.length).toBe(6);
    now += 499;
    await sleep(250);
    expect(ended).toEqual([]);
    now += 1;
    await expect.poll(() => ended.toSorted()).toEqual([...fast, ...waiting].toSorted());
    expect(posts).toHaveLength(6);
    for (const id of ended) expect(await subscriptionRow(id)).toMatchObject({ leasedUntil: 0 });
    answer.resolve(OK);
    await run;
    for (const [some, states] of [
      [hanging, { delivered: 2 }],
      [waiting, { pending: 2 }],
      [fast, { delivered: 1, pending: 1 }],
    ] as const)
      for (const id of some) expect(await statesOf(id)).toEqual(states);
  });

  test("record an outcome within a second while they wait for a connection", async () => {
    const [one, other] = [await owed(3, NOW), await owed(1, NOW)];
    await setSubscription(one.id, { concurrency: 3 });
    let now = NOW;
    const waits: number[] = [];
    const real = globalThis.setTimeout;
    vi.spyOn(globalThis, "setTimeout").mockImplementation(((run: () => void, ms = 0) => {
      if (ms < 200 || ms > STUCK_MS) return real(run, ms);
      // The clock goes on with the waits alone. The first one ends late.
      return real(() => {
        now += waits.push(ms) === 1 ? 700 : ms;
        run();
      }, 1);
    }) as typeof setTimeout);
    const answer = Promise.withResolvers<Outcome>();
    let recordedAt = 0;
    const { DB } = observedDatabase({
      before(trip) {
        if (trip !== 2) return;
        recordedAt = now;
        answer.resolve(OK);
      },
    });
    // Of the two connections, the other subscription takes one, and the second event of this one the other.
    const { posts, attempt } = subscriber(() => (posts.length === 1 ? OK : answer.promise));
    const woken = new Map([one.id, other.id].map((id) => [id, 0]));
    const options = { queue: "fast", connections: 3 } as const;
    await dispatch(
      openDatabase(DB),
      woken,
      portsAt(() => now, attempt),
      options,
    );
    expect(waits).toEqual([STUCK_MS, 300]);
    expect(recordedAt).toBe(NOW + 1_000);
  });

  test("are woken while others hang", async () => {
    const ids = await owedToMany(7, 1, Date.now() - 1);
    const answer = Promise.withResolvers<Outcome>();
    const { env, fast } = isolated();
    const consumed = consumeFor(ids, env, () => answer.promise);
    await expect.poll(() => fast.length).toBe(2);
    answer.resolve(OK);
    await consumed;
    for (const { subscriptionId } of fast)
      expect(await statesOf(subscriptionId)).toEqual({ pending: 1 });
  });

  test("have six connections in all, even if they are in several databases and queues", async () => {
    const ids = await owedToMany(8, 2, Date.now() - 1);
    for (const [i, id] of ids.entries())
      await setSubscription(id, { concurrency: 6, slow: i % 2 === 1 });
    const { attempt, underWay } = counting();
    // Two more names for the same database.
    const { env } = isolated();
    const bindings = { ...env, DB_8: WORKSPACE_DB, DB_9: WORKSPACE_DB } as Env;
    const bodies = [DATABASE, "DB_8", "DB_9"].flatMap((database) =>
      ids.map((subscriptionId, i) => ({
        subscriptionId,
        queue: i % 2 ? "slow" : "fast",
        database,
      })),
    );
    const { explicitAcks, retryMessages } = await consumeBodies(bodies, bindings, attempt);
    expect(Math.max(...underWay)).toBeGreaterThan(1);
    expect(Math.max(...underWay)).toBeLessThanOrEqual(6);
    // Three dispatches of the six; the others are for another invocation.
    expect(explicitAcks).toHaveLength(12);
    expect(retryMessages).toHaveLength(12);
  });

  test("are released once they have responded, though the dispatch is spent and a slow one has not", async () => {
    const many = [await owed(40, NOW), await owed(40, NOW), await owed(40, NOW)];
    const fast = many.map(({ id }) => id);
    const { id: slow } = await owed(1, NOW);
    // Ten times as fast as the real one.
    const start = performance.now();
    const now = () => Math.floor(NOW + 10 * (performance.now() - start));
    const answer = Promise.withResolvers<Outcome>();
    const { run, ended } = begin([...fast, slow], now, async ({ subscriptionId }) => {
      if (subscriptionId === slow) return answer.promise;
      await sleep(subscriptionId === fast[0] ? 90 : 40);
      return OK;
    });
    await expect.poll(() => ended.toSorted(), { timeout: 30_000 }).toEqual(fast.toSorted());
    answer.resolve(OK);
    await run;
  });
});

describe("an invocation", () => {
  test("that reaches the request limit ends its dispatch", async () => {
    const { id } = await owed(30, Date.now());
    const { posts, attempt } = subscriber(() => {
      if (posts.length > 12) throw new InvocationLimit("Too many subrequests");
      return OK;
    });
    const deployment = isolated();
    await consumeFor([id], deployment.env, attempt);
    expect(await statesOf(id)).toEqual({ delivered: 12, pending: 18 });
    for (const row of await deliveriesTo(id))
      expect(row).toMatchObject(row.state === "pending" ? { attempts: 0, lastOutcome: null } : {});
    expect(await subscriptionRow(id)).toMatchObject({
      failures: 0,
      blockedUntil: 0,
      leasedUntil: 0,
    });
    expect(deployment.fast).toEqual([{ subscriptionId: id, queue: "fast", delaySeconds: 0 }]);
    await consumeFor([id], deployment.env, async () => OK);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
  });

  test("executes a bounded number of statements: a dispatch leaves the rest to the next one", async () => {
    // Void deliveries, of which each round trip cancels a thousand.
    const { id, workspaceId } = await owed(1, Date.now());
    await insertDeliveries(
      Array.from({ length: 60_000 }, (_, i) => ({
        subscriptionId: id,
        eventId: `evt_${i}`,
        workspaceId,
      })),
    );
    const cancelledBefore = { "lead.created": 1 };
    await setSubscription(id, { cancelling: true, cancelEpoch: 1, cancelledBefore });
    const { DB, trips } = observedDatabase();
    const deployment = isolated({ DB });
    await consumeFor([id], deployment.env, async () => OK);
    expect(trips.flat().length).toBeGreaterThan(DISPATCH_STATEMENTS_MAX);
    expect(trips.flat().length).toBeLessThanOrEqual(DISPATCH_STATEMENTS_MAX + 100);
    expect(await statesOf(id)).toMatchObject({ pending: expect.any(Number) });
    expect(deployment.fast).toEqual([{ subscriptionId: id, queue: "fast", delaySeconds: 0 }]);
  });
});

import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { randomId } from "../../../../src/contract/ids.ts";
import { consume, nextWakeMs } from "../../../../src/webhooks/dispatch/consumer.ts";
import type { Lane } from "../../../../src/webhooks/dispatch/policy.ts";
import type { Snapshot } from "../../../../src/webhooks/dispatch/settle-and-claim.ts";
import type { WakeMessage } from "../../../../src/webhooks/dispatch/wake.ts";
import type { Outcome } from "../../../../src/webhooks/outcome.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  BROKEN,
  consumeBodies,
  consumeFor,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  FIRST_WAIT_MS,
  heldDispatch,
  isolated,
  jumpTo,
  observedDatabase,
  owed,
  receivedBy,
  setSubscription,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
} from "../../../support/deliveries.ts";
import { keepLog } from "../../../support/log-lines.ts";

const OK = async () => answered(200);

const lines = keepLog();

afterEach(() => void vi.useRealTimers());

/** A message as a queue delivers it, which reports when it is acknowledged. */
function message(subscriptionId: string, lane: Lane, ack: () => void): Message<WakeMessage> {
  const body = { subscriptionId, lane };
  const retry = () => expect.unreachable("it comes back");
  return { id: "1", timestamp: new Date(), attempts: 1, body, ack, retry };
}

describe("a message", () => {
  test("that arrives 100 times at once, in 20 batches, makes one attempt per delivery", async () => {
    const { id, url } = await owed(3, Date.now());
    const { env: bindings } = isolated();
    const ids = Array(5).fill(id);
    const results = await Promise.all(Array.from({ length: 20 }, () => consumeFor(ids, bindings)));
    for (const result of results) expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(3);
    for (const { attempts, state } of await deliveriesTo(id))
      expect([attempts, state]).toEqual([1, "delivered"]);
  });

  test("that arrives 20 times in a row makes one attempt, even at a failing delivery", async () => {
    const { id, url } = await owed(1, Date.now(), { behaviour: "status-500" });
    for (let i = 0; i < 20; i++) await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1 });
  });

  test("that names an unknown subscription is acknowledged", async () => {
    expect(await consumeFor([randomId("webhook")], isolated().env)).toMatchObject({
      ...ACKNOWLEDGED,
      explicitAcks: ["message-0"],
    });
  });

  test("is not acknowledged before its effects are stored in D1", async () => {
    const { id } = await owed(1, Date.now());
    const outcomes: string[] = [];
    const { DB } = observedDatabase({ before: (trip) => void outcomes.push(`trip ${trip}`) });
    const messages = [message(id, "fast", () => void outcomes.push("acknowledged"))];
    await consume(messages, isolated({ DB }).env, createExecutionContext(), OK);
    expect(outcomes).toEqual(["trip 1", "trip 2", "acknowledged"]);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("lets its queue continue if its subscriber is slow, and the dispatch continues too", async () => {
    const { id } = await owed(1, Date.now());
    const answer = Promise.withResolvers<Outcome>();
    const acknowledged = vi.fn();
    const context = createExecutionContext();
    const messages = [message(id, "fast", acknowledged)];
    await consume(messages, isolated().env, context, () => answer.promise);
    expect(acknowledged).toHaveBeenCalledOnce();
    expect(await statesOf(id)).toEqual({ pending: 1 });
    answer.resolve(answered(200));
    await waitOnExecutionContext(context);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("that was acknowledged comes back after the lease if its dispatch then fails", async () => {
    const { id } = await owed(1, Date.now());
    const { DB } = observedDatabase({
      before: (trip) => {
        if (trip > 1) throw BROKEN;
      },
    });
    const slowly = () =>
      new Promise<Outcome>((resolve) => setTimeout(() => resolve(answered(200)), 300));
    const deployment = isolated({ DB });
    expect(await consumeFor([id], deployment.env, slowly)).toMatchObject(ACKNOWLEDGED);
    expect(deployment.fast).toEqual([{ subscriptionId: id, lane: "fast", delaySeconds: 20 }]);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test("that comes back because its consumer died is sent on to the end of the lease", async () => {
    const now = Date.now();
    const { id } = await owed(1, now);
    await heldDispatch(now, id);
    const body = { subscriptionId: id, lane: "fast" };
    const first = isolated();
    await consumeBodies([body], first.env, OK, 1);
    expect([first.fast, first.slow]).toEqual([[], []]);
    const again = isolated();
    await consumeBodies([body], again.env, OK, 2);
    expect(again.fast).toHaveLength(1);
    const { delaySeconds = 0 } = again.fast[0] ?? {};
    expect(delaySeconds).toBeGreaterThan(15);
    expect(delaySeconds).toBeLessThanOrEqual(20);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });
});

describe("the next wake of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const idle = {
    mayPost: true,
    cleanable: false,
    leasedElsewhereUntil: null,
    dueAt: null,
    nextAt: 0,
  };
  const LEASED = { leasedElsewhereUntil: NOW + 9 };

  test.each<[string, Partial<Snapshot>, boolean, boolean, number | null]>([
    ["with nothing pending: none", {}, true, false, null],
    ["with more due: immediately", { dueAt: NOW - 1 }, true, false, 0],
    ["with more due later: then", { dueAt: NOW + 60_000 }, true, false, 60_000],
    ["that waits: after the wait", { dueAt: NOW, nextAt: NOW + 10_000 }, true, false, 10_000],
    ["that woke a little early: again", { dueAt: NOW + 5_000 }, false, false, 5_000],
    ["that woke far too early: none", { dueAt: NOW + 5_001 }, false, false, null],
    ["that is no longer owed it: none", { dueAt: NOW, mayPost: false }, true, false, null],
    ["with more to cancel: immediately", { cleanable: true }, false, false, 0],
    ["that another dispatch leases: none", { dueAt: NOW, ...LEASED }, false, false, null],
    ["whose wake came again: when the lease ends", LEASED, false, true, 9],
  ])("%s", (_, found, wasLeased, isRedelivered, expected) => {
    const finished = { subscription: { ...idle, ...found } as Snapshot, wasLeased };
    expect(nextWakeMs(finished, isRedelivered, NOW)).toBe(expected);
  });
});

describe("a batch", () => {
  test("is delivered to several subscriptions in a handful of round trips to D1", async () => {
    const workspaceId = await createWorkspace();
    const subscribed = await Promise.all(Array.from({ length: 20 }, () => subscribe(workspaceId)));
    await announceLeads(workspaceId, 5, Date.now());
    const { DB, trips } = observedDatabase();
    const ids = subscribed.map(({ id }) => id);
    // On a busy machine, posts take long enough for outcomes to be recorded meanwhile.
    jumpTo(Date.now());
    await consumeFor(ids, isolated({ DB }).env);
    expect(trips.length).toBeLessThanOrEqual(5);
    for (const { id, url } of subscribed) {
      expect(await receivedBy({ url })).toHaveLength(5);
      expect(await statesOf(id)).toEqual({ delivered: 5 });
    }
  });

  test("delivers everything that is due, however much, and leaves no message behind", async () => {
    const workspaceId = await createWorkspace();
    const ids = [(await subscribe(workspaceId)).id, (await subscribe(workspaceId)).id];
    await announceLeads(workspaceId, 160, Date.now());
    const deployment = isolated();
    await consumeFor(ids, deployment.env, OK);
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: 160 });
    expect([deployment.fast, deployment.slow]).toEqual([[], []]);
  });

  test("sends a failing subscription to the slow lane, and back when it has recovered", async () => {
    const now = Date.now();
    const { id } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(deployment.fast).toEqual([]);
    const [woken, ...others] = deployment.slow;
    expect(others).toEqual([]);
    expect(woken).toMatchObject({ subscriptionId: id, lane: "slow" });
    expect(woken?.delaySeconds).toBeGreaterThanOrEqual(FIRST_WAIT_MS / 1000);
    expect(woken?.delaySeconds).toBeLessThanOrEqual((1.2 * FIRST_WAIT_MS) / 1000);
    const { workspaceId } = await subscriptionRow(id);
    await announceLeads(workspaceId, 2, now + 2 * FIRST_WAIT_MS + 10_000);
    jumpTo(now + 2 * FIRST_WAIT_MS);
    await consumeFor([id], deployment.env, undefined, "slow");
    const healthy = { failures: 0, failingSince: null, backoff: 0 };
    expect(await subscriptionRow(id)).toMatchObject(healthy);
    expect(deployment.slow).toHaveLength(1);
    expect(deployment.fast).toEqual([{ subscriptionId: id, lane: "fast", delaySeconds: 10 }]);
  });

  test("has what its first failure left untried probed after the wait, in the slow lane", async () => {
    const { id, url } = await owed(30, Date.now(), { behaviour: "status-500" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(deployment.fast).toEqual([]);
    expect(deployment.slow).toMatchObject([{ subscriptionId: id, lane: "slow" }]);
    expect(deployment.slow[0]?.delaySeconds).toBeGreaterThanOrEqual(10);
    const untried = (await deliveriesTo(id)).filter(({ attempts }) => attempts === 0);
    expect(untried).toHaveLength(29);
  });

  test.each(["fast", "slow"] as const)(
    "that came in the wrong lane posts nothing, and is sent on: to the %s one",
    async (lane) => {
      const { id } = await owed(2, Date.now());
      await setSubscription(id, { slow: lane === "slow" });
      const { posts, attempt } = subscriber();
      const deployment = isolated();
      const wrong = lane === "slow" ? "fast" : "slow";
      await consumeFor([id], deployment.env, attempt, wrong);
      expect(posts).toEqual([]);
      expect(deployment[wrong]).toEqual([]);
      expect(deployment[lane]).toEqual([{ subscriptionId: id, lane, delaySeconds: 0 }]);
      expect(await subscriptionRow(id)).toMatchObject({ heldBy: null });
      await consumeFor([id], deployment.env, attempt, lane);
      // A fast answer in the slow lane moves it to the fast one.
      expect(posts).toHaveLength(lane === "slow" ? 1 : 2);
      expect(deployment.fast).toHaveLength(1);
    },
  );

  test("for both lanes has each subscription served in its own", async () => {
    const [fast, slow] = [await owed(2, Date.now()), await owed(2, Date.now())];
    await setSubscription(slow.id, { slow: true });
    const bodies = [
      { subscriptionId: fast.id, lane: "fast" },
      { subscriptionId: slow.id, lane: "slow" },
    ];
    expect(await consumeBodies(bodies, isolated().env, OK)).toMatchObject(ACKNOWLEDGED);
    expect(await statesOf(fast.id)).toEqual({ delivered: 2 });
    expect((await statesOf(slow.id)).delivered).toBeGreaterThan(0);
  });

  test("logs hosts, ids and numbers, but no secret, path, name, e-mail or phone number", async () => {
    const fine = await owed(1, Date.now());
    const bad = await owed(1, Date.now(), { behaviour: "status-500" });
    const unopened = await owed(1, Date.now());
    await consumeFor([fine.id, bad.id], isolated().env);
    await consumeFor([unopened.id], isolated({ ENCRYPTION_KEYS: "n0nsense" }).env);
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await consumeFor([bad.id], isolated({ DB }).env);
    const log = lines.join("\n");
    // Successes are counted, failures are listed.
    expect(log).toContain('"delivered":1,"failed":1');
    for (const { id, url, drafts } of [bad, unopened])
      for (const known of [id, new URL(url).host, drafts[0]?.id ?? ""])
        expect(log).toContain(known);
    const { sealedSecret } = await subscriptionRow(bad.id);
    const secrets = [fine.secret, bad.secret, sealedSecret, env.ENCRYPTION_KEYS];
    expect(log).toContain("attempt_impossible");
    expect(log).toContain("dispatch_failed");
    expect(log).not.toContain("n0nsense");
    for (const secret of secrets) expect(log).not.toContain(secret.slice(-20));
    for (const personal of ["Zoë", "zoe@example.com", "+336", "/hooks", "t0ken", "v1="])
      expect(log).not.toContain(personal);
  });
});

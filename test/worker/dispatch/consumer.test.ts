import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { createSender } from "../../../src/delivery/send.ts";
import { nextWakeUp, type WakeUpFacts, type WakeUpMessage } from "../../../src/delivery/wake.ts";
import { consume } from "../../../src/dispatch/consumer.ts";
import type { DispatchPorts } from "../../../src/dispatch/deliver.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import { openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  BROKEN,
  consumeFor,
  deliveryTo,
  FIRST_WAIT_MS,
  isolated,
  jumpTo,
  observedDatabase,
  owed,
  owedToMany,
  REFUSING_QUEUE,
  receivedBy,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { DATABASE } from "../../support/placement.ts";

const OK = async () => answered(200);

/** A sender whose attempts end as `attempt` says. */
const attempting = (attempt: DispatchPorts["attempt"]) => ({ ...createSender(env), attempt });

const lines = keepLog();

afterEach(() => void vi.useRealTimers());

/** A message as a queue delivers it, which reports when it is acknowledged. */
function message(subscriptionId: string, ack: () => void): Message<WakeUpMessage> {
  const body = { subscriptionId, queue: "fast", database: "DB" } as const;
  const retry = () => expect.unreachable("it comes back");
  return { id: "1", timestamp: new Date(), attempts: 1, body, ack, retry };
}

/** Holds timers of `ms` until the returned function ends them all. */
function holdTimers(ms: number): () => void {
  const real = globalThis.setTimeout;
  const held: (() => void)[] = [];
  vi.spyOn(globalThis, "setTimeout").mockImplementation(((run: () => void, each = 0) =>
    each === ms ? held.push(run) : real(run, each)) as typeof setTimeout);
  return () => {
    for (const run of held) run();
  };
}

describe("a message", () => {
  test("that names an unknown subscription is acknowledged", async () => {
    expect(await consumeFor([randomId("webhook")], isolated().env)).toMatchObject({
      ...ACKNOWLEDGED,
      explicitAcks: ["message-0"],
    });
  });

  test("occupies its consumer until its request ends, within two seconds", async () => {
    const endTwoSeconds = holdTimers(2_000);
    const { id } = await owed(1, Date.now());
    const answer = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const answersLater = () => {
      asked.resolve();
      return answer.promise.then(OK);
    };
    const acknowledged = vi.fn();
    const messages = [message(id, acknowledged)];
    const consumed = consume(
      messages,
      isolated().env,
      createExecutionContext(),
      attempting(answersLater),
    );
    await asked.promise;
    await sleep(200);
    expect(acknowledged).not.toHaveBeenCalled();
    answer.resolve();
    await consumed;
    expect(await statesOf(id)).toEqual({ delivered: 1 });
    endTwoSeconds();
  });

  test("is acknowledged after two seconds while its request hangs, and the dispatch goes on", async () => {
    const endTwoSeconds = holdTimers(2_000);
    const { id } = await owed(1, Date.now());
    const answer = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const acknowledged = vi.fn();
    const context = createExecutionContext();
    const hangs = () => {
      asked.resolve();
      return answer.promise.then(OK);
    };
    const consumed = consume(
      [message(id, acknowledged)],
      isolated().env,
      context,
      attempting(hangs),
    );
    await asked.promise;
    endTwoSeconds();
    expect(await Promise.race([consumed.then(() => "free"), sleep(1_500)])).toBe("free");
    expect(acknowledged).toHaveBeenCalledOnce();
    expect(await statesOf(id)).toEqual({ pending: 1 });
    answer.resolve();
    await waitOnExecutionContext(context);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("that names the former database of a subscription takes no other one's place", async () => {
    const { id } = await owed(1, Date.now());
    const context = createExecutionContext();
    const { DB: former } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    const body = { subscriptionId: id, queue: "fast", database: "DB_9" } as const;
    const messages = [message(id, () => {}), { ...message(id, () => {}), body }];
    const { env: bindings } = isolated({ DB_9: former } as object);
    await consume(messages, bindings, context, attempting(OK));
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("is not acknowledged before its effects are stored in D1", async () => {
    const { id } = await owed(1, Date.now());
    const outcomes: string[] = [];
    const { DB } = observedDatabase({ before: (trip) => void outcomes.push(`trip ${trip}`) });
    const messages = [message(id, () => void outcomes.push("acknowledged"))];
    await consume(messages, isolated({ DB }).env, createExecutionContext(), attempting(OK));
    expect(outcomes).toEqual(["trip 1", "trip 2", "acknowledged"]);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

describe("the next wake-up of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const idle: WakeUpFacts = {
    subscriptionId: "sub",
    slow: false,
    dispatchAt: null,
    nextMessageAt: 0,
  };
  const AT_ONCE = { subscriptionId: "sub", queue: "fast" };
  const LATER = NOW + 60_000;

  test.each<[string, Partial<WakeUpFacts>, object | null]>([
    ["with nothing to do: none", {}, null],
    ["with more to do: at once", { dispatchAt: NOW }, AT_ONCE],
    [
      "with more to do, in the slow queue",
      { dispatchAt: NOW, slow: true },
      { ...AT_ONCE, queue: "slow" },
    ],
    ["with more to do later: then", { dispatchAt: LATER }, { ...AT_ONCE, wakeAt: LATER }],
    [
      "for which a message arrives in time: none",
      { dispatchAt: LATER, nextMessageAt: LATER },
      null,
    ],
    [
      "for which a message arrives too late: then",
      { dispatchAt: LATER, nextMessageAt: LATER + 1 },
      { ...AT_ONCE, wakeAt: LATER },
    ],
    [
      "for which the message has arrived, by a clock that is a second ahead: then",
      { dispatchAt: NOW + 1_000, nextMessageAt: NOW + 1_000 },
      { ...AT_ONCE, wakeAt: NOW + 1_000 },
    ],
  ])("%s", (_, found, expected) => {
    expect(nextWakeUp({ ...idle, ...found }, NOW)).toEqual(expected);
  });
});

describe("a batch", () => {
  test("wakes a subscription that failed when it is due again", async () => {
    const now = Date.now();
    // Otherwise its circuit may have closed before the message is sent.
    jumpTo(now);
    const { id, workspaceId } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    const delays = [...deployment.fast, ...deployment.slow].map((sent) => sent.delaySeconds);
    expect(delays).toHaveLength(1);
    // Its circuit is open for a second.
    expect(delays[0]).toBe(1);
    await announceLeads(workspaceId, 2, now + 2 * FIRST_WAIT_MS + 10_000);
    jumpTo(now + 2 * FIRST_WAIT_MS);
    await consumeFor([id], deployment.env);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, circuits: {} });
    expect(deployment.fast.at(-1)).toMatchObject({ subscriptionId: id, delaySeconds: 10 });
  });

  test("expects the message that it sends, unless the queue refuses it", async () => {
    const { id } = await owed(1, Date.now() + 60_000);
    await consumeFor([id], isolated({ DELIVERIES: REFUSING_QUEUE }).env);
    expect(await subscriptionRow(id)).toMatchObject({ nextMessageAt: 0 });
    await consumeFor([id], isolated().env);
    const { dueAt } = await deliveryTo(id);
    expect(await subscriptionRow(id)).toMatchObject({ nextMessageAt: dueAt });
  });

  test.each([
    [6, 1],
    [4, 1],
    [3, 2],
    [1, 6],
  ])("for %i subscriptions gives each %i of six connections", async (count, share) => {
    const ids = await owedToMany(count, 8, Date.now() - 1);
    for (const id of ids) await setSubscription(id, { concurrency: 6 });
    const open = new Map<string, number>();
    const most = new Map<string, number>();
    const attempt: DispatchPorts["attempt"] = async (_, { subscriptionId }) => {
      const now = (open.get(subscriptionId) ?? 0) + 1;
      open.set(subscriptionId, now);
      most.set(subscriptionId, Math.max(now, most.get(subscriptionId) ?? 0));
      await sleep(5);
      open.set(subscriptionId, (open.get(subscriptionId) ?? 0) - 1);
      return answered(200);
    };
    const { explicitAcks } = await consumeFor(ids, isolated().env, attempt);
    expect([...most.values()]).toEqual(Array(count).fill(share));
    expect(explicitAcks).toHaveLength(count);
  });

  test.each(["fast", "slow"] as const)(
    "in the wrong queue is only sent on: to %s",
    async (queue) => {
      const { id } = await owed(2, Date.now());
      await setSubscription(id, { slow: queue === "slow" });
      const { posts, attempt } = subscriber();
      const deployment = isolated();
      const wrong = queue === "slow" ? "fast" : "slow";
      await consumeFor([id], deployment.env, attempt, wrong);
      expect(posts).toEqual([]);
      expect(deployment[wrong]).toEqual([]);
      const onward = { subscriptionId: id, queue, database: DATABASE, delaySeconds: 0 };
      expect(deployment[queue]).toEqual([onward]);
      expect(await subscriptionRow(id)).toMatchObject({ leasedBy: null });
      await consumeFor([id], deployment.env, attempt, queue);
      expect(posts).toHaveLength(2);
      expect([...deployment.fast, ...deployment.slow]).toHaveLength(1);
    },
  );

  test("logs the status of each attempt that failed, and how many milliseconds it took", async () => {
    const startedAt = Date.now();
    const { id } = await owed(1, startedAt, { behaviour: "status-500" });
    // Those before it was resent count, too.
    await setDeliveries(id, { attemptsMade: 7, stepsUsed: 0 });
    await consumeFor([id], isolated().env);
    const logged = lines.map((line) => JSON.parse(line));
    const { status, durationMs, attempt } = logged.find(({ event }) => event === "attempt_failed");
    expect([status, attempt]).toEqual([500, 8]);
    // Their number is logged, though none has succeeded.
    expect(logged).toContainEqual(
      expect.objectContaining({ event: "dispatched", delivered: 0, failed: 1 }),
    );
    expect(durationMs).toBeGreaterThanOrEqual(0);
    expect(durationMs).toSatisfy(Number.isInteger);
    expect(durationMs).toBeLessThanOrEqual(Date.now() - startedAt);
  });

  test("logs hosts, ids and numbers, but no secret, path, name, e-mail or phone number", async () => {
    const fine = await owed(1, Date.now());
    const bad = await owed(1, Date.now(), { behaviour: "status-500" });
    const unopened = await owed(1, Date.now());
    await consumeFor([fine.id, bad.id], isolated().env);
    openedDataKeys.clear();
    await consumeFor([unopened.id], isolated({ ENCRYPTION_KEYS: "n0nsense" }).env);
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await consumeFor([bad.id], isolated({ DB }).env);
    expect(await receivedBy(unopened)).toEqual([]);
    expect(await deliveryTo(unopened.id)).toMatchObject({ state: "pending", stepsUsed: 0 });
    const log = lines.join("\n");
    // Successes are counted, failures are listed.
    const counts = ['"delivered":1,"failed":1', '"attempt":1,'];
    for (const text of [...counts, "delivery_not_attempted", "dispatch_failed"])
      expect(log).toContain(text);
    for (const { id, url, drafts } of [bad, unopened])
      for (const known of [id, new URL(url).host, drafts[0]?.id]) expect(log).toContain(known);
    const { sealedSecret } = await subscriptionRow(bad.id);
    const secrets = [fine.secret, bad.secret, sealedSecret, env.ENCRYPTION_KEYS];
    const personal = ["Zoë", "zoe@example.com", "+336", "/hooks", "t0ken", "v1="];
    for (const text of ["n0nsense", ...secrets.map((secret) => secret.slice(-20)), ...personal])
      expect(log).not.toContain(text);
  });
});

import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { consume } from "../../../src/delivery/consumer.ts";
import { nextWakeUp, type WakeUpMessage } from "../../../src/delivery/messages.ts";
import type { RoundSubscription } from "../../../src/delivery/round.ts";
import { createSender } from "../../../src/delivery/sender.ts";
import type { DispatchPorts } from "../../../src/delivery/session.ts";
import { openedDataKeys } from "../../../src/encryption/personal-data.ts";
import { sleep } from "../../../src/primitives/timing.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  BROKEN,
  consumeBodies,
  consumeFor,
  deliveryTo,
  FIRST_WAIT_MS,
  isolated,
  jumpTo,
  observedDatabase,
  owed,
  receivedBy,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";

const OK = async () => answered(200);

/** A sender whose attempts end as `attempt` says. */
const attempting = (attempt: DispatchPorts["attempt"]) => ({ ...createSender(env), attempt });

const lines = keepLog();

afterEach(() => void vi.useRealTimers());

/** A message as a queue delivers it, which reports when it is acknowledged. */
function message(subscriptionId: string, ack: () => void): Message<WakeUpMessage> {
  const body = { subscriptionId, queue: "fast" } as const;
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

describe("the next wake of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const idle = {
    maySend: true,
    cancelling: false,
    leasedElsewhereUntil: null,
    nextSendAt: null,
    subscriptionId: "sub",
    slow: false,
  };
  const LEASED = { leasedElsewhereUntil: NOW + 9 };

  const IMMEDIATELY = { subscriptionId: "sub", queue: "fast" };

  test.each<[string, Partial<RoundSubscription>, object | null, (number | null)?]>([
    ["with nothing pending: none", {}, null],
    ["with a message on its way: none", { nextSendAt: NOW + 60_000 }, null, null],
    ["with more due: immediately", { nextSendAt: NOW }, IMMEDIATELY, null],
    [
      "whose noted time has come: by a message that names it",
      { nextSendAt: NOW - 1 },
      { ...IMMEDIATELY, wakeAt: NOW - 1 },
      NOW - 1,
    ],
    [
      "with more due later: then",
      { nextSendAt: NOW + 60_000 },
      { ...IMMEDIATELY, wakeAt: NOW + 60_000 },
    ],
    ["that is no longer owed it: none", { nextSendAt: NOW, maySend: false }, null],
    ["with more to cancel: immediately", { cancelling: true }, IMMEDIATELY],
    ["that another dispatch leases: none", { nextSendAt: NOW, ...LEASED }, null],
  ])("%s", (_, found, expected, wakeAt = NOW + 60_000) => {
    const subscription = { ...idle, ...found } as RoundSubscription;
    expect(nextWakeUp(subscription, wakeAt, NOW)).toEqual(expected);
  });
});

describe("a batch", () => {
  test("wakes a subscription that failed when it is due again", async () => {
    const now = Date.now();
    const { id, workspaceId } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    const delays = [...deployment.fast, ...deployment.slow].map((sent) => sent.delaySeconds);
    expect(delays).toHaveLength(1);
    expect(delays[0]).toBeGreaterThanOrEqual(FIRST_WAIT_MS / 1000);
    expect(delays[0]).toBeLessThanOrEqual((1.2 * FIRST_WAIT_MS) / 1000 + 1);
    await announceLeads(workspaceId, 2, now + 2 * FIRST_WAIT_MS + 10_000);
    jumpTo(now + 2 * FIRST_WAIT_MS);
    await consumeFor([id], deployment.env);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, streak: null });
    expect(deployment.fast.at(-1)).toMatchObject({ subscriptionId: id, delaySeconds: 10 });
  });

  test("with a delayed and an immediate message for a subscription knows that both have arrived", async () => {
    const now = Date.now();
    const { id } = await owed(1, now + 60_000);
    await setSubscription(id, { notedWakeAt: now + 30_000 });
    const deployment = isolated();
    const wakeUp = { subscriptionId: id, queue: "fast" };
    await consumeBodies([{ ...wakeUp, wakeAt: now + 30_000 }, wakeUp], deployment.env, OK);
    expect(deployment.fast).toMatchObject([{ subscriptionId: id, wakeAt: now + 60_000 }]);
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
      expect(deployment[queue]).toEqual([{ subscriptionId: id, queue, delaySeconds: 0 }]);
      expect(await subscriptionRow(id)).toMatchObject({ leasedBy: null });
      await consumeFor([id], deployment.env, attempt, queue);
      expect(posts).toHaveLength(2);
      expect([...deployment.fast, ...deployment.slow]).toHaveLength(1);
    },
  );

  test("logs the status of each attempt that failed, and how long it took", async () => {
    const startedAt = Date.now();
    const { id } = await owed(1, startedAt, { behaviour: "status-500" });
    await consumeFor([id], isolated().env);
    const logged = lines.map((line) => JSON.parse(line));
    const { status, durationMs } = logged.find(({ event }) => event === "attempt_failed");
    expect(status).toBe(500);
    expect(durationMs).toBeGreaterThanOrEqual(0);
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
    expect(await deliveryTo(unopened.id)).toMatchObject({ state: "pending", attempts: 0 });
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

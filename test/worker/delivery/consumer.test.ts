import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import { DIRECTORY } from "../../../src/db/databases.ts";
import { BACKGROUND_DISPATCHES_MAX, consume, nextWakeMs } from "../../../src/delivery/consumer.ts";
import type { Snapshot } from "../../../src/delivery/settle-and-claim.ts";
import type { WakeMessage } from "../../../src/delivery/wake.ts";
import { openedDataKeys } from "../../../src/encryption/personal-data.ts";
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
  receivedBy,
  setSubscription,
  statesOf,
  subscriber,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";

const OK = async () => answered(200);

const lines = keepLog();

afterEach(() => void vi.useRealTimers());

/** A message as a queue delivers it, which reports when it is acknowledged. */
function message(subscriptionId: string, ack: () => void): Message<WakeMessage> {
  const body = { subscriptionId, lane: "fast" } as const;
  const retry = () => expect.unreachable("it comes back");
  return { id: "1", timestamp: new Date(), attempts: 1, body, ack, retry };
}

describe("a message", () => {
  test("that names an unknown subscription is acknowledged", async () => {
    expect(await consumeFor([randomId("webhook")], isolated().env)).toMatchObject({
      ...ACKNOWLEDGED,
      explicitAcks: ["message-0"],
    });
  });

  test.each([
    ["", 0],
    [", though many dispatches are in the background", BACKGROUND_DISPATCHES_MAX],
  ])("is acknowledged while its post hangs%s, and the dispatch goes on", async (_, inProgress) => {
    const { id } = await owed(1, Date.now());
    const answer = Promise.withResolvers<void>();
    const acknowledged = vi.fn();
    const context = createExecutionContext();
    const load = new Map([[DIRECTORY, inProgress]]);
    const hangs = () => answer.promise.then(OK);
    await consume([message(id, acknowledged)], isolated().env, context, hangs, load);
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
    await consume(messages, isolated({ DB }).env, createExecutionContext(), OK);
    expect(outcomes).toEqual(["trip 1", "trip 2", "acknowledged"]);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

describe("the next wake of a subscription", () => {
  const NOW = Date.UTC(2026, 0, 5, 12);
  const idle = {
    ...{ mayPost: true, cancelling: false, leasedElsewhereUntil: null, readyAt: null },
  };
  const LEASED = { leasedElsewhereUntil: NOW + 9 };

  test.each<[string, Partial<Snapshot>, number | null]>([
    ["with nothing pending: none", {}, null],
    ["with more due: immediately", { readyAt: NOW - 1 }, 0],
    ["with more due later: then", { readyAt: NOW + 60_000 }, 60_000],
    ["that is no longer owed it: none", { readyAt: NOW, mayPost: false }, null],
    ["with more to cancel: immediately", { cancelling: true }, 0],
    ["that another dispatch leases: none", { readyAt: NOW, ...LEASED }, null],
  ])("%s", (_, found, expected) => {
    expect(nextWakeMs({ ...idle, ...found } as Snapshot, NOW)).toBe(expected);
  });
});

describe("a batch", () => {
  test("sends a failing subscription to the slow lane, and back when it has recovered", async () => {
    const now = Date.now();
    const { id, workspaceId } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(deployment.fast).toEqual([]);
    expect(deployment.slow).toMatchObject([{ subscriptionId: id, lane: "slow" }]);
    expect(deployment.slow[0]?.delaySeconds).toBeGreaterThanOrEqual(FIRST_WAIT_MS / 1000);
    expect(deployment.slow[0]?.delaySeconds).toBeLessThanOrEqual((1.2 * FIRST_WAIT_MS) / 1000);
    await announceLeads(workspaceId, 2, now + 2 * FIRST_WAIT_MS + 10_000);
    jumpTo(now + 2 * FIRST_WAIT_MS);
    await consumeFor([id], deployment.env, undefined, "slow");
    const healthy = { failures: 0, failingSince: null, backoff: 0 };
    expect(await subscriptionRow(id)).toMatchObject(healthy);
    expect(deployment.slow).toHaveLength(1);
    expect(deployment.fast).toEqual([{ subscriptionId: id, lane: "fast", delaySeconds: 10 }]);
  });

  test.each(["fast", "slow"] as const)("in the wrong lane is only sent on: to %s", async (lane) => {
    const { id } = await owed(2, Date.now());
    await setSubscription(id, { slow: lane === "slow" });
    const { posts, attempt } = subscriber();
    const deployment = isolated();
    const wrong = lane === "slow" ? "fast" : "slow";
    await consumeFor([id], deployment.env, attempt, wrong);
    expect(posts).toEqual([]);
    expect(deployment[wrong]).toEqual([]);
    expect(deployment[lane]).toEqual([{ subscriptionId: id, lane, delaySeconds: 0 }]);
    expect(await subscriptionRow(id)).toMatchObject({ leasedBy: null });
    await consumeFor([id], deployment.env, attempt, lane);
    expect(posts).toHaveLength(2);
    expect([...deployment.fast, ...deployment.slow]).toHaveLength(1);
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
    for (const text of ['"delivered":1,"failed":1', "attempt_impossible", "dispatch_failed"])
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

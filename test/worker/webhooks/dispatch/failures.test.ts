import { createExecutionContext } from "cloudflare:test";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Platform } from "../../../../src/platform/entrypoint.ts";
import { sweep } from "../../../../src/sweep.ts";
import { BACKGROUND_AFTER_MS } from "../../../../src/webhooks/dispatch/consumer.ts";
import { LEASE_MS } from "../../../../src/webhooks/dispatch/lease.ts";
import { leadReport } from "../../../support/api.ts";
import {
  ACKNOWLEDGED,
  BROKEN,
  CONNECTION_LOST,
  consumeFor,
  createWorkspace,
  deliveryTo,
  failAtTrip,
  isolated,
  jumpTo,
  MINUTE_MS,
  observedDatabase,
  owed,
  REFUSING_QUEUE,
  RETRIED,
  receivedBy,
  statesOf,
  subscribe,
  subscriptionRow,
} from "../../../support/deliveries.ts";

afterEach(() => void vi.useRealTimers());

describe("when D1 returns an error", () => {
  test.each([
    ["that lasts", "claim", CONNECTION_LOST],
    ["that is not a network error", "claim", BROKEN],
    ["that lasts", "settlement", CONNECTION_LOST],
    ["that is not a network error", "settlement", BROKEN],
  ])("%s on the %s, the batch comes back, and a lease protects it", async (how, at, error) => {
    const now = Date.now();
    const { id, url, drafts } = await owed(1, now);
    const posted = at === "claim" ? 0 : 1;
    const { DB } = observedDatabase({
      before: (trip) => {
        if (trip > posted) throw error;
      },
    });
    const deployment = isolated({ DB });
    const startedAt = performance.now();
    const result = await consumeFor([id], deployment.env);
    // A slow try does not block a queue. On a busy machine, any try may be slow.
    const wasSlow = performance.now() - startedAt >= BACKGROUND_AFTER_MS;
    const handedOff = how === "that lasts" || (wasSlow && result.retryMessages.length === 0);
    expect(result).toMatchObject(handedOff ? ACKNOWLEDGED : RETRIED);
    const hint = { subscriptionId: id, lane: "fast", delaySeconds: LEASE_MS / 1000 };
    expect(deployment.fast).toEqual(handedOff ? [hint] : []);
    expect(await receivedBy({ url })).toHaveLength(posted);
    const row = { state: "pending", attempts: 0, lastOutcome: null, dueAt: now };
    expect(await deliveryTo(id)).toMatchObject(row);
    const { heldBy, heldUntil } = await subscriptionRow(id);
    if (posted === 0) expect(heldBy).toBeNull();
    else {
      expect(heldUntil - now).toBeGreaterThanOrEqual(LEASE_MS);
      // The message comes back during the lease, and again when it has ended.
      await consumeFor([id], isolated().env);
      expect(await receivedBy({ url })).toHaveLength(1);
      jumpTo(heldUntil);
    }
    expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
    const received = await receivedBy({ url });
    expect(received.map(({ body }) => body)).toEqual(Array(posted + 1).fill(drafts[0]?.body));
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test.each([
    ["before", "claim", 1],
    ["before", "settlement", 2],
    ["after", "claim", 1],
    ["after", "settlement", 2],
  ])(
    "that is transient, %s it commits the %s, each attempt is counted once",
    async (when, _, at) => {
      const { id, url } = await owed(1, Date.now(), { behaviour: "status-503" });
      const { DB, trips } = observedDatabase({ [when]: failAtTrip(at) });
      const deployment = isolated({ DB });
      expect(await consumeFor([id], deployment.env)).toMatchObject(ACKNOWLEDGED);
      expect(trips).toHaveLength(3);
      expect(await receivedBy({ url })).toHaveLength(1);
      expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1 });
      expect(await subscriptionRow(id)).toMatchObject({ failures: 1, backoff: 1 });
      expect(deployment.slow).toHaveLength(1);
    },
  );

  test("that is not a network error, on the settlement, its outcomes are recorded in one more try", async () => {
    const { id } = await owed(1, Date.now());
    const { DB } = observedDatabase({ before: failAtTrip(2, BROKEN) });
    await consumeFor([id], isolated({ DB }).env);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("on the body of a large event, that delivery waits and the others are posted", async () => {
    const large = await owed(1, Date.now(), { customFields: { note: "x".repeat(100_000) } });
    const small = await owed(1, Date.now());
    const { DB } = observedDatabase({
      before: (_, texts) => {
        if (texts.length === 1 && /"body"/.test(texts[0] ?? "")) throw BROKEN;
      },
    });
    const result = await consumeFor([large.id, small.id], isolated({ DB }).env);
    expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await statesOf(small.id)).toEqual({ delivered: 1 });
    expect(await deliveryTo(large.id)).toMatchObject({ state: "pending", attempts: 0 });
    expect(await subscriptionRow(large.id)).toMatchObject({ failures: 0, heldUntil: 0 });
    expect(await receivedBy(large)).toEqual([]);
  });
});

test("when a queue refuses the wake after the commit, the call succeeds and the sweep finds the event", async () => {
  const workspaceId = await createWorkspace();
  const { id, url } = await subscribe(workspaceId);
  const refusing = isolated({ DELIVERIES: REFUSING_QUEUE, REDELIVERIES: REFUSING_QUEUE });
  const platform = new Platform(createExecutionContext(), refusing.env);
  const { ids } = await platform.recordLeads({ workspaceId, leads: [leadReport("lead-1")] });
  expect(await statesOf(id)).toEqual({ pending: 1 });
  const later = isolated();
  await sweep(later.env, Date.now() + MINUTE_MS + 1000);
  expect(later.fast).toContainEqual({ subscriptionId: id, lane: "fast", delaySeconds: 0 });
  await consumeFor([id], later.env);
  expect(JSON.parse((await receivedBy({ url }))[0]?.body ?? "").data.id).toBe(ids[0]);
});

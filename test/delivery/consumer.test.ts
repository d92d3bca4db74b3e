import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { consume } from "../../src/delivery/consumer.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  consumeBodies,
  consumeFor,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  isolated,
  jumpTo,
  observedDatabase,
  owed,
  receivedBy,
  statesOf,
  subscribe,
  subscriptionRow,
} from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";

const OK = async () => answered(200);
const BROKEN = new Error("D1_ERROR: disk I/O error");

const lines = keepLog();

afterEach(() => void vi.useRealTimers());

describe("a message", () => {
  test("that arrives 20 times in a batch makes one attempt at each delivery", async () => {
    const { id, url } = await owed(3, Date.now());
    const bodies = Array.from({ length: 20 }, () => ({ subscriptionId: id }));
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(3);
    for (const { attempts } of await deliveriesTo(id)) expect(attempts).toBe(1);
  });

  test("that arrives 20 times at once makes one attempt at each delivery", async () => {
    const { id, url } = await owed(3, Date.now());
    const { env: bindings } = isolated();
    const results = await Promise.all(Array.from({ length: 20 }, () => consumeFor([id], bindings)));
    for (const result of results) expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(3);
    for (const { attempts, state } of await deliveriesTo(id))
      expect([attempts, state]).toEqual([1, "delivered"]);
  });

  test("that arrives 20 times one after another makes one attempt, also at one that fails", async () => {
    const { id, url } = await owed(1, Date.now(), { behaviour: "status-500" });
    for (let i = 0; i < 20; i++) await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1 });
  });

  test("that names an unknown subscription is acknowledged", async () => {
    const bodies = [{ subscriptionId: "whk_unknown" }, { subscriptionId: "" }];
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
  });

  test("that cannot be read is acknowledged, and harms no other in its batch", async () => {
    const { id, url } = await owed(2, Date.now());
    const poisoned = [null, undefined, 1, "whk_1", [], {}, { subscriptionId: 1 }, { id }];
    const bodies = [...poisoned, { subscriptionId: id }, { subscriptionId: null }];
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(2);
    const unreadable = lines.filter((line) => line.includes("message_unreadable"));
    expect(unreadable).toHaveLength(poisoned.length + 1);
  });

  test("is not acknowledged before what it led to stands in D1", async () => {
    const { id } = await owed(1, Date.now());
    const outcomes: string[] = [];
    const { DB } = observedDatabase({ before: (trip) => void outcomes.push(`trip ${trip}`) });
    const acknowledge = vi.fn(() => void outcomes.push("acknowledged"));
    const messages = [{ id: "1", body: { subscriptionId: id } }];
    const batch = { queue: "webhook-deliveries", messages, ackAll: acknowledge };
    await consume(batch as unknown as MessageBatch<unknown>, isolated({ DB }).env, OK);
    expect(outcomes).toEqual(["trip 1", "trip 2", "acknowledged"]);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });
});

describe("a batch", () => {
  test("delivers to several subscriptions, in two round trips to D1", async () => {
    const workspaceId = await createWorkspace();
    const subscribed = await Promise.all(Array.from({ length: 20 }, () => subscribe(workspaceId)));
    await announceLeads(workspaceId, 5, Date.now());
    const { DB, trips } = observedDatabase();
    const ids = subscribed.map(({ id }) => id);
    await consumeFor(ids, isolated({ DB }).env);
    expect(trips).toHaveLength(2);
    for (const { id, url } of subscribed) {
      expect(await receivedBy({ url })).toHaveLength(5);
      expect(await statesOf(id)).toEqual({ delivered: 5 });
    }
  });

  test("delivers 100 at the most, shared by its subscriptions; the rest is woken at once", async () => {
    const workspaceId = await createWorkspace();
    const ids = [(await subscribe(workspaceId)).id, (await subscribe(workspaceId)).id];
    await announceLeads(workspaceId, 60, Date.now());
    const deployment = isolated();
    await consumeFor(ids, deployment.env, OK);
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: 50, pending: 10 });
    expect(deployment.healthy).toHaveLength(2);
    for (const id of ids)
      expect(deployment.healthy).toContainEqual({ subscriptionId: id, delaySeconds: 0 });
    await consumeFor(ids, deployment.env, OK);
    for (const id of ids) expect(await statesOf(id)).toEqual({ delivered: 60 });
    expect(deployment.healthy).toHaveLength(2);
  });

  test("of the failing lane delivers a handful to each, so that a bad subscriber is soon done", async () => {
    const { id } = await owed(20, Date.now());
    const deployment = isolated();
    const bodies = [{ subscriptionId: id }];
    await consumeBodies(bodies, deployment.env, OK, "webhook-redeliveries");
    expect(await statesOf(id)).toEqual({ delivered: 6, pending: 14 });
    expect(deployment.healthy).toEqual([{ subscriptionId: id, delaySeconds: 0 }]);
  });

  test("sends a subscription that fails to the failing lane, and back when it has recovered", async () => {
    const now = Date.now();
    const { id } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(deployment.healthy).toEqual([]);
    const [woken, ...others] = deployment.failing;
    expect(others).toEqual([]);
    expect(woken?.subscriptionId).toBe(id);
    expect(woken?.delaySeconds).toBeGreaterThan(4);
    expect(woken?.delaySeconds).toBeLessThanOrEqual(12);
    const { workspaceId } = await subscriptionRow(id);
    await announceLeads(workspaceId, 2, now + 30_000);
    jumpTo(now + 20_000);
    const bodies = [{ subscriptionId: id }];
    await consumeBodies(bodies, deployment.env, undefined, "webhook-redeliveries");
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
    expect(deployment.failing).toHaveLength(1);
    expect(deployment.healthy).toEqual([{ subscriptionId: id, delaySeconds: 10 }]);
  });

  test("gives back at once what its first failure left untried, in the failing lane", async () => {
    const { id, url } = await owed(30, Date.now(), { behaviour: "status-500" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect((await receivedBy({ url })).length).toBeLessThanOrEqual(3);
    expect(deployment.healthy).toEqual([]);
    expect(deployment.failing).toEqual([{ subscriptionId: id, delaySeconds: 0 }]);
    const untried = (await deliveriesTo(id)).filter(({ attempts }) => attempts === 0);
    expect(untried.length).toBeGreaterThanOrEqual(27);
  });

  test("logs hosts, ids and figures, and no secret, path, name, e-mail or phone", async () => {
    const fine = await owed(1, Date.now());
    const bad = await owed(1, Date.now(), { behaviour: "status-500" });
    const unopened = await owed(1, Date.now());
    await consumeFor([fine.id, bad.id], isolated().env);
    await consumeFor([unopened.id], isolated({ WEBHOOK_ENCRYPTION_KEYS: "n0nsense" }).env);
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await consumeFor([bad.id], isolated({ DB }).env);
    const log = lines.join("\n");
    for (const { id, url, drafts } of [fine, bad, unopened])
      for (const known of [id, new URL(url).host, drafts[0]?.id ?? ""])
        expect(log).toContain(known);
    const { sealedSecret } = await subscriptionRow(bad.id);
    const secrets = [fine.secret, bad.secret, sealedSecret, env.WEBHOOK_ENCRYPTION_KEYS];
    expect(log).toContain("attempt_impossible");
    expect(log).toContain("deliveries_failed");
    expect(log).not.toContain("n0nsense");
    for (const secret of secrets) expect(log).not.toContain(secret.slice(-20));
    for (const personal of ["Zoë", "zoe@example.com", "+336", "/hooks", "t0ken", "v1="])
      expect(log).not.toContain(personal);
  });
});

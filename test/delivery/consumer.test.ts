import { createExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { consume } from "../../src/delivery/consumer.ts";
import { Platform } from "../../src/platform.ts";
import { sweep } from "../../src/sweep.ts";
import { eventsOf, leadReport } from "../support/api.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  answered,
  consumeBodies,
  consumeFor,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  expectedSignatures,
  isolated,
  MINUTE_MS,
  observedDatabase,
  REFUSING_QUEUE,
  RETRIED,
  receivedBy,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../support/deliveries.ts";

const OK = async () => answered(200);
const CONNECTION_LOST = new Error("D1_ERROR: Network connection lost.");
const BROKEN = new Error("D1_ERROR: disk I/O error");

let lines: string[];

beforeEach(() => {
  lines = [];
  for (const method of ["log", "error"] as const)
    vi.spyOn(console, method).mockImplementation((line: string) => void lines.push(line));
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Lets the clock of the Worker jump; nothing waits. */
function jumpTo(time: number): void {
  vi.useFakeTimers({ toFake: ["Date"], now: time });
}

/** A new subscription that is owed `count` events since now. */
async function owed(count: number, { behaviour = "ok", customFields = {} } = {}) {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const now = Date.now();
  const drafts = await announceLeads(workspaceId, count, now, customFields);
  return { workspaceId, ...subscription, drafts, now };
}

describe("a delivery", () => {
  test("is one POST of the event as it is stored, signed in both families", async () => {
    const { id, url, secret, drafts } = await owed(1);
    const { env: bindings } = isolated();
    const startedAt = Math.floor(Date.now() / 1000);
    expect(await consumeFor([id], bindings)).toMatchObject(ACKNOWLEDGED);
    const received = await receivedBy({ url });
    expect(received).toHaveLength(1);
    const [{ headers, body, url: target }] = received as [(typeof received)[0]];
    expect(target).toBe(url);
    expect(body).toBe(drafts[0]?.body);
    const { id: eventId, type, created_at } = JSON.parse(body);
    expect([eventId, type]).toEqual([drafts[0]?.id, "lead.created"]);
    expect(created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const timestamp = headers["webhook-timestamp"] ?? "";
    expect(Number(timestamp)).toBeGreaterThanOrEqual(startedAt);
    expect(Number(timestamp)).toBeLessThanOrEqual(Date.now() / 1000);
    const { service, standard } = await expectedSignatures(secret, eventId, timestamp, body);
    expect(headers).toMatchObject({
      "content-type": "application/json",
      "x-service-signature": service,
      "webhook-id": eventId,
      "webhook-signature": standard,
    });
    expect(headers).not.toHaveProperty("authorization");
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("of an event of nearly 1 MB has each of its bytes, and the right signature", async () => {
    const note = 'é🌻\u2028\\"'.repeat(70_000);
    const { id, url, secret, drafts } = await owed(1, { customFields: { note } });
    const [draft] = drafts;
    expect(new TextEncoder().encode(draft?.body).length).toBeGreaterThan(900_000);
    expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
    const [received] = await receivedBy({ url });
    expect(received?.body === draft?.body).toBe(true);
    expect(received?.headers["x-service-signature"]).toBe(
      (
        await expectedSignatures(
          secret,
          draft?.id ?? "",
          received?.headers["webhook-timestamp"] ?? "",
          draft?.body ?? "",
        )
      ).service,
    );
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("is tried again with the same id and bytes, signed afresh", async () => {
    const { id, url, secret, drafts, now } = await owed(1, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1, lastStatus: 500 });
    jumpTo(now + 20_000);
    await consumeFor([id], deployment.env);
    const received = await receivedBy({ url });
    expect(received.map(({ body }) => body)).toEqual([drafts[0]?.body, drafts[0]?.body]);
    const timestamps = received.map(({ headers }) => headers["webhook-timestamp"] ?? "");
    expect(Number(timestamps[1])).toBe(Math.floor((now + 20_000) / 1000));
    for (const [i, { headers, body }] of received.entries()) {
      expect(headers["webhook-id"]).toBe(drafts[0]?.id);
      const { service } = await expectedSignatures(secret, "", timestamps[i] ?? "", body);
      expect(headers["x-service-signature"]).toBe(service);
    }
    expect(await deliveryTo(id)).toMatchObject({
      state: "delivered",
      attempts: 2,
      lastStatus: 200,
    });
  });

  test.each([301, 302, 307, 308])("that is redirected by %i failed", async (status) => {
    const { id, url } = await owed(1, { behaviour: `status-${status}` });
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(await receivedBy({ url: "https://ok-elsewhere.example/" })).toEqual([]);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", lastStatus: status });
  });

  test("waits as long as Retry-After asks for, up to twice the rung", async () => {
    const waits: number[] = [];
    for (const seconds of [17, 3600]) {
      const workspaceId = await createWorkspace();
      const url = `${subscriberUrl("status-503")}&retry-after=${seconds}`;
      const { id } = await subscribe(workspaceId, { url });
      await announceLeads(workspaceId, 1, Date.now());
      const startedAt = Date.now();
      await consumeFor([id], isolated().env);
      waits.push((await deliveryTo(id)).dueAt - startedAt);
    }
    expect(waits[0]).toBeGreaterThanOrEqual(17_000);
    expect(waits[0]).toBeLessThan(18_500);
    expect(waits[1]).toBeGreaterThanOrEqual(20_000);
    expect(waits[1]).toBeLessThan(21_500);
  });

  test("to a URL that is no longer one that we post to is refused, and fails", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { url: "http://169.254.169.254/latest" });
    await announceLeads(workspaceId, 1, Date.now());
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url: "https://169.254.169.254/" })).toEqual([]);
    expect(await deliveryTo(id)).toMatchObject({
      state: "pending",
      attempts: 1,
      lastOutcome: "refused",
      lastStatus: null,
    });
  });

  test("whose secret cannot be opened waits 5 minutes, with no attempt counted", async () => {
    const { id, url } = await owed(1);
    const WEBHOOK_ENCRYPTION_KEYS = `other:${btoa("k".repeat(32))}`;
    const startedAt = Date.now();
    const result = await consumeFor([id], isolated({ WEBHOOK_ENCRYPTION_KEYS }).env);
    expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toEqual([]);
    const row = await deliveryTo(id);
    expect(row).toMatchObject({ state: "pending", attempts: 0, claim: null, lastOutcome: null });
    expect(row.dueAt - startedAt).toBeGreaterThanOrEqual(5 * MINUTE_MS);
    expect(row.dueAt - startedAt).toBeLessThan(5 * MINUTE_MS + 5_000);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
    jumpTo(row.dueAt);
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
  });

  test("goes its whole way by the queues of the deployment", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const leads = Array.from({ length: 5 }, (_, i) => leadReport(`lead-${i}`));
    await exports.Platform.recordLeads({ workspaceId, leads });
    await expect.poll(() => statesOf(id), { timeout: 5_000 }).toEqual({ delivered: 5 });
    const bodies = (await receivedBy({ url })).map(({ body }) => JSON.parse(body));
    const events = await eventsOf(workspaceId);
    expect(bodies.toSorted((a, b) => a.id.localeCompare(b.id))).toEqual(
      events.toSorted((a, b) => a.id.localeCompare(b.id)),
    );
  });
});

describe("a message", () => {
  test("that arrives 20 times in a batch makes one attempt at each delivery", async () => {
    const { id, url } = await owed(3);
    const bodies = Array.from({ length: 20 }, () => ({ subscriptionId: id }));
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(3);
    for (const { attempts } of await deliveriesTo(id)) expect(attempts).toBe(1);
  });

  test("that arrives 20 times at once makes one attempt at each delivery", async () => {
    const { id, url } = await owed(3);
    const { env: bindings } = isolated();
    const results = await Promise.all(Array.from({ length: 20 }, () => consumeFor([id], bindings)));
    for (const result of results) expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(3);
    for (const { attempts, state } of await deliveriesTo(id))
      expect([attempts, state]).toEqual([1, "delivered"]);
  });

  test("that arrives 20 times one after another makes one attempt, also at one that fails", async () => {
    const { id, url } = await owed(1, { behaviour: "status-500" });
    for (let i = 0; i < 20; i++) await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1 });
  });

  test("that names an unknown subscription is acknowledged", async () => {
    const bodies = [{ subscriptionId: "whk_unknown" }, { subscriptionId: "" }];
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
  });

  test("that cannot be read is acknowledged, and harms no other in its batch", async () => {
    const { id, url } = await owed(2);
    const poisoned = [null, undefined, 1, "whk_1", [], {}, { subscriptionId: 1 }, { id }];
    const bodies = [...poisoned, { subscriptionId: id }, { subscriptionId: null }];
    expect(await consumeBodies(bodies, isolated().env)).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(2);
    const unreadable = lines.filter((line) => line.includes("message_unreadable"));
    expect(unreadable).toHaveLength(poisoned.length + 1);
  });

  test("is not acknowledged before what it led to stands in D1", async () => {
    const { id } = await owed(1);
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
    const { id } = await owed(20);
    const deployment = isolated();
    const bodies = [{ subscriptionId: id }];
    await consumeBodies(bodies, deployment.env, OK, "webhook-redeliveries");
    expect(await statesOf(id)).toEqual({ delivered: 6, pending: 14 });
    expect(deployment.healthy).toEqual([{ subscriptionId: id, delaySeconds: 0 }]);
  });

  test("sends a subscription that fails to the failing lane, and back when it has recovered", async () => {
    const { id, now } = await owed(1, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(deployment.healthy).toEqual([]);
    const [woken, ...others] = deployment.failing;
    expect(others).toEqual([]);
    expect(woken?.subscriptionId).toBe(id);
    expect(woken?.delaySeconds).toBeGreaterThanOrEqual(8);
    expect(woken?.delaySeconds).toBeLessThanOrEqual(13);
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
    const { id, url } = await owed(30, { behaviour: "status-500" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect((await receivedBy({ url })).length).toBeLessThanOrEqual(3);
    expect(deployment.healthy).toEqual([]);
    expect(deployment.failing).toEqual([{ subscriptionId: id, delaySeconds: 0 }]);
    const untried = (await deliveriesTo(id)).filter(({ attempts }) => attempts === 0);
    expect(untried.length).toBeGreaterThanOrEqual(27);
  });

  test("logs hosts, ids and figures, and no secret, path, name, e-mail or phone", async () => {
    const [fine, bad] = [await owed(1), await owed(1, { behaviour: "status-500" })];
    await consumeFor([fine.id, bad.id], isolated().env);
    await consumeFor([bad.id], isolated({ WEBHOOK_ENCRYPTION_KEYS: "nonsense" }).env);
    const { DB } = observedDatabase({ before: () => Promise.reject(BROKEN) });
    await consumeFor([bad.id], isolated({ DB }).env);
    const log = lines.join("\n");
    for (const { id, url, drafts } of [fine, bad])
      for (const known of [id, new URL(url).host, drafts[0]?.id ?? ""])
        expect(log).toContain(known);
    const { sealedSecret } = await subscriptionRow(bad.id);
    const secrets = [fine.secret, bad.secret, sealedSecret, env.WEBHOOK_ENCRYPTION_KEYS];
    for (const secret of secrets) expect(log).not.toContain(secret.slice(-20));
    for (const personal of ["Zoë", "zoe@example.com", "+336", "/hooks", "t0ken", "v1="])
      expect(log).not.toContain(personal);
  });
});

describe("when D1 answers an error", () => {
  test.each([
    ["that lasts", CONNECTION_LOST],
    ["that is none of the network's", BROKEN],
  ])("%s, on the claim, the batch comes back and nothing is posted", async (_, error) => {
    const { id, url, now } = await owed(2);
    const { DB } = observedDatabase({ before: () => Promise.reject(error) });
    const deployment = isolated({ DB });
    expect(await consumeFor([id], deployment.env)).toMatchObject(RETRIED);
    expect(await receivedBy({ url })).toEqual([]);
    for (const row of await deliveriesTo(id))
      expect(row).toMatchObject({ state: "pending", attempts: 0, claim: null, dueAt: now });
    expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
    expect(await receivedBy({ url })).toHaveLength(2);
  });

  test.each([
    ["that lasts", CONNECTION_LOST],
    ["that is none of the network's", BROKEN],
  ])("%s, on the settle, the batch comes back and the lease keeps it", async (_, error) => {
    const { id, url, drafts, now } = await owed(1);
    const { DB } = observedDatabase({
      before: (trip) => {
        if (trip > 1) throw error;
      },
    });
    expect(await consumeFor([id], isolated({ DB }).env)).toMatchObject(RETRIED);
    expect(await receivedBy({ url })).toHaveLength(1);
    const row = await deliveryTo(id);
    expect(row).toMatchObject({ state: "pending", attempts: 0, lastOutcome: null });
    expect(row.claim).not.toBeNull();
    expect(row.dueAt - now).toBeGreaterThanOrEqual(MINUTE_MS);
    // The message comes back while the lease lasts, and then when it has ended.
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(1);
    jumpTo(row.dueAt);
    await consumeFor([id], isolated().env);
    const received = await receivedBy({ url });
    expect(received.map(({ body }) => body)).toEqual([drafts[0]?.body, drafts[0]?.body]);
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test.each([
    ["the claim", 1],
    ["the settle", 2],
  ])("in passing, on %s, it is asked again, and nobody notices", async (_, failing) => {
    const { id, url } = await owed(3);
    const { DB, trips } = observedDatabase({
      before: (trip) => {
        if (trip === failing) throw CONNECTION_LOST;
      },
    });
    expect(await consumeFor([id], isolated({ DB }).env)).toMatchObject(ACKNOWLEDGED);
    expect(trips).toHaveLength(3);
    expect(await receivedBy({ url })).toHaveLength(3);
    expect(await statesOf(id)).toEqual({ delivered: 3 });
  });

  test("after it has committed the settle, each attempt is counted once", async () => {
    const { id, url } = await owed(1, { behaviour: "status-503" });
    const { DB, trips } = observedDatabase({
      after: (trip) => {
        if (trip === 2) throw CONNECTION_LOST;
      },
    });
    const deployment = isolated({ DB });
    expect(await consumeFor([id], deployment.env)).toMatchObject(ACKNOWLEDGED);
    expect(trips).toHaveLength(3);
    expect(await receivedBy({ url })).toHaveLength(1);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1, claim: null });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 1 });
    expect(deployment.failing).toHaveLength(1);
  });

  test("on the body of a large event, that delivery waits and the others go out", async () => {
    const large = await owed(1, { customFields: { note: "x".repeat(100_000) } });
    const small = await owed(1);
    const { DB } = observedDatabase({
      before: (_, texts) => {
        if (texts.length === 1 && /select "body"/i.test(texts[0] ?? "")) throw BROKEN;
      },
    });
    const result = await consumeFor([large.id, small.id], isolated({ DB }).env);
    expect(result).toMatchObject(ACKNOWLEDGED);
    expect(await statesOf(small.id)).toEqual({ delivered: 1 });
    expect(await deliveryTo(large.id)).toMatchObject({
      state: "pending",
      attempts: 0,
      claim: null,
    });
    expect(await receivedBy(large)).toEqual([]);
  });
});

describe("when a queue refuses", () => {
  test("to take the wake after the commit, the call succeeds and the sweep finds the event", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const refusing = isolated({ DELIVERIES: REFUSING_QUEUE, REDELIVERIES: REFUSING_QUEUE });
    const platform = new Platform(createExecutionContext(), refusing.env);
    const { ids } = await platform.recordLeads({ workspaceId, leads: [leadReport("lead-1")] });
    expect(ids).toHaveLength(1);
    expect(await statesOf(id)).toEqual({ pending: 1 });
    const later = isolated();
    await sweep(later.env, Date.now() + MINUTE_MS + 1000);
    expect(later.healthy).toContainEqual({ subscriptionId: id, delaySeconds: 0 });
    await consumeFor([id], later.env);
    expect(JSON.parse((await receivedBy({ url }))[0]?.body ?? "").data.id).toBe(ids[0]);
  });

  test("to take the next wake, what was posted is settled all the same", async () => {
    const { id, url } = await owed(1, { behaviour: "status-500" });
    const refusing = isolated({ DELIVERIES: REFUSING_QUEUE, REDELIVERIES: REFUSING_QUEUE });
    expect(await consumeFor([id], refusing.env)).toMatchObject(ACKNOWLEDGED);
    const { dueAt, ...row } = await deliveryTo(id);
    expect(row).toMatchObject({ state: "pending", attempts: 1, claim: null });
    const later = isolated();
    await sweep(later.env, dueAt + MINUTE_MS + 1);
    expect(later.failing).toContainEqual({ subscriptionId: id, delaySeconds: 0 });
    expect(await receivedBy({ url })).toHaveLength(1);
  });
});

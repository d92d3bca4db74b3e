import { exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { eventsOf, leadReport } from "../../../support/api.ts";
import {
  ACKNOWLEDGED,
  announceLeads,
  consumeFor,
  createWorkspace,
  deliveriesTo,
  deliveryTo,
  expectedSignatures,
  FIRST_WAIT_MS,
  isolated,
  jumpTo,
  MINUTE_MS,
  observedDatabase,
  owed,
  receivedBy,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../../support/deliveries.ts";
import { damageLead, record } from "../../../support/record.ts";

afterEach(() => {
  vi.useRealTimers();
});

describe("a delivery", () => {
  test("is one POST of the stored event, signed in both schemes", async () => {
    const { id, url, secret, drafts } = await owed(1, Date.now());
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

  test("of an event of nearly 1 MB is complete and correctly signed", async () => {
    const note = 'é🌻\u2028\\"'.repeat(70_000);
    const { id, url, secret, drafts } = await owed(1, Date.now(), { customFields: { note } });
    const [draft] = drafts;
    expect(new TextEncoder().encode(draft?.body ?? "").length).toBeGreaterThan(900_000);
    expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
    const [received] = await receivedBy({ url });
    expect(received?.body === draft?.body).toBe(true);
    const { "webhook-timestamp": timestamp = "", ...headers } = received?.headers ?? {};
    const signed = await expectedSignatures(secret, "", timestamp, draft?.body ?? "");
    expect(headers["x-service-signature"]).toBe(signed.service);
    expect(await statesOf(id)).toEqual({ delivered: 1 });
  });

  test("is retried with the same id and bytes, signed afresh", async () => {
    const now = Date.now();
    const { id, url, secret, drafts } = await owed(1, now, { behaviour: "first-fails" });
    const deployment = isolated();
    await consumeFor([id], deployment.env);
    expect(await deliveryTo(id)).toMatchObject({ state: "pending", attempts: 1, lastStatus: 500 });
    jumpTo(now + 2 * FIRST_WAIT_MS);
    await consumeFor([id], deployment.env, undefined, "slow");
    const received = await receivedBy({ url });
    expect(received.map(({ body }) => body)).toEqual([drafts[0]?.body, drafts[0]?.body]);
    const timestamps = received.map(({ headers }) => headers["webhook-timestamp"] ?? "");
    expect(Number(timestamps[1])).toBe(Math.floor((now + 2 * FIRST_WAIT_MS) / 1000));
    for (const [i, { headers, body }] of received.entries()) {
      expect(headers["webhook-id"]).toBe(drafts[0]?.id);
      const { service } = await expectedSignatures(secret, "", timestamps[i] ?? "", body);
      expect(headers["x-service-signature"]).toBe(service);
    }
    const settled = { state: "delivered", attempts: 2, lastStatus: 200 };
    expect(await deliveryTo(id)).toMatchObject(settled);
  });

  test("waits as long as Retry-After asks, up to twice the rung, and so does its subscription", async () => {
    const waits: number[] = [];
    for (const seconds of [(1.7 * FIRST_WAIT_MS) / 1000, 3600]) {
      const workspaceId = await createWorkspace();
      const url = `${subscriberUrl("status-503")}&retry-after=${seconds}`;
      const { id } = await subscribe(workspaceId, { url });
      await announceLeads(workspaceId, 1, Date.now());
      const startedAt = Date.now();
      await consumeFor([id], isolated().env);
      const { dueAt } = await deliveryTo(id);
      waits.push(dueAt - startedAt);
      expect(await subscriptionRow(id)).toMatchObject({ nextAt: dueAt, backoff: 1 });
    }
    expect(waits[0]).toBeGreaterThanOrEqual(1.7 * FIRST_WAIT_MS);
    expect(waits[0]).toBeLessThan(2 * FIRST_WAIT_MS);
    expect(waits[1]).toBeGreaterThanOrEqual(2 * FIRST_WAIT_MS);
    expect(waits[1]).toBeLessThan(3 * FIRST_WAIT_MS);
  });

  test("to a URL that we no longer accept is refused, and fails", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { url: "http://169.254.169.254/latest" });
    await announceLeads(workspaceId, 1, Date.now());
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url: "https://169.254.169.254/" })).toEqual([]);
    const refused = { state: "pending", attempts: 1, lastOutcome: "refused", lastStatus: null };
    expect(await deliveryTo(id)).toMatchObject(refused);
  });

  test("whose secret cannot be decrypted holds up its subscription for 5 minutes, without counting an attempt", async () => {
    const { id, url } = await owed(30, Date.now());
    const ENCRYPTION_KEYS = `other:${btoa("k".repeat(32))}`;
    const startedAt = Date.now();
    const { DB, trips } = observedDatabase();
    const deployment = isolated({ ENCRYPTION_KEYS, DB });
    expect(await consumeFor([id], deployment.env)).toMatchObject(ACKNOWLEDGED);
    // It occupies no dispatch.
    expect(trips).toHaveLength(2);
    expect(await receivedBy({ url })).toEqual([]);
    for (const row of await deliveriesTo(id))
      expect(row).toMatchObject({ state: "pending", attempts: 0, lastOutcome: null });
    const { nextAt, ...row } = await subscriptionRow(id);
    expect(row).toMatchObject({ failures: 0, failingSince: null, backoff: 0, heldUntil: 0 });
    expect(nextAt - startedAt).toBeGreaterThanOrEqual(5 * MINUTE_MS);
    expect(nextAt - startedAt).toBeLessThan(6 * MINUTE_MS);
    expect(deployment.slow).toEqual([]);
    expect(deployment.fast).toMatchObject([{ subscriptionId: id }]);
    expect(deployment.fast[0]?.delaySeconds).toBeGreaterThanOrEqual(299);
    jumpTo(nextAt);
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url })).toHaveLength(30);
  });

  test("whose lead cannot be decrypted is tried again like one that fails, and holds up no other", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    const { env: bindings } = isolated();
    const now = Date.now();
    const recordLead = (reference: string, at: number) =>
      record(bindings, "recordLeads", { workspaceId, leads: [leadReport(reference)] }, at);
    const { ids } = await recordLead("damaged", now - 1);
    await damageLead(ids[0]);
    await recordLead("fine", now);
    await consumeFor([id], bindings);
    expect(await receivedBy({ url })).toHaveLength(1);
    const [damaged, fine] = await deliveriesTo(id);
    expect(damaged).toMatchObject({ state: "pending", attempts: 1, lastOutcome: "unreadable" });
    expect(damaged?.dueAt).toBeGreaterThanOrEqual(now + FIRST_WAIT_MS);
    expect(fine).toMatchObject({ state: "delivered" });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, backoff: 0, nextAt: 0 });
    const call = { webhookId: id, eventId: damaged?.eventId ?? "" };
    expect(await exports.Platform.readDelivery(call)).toMatchObject({ state: "pending", body: "" });
  });

  test("goes through the queues of the deployment", async () => {
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

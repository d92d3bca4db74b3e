import { exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { leadReport } from "../../../support/api.ts";
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
  owed,
  receivedBy,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../../support/deliveries.ts";
import { damageLead, record } from "../../../support/record.ts";

afterEach(() => void vi.useRealTimers());

describe("a delivery", () => {
  test.each([
    ["a small one", ""],
    ["one of nearly 1 MB", 'é🌻\u2028\\"'.repeat(70_000)],
  ])("is one POST of the stored event, signed in both schemes: %s", async (_, note) => {
    const { id, url, secret, drafts } = await owed(1, Date.now(), { customFields: { note } });
    const [draft] = drafts;
    const bytes = new TextEncoder().encode(draft?.body ?? "").length;
    if (note) expect(bytes).toBeGreaterThan(900_000);
    const startedAt = Math.floor(Date.now() / 1000);
    expect(await consumeFor([id], isolated().env)).toMatchObject(ACKNOWLEDGED);
    const received = await receivedBy({ url });
    expect(received).toHaveLength(1);
    const [{ headers, body, url: target }] = received as [(typeof received)[0]];
    expect([target, body === draft?.body]).toEqual([url, true]);
    const { id: eventId, type, created_at } = JSON.parse(body);
    expect([eventId, type]).toEqual([draft?.id, "lead.created"]);
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

  test.each([
    ["asks", 1.7, 1.7],
    ["asks, but not longer than twice its own wait", 360, 2],
  ])("waits as long as Retry-After %s, and so does its subscription", async (_, asked, waits) => {
    const workspaceId = await createWorkspace();
    const url = `${subscriberUrl("status-503")}&retry-after=${(asked * FIRST_WAIT_MS) / 1000}`;
    const { id } = await subscribe(workspaceId, { url });
    await announceLeads(workspaceId, 1, Date.now());
    const startedAt = Date.now();
    await consumeFor([id], isolated().env);
    const { dueAt } = await deliveryTo(id);
    expect(await subscriptionRow(id)).toMatchObject({ nextAt: dueAt, backoff: 1 });
    expect(dueAt - startedAt).toBeGreaterThanOrEqual(waits * FIRST_WAIT_MS);
    expect(dueAt - startedAt).toBeLessThan((waits + 1) * FIRST_WAIT_MS);
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

  test("to a URL that we no longer accept is refused, and fails", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId, { url: "http://169.254.169.254/latest" });
    await announceLeads(workspaceId, 1, Date.now());
    await consumeFor([id], isolated().env);
    expect(await receivedBy({ url: "https://169.254.169.254/" })).toEqual([]);
    const refused = { state: "pending", attempts: 1, lastOutcome: "refused", lastStatus: null };
    expect(await deliveryTo(id)).toMatchObject(refused);
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
});

import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { isoTime } from "../../../src/contract/time.ts";
import { CLEANUP_MAX } from "../../../src/db/budget.ts";
import { commit } from "../../../src/db/client.ts";
import { WebhookDelivery } from "../../../src/events/bodies.ts";
import { findSubscription, updateSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { postTestEvent } from "../../../src/subscriptions/test-event.ts";
import { errorOf, leadReport, openWorkspace, Platform, platformOf } from "../../support/api.ts";
import {
  allowProbes,
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  dispatchAt,
  expectedSignatures,
  failAt,
  failingSince,
  HOUR_MS,
  isolated,
  observedDatabase,
  owed,
  receivedBy,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db, inDatabase, useThreeDatabases } from "../../support/placement.ts";
import { storeEvents } from "../../support/stored-events.ts";
import type { Received } from "../../support/subscribers.ts";

useThreeDatabases();

const T0 = Date.UTC(2026, 0, 5, 12);

describe("sendTestEvent", () => {
  test.each(WebhookEvent.options)(
    "posts a %s marked as a test, signed like any other",
    async (type) => {
      const subscription = await subscribe(await createWorkspace(), { events: ["lead.created"] });
      const result = await Platform.sendTestEvent({ webhookId: subscription.id, type });
      expect(result).toMatchObject({ outcome: "answered", status: 200 });
      expect(result.durationMs).toBeLessThan(5_000);
      const received = await receivedBy(subscription);
      expect(received).toHaveLength(1);
      const [{ headers, body } = {} as Received] = received;
      const delivery = WebhookDelivery.parse(JSON.parse(body));
      expect(delivery).toMatchObject({ id: result.eventId, type });
      expect(JSON.stringify(delivery.data).toLowerCase()).toContain("test");
      for (const [name, value] of Object.entries(delivery.data))
        if (name.endsWith("_at")) expect(value).toBe(delivery.created_at);
      // What receivers that rewrite the body would change.
      const hard = ["/", "&", "<", "'", '\\"', "🏡", "\u2028", "e\u0301"];
      expect(hard.filter((one) => !body.includes(one))).toEqual([]);
      const timestamp = headers["webhook-timestamp"] ?? "";
      const signed = expectedSignatures(subscription.secret, result.eventId, timestamp, body);
      expect(headers).toMatchObject({
        "x-service-test": "true",
        "x-service-signature": signed.service,
        "webhook-signature": signed.standard,
      });
    },
  );

  test("is recorded with the request and the response, even if that is a success", async () => {
    const url = `${subscriberUrl("says-200")}&says=thanks`;
    const webhook = await subscribe(await createWorkspace(), { url });
    const [webhookId, type] = [webhook.id, "run.completed" as const];
    const { eventId, ...result } = await Platform.sendTestEvent({ webhookId, type });
    expect(result).toMatchObject({ outcome: "answered", status: 200 });
    const [posted] = await receivedBy(webhook);
    const delivery = await Platform.readDelivery({ webhookId, eventId });
    const request = { headers: expect.objectContaining({ "X-Service-Test": "true" }) };
    const response = { body: "thanks", truncated: false };
    expect(delivery).toMatchObject({
      state: "test",
      type,
      attempts: 1,
      body: posted?.body,
      attemptLog: [{ at: delivery.createdAt, ...result, request, response }],
    });
    const endedAt = Date.parse(delivery.createdAt) + (result.durationMs ?? 0);
    expect(delivery.settledAt).toBe(isoTime(endedAt));
    const sent = Object.entries(delivery.attemptLog[0]?.request?.headers ?? {});
    for (const [name, value] of sent) expect(posted?.headers[name.toLowerCase()]).toBe(value);
    const { items } = await Platform.listDeliveries({ webhookId, state: "test" });
    expect(items.map((item) => item.eventId)).toEqual([eventId]);
  });

  test("affects neither the ledger, the counts nor the health, even of a disabled subscription", async () => {
    const { id: webhookId, workspaceId } = await owed(1, Date.now(), { behaviour: "status-500" });
    await setSubscription(webhookId, { disabledAt: T0 });
    const state = async () => ({
      // A stored response counts for those that a subscription may store in a day, and is no attempt.
      row: { ...(await subscriptionRow(webhookId)), dailyCounts: {} },
      shown: await Platform.readWebhook({ webhookId }),
      ledger: { ...(await Platform.ledger({ workspaceId })), oldestPendingSeconds: 0 },
    });
    const before = await state();
    const result = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
    expect(result).toMatchObject({ outcome: "answered", status: 500 });
    expect(await state()).toEqual(before);
    expect(await statesOf(webhookId)).toEqual({ pending: 1, test: 1 });
  });

  test("is not recorded if its subscription was deleted in the meantime", async () => {
    const { id } = await subscribe(await createWorkspace());
    const known = await findSubscription(db, id, T0);
    await setSubscription(id, { deletedAt: T0 });
    const result = await postTestEvent(env, db, known, "lead.created", Date.now());
    expect(result).toMatchObject({ outcome: "answered", status: 200 });
    expect(await statesOf(id)).toEqual({});
  });

  test("is never sent again, nor to another subscription", async () => {
    const workspaceId = await createWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const other = await subscribe(workspaceId);
    const since = isoTime(Date.now() - HOUR_MS);
    const { eventId } = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
    for (const id of [webhookId, other.id]) {
      const named = Platform.redeliver({ webhookId: id, eventIds: [eventId] });
      expect(await errorOf(named)).toContain("eventIds[0]: no such event, or a test");
      expect(await Platform.redeliver({ webhookId: id, since })).toEqual({
        count: 0,
        nextCursor: null,
      });
    }
    expect(await statesOf(webhookId)).toEqual({ test: 1 });
    expect(await statesOf(other.id)).toEqual({});
  });

  test("is rejected while the workspace has no access: nothing is sent", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    const send = () => Platform.sendTestEvent({ webhookId: id, type: "lead.created" });
    expect(await errorOf(send())).toContain("webhookId: its workspace has no access");
    expect(await receivedBy({ url })).toEqual([]);
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect(await send()).toMatchObject({ outcome: "answered", status: 200 });
  });
});

describe("updateWebhook", () => {
  test("cancels pending deliveries of a type that is no longer listed", async () => {
    const { id, workspaceId, drafts } = await owed(2, T0);
    const events = ["run.completed", "automation.status_changed"] as const;
    await failAt(id, [T0]);
    await setDeliveries(id, { state: "exhausted", settledAt: T0 }, drafts[0]?.id);
    await Platform.updateWebhook({ webhookId: id, events: [...events, "run.completed"] });
    expect((await Platform.readWebhook({ webhookId: id })).events).toEqual(events);
    await announceLeads(workspaceId, 1, T0);
    expect(await statesOf(id)).toEqual({ exhausted: 1, pending: 1 });
    for (const states of [["exhausted"], ["exhausted", "missed"]] as const)
      expect(await redeliver(id, { since: T0, until: null, states }, T0)).toBe(0);
    await allowProbes(id);
    await dispatchAt(T0 + DAY_MS, [id], answered(200));
    expect(await statesOf(id)).toEqual({ exhausted: 1, cancelled: 1 });
    await Platform.updateWebhook({ webhookId: id, events: ["lead.created"] });
    await announceLeads(workspaceId, 1, T0);
    expect(await statesOf(id)).toEqual({ exhausted: 1, cancelled: 1, pending: 1 });
    expect(await redeliver(id, { since: T0, until: null, states: ["missed"] }, T0)).toBe(0);
  });

  test("keeps the pace of an endpoint that does not fail when a type is removed", async () => {
    const events = ["lead.created", "run.completed"] as const;
    const { id: webhookId } = await subscribe(await createWorkspace(), { events: [...events] });
    await setSubscription(webhookId, { concurrency: 4, slow: true });
    await Platform.updateWebhook({ webhookId, events: ["lead.created"] });
    expect(await subscriptionRow(webhookId)).toMatchObject({ concurrency: 4, slow: true });
  });

  test("changes only what is given, and nothing else that GET /v1/webhooks shows", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const read = async () => (await api.get<{ data: object[] }>("/v1/webhooks")).body.data[0];
    const before = await read();
    const runs: WebhookEvent[] = ["run.completed"];
    for (const [change, description, events] of [
      [{ description: "CRM" }, "CRM", ["lead.created"]],
      [{ events: runs }, "CRM", runs],
      [{ description: "" }, null, runs],
      [{ description: "CRM" }, "CRM", runs],
      [{ description: null }, null, runs],
    ] as const) {
      await Platform.updateWebhook({ webhookId, ...change });
      expect(await Platform.readWebhook({ webhookId })).toMatchObject({ description, events });
      expect(await read()).toEqual({ ...before, events });
    }
  });
});

test("updateWebhook stores a URL as a URI, as its creation does", async () => {
  const { id: webhookId } = await subscribe(await createWorkspace());
  await Platform.updateWebhook({ webhookId, url: "https://bücher.example/a b" });
  const url = "https://xn--bcher-kva.example/a%20b";
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({ url });
});

test("A subscription with another URL leaves replays as they are", async () => {
  const { id } = await owed(2, T0);
  await dispatchAt(T0, [id], answered(200));
  await redeliver(id, { since: T0, until: null, states: ["delivered"] }, T0 + HOUR_MS);
  const replays = await deliveriesTo(id);
  await commit(db, updateSubscription(id, { url: subscriberUrl() }, T0));
  expect(await deliveriesTo(id)).toEqual(replays);
});

test("A subscription with another URL has as many retries due at once as one transaction may write", async () => {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  await storeEvents(workspaceId, id, CLEANUP_MAX + 1, T0 + HOUR_MS, "pending");
  await commit(db, updateSubscription(id, { url: subscriberUrl() }, T0));
  const due = (await deliveriesTo(id)).filter(({ dueAt }) => dueAt === T0);
  expect(due).toHaveLength(CLEANUP_MAX);
});

test("updateWebhook with another URL moves pending deliveries to it", async () => {
  const { workspaceId } = await openWorkspace();
  const old = await subscribe(workspaceId, { url: subscriberUrl("status-500") });
  const webhookId = old.id;
  await announceLeads(workspaceId, 1, Date.now());
  const failing = failingSince(Date.now() - 100 * DAY_MS, 9, Date.now() + DAY_MS);
  await setSubscription(webhookId, { ...failing, slow: true });
  await Platform.updateWebhook({ webhookId, url: old.url });
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({ failures: 9, pending: 1 });
  // It is not tried again before the test ends.
  const url = `${subscriberUrl("status-503")}&retry-after=900`;
  expect(await Platform.updateWebhook({ webhookId, url })).toEqual({});
  const read = () => Platform.readWebhook({ webhookId });
  await expect.poll(read).toMatchObject({ failures: 1, disabledAt: null });
  expect(await receivedBy(old)).toEqual([]);
  const [{ headers, body } = {} as Received] = await receivedBy({ url });
  const { "webhook-id": eventId = "", "webhook-timestamp": at = "" } = headers;
  const signed = expectedSignatures(old.secret, eventId, at, body);
  expect(headers["x-service-signature"]).toBe(signed.service);
  expect(await read()).toMatchObject({ url, retrying: 1 });
  expect((await Platform.listDeliveries({ webhookId })).items).toHaveLength(1);
});

test("updateWebhook that is repeated after a lost reply wakes the subscription at its new URL", async () => {
  const { workspaceId } = await openWorkspace();
  const { id: webhookId } = await subscribe(workspaceId);
  const deployment = isolated();
  const change = { webhookId, url: subscriberUrl() };
  await Platform.updateWebhook(change);
  await platformOf(deployment.env).updateWebhook(change);
  await expect.poll(() => deployment.fast).toHaveLength(1);
});

test("updateWebhook with headers sends them with each request, and shows only their names", async () => {
  const { workspaceId } = await openWorkspace();
  const subscription = await subscribe(workspaceId);
  const webhookId = subscription.id;
  const headers = { Authorization: "Bearer s3same-1234", "X-Api-Key": "k3y-5678" };
  await Platform.updateWebhook({ webhookId, headers });
  const names = Object.keys(headers);
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({ headers: names });
  await Platform.recordLeads({ workspaceId, leads: [leadReport("one")] });
  await expect.poll(() => statesOf(webhookId)).toEqual({ delivered: 1 });
  await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const received = await receivedBy(subscription);
  expect(received).toHaveLength(2);
  const sent = { authorization: "Bearer s3same-1234", "x-api-key": "k3y-5678" };
  for (const post of received)
    expect(post.headers).toMatchObject({ ...sent, "x-service-webhook": webhookId });
  const shown = [
    await subscriptionRow(webhookId),
    await Platform.listWebhooks({ workspaceId }),
    await Platform.listDeliveries({ webhookId }),
    await Platform.exportWorkspace({ workspaceId }),
    await Platform.listAuditTrail({ workspaceId }),
  ];
  expect(JSON.stringify(shown)).not.toMatch(/s3same-1234|k3y-5678/);
  await Platform.updateWebhook({ webhookId, headers: null });
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({ headers: [] });
  await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const [last] = (await receivedBy(subscription)).slice(-1);
  expect(Object.keys(last?.headers ?? {})).not.toContain("authorization");
});

test.each(["disableWebhook", "deleteWebhook"] as const)(
  "%s cancels what is pending, shows in GET /v1/webhooks, and can be called twice",
  async (method) => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 3, T0);
    const end = async () => {
      expect(await Platform[method]({ webhookId: id })).toEqual({});
      return [await Platform.listWebhooks({ workspaceId }), (await api.get("/v1/webhooks")).body];
    };
    const ended = await end();
    const disabled = { id, disabled_at: expect.stringMatching(/Z$/) };
    const shown = method === "disableWebhook" ? [disabled] : [];
    expect(ended).toMatchObject([{ items: shown.map(() => ({})) }, { data: shown }]);
    expect(await end()).toEqual(ended);
    await announceLeads(workspaceId, 1, T0 + 1);
    await expect.poll(() => statesOf(id)).toEqual({ cancelled: 3 });
    if (method === "disableWebhook")
      expect(await subscriptionRow(id)).toMatchObject({ disabledByFailures: false });
    expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 3, addsUp: true });
  },
);

test("deleteWebhook is no error if another call deletes the webhook in the meantime", async () => {
  const { id: webhookId } = await subscribe(await createWorkspace());
  const { DB } = observedDatabase({
    before: async (_, texts) => {
      if (texts.join().includes("sealed_headers")) await Platform.deleteWebhook({ webhookId });
    },
  });
  const platform = platformOf({ ...env, ...inDatabase({ DB }) });
  expect(await platform.deleteWebhook({ webhookId })).toEqual({});
});

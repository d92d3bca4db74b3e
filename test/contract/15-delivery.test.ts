import { beforeAll, describe, expect, test } from "vitest";
import {
  EVENTS,
  eventually,
  isAuthentic,
  openReceiver,
  openWorkspace,
  platform,
  type Received,
  readDelivery,
  SUCCESS,
  subscribe,
} from "./support.ts";

/** The first retry comes after some ten seconds, and the runtime may be busy. */
const RETRIED_MS = 45_000;

/** A subscriber who answers so, to whom a lead is announced. */
async function openDelivery(answers?: string) {
  const workspace = await openWorkspace();
  const receiver = openReceiver(answers);
  const webhook = await subscribe(workspace.api, receiver.url, ["lead.created"]);
  await workspace.recordLead();
  const [first] = (await receiver.waitFor(1)) as [Received];
  return {
    ...workspace,
    receiver,
    webhook,
    first,
    readState: () => readDelivery(webhook.id, first.delivery.id),
  };
}

/** A delivery that an operator sends again once it has been accepted. */
async function openRedelivery() {
  const delivery = await openDelivery();
  const { first, receiver, webhook, readState } = delivery;
  await eventually(readState, ({ state }) => state === "delivered");
  await platform("redeliver", { webhookId: webhook.id, eventIds: [first.delivery.id] });
  const [, again] = (await receiver.waitFor(2)) as [Received, Received];
  return { ...delivery, again };
}

// Together, because some wait for a retry.
describe.concurrent("Delivery", () => {
  let usual: Awaited<ReturnType<typeof openRedelivery>>;
  beforeAll(async () => {
    usual = await openRedelivery();
  });

  test("Each event is sent by `POST`", () => {
    expect(usual.first.method).toBe("POST");
  });

  test("Each event is sent to the `url` of each subscription that lists its type", async () => {
    const { api, recordLead } = await openWorkspace();
    const receivers = [openReceiver(), openReceiver()];
    for (const { url } of receivers) await subscribe(api, url, ["lead.created", "run.completed"]);
    const id = await recordLead();
    for (const receiver of receivers) {
      const [received] = await receiver.waitFor(1);
      expect(received?.delivery).toMatchObject({ type: "lead.created", data: { id } });
    }
  });

  test.each(EVENTS)("`%s` is not sent to a subscription that does not list it", async (kind) => {
    const { api, recordAutomation, recordLead, recordRun } = await openWorkspace();
    const [lists, listsNot] = [openReceiver(), openReceiver()];
    await subscribe(api, lists.url, [kind]);
    await subscribe(
      api,
      listsNot.url,
      EVENTS.filter((other) => other !== kind),
    );
    // One event of each kind.
    const id = await recordAutomation();
    await recordLead();
    await recordRun(id);
    expect((await api.patch(`/automations/${id}`, { status: "paused" })).status).toEqual(SUCCESS);
    const kindsOf = (received: Received[]) => received.map(({ delivery }) => delivery.type);
    expect(kindsOf(await lists.waitFor(1))).toEqual([kind]);
    expect(kindsOf(await listsNot.waitFor(EVENTS.length - 1))).not.toContain(kind);
  });

  test("No event of another workspace is sent", async () => {
    const { api, recordLead } = await openWorkspace();
    const receiver = openReceiver();
    await subscribe(api, receiver.url);
    await (await openWorkspace()).recordLead();
    const id = await recordLead();
    const received = await receiver.waitFor(1);
    expect(received.map(({ delivery }) => delivery.data.id)).toEqual([id]);
  });

  test("The body is JSON", () => {
    expect(usual.first.headers["content-type"]).toMatch(/^application\/json\b/);
    expect(JSON.parse(usual.first.rawBody.toString())).toEqual(usual.first.delivery);
  });

  test("`X-Service-Signature` is `t=<unix timestamp>,v1=<hex digest>`", () => {
    expect(usual.first.headers["x-service-signature"]).toMatch(/^t=\d{10},v1=[0-9a-f]{64}$/);
  });

  test("`v1` is the HMAC-SHA256 of `{t}.{raw request body}`, keyed with the `secret`", () => {
    expect(isAuthentic(usual.webhook.secret, usual.first, usual.first.at)).toBe(true);
  });

  test("`t` differs from the receiver's time by less than 5 minutes", () => {
    const [, t] = /^t=(\d+),/.exec(usual.first.headers["x-service-signature"] ?? "") ?? [];
    expect(Math.abs(usual.first.at / 1000 - Number(t))).toBeLessThan(300);
  });

  test("The same event, delivered again, has the same `id`", () => {
    expect(usual.again.delivery.id).toBe(usual.first.delivery.id);
  });

  test("The same event, delivered again, is signed again", () => {
    expect(isAuthentic(usual.webhook.secret, usual.again, usual.again.at)).toBe(true);
  });

  test.each(["200", "201", "202", "204", "299"])("The answer %s is accepted", async (status) => {
    const { readState } = await openDelivery(status);
    const settled = await eventually(readState, ({ state }) => state !== "pending");
    expect(settled).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("A `2xx` after 7 seconds is accepted", async () => {
    const { readState } = await openDelivery("204@7000");
    const settled = await eventually(readState, ({ state }) => state !== "pending");
    expect(settled).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("The body of a 200 is ignored, even if it says `error`", async () => {
    const { readState } = await openDelivery("200:error");
    const settled = await eventually(readState, ({ state }) => state !== "pending");
    expect(settled).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("The body of a 500 is ignored, even if it says `ok`", {
    timeout: 2 * RETRIED_MS,
  }, async () => {
    const { receiver, first } = await openDelivery("500:ok,204");
    const [, again] = await receiver.waitFor(2, RETRIED_MS);
    expect(again?.delivery.id).toBe(first.delivery.id);
  });

  test.each(["302", "400", "401", "404", "410", "429", "500", "503"])(
    "A receiver that fails with %s gets the delivery again",
    { timeout: 2 * RETRIED_MS },
    async (status) => {
      const { receiver, first } = await openDelivery(`${status},204`);
      const [, again] = await receiver.waitFor(2, RETRIED_MS);
      expect(again?.delivery.id).toBe(first.delivery.id);
    },
  );

  test("A receiver that takes 12 seconds gets the delivery again", {
    timeout: 2 * RETRIED_MS,
  }, async () => {
    const { receiver, first } = await openDelivery("204@12000,204");
    const [, again] = await receiver.waitFor(2, RETRIED_MS);
    expect(again?.delivery.id).toBe(first.delivery.id);
  });

  test("A retry is signed at its own time", { timeout: 2 * RETRIED_MS }, async () => {
    const { receiver, webhook } = await openDelivery("500,204");
    const [first, again] = (await receiver.waitFor(2, RETRIED_MS)) as [Received, Received];
    expect(isAuthentic(webhook.secret, again, again.at)).toBe(true);
    expect(again.headers["x-service-signature"]).not.toBe(first.headers["x-service-signature"]);
  });

  test("The second wait is longer than the first", { timeout: 2 * RETRIED_MS }, async () => {
    const { receiver, readState } = await openDelivery("500");
    const [first, second] = (await receiver.waitFor(2, RETRIED_MS)) as [Received, Received];
    const { dueAt } = await eventually(readState, ({ attempts }) => attempts === 2);
    // By more than jitter alone.
    expect(Date.parse(dueAt ?? "") - second.at).toBeGreaterThan(1.5 * (second.at - first.at));
  });

  test("An accepted delivery is not sent again", { timeout: 2 * RETRIED_MS }, async () => {
    const { receiver } = await openDelivery("204");
    const failing = await openDelivery("500,204");
    // By then, the accepted one would have been sent again, too.
    await failing.receiver.waitFor(2, RETRIED_MS);
    expect(await receiver.read()).toHaveLength(1);
  });
});

// What follows prolonged failures is in 08-states.test.ts.

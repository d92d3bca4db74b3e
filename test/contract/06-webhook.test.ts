import { beforeAll, describe, expect, test } from "vitest";
import {
  A_LEAD,
  A_RUN,
  A_WEBHOOK,
  AN_AUTOMATION,
  AN_OBJECT,
  type Automation,
  anError,
  DATE_TIME,
  EVENTS,
  openReceiver,
  openWorkspace,
  type Page,
  type Run,
  SUCCESS,
  subscribe,
  type Webhook,
  type WebhookDelivery,
  type Workspace,
} from "./support.ts";

const URL = "https://hooks.example.com/automations?a=1";

/** Subscribes, and reads the subscription from the list. */
async function subscribed(events?: string[]) {
  const { api } = await openWorkspace();
  await subscribe(api, URL, events);
  const [webhook] = (await api.get<Page<Webhook>>("/webhooks")).body.data as [Webhook];
  return webhook;
}

describe("Webhook (subscription)", () => {
  let webhook: Webhook;
  beforeAll(async () => {
    webhook = await subscribed();
  });

  test("A webhook has all its fields, and no others", () => {
    expect(webhook).toEqual(A_WEBHOOK);
  });

  test("`url` is the subscribed URL", () => {
    expect(webhook.url).toBe(URL);
  });

  test("`events` are the subscribed event kinds", async () => {
    const events = ["lead.created", "run.completed"];
    expect((await subscribed(events)).events.toSorted()).toEqual(events);
  });

  test("`created_at` is a date-time", () => {
    expect(webhook.created_at).toEqual(DATE_TIME);
  });

  test("`secret` is not in the response to the deletion", async () => {
    const { api } = await openWorkspace();
    const { id, secret } = await subscribe(api, URL);
    const { status, body } = await api.delete<unknown>(`/webhooks/${id}`);
    expect(status).toEqual(SUCCESS);
    expect(JSON.stringify(body)).not.toContain(secret);
  });

  test("`secret` is in no delivery", async () => {
    const { api, recordLead } = await openWorkspace();
    const receiver = openReceiver();
    const { secret } = await subscribe(api, receiver.url);
    await recordLead();
    const [received] = await receiver.waitFor(1);
    expect(JSON.stringify(received?.headers) + received?.rawBody).not.toContain(secret);
  });
});

describe("WebhookEvent", () => {
  test.each(EVENTS)("`%s` is an event kind", async (kind) => {
    expect((await subscribed([kind])).events).toEqual([kind]);
  });

  test("There is no other event kind", async () => {
    const { api } = await openWorkspace();
    for (const kind of ["run.started", "lead.updated", "webhook.disabled", "*"])
      expect(await api.post("/webhooks", { url: URL, events: [kind] })).toMatchObject({
        status: 400,
        body: anError("invalid_request"),
      });
  });
});

describe("WebhookDelivery (body sent to subscribers)", () => {
  /** The delivery of the one event that something causes. */
  async function delivered(cause: (workspace: Workspace) => Promise<unknown>) {
    const workspace = await openWorkspace();
    const receiver = openReceiver();
    await subscribe(workspace.api, receiver.url);
    await cause(workspace);
    const [received] = await receiver.waitFor(1);
    return { ...workspace, delivery: received?.delivery };
  }

  let usual: WebhookDelivery | undefined;
  beforeAll(async () => {
    usual = (await delivered(({ recordLead }) => recordLead())).delivery;
  });

  test("A delivery has the fields `id`, `type`, `created_at` and `data`, and no others", () => {
    const [id, type] = [expect.any(String), expect.any(String)];
    expect(usual).toEqual({ id, type, created_at: DATE_TIME, data: AN_OBJECT });
  });

  test("`created_at` is a date-time", () => {
    expect(usual?.created_at).toEqual(DATE_TIME);
  });

  test("`type` is the discriminator that fixes the shape of `data`", async () => {
    const { api, recordAutomation, recordLead, recordRun } = await openWorkspace();
    const receiver = openReceiver();
    await subscribe(api, receiver.url);
    const automationId = await recordAutomation();
    await recordRun(automationId, { leadId: await recordLead() });
    expect((await api.patch(`/automations/${automationId}`, { status: "paused" })).status).toEqual(
      SUCCESS,
    );
    const received = await receiver.waitFor(3);
    const shapeOf = new Map(received.map(({ delivery }) => [delivery.type, delivery.data]));
    expect([...shapeOf.keys()].toSorted()).toEqual(EVENTS.toSorted());
    expect(Object.fromEntries(shapeOf)).toEqual({
      "lead.created": A_LEAD,
      "run.completed": A_RUN,
      "automation.status_changed": AN_AUTOMATION,
    });
  });

  test("`data` is a `Lead`, as the API shows it, when `type` is `lead.created`", async () => {
    const customFields = { "budget €": 1 };
    const { api, delivery } = await delivered(({ recordLead }) => recordLead({ customFields }));
    expect(delivery?.type).toBe("lead.created");
    expect(delivery?.data).toEqual((await api.get<Page>("/leads")).body.data[0]);
  });

  test("`data` is a `Run`, as the API shows it, when `type` is `run.completed`", async () => {
    const { api, delivery } = await delivered(async ({ recordAutomation, recordRun }) =>
      recordRun(await recordAutomation({ status: "draft" }), { actions: [{ type: "reply" }] }),
    );
    expect(delivery?.type).toBe("run.completed");
    expect(delivery?.data).toEqual((await api.get<Page<Run>>("/runs")).body.data[0]);
  });

  test("`data` is an `Automation`, as the API shows it, for `automation.status_changed`", async () => {
    const { api, delivery } = await delivered(async ({ api, recordAutomation }) =>
      api.patch(`/automations/${await recordAutomation()}`, { status: "paused" }),
    );
    expect(delivery?.type).toBe("automation.status_changed");
    expect(delivery?.data).toEqual((await api.get<Page<Automation>>("/automations")).body.data[0]);
  });
});

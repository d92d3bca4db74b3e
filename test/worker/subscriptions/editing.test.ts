import { expect, test } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { commit } from "../../../src/db/client.ts";
import { PRIORITY } from "../../../src/db/schema.ts";
import { updateSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { openWorkspace, Platform } from "../../support/api.ts";
import {
  DAY_MS,
  deliveryTo,
  owed,
  setDeliveries,
  setSubscription,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db } from "../../support/placement.ts";
import { openOwed, openPortal } from "../../support/portal.ts";

test.each<[field: string, theirs: object, expected: object]>([
  ["url", { url: "https://ok-theirs.example/" }, { url: "https://ok-mine.example/" }],
  ["events", { events: ["run.completed"] }, { events: ["lead.created"] }],
  ["description", { description: "theirs" }, { description: null }],
  ["headers", { headers: { "X-Theirs": "1111" } }, { headers: [] }],
])("A form that expects another %s than another person has set changes nothing", async (...row) => {
  const [field, theirs, expected] = row;
  const { webhookId, path, portal } = await openOwed();
  await Platform.updateWebhook({ webhookId, ...theirs });
  const fields = async () => {
    const { url, events, description, headers } = await Platform.readWebhook({ webhookId });
    return { url, events, description, headers };
  };
  const before = await fields();
  const answer = await portal.post(`${path}/update`, { description: "mine", expected });
  expect([answer.status, answer.body]).toMatchObject([
    400,
    {
      error: {
        code: "invalid_request",
        details: { reason: "changed_meanwhile", parameter: `expected.${field}` },
      },
    },
  ]);
  expect(await fields()).toEqual(before);
});

test("A form whose expectations hold changes what it sends, and nothing else", async () => {
  const { webhookId, path, portal, url } = await openOwed();
  await Platform.updateWebhook({ webhookId, events: ["run.completed", "lead.created"] });
  const expected = {
    url,
    events: ["lead.created", "run.completed"],
    description: null,
    headers: [],
  };
  expect(await portal.post(`${path}/update`, { description: "mine", expected })).toMatchObject({
    status: 200,
    body: {},
  });
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({
    url,
    description: "mine",
    events: ["run.completed", "lead.created"],
  });
  // An RPC caller may leave a field undefined.
  const unknown = { url, description: undefined };
  await Platform.updateWebhook({ webhookId, description: "ours", expected: unknown });
  expect(await Platform.readWebhook({ webhookId })).toMatchObject({ description: "ours" });
});

test.each([
  ["url", ["https://ok-1.example/", "https://ok-2.example/", "https://ok-3.example/"]],
  ["description", ["1", "2", "3"]],
  // None is what the subscription has at first, because a value that comes back cannot be told apart.
  ["events", [[...WebhookEvent.options], ["run.completed"], ["automation.status_changed"]]],
] as const)(
  "Each of several changes of the %s at once begins with what the one before it left",
  async (...row) => {
    const [field, values] = row;
    const { webhookId } = await openOwed();
    await Promise.all(values.map((value) => Platform.updateWebhook({ webhookId, [field]: value })));
    const { items } = await Platform.listWebhookChanges({ webhookId });
    const changed = items.filter(({ after }) => after !== null && field in after);
    const before = changed.map((change) => JSON.stringify(change.before?.[field]));
    expect(new Set(before).size).toBe(changed.length);
    expect(changed.length).toBeGreaterThan(1);
  },
);

test.each([
  ["another URL", true, { url: "https://ok-mine.example/" }, null],
  ["the same URL", false, { description: "mine" }, null],
  ["a URL that another call forestalls", false, { url: "https://ok-mine.example/" }, "theirs"],
])("A change to %s makes failed deliveries due: %j", async (_, isDue, change, description) => {
  const { id, url } = await owed(1, Date.now());
  const dueAt = Date.now() + DAY_MS;
  await setDeliveries(id, { priority: PRIORITY.retry, stepsUsed: 1, dueAt });
  const seen = await subscriptionRow(id);
  await setSubscription(id, { description });
  const now = Date.now();
  await commit(db, updateSubscription(id, { url, ...change }, now, seen));
  expect(await deliveryTo(id)).toMatchObject({ dueAt: isDue ? now : dueAt });
});

/** Sends the form of a new webhook, as the page repeats it after a lost response. */
function sendForm(portal: Awaited<ReturnType<typeof openPortal>>, more: object = {}) {
  return portal.send<{ id: string }>("/webhooks", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": "form-2" },
    body: JSON.stringify({ url: "https://ok-form.example/", events: ["lead.created"], ...more }),
  });
}

test("The same form in the portal of another workspace subscribes anew", async () => {
  const create = async () => {
    const { workspaceId } = await openWorkspace();
    const { status, body } = await sendForm(await openPortal(workspaceId));
    expect(status).toBe(201);
    return body.id;
  };
  expect(await create()).not.toBe(await create());
});

test.each([
  ["description", { description: "ERP" }],
  ["custom header", { headers: { "X-Token": "1111", "X-Team": "crm" } }],
])("A form that is repeated with another %s is rejected", async (_, other) => {
  const { workspaceId } = await openWorkspace();
  const portal = await openPortal(workspaceId);
  const form = { description: "CRM", headers: { "X-Token": "1111" } };
  const first = await sendForm(portal, form);
  expect(await sendForm(portal, form)).toMatchObject({ status: 201, body: first.body });
  expect(await sendForm(portal, { ...form, ...other })).toMatchObject({
    status: 400,
    body: { error: { details: { reason: "idempotency_key_reused" } } },
  });
});

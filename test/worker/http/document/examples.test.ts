import { beforeAll, describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import {
  eventsOf,
  type openApi,
  openListeningWorkspace,
  Platform,
  recordAutomation,
  send,
} from "../../../support/api.ts";
import { expectedSignatures } from "../../../support/deliveries.ts";
import { type Operation, operationsOf } from "../../../support/document.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";

const { body: document } = await send<object>("/openapi.json");
const operations = operationsOf(document);
const webhooks = operationsOf(document, "webhooks");

type Api = ReturnType<typeof openApi>;
// biome-ignore lint/suspicious/noExplicitAny: examples are compared by shape
type Json = any;

function operation(id: string): Operation {
  const found = operations.find(({ operationId }) => operationId === id);
  if (!found) throw new Error(`no operation ${id}`);
  return found;
}

/** The example of a success: the response according to the document. */
function answerOf(id: string): Json {
  const { responses } = operation(id);
  return (responses[200] ?? responses[201])?.content?.["application/json"].example;
}

const bodyOf = ({ requestBody }: Operation): Json =>
  requestBody?.content["application/json"].example;

/** The optional query parameters without a default, which a request may leave out and get the whole list. */
function filtersOf({ parameters }: Operation) {
  return parameters.filter(
    ({ in: place, required, schema }) => place === "query" && !required && !("default" in schema),
  );
}

/** Sends the document's request, with `id` in its path, and without filters other than `filter`. */
function request(api: Api, operation: Operation, id = "", filter?: Operation["parameters"][0]) {
  const { method, path, parameters, operationId } = operation;
  const examples = { limit: answerOf(operationId)?.data?.length };
  const omitted = filtersOf(operation).filter((other) => other !== filter);
  const query = parameters
    .filter((parameter) => parameter.in === "query" && !omitted.includes(parameter))
    .map(({ name, example }) => `${name}=${examples[name as "limit"] ?? example}`);
  const body = JSON.stringify(bodyOf(operation));
  return api.send<Json>(`${path.replace("{id}", id)}?${query.join("&")}`, {
    method,
    ...(body && { body, headers: { "Content-Type": "application/json" } }),
  });
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ID = /^(aut|agt|run|lea|whk|evt)_[0-9a-z]{25}$/;
const SECRET = /^whsec_[A-Za-z0-9+/]{43}=$/;

/** Maps ids of the examples to ids of the service, one to one. */
const twins = new Map<string, string>();

/** The service's id for the example of a path's parameter; "" if there is none. */
function twinIn(parameters: Operation["parameters"]): string {
  const id = parameters.find((one) => one.in === "path")?.example;
  return twins.get(String(id)) ?? "";
}

/**
 * Fails unless `actual` matches `example`; values that only the service can determine may differ.
 */
function expectSame(actual: Json, example: Json, at: string): void {
  if (typeof example === "object" && example !== null) {
    expect(Object.keys(actual), at).toEqual(Object.keys(example));
    for (const key of Object.keys(example)) expectSame(actual[key], example[key], `${at}.${key}`);
  } else if (typeof example === "string" && ID.test(example)) {
    expect(actual, at).toMatch(ID);
    expect(actual.slice(0, 4), at).toBe(example.slice(0, 4));
    expect(twins.get(example) ?? actual, `${at}: another record`).toBe(actual);
    twins.set(example, actual);
  } else if (at.endsWith(".next_cursor") && example !== null) {
    expect(decode(actual).slice(0, 3), at).toEqual(decode(example).slice(0, 3));
  } else if (at.endsWith(".secret")) {
    for (const secret of [actual, example]) expect(secret, at).toMatch(SECRET);
  } else if (typeof example === "string" && TIME.test(example)) {
    expect(actual, at).toMatch(TIME);
    // A time that was recorded, or that of something that has just happened.
    if (actual !== example) expect(Date.now() - Date.parse(actual), at).toBeLessThan(60_000);
  } else expect(actual, at).toBe(example);
}

function decode(cursor: string): unknown[] {
  return JSON.parse(atob(cursor.replaceAll("-", "+").replaceAll("_", "/")));
}

/** The values of `data` under the names that the platform uses for its fields. */
function camelCased(data: Json): Json {
  const named = Object.entries(data).map(([name, value]) => [
    name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(named);
}

// In this order, because the first sends the requests whose events another looks for.
describe("an example of the document is what the service responds", { shuffle: false }, () => {
  let workspaceId: string;
  let api: Api;

  /** Records the data of the examples, oldest first. */
  beforeAll(async () => {
    ({ workspaceId, api } = await openListeningWorkspace());
    const automations: Json[] = answerOf("listAutomations").data.toReversed();
    for (const { name, agent_name, updated_at, type, provider, status } of automations)
      await recordAutomation(workspaceId, {
        ...{ type, provider, status, updatedAt: updated_at },
        agent: { reference: "lumiere", name: agent_name },
        ...(type === "crm_source" && { name }),
      });
    const shown: Json[] = answerOf("listLeads").data.toReversed();
    // The page continues: there is one more item behind it.
    const older = { ...shown[0], name: "Avant", created_at: "2026-03-01T00:00:00.000Z" };
    const agent = { reference: "lumiere", name: "Agence Lumière" };
    const leads = [older, ...shown].map(({ id: _, agent_id, ...lead }) => ({
      ...camelCased(lead),
      ...{ reference: lead.name, agent },
    }));
    const recorded = await Platform.recordLeads({ workspaceId, leads });
    const page = await api.get<Json>("/v1/automations");
    const runs: Json[] = answerOf("listRuns").data.toReversed();
    await Platform.recordRuns({
      workspaceId,
      runs: runs.map(({ id, status, trigger_type, occurred_at, actions, lead_id }) => ({
        ...{ reference: id, status, actions, triggerType: trigger_type, occurredAt: occurred_at },
        automationId: page.body.data[0].id,
        leadId: lead_id && (recorded.ids.at(-1) as string),
      })),
    });
  });

  const setListener = (deletedAt: string) =>
    WORKSPACE_DB.exec(
      `UPDATE subscriptions SET deleted_at = ${deletedAt} WHERE url LIKE '%listener.example/'`,
    );

  test("if it is a success: requests are sent as documented, in an order that makes sense", async () => {
    const asked: string[] = [];
    const ask = async (id: string, of = "") => {
      asked.push(id);
      const answer = await request(api, operation(id), of);
      expect(operation(id).responses, id).toHaveProperty(String(answer.status));
      expect(answer.status, id).toBeLessThan(300);
      expectSame(answer.body, answerOf(id) ?? null, id);
      return answer.body;
    };
    // Lists come first: they show the ids that other paths take.
    const isRead = ({ method, path }: Operation) => method === "GET" && path !== "/v1/webhooks";
    const reads = operations.filter(isRead).toSorted((a, b) => a.path.length - b.path.length);
    for (const read of reads) {
      const id = twinIn(read.parameters);
      await ask(read.operationId, id);
      for (const filter of filtersOf(read)) {
        const { status, body } = await request(api, read, id, filter);
        expect(status, filter.name).toBe(200);
        expect(body.data, filter.name).not.toEqual([]);
      }
    }
    const created = await ask("createWebhook");
    // The subscription that makes sure every event is stored is not one of the examples.
    await setListener("0");
    await ask("listWebhooks");
    await setListener("NULL");
    await ask("controlAutomation", twinIn(operation("controlAutomation").parameters));
    await ask("deleteWebhook", created.id);
    expect(operations.map(({ operationId }) => operationId).toSorted()).toEqual(asked.toSorted());
  });

  test("if it is an event: it is announced as it was recorded", async () => {
    const events: Json[] = await eventsOf(workspaceId);
    for (const webhook of webhooks) {
      const example = bodyOf(webhook);
      const event = events.findLast(
        ({ type, data }) =>
          type === webhook.path &&
          (twins.get(example.data.id) ?? data.id) === data.id &&
          data.status === example.data.status,
      );
      expect(event, `an event of type ${webhook.path}, recorded by this file`).toBeDefined();
      expectSame(event, example, webhook.path);
    }
  });

  test("if it pauses an automation: the automation in the response is paused", () => {
    expect(answerOf("controlAutomation").status).toBe(
      bodyOf(operation("controlAutomation")).status,
    );
    expect(answerOf("createWebhook")).toMatchObject(bodyOf(operation("createWebhook")));
    expect(answerOf("createWebhook").disabled_at).toBeNull();
  });
});

test("if it is a signature: it is that of the example's body, under the example's secret", async () => {
  const { id, secret } = answerOf("createWebhook");
  expect(webhooks).toHaveLength(WebhookEvent.options.length);
  for (const webhook of webhooks) {
    const event = bodyOf(webhook);
    const headers = Object.fromEntries(
      webhook.parameters
        .filter(({ required }) => required)
        .map(({ name, example }) => [name, example]),
    );
    const timestamp = String(headers["webhook-timestamp"]);
    const signed = await expectedSignatures(secret, event.id, timestamp, JSON.stringify(event));
    expect(headers, webhook.path).toEqual({
      "X-Service-Signature": signed.service,
      "X-Service-Webhook": id,
      "webhook-id": event.id,
      "webhook-timestamp": timestamp,
      "webhook-signature": signed.standard,
    });
  }
});

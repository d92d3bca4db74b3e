import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type Changes, findChanges, type Part } from "../../../scripts/openapi/changes.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";

const committed: Part = JSON.parse(readFileSync(join(ROOT, "openapi.json"), "utf8"));

type Change = (document: Part) => unknown;

/** What is found between the committed document, modified by `prepare`, and the same after `change`. */
function changesBy(change: Change, prepare: Change = () => {}): Changes {
  const before = structuredClone(committed);
  prepare(before);
  const after = structuredClone(before);
  change(after);
  return findChanges(before, after);
}

/** Removes an item from a list. */
function drop(list: unknown[], item: unknown): void {
  expect(list).toContain(item);
  list.splice(list.indexOf(item), 1);
}

const schema = (d: Part, name: string): Part => d.components.schemas[name];
const leads = (d: Part): Part => d.paths["/v1/leads"].get;
const creation = (d: Part): Part => schema(d, "WebhookCreation");
/** The parameter called `name` of the list of leads. */
const parameter = (d: Part, name: string): Part =>
  leads(d).parameters.find((found: Part) => found.name === name);
/** A query parameter under a name that no list of leads will have. */
const COLOUR = { name: "colour", in: "query", schema: { type: "string" } };
/** The headers of a list of leads, made its own. */
const headers = (d: Part): Part => {
  const own = structuredClone(leads(d).responses["200"]);
  leads(d).responses["200"] = own;
  for (const [name, { $ref = "" }] of Object.entries<Part>(own.headers))
    own.headers[name] = structuredClone(d.components.headers[$ref.split("/").at(-1)]);
  return own.headers;
};

const HARMLESS: Record<string, Change> = {
  "a response has new fields, optional or not": (d) => {
    Object.assign(schema(d, "Lead").properties, { colour: { type: "string" }, age: {} });
    schema(d, "Lead").required.push("age");
  },
  "a request has a new optional field": (d) =>
    Object.assign(creation(d).properties, { name: { type: "string" } }),
  "there is a new route, whatever it requires": (d) => {
    const { parameters } = d.paths["/v1/webhooks/{id}"].delete;
    d.paths["/v1/webhooks/{id}/events"] = { post: { ...d.paths["/v1/webhooks"].post, parameters } };
  },
  "there is a new event": (d) =>
    Object.assign(d.webhooks, { "lead.invented": d.webhooks["lead.created"] }),
  "there is a new optional parameter": (d) => leads(d).parameters.push(COLOUR),
  "there is a new header": (d) => Object.assign(headers(d), { Age: { schema: {} } }),
  "there is a new status": (d) =>
    Object.assign(leads(d).responses, { 503: leads(d).responses[500] }),
  "what is written for people changes": (d) => {
    d.info.description = "New.";
    d.tags = [];
    leads(d).summary = "New.";
    leads(d).responses["200"].description = "New.";
    Object.assign(schema(d, "Lead").properties.name, { description: "New.", example: "New" });
    schema(d, "Lead").deprecated = true;
  },
  "a schema has another name": (d) => {
    d.components.schemas.Contact = schema(d, "Lead");
    schema(d, "LeadPage").properties.data.items.$ref = "#/components/schemas/Contact";
  },
  "clients may send another value": (d) =>
    schema(d, "AutomationControl").properties.status.enum.push("draft"),
  "keys are in another order": (d) => {
    d.paths = Object.fromEntries(Object.entries(d.paths).reverse());
    schema(d, "LeadSource").enum.reverse();
    schema(d, "Lead").required.reverse();
  },
};

/** Changes by what is found, of each kind of change. */
const BREAKING: Record<string, Change> = {
  // The path of a third route begins with that of the first.
  "GET /v1/automations/{id}/runs: it is gone; GET /v1/automations: it is gone": (d) => {
    delete d.paths["/v1/automations"];
    delete d.paths["/v1/automations/{id}/runs"];
  },
  "GET /v1/leads: no longer called listLeads; GET /v1/leads: now called getLeads": (d) =>
    Object.assign(leads(d), { operationId: "getLeads" }),
  "PATCH /v1/automations/{id} 422: it is gone": (d) =>
    delete d.paths["/v1/automations/{id}"].patch.responses["422"],
  "DELETE /v1/webhooks/{id} 404: no longer with the code webhook_not_found": (d) => {
    const { content } = d.components.responses.WebhookNotFound;
    delete content["application/json"].examples.webhook_not_found;
  },
  "GET /v1/leads query.cursor: it is gone": (d) =>
    drop(leads(d).parameters, parameter(d, "cursor")),
  "GET /v1/leads query.limit: now required": (d) =>
    Object.assign(parameter(d, "limit"), { required: true }),
  "GET /v1/leads query.colour: now required": (d) =>
    leads(d).parameters.push({ ...COLOUR, required: true }),
  "GET /v1/leads 200 header.X-RateLimit-Reset: it is gone": (d) =>
    delete headers(d)["X-RateLimit-Reset"],
  "GET /v1/leads 200 header.X-RateLimit-Reset: no longer required": (d) =>
    Object.assign(headers(d)["X-RateLimit-Reset"], { required: false }),
  "PATCH /v1/automations/{id} 200 content: it is gone; PATCH /v1/automations/{id} 200: no longer of type application/json":
    (d) => delete d.paths["/v1/automations/{id}"].patch.responses["200"].content,
  "GET /v1/leads body: now required": (d) =>
    Object.assign(leads(d), { requestBody: { required: true, content: {} } }),
  "POST /v1/webhooks body: it is gone": (d) => delete d.paths["/v1/webhooks"].post.requestBody,
  "webhook lead.created header.X-Service-Webhook: it is gone": (d) =>
    d.webhooks["lead.created"].post.parameters.shift(),
  'GET /v1/leads: no longer accepts [{"type":"http","scheme":"bearer"}]; GET /v1/leads: now accepts [{"type":"http","scheme":"basic"}]':
    (d) => {
      d.components.securitySchemes.token = { type: "http", scheme: "basic" };
      leads(d).security = [{ token: [] }];
    },
  "server /: it is gone": (d) => d.servers.pop(),
  // It is renamed.
  "GET /v1/runs 200 content.data[].lead_id: it is gone": (d) => {
    const { properties, required } = schema(d, "Run");
    properties.lead = properties.lead_id;
    delete properties.lead_id;
    required[required.indexOf("lead_id")] = "lead";
  },
  'GET /v1/leads 200 content.data[].agent_id: no longer type "string"; GET /v1/leads 200 content.data[].agent_id: now type ["string","null"]':
    (d) => Object.assign(schema(d, "Lead").properties.agent_id, { type: ["string", "null"] }),
  'GET /v1/runs 200 content.data[].occurred_at: no longer format "date-time"': (d) =>
    delete schema(d, "Run").properties.occurred_at.format,
  'GET /v1/runs 200 content.data[].trigger_type: no longer value "message"': (d) =>
    drop(schema(d, "TriggerType").enum, "message"),
  // Closed to new values, and open to them but not to losing one.
  'GET /v1/automations 400 content.error.code: now value "other_not_found"': (d) =>
    schema(d, "ErrorCode").enum.push("other_not_found"),
  'GET /v1/automations 400 content.error.details.reason: no longer value "out_of_range"': (d) =>
    drop(schema(d, "ErrorReason").anyOf[0].enum, "out_of_range"),
  "GET /v1/automations 400 content.error.details.reason: no longer open": (d) =>
    schema(d, "ErrorReason").anyOf.pop(),
  'GET /v1/leads query.cursor: no longer default ""; GET /v1/leads query.cursor: now default "a"': (
    d,
  ) => Object.assign(parameter(d, "cursor").schema, { default: "a" }),
  'POST /v1/webhooks body content.url: now value "https://example.com"': (d) =>
    Object.assign(creation(d).properties.url, { enum: ["https://example.com"] }),
  "POST /v1/webhooks body content.name: now required": (d) => {
    creation(d).properties.name = { type: "string" };
    creation(d).required.push("name");
  },
  "GET /v1/webhooks 200 content.data[].disabled_at: no longer required": (d) =>
    drop(schema(d, "Webhook").required, "disabled_at"),
  "GET /v1/leads query.limit: no longer maximum 100; GET /v1/leads query.limit: now maximum 50": (
    d,
  ) => Object.assign(parameter(d, "limit").schema, { maximum: 50 }),
  "GET /v1/leads 200 content.data[].custom_fields.*: it is gone; GET /v1/leads 200 content.data[].custom_fields: now without other properties":
    (d) =>
      Object.assign(schema(d, "Lead").properties.custom_fields, { additionalProperties: false }),
  // A keyword that the comparison does not know.
  'GET /v1/automations 200 content.data[]: now dependentRequired {"name":["agent_name"]}': (d) =>
    Object.assign(schema(d, "Automation"), { dependentRequired: { name: ["agent_name"] } }),
};

describe("within a version, a document", () => {
  test.each(Object.entries(HARMLESS))("may change if %s", (_, change) => {
    expect(changesBy(change)).toEqual({ breaking: [], growing: [] });
  });

  test.each(Object.entries(BREAKING))("must not change so that: %s", (found, change) => {
    expect(changesBy(change).breaking.sort().join("; ")).toBe(found);
  });

  test("must not change behind a schema that refers to itself", () => {
    const prepare = (d: Part) => {
      const filter = { $ref: "#/components/schemas/Filter" };
      creation(d).properties.filter = filter;
      const properties = { and: { type: "array", items: filter }, source: { type: "string" } };
      d.components.schemas.Filter = { type: "object", properties };
    };
    const change = (d: Part) => delete schema(d, "Filter").properties.source;
    expect(changesBy(change, prepare).breaking).toEqual([
      "POST /v1/webhooks body content.filter.source: it is gone",
    ]);
  });

  test("must not change in one of several schemas, nor get another one", () => {
    const agent = (d: Part): Part => schema(d, "Lead").properties.agent_id;
    const prepare = (d: Part) =>
      Object.assign(agent(d), { oneOf: [{ type: "string" }, { type: "null" }] });
    const at = "GET /v1/leads 200 content.data[].agent_id";
    const change = (d: Part) => Object.assign(agent(d).oneOf[1], { type: "integer" });
    expect(changesBy(change, prepare).breaking).toEqual([
      `${at}(oneOf 1): no longer type "null"`,
      `${at}(oneOf 1): now type "integer"`,
    ]);
    expect(changesBy((d) => agent(d).oneOf.push({}), prepare).breaking).toEqual([
      `${at}: no longer oneOf of 2`,
      `${at}: now oneOf of 3`,
    ]);
  });

  test("may have new types of automation, reasons of errors and kinds of events, once they are announced", () => {
    const change = (d: Part) => {
      schema(d, "AutomationType").enum.push("whatsapp");
      schema(d, "ErrorReason").anyOf[0].enum.push("too_late");
      schema(d, "WebhookEvent").enum.push("lead.erased");
    };
    const growing = [
      { name: "AutomationType", value: "whatsapp" },
      { name: "ErrorReason", value: "too_late" },
      { name: "WebhookEvent", value: "lead.erased" },
    ];
    expect(changesBy(change)).toEqual({ breaking: [], growing });
  });
});

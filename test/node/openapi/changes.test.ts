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
const parameters = (d: Part): [limit: Part, cursor: Part] => leads(d).parameters;
/** The headers of a list of leads, made its own. */
const headers = (d: Part): Part => {
  const own = structuredClone(leads(d).responses["200"]);
  leads(d).responses["200"] = own;
  for (const [name, { $ref = "" }] of Object.entries<Part>(own.headers))
    own.headers[name] = structuredClone(d.components.headers[$ref.split("/").at(-1)]);
  return own.headers;
};

const HARMLESS: [name: string, change: Change][] = [
  ["nothing changes", () => {}],
  [
    "a response has new fields, optional or not",
    (d) => {
      Object.assign(schema(d, "Lead").properties, { language: { type: "string" }, age: {} });
      schema(d, "Lead").required.push("age");
    },
  ],
  [
    "a request has a new optional field",
    (d) => Object.assign(creation(d).properties, { name: { type: "string" } }),
  ],
  [
    "there is a new route, whatever it requires",
    (d) => {
      const [post, { parameters }] = [
        d.paths["/v1/webhooks"].post,
        d.paths["/v1/webhooks/{id}"].delete,
      ];
      d.paths["/v1/webhooks/{id}/events"] = { post: { ...post, parameters } };
    },
  ],
  [
    "there is a new event",
    (d) => Object.assign(d.webhooks, { "lead.deleted": d.webhooks["lead.created"] }),
  ],
  [
    "there is a new optional parameter",
    (d) => leads(d).parameters.push({ name: "source", in: "query", schema: { type: "string" } }),
  ],
  ["there is a new header", (d) => Object.assign(headers(d), { Age: { schema: {} } })],
  [
    "there is a new status",
    (d) => Object.assign(leads(d).responses, { 503: leads(d).responses[500] }),
  ],
  [
    "what is written for people changes",
    (d) => {
      d.info.description = "New.";
      d.tags = [];
      leads(d).summary = "New.";
      leads(d).responses["200"].description = "New.";
      Object.assign(schema(d, "Lead").properties.name, { description: "New.", example: "New" });
      schema(d, "Lead").deprecated = true;
    },
  ],
  [
    "a schema has another name",
    (d) => {
      d.components.schemas.Contact = schema(d, "Lead");
      schema(d, "LeadPage").properties.data.items.$ref = "#/components/schemas/Contact";
    },
  ],
  [
    "clients may send another value",
    (d) => schema(d, "AutomationControl").properties.status.enum.push("draft"),
  ],
  [
    "keys are in another order",
    (d) => {
      d.paths = Object.fromEntries(Object.entries(d.paths).reverse());
      schema(d, "LeadSource").enum.reverse();
      schema(d, "Lead").required.reverse();
    },
  ],
];

const BREAKING: [name: string, change: Change, ...breaking: string[]][] = [
  ["a route is removed", (d) => delete d.paths["/v1/leads"], "GET /v1/leads: it is gone"],
  [
    "one operation of a path is removed",
    (d) => delete d.paths["/v1/automations/{id}"].patch,
    "PATCH /v1/automations/{id}: it is gone",
  ],
  [
    "a route is removed whose path begins another one",
    (d) => {
      delete d.paths["/v1/automations"];
      delete d.paths["/v1/automations/{id}/runs"];
    },
    "GET /v1/automations: it is gone",
    "GET /v1/automations/{id}/runs: it is gone",
  ],
  [
    "an operation gets another operationId",
    (d) => Object.assign(leads(d), { operationId: "getLeads" }),
    "GET /v1/leads: no longer called listLeads",
    "GET /v1/leads: now called getLeads",
  ],
  [
    "a status is removed",
    (d) => delete d.paths["/v1/automations/{id}"].patch.responses["422"],
    "PATCH /v1/automations/{id} 422: it is gone",
  ],
  [
    "an operation loses an error code but keeps its status",
    (d) =>
      delete d.components.responses.WebhookNotFound.content["application/json"].examples
        .webhook_not_found,
    "DELETE /v1/webhooks/{id} 404: no longer with the code webhook_not_found",
  ],
  ["a parameter is removed", (d) => parameters(d).pop(), "GET /v1/leads query.cursor: it is gone"],
  [
    "a parameter becomes required",
    (d) => Object.assign(parameters(d)[0], { required: true }),
    "GET /v1/leads query.limit: now required",
  ],
  [
    "a new parameter is required",
    (d) => parameters(d).push({ name: "source", in: "query", required: true, schema: {} }),
    "GET /v1/leads query.source: now required",
  ],
  [
    "a parameter is serialised differently",
    (d) => Object.assign(parameters(d)[1], { style: "pipeDelimited" }),
    'GET /v1/leads query.cursor: now style "pipeDelimited"',
  ],
  [
    "a header is removed",
    (d) => delete headers(d)["X-RateLimit-Reset"],
    "GET /v1/leads 200 header.X-RateLimit-Reset: it is gone",
  ],
  [
    "a header is no longer required",
    (d) => Object.assign(headers(d)["X-RateLimit-Reset"], { required: false }),
    "GET /v1/leads 200 header.X-RateLimit-Reset: no longer required",
  ],
  [
    "a response loses its body",
    (d) => delete d.paths["/v1/automations/{id}"].patch.responses["200"].content,
    "PATCH /v1/automations/{id} 200: no longer of type application/json",
    "PATCH /v1/automations/{id} 200 content: it is gone",
  ],
  [
    "a body becomes required",
    (d) => Object.assign(leads(d), { requestBody: { required: true, content: {} } }),
    "GET /v1/leads body: now required",
  ],
  [
    "a body is no longer accepted",
    (d) => delete d.paths["/v1/webhooks"].post.requestBody,
    "POST /v1/webhooks body: it is gone",
  ],
  [
    "a webhook event is removed",
    (d) => delete d.webhooks["lead.created"],
    "webhook lead.created: it is gone",
  ],
  [
    "a delivery loses its signature",
    (d) => d.webhooks["lead.created"].post.parameters.shift(),
    "webhook lead.created header.X-Service-Signature: it is gone",
  ],
  [
    "a response to a delivery no longer counts",
    (d) => delete d.webhooks["lead.created"].post.responses["2XX"],
    "webhook lead.created 2XX: it is gone",
  ],
  [
    "the authentication changes",
    (d) => {
      d.components.securitySchemes.token = { type: "http", scheme: "basic" };
      leads(d).security = [{ token: [] }];
    },
    'GET /v1/leads: no longer accepts [{"type":"http","scheme":"bearer"}]',
    'GET /v1/leads: now accepts [{"type":"http","scheme":"basic"}]',
  ],
  ["a server is removed", (d) => d.servers.pop(), "server /: it is gone"],
  [
    "a field is renamed",
    (d) => {
      const { properties, required } = schema(d, "Run");
      properties.lead = properties.lead_id;
      delete properties.lead_id;
      required[required.indexOf("lead_id")] = "lead";
    },
    "GET /v1/runs 200 content.data[].lead_id: it is gone",
  ],
  [
    "a field that clients send is removed",
    (d) => delete creation(d).properties.events,
    "POST /v1/webhooks body content.events: it is gone",
  ],
  [
    "a field that always had a value may be null",
    (d) => Object.assign(schema(d, "Lead").properties.agent_id, { type: ["string", "null"] }),
    'GET /v1/leads 200 content.data[].agent_id: no longer type "string"',
    'GET /v1/leads 200 content.data[].agent_id: now type ["string","null"]',
  ],
  [
    "a format is removed",
    (d) => delete schema(d, "Run").properties.occurred_at.format,
    'GET /v1/runs 200 content.data[].occurred_at: no longer format "date-time"',
  ],
  [
    "a value of an enumeration is removed",
    (d) => drop(schema(d, "LeadSource").enum, "telephony"),
    'GET /v1/leads 200 content.data[].source: no longer value "telephony"',
  ],
  [
    "a closed enumeration grows",
    (d) => schema(d, "ErrorCode").enum.push("other_not_found"),
    'GET /v1/automations 400 content.error.code: now value "other_not_found"',
  ],
  [
    "an enumeration that may grow shrinks",
    (d) => drop(schema(d, "ErrorReason").enum, "out_of_range"),
    'GET /v1/automations 400 content.error.details.reason: no longer value "out_of_range"',
  ],
  [
    "what clients send is limited to some values",
    (d) => Object.assign(creation(d).properties.url, { enum: ["https://example.com"] }),
    'POST /v1/webhooks body content.url: now value "https://example.com"',
  ],
  [
    "a request has a new required field",
    (d) => {
      creation(d).properties.name = { type: "string" };
      creation(d).required.push("name");
    },
    "POST /v1/webhooks body content.name: now required",
  ],
  [
    "a field of a response is no longer required",
    (d) => drop(schema(d, "Webhook").required, "disabled_at"),
    "GET /v1/webhooks 200 content.data[].disabled_at: no longer required",
  ],
  [
    "a maximum changes",
    (d) => Object.assign(parameters(d)[0].schema, { maximum: 50 }),
    "GET /v1/leads query.limit: no longer maximum 100",
    "GET /v1/leads query.limit: now maximum 50",
  ],
  [
    "a pattern is required",
    (d) => Object.assign(creation(d).properties.url, { pattern: "^https:" }),
    'POST /v1/webhooks body content.url: now pattern "^https:"',
  ],
  [
    "the values of a map are limited",
    (d) =>
      Object.assign(schema(d, "Lead").properties.custom_fields, { additionalProperties: false }),
    "GET /v1/leads 200 content.data[].custom_fields.*: it is gone",
    "GET /v1/leads 200 content.data[].custom_fields: now without other properties",
  ],
  [
    "a keyword appears that the comparison does not know",
    (d) => Object.assign(schema(d, "Automation"), { dependentRequired: { name: ["agent_name"] } }),
    'GET /v1/automations 200 content.data[]: now dependentRequired {"name":["agent_name"]}',
  ],
];

describe("within a version, a document", () => {
  test.each(HARMLESS)("may change if %s", (_, change) => {
    expect(changesBy(change)).toEqual({ breaking: [], growing: [] });
  });

  test.each(BREAKING)("must not change if %s", (_, change, ...breaking) => {
    expect(changesBy(change).breaking.sort()).toEqual(breaking.sort());
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

  test("may have new types of automation and reasons of errors, once they are announced", () => {
    const change = (d: Part) => {
      schema(d, "AutomationType").enum.push("whatsapp");
      schema(d, "ErrorReason").enum.push("too_late");
    };
    const growing = [
      { name: "AutomationType", value: "whatsapp" },
      { name: "ErrorReason", value: "too_late" },
    ];
    expect(changesBy(change)).toEqual({ breaking: [], growing });
  });
});

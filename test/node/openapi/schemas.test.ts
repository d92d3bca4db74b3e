import { describe, expect, test } from "vitest";
import type { Part } from "../../../scripts/openapi/schemas.ts";
import { type Change, changesBy, drop, limit, schema } from "./document.ts";

function details(document: Part): Part {
  return schema(document, "Error").properties.error.properties.details;
}

const BREAKING: [name: string, change: Change, breaking: string[]][] = [
  [
    "a field is removed",
    (d) => delete schema(d, "Lead").properties.email,
    ["GET /v1/leads 200 body.data[].email: it is gone"],
  ],
  [
    "a field is renamed",
    (d) => {
      const { properties, required } = schema(d, "Run");
      properties.lead = properties.lead_id;
      delete properties.lead_id;
      required[required.indexOf("lead_id")] = "lead";
    },
    ["GET /v1/runs 200 body.data[].lead_id: it is gone"],
  ],
  [
    "a field that clients send is removed",
    (d) => delete schema(d, "WebhookCreation").properties.events,
    ["POST /v1/webhooks body.events: it is gone"],
  ],
  [
    "a type changes",
    (d) => {
      schema(d, "Automation").properties.updated_at.type = "integer";
    },
    ['GET /v1/automations 200 body.data[].updated_at: its type "string" became "integer"'],
  ],
  [
    "a field that always had a value may be null",
    (d) => {
      schema(d, "Lead").properties.agent_id.type = ["string", "null"];
    },
    ['GET /v1/leads 200 body.data[].agent_id: its type "string" became ["string","null"]'],
  ],
  [
    "a format is removed",
    (d) => delete schema(d, "Run").properties.occurred_at.format,
    ['GET /v1/runs 200 body.data[].occurred_at: format "date-time" → (none)'],
  ],
  [
    "a value of an enumeration is removed",
    (d) => drop(schema(d, "LeadSource").enum, "telephony"),
    ['GET /v1/leads 200 body.data[].source: the value "telephony" is gone'],
  ],
  [
    "a closed enumeration grows",
    (d) => schema(d, "ErrorCode").enum.push("other_not_found"),
    [
      'GET /v1/automations 400 body.error.code: the value "other_not_found" is new in a closed list',
    ],
  ],
  [
    "an enumeration becomes a free string",
    (d) => delete schema(d, "RunStatus").enum,
    [
      'GET /v1/runs 200 body.data[].status: it is no longer limited to ["success","partial","failed"]',
    ],
  ],
  [
    "an event kind can no longer be subscribed to",
    (d) => {
      schema(d, "WebhookCreation").properties.events.items = {
        type: "string",
        enum: ["run.completed", "lead.created"],
      };
    },
    ['POST /v1/webhooks body.events[]: the value "automation.status_changed" is gone'],
  ],
  [
    "an error code is removed",
    (d) => drop(schema(d, "ErrorCode").enum, "webhook_not_found"),
    ['GET /v1/automations 400 body.error.code: the value "webhook_not_found" is gone'],
  ],
  [
    "an error reason is removed",
    (d) => drop(schema(d, "ErrorReason").enum, "out_of_range"),
    ['GET /v1/automations 400 body.error.details.reason: the value "out_of_range" is gone'],
  ],
  [
    "a request has a new required field",
    (d) => {
      schema(d, "WebhookCreation").properties.name = { type: "string" };
      schema(d, "WebhookCreation").required.push("name");
    },
    ["POST /v1/webhooks body.name: it is now required"],
  ],
  [
    "a field of a response is no longer required",
    (d) => drop(schema(d, "Webhook").required, "disabled_at"),
    ["GET /v1/webhooks 200 body.data[].disabled_at: it is no longer always there"],
  ],
  [
    "a maximum is lowered",
    (d) => {
      limit(d).maximum = 50;
    },
    ["GET /v1/leads query.limit: maximum 100 → 50"],
  ],
  [
    "a minimum is raised",
    (d) => {
      limit(d).minimum = 10;
    },
    ["GET /v1/leads query.limit: minimum 1 → 10"],
  ],
  [
    "a default changes",
    (d) => {
      limit(d).default = 10;
    },
    ["GET /v1/leads query.limit: default 25 → 10"],
  ],
  [
    "a length is limited",
    (d) => {
      schema(d, "WebhookCreation").properties.events.maxItems = 2;
    },
    ["POST /v1/webhooks body.events: maxItems (none) → 2"],
  ],
  [
    "a pattern is required",
    (d) => {
      schema(d, "WebhookCreation").properties.url.pattern = "^https:";
    },
    ['POST /v1/webhooks body.url: pattern (none) → "^https:"'],
  ],
  [
    "the values of a map are limited",
    (d) => {
      schema(d, "Lead").properties.custom_fields.additionalProperties = false;
    },
    ["GET /v1/leads 200 body.data[].custom_fields: further properties are refused"],
  ],
  [
    "a keyword appears that the comparison does not understand",
    (d) => {
      schema(d, "Automation").dependentRequired = { name: ["agent_name"] };
    },
    ['GET /v1/automations 200 body.data[]: dependentRequired (none) → {"name":["agent_name"]}'],
  ],
];

describe("a change of a schema breaks a client if", () => {
  test.each(BREAKING)("%s", (_, change, breaking) => {
    expect(changesBy(change).breaking).toEqual(breaking);
  });

  test("a property that clients send is removed behind a reference to itself", () => {
    const prepare = (d: Part) => {
      schema(d, "WebhookCreation").properties.filter = { $ref: "#/components/schemas/Filter" };
      d.components.schemas.Filter = {
        type: "object",
        properties: {
          and: { type: "array", items: { $ref: "#/components/schemas/Filter" } },
          source: { type: "string" },
        },
      };
    };
    const change = (d: Part) => delete schema(d, "Filter").properties.source;
    expect(changesBy(change, prepare).breaking).toEqual([
      "POST /v1/webhooks body.filter.source: it is gone",
    ]);
  });

  test("one of several schemas changes, or schemas are added", () => {
    const prepare = (d: Part) => {
      schema(d, "Lead").properties.agent_id = { oneOf: [{ type: "string" }, { type: "null" }] };
    };
    const path = "GET /v1/leads 200 body.data[].agent_id";
    const changed = changesBy((d) => {
      schema(d, "Lead").properties.agent_id.oneOf[1].type = "integer";
    }, prepare);
    expect(changed.breaking).toEqual([`${path}(oneOf 1): its type "null" became "integer"`]);
    const added = changesBy(
      (d) => schema(d, "Lead").properties.agent_id.oneOf.push({ type: "integer" }),
      prepare,
    );
    expect(added.breaking).toEqual([`${path}: oneOf has 2 → 3 schemas`]);
  });

  test("properties that were ignored are rejected", () => {
    const body = (d: Part) => schema(d, "AutomationControl");
    const prepare = (d: Part) => delete body(d).additionalProperties;
    const change = (d: Part) => {
      body(d).additionalProperties = false;
    };
    expect(changesBy(change, prepare).breaking).toEqual([
      "PATCH /v1/automations/{id} body: further properties are refused",
    ]);
  });
});

test("a new type of automation must be announced, but breaks no client", () => {
  expect(changesBy((d) => schema(d, "AutomationType").enum.push("whatsapp"))).toEqual({
    breaking: [],
    growing: [{ name: "AutomationType", value: "whatsapp" }],
  });
  expect(changesBy((d) => schema(d, "AutomationType").enum.shift()).breaking).toHaveLength(1);
});

test("a new error reason must be announced, even if the list had no name before", () => {
  const grown = { breaking: [], growing: [{ name: "ErrorReason", value: "too_late" }] };
  const grow: Change = (d) => schema(d, "ErrorReason").enum.push("too_late");
  expect(changesBy(grow)).toEqual(grown);
  const unname: Change = (d) => {
    details(d).properties.reason = structuredClone(schema(d, "ErrorReason"));
  };
  const name: Change = (d) => {
    details(d).properties.reason = { $ref: "#/components/schemas/ErrorReason" };
    grow(d);
  };
  expect(changesBy(name, unname)).toEqual(grown);
});

import { describe, expect, test } from "vitest";
import { type Change, changesBy, drop, limit, operation, response, schema } from "./document.ts";

const HARMLESS: [name: string, change: Change][] = [
  ["nothing changes", () => {}],
  [
    "a response has a new optional field",
    (d) => {
      schema(d, "Lead").properties.language = { type: "string" };
    },
  ],
  [
    "a response has a new required field",
    (d) => {
      schema(d, "Lead").properties.language = { type: "string" };
      schema(d, "Lead").required.push("language");
    },
  ],
  [
    "a request has a new optional field",
    (d) => {
      schema(d, "WebhookCreation").properties.name = { type: "string" };
    },
  ],
  [
    "there is a new route",
    (d) => {
      d.paths["/v1/agents"] = structuredClone(d.paths["/v1/leads"]);
    },
  ],
  [
    "there is a new event",
    (d) => {
      d.webhooks["lead.deleted"] = structuredClone(d.webhooks["lead.created"]);
    },
  ],
  [
    "there is a new optional parameter",
    (d) =>
      operation(d, "get", "/v1/leads").parameters.push({
        name: "source",
        in: "query",
        schema: { type: "string" },
      }),
  ],
  [
    "there is a new header",
    (d) => {
      operation(d, "get", "/v1/leads").responses["200"].headers.Age = {
        schema: { type: "integer" },
      };
    },
  ],
  [
    "a header is written in another case",
    (d) => {
      const { headers } = response(d, "get", "/v1/leads", "429");
      headers["retry-after"] = headers["Retry-After"];
      delete headers["Retry-After"];
    },
  ],
  [
    "there is a new status",
    (d) => {
      const { responses } = operation(d, "get", "/v1/leads");
      responses["503"] = responses["500"];
    },
  ],
  [
    "descriptions and examples change",
    (d) => {
      d.info.description = "New.";
      operation(d, "get", "/v1/leads").summary = "New.";
      operation(d, "get", "/v1/leads").responses["200"].description = "New.";
      schema(d, "Lead").properties.name.description = "New.";
      schema(d, "Lead").properties.name.example = "New";
      schema(d, "Lead").deprecated = true;
      d.tags = [];
    },
  ],
  [
    "more values are accepted",
    (d) => {
      limit(d).maximum = 200;
      limit(d).minimum = 0;
      delete schema(d, "WebhookCreation").properties.url.maxLength;
      delete schema(d, "WebhookCreation").properties.events.minItems;
      drop(schema(d, "WebhookCreation").required, "events");
    },
  ],
  [
    "a type that clients send is widened",
    (d) => {
      limit(d).type = "number";
    },
  ],
  [
    "a field of a response can no longer be null",
    (d) => {
      schema(d, "Lead").properties.name.type = "string";
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
    "there is a second way to authenticate",
    (d) => {
      d.components.securitySchemes.token = { type: "http", scheme: "basic" };
      d.security.push({ token: [] });
    },
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

describe("a difference between two documents breaks no client if", () => {
  test.each(HARMLESS)("%s", (_, change) => {
    expect(changesBy(change)).toEqual({ breaking: [], growing: [] });
  });
});

import { describe, expect, test } from "vitest";
import { type Change, changesBy, operation, parameters, response, schema } from "./document.ts";

const BREAKING: [name: string, change: Change, breaking: string[]][] = [
  ["a route is removed", (d) => delete d.paths["/v1/leads"], ["GET /v1/leads: it is gone"]],
  [
    "one operation of a path is removed",
    (d) => delete d.paths["/v1/automations/{id}"].patch,
    ["PATCH /v1/automations/{id}: it is gone"],
  ],
  [
    "an operation gets another operationId",
    (d) => {
      operation(d, "get", "/v1/leads").operationId = "getLeads";
    },
    ["GET /v1/leads: its operationId listLeads became getLeads"],
  ],
  [
    "a status is removed",
    (d) => delete operation(d, "patch", "/v1/automations/{id}").responses["422"],
    ["PATCH /v1/automations/{id} 422: it is gone"],
  ],
  [
    "an operation loses an error code but keeps its status",
    (d) => {
      const { content } = response(d, "delete", "/v1/webhooks/{id}", "404");
      delete content["application/json"].examples.webhook_not_found;
    },
    ["DELETE /v1/webhooks/{id} 404: the error code webhook_not_found is gone"],
  ],
  [
    "a parameter is removed",
    (d) => parameters(d, "get", "/v1/leads").pop(),
    ["GET /v1/leads query.cursor: it is gone"],
  ],
  [
    "a parameter becomes required",
    (d) => {
      Object.assign(parameters(d, "get", "/v1/leads")[0] ?? {}, { required: true });
    },
    ["GET /v1/leads query.limit: it is now required"],
  ],
  [
    "a parameter is serialised differently",
    (d) => {
      Object.assign(parameters(d, "get", "/v1/leads")[1] ?? {}, { style: "pipeDelimited" });
    },
    ["GET /v1/leads query.cursor: its style changed"],
  ],
  [
    "a header is removed",
    (d) => delete response(d, "get", "/v1/leads", "429").headers["Retry-After"],
    ["GET /v1/leads 429 header.retry-after: it is gone"],
  ],
  [
    "a header is no longer required",
    (d) => {
      response(d, "get", "/v1/leads", "200").headers["X-RateLimit-Reset"].required = false;
    },
    ["GET /v1/leads 200 header.x-ratelimit-reset: it is no longer always there"],
  ],
  [
    "a response loses its body",
    (d) => delete operation(d, "patch", "/v1/automations/{id}").responses["200"].content,
    ["PATCH /v1/automations/{id} 200 application/json: it is gone"],
  ],
  [
    "a body becomes required",
    (d) => {
      operation(d, "get", "/v1/leads").requestBody = { required: true, content: {} };
    },
    ["GET /v1/leads body: it is now required"],
  ],
  [
    "a body is no longer accepted",
    (d) => delete operation(d, "post", "/v1/webhooks").requestBody,
    ["POST /v1/webhooks body: it is gone"],
  ],
  [
    "a webhook event is removed",
    (d) => delete d.webhooks["lead.created"],
    ["webhook lead.created: it is gone"],
  ],
  [
    "a field of a delivery is removed",
    (d) => delete schema(d, "RunCompleted").properties.created_at,
    ["webhook run.completed body.created_at: it is gone"],
  ],
  [
    "a delivery loses its signature",
    (d) => d.webhooks["lead.created"].post.parameters.shift(),
    ["webhook lead.created header.x-service-signature: it is gone"],
  ],
  [
    "a response to a delivery no longer counts",
    (d) => delete d.webhooks["lead.created"].post.responses["2XX"],
    ["webhook lead.created 2XX: it is gone"],
  ],
  [
    "the authentication changes",
    (d) => {
      d.components.securitySchemes.token = { type: "http", scheme: "basic" };
      operation(d, "get", "/v1/leads").security = [{ token: [] }];
    },
    ["GET /v1/leads: its authentication changed"],
  ],
  ["a server is removed", (d) => d.servers.pop(), ["server /: it is gone"]],
];

describe("a change of an operation breaks a client if", () => {
  test.each(BREAKING)("%s", (_, change, breaking) => {
    expect(changesBy(change).breaking).toEqual(breaking);
  });
});

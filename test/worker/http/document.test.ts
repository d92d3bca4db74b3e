import { describe, expect, test } from "vitest";
import { ErrorBody } from "../../../src/contract/error-body.ts";
import { ERRORS, REASONS } from "../../../src/contract/errors.ts";
import { EVERY_ANSWER, send } from "../../support/api.ts";
import { type Operation, operationsOf } from "../../support/document.ts";

interface Document {
  openapi: string;
  info: { version: string; contact: object };
  servers: { url: string }[];
  security: unknown;
  paths: Record<string, Record<string, { callbacks?: object; responses: object }>>;
  webhooks: object;
  components: {
    securitySchemes: Record<string, { type: string; scheme: string }>;
    schemas: Record<string, Schema>;
    headers: object;
    responses: object;
    callbacks: Record<string, object>;
  };
}
interface Schema {
  description?: string;
  enum?: string[];
  required?: string[];
  properties?: Record<string, { description?: string; $ref?: string }>;
  oneOf?: { $ref: string }[];
  discriminator?: { propertyName: string; mapping: Record<string, string> };
}

const { status, headers, body: document } = await send<Document>("/openapi.json");

function operations(): [name: string, operation: Operation][] {
  return operationsOf(document).map((one) => [`${one.method} ${one.path}`, one]);
}

describe("the OpenAPI document", () => {
  test("is OpenAPI 3.1, has the contract's version, and needs no key", () => {
    expect({ status, headers }).toEqual({
      status: 200,
      headers: {
        ...EVERY_ANSWER,
        "access-control-allow-origin": "*",
        "content-type": "application/json",
      },
    });
    expect(document.openapi).toMatch(/^3\.1\./);
    expect(document.info.version).toBe("1.0.0-draft.2");
  });

  test("gives the address it was read from", async () => {
    expect(document.servers).toEqual([
      { url: "https://api.example", description: expect.any(String) },
    ]);
  });

  test("has the bearer scheme, on every route", () => {
    expect(Object.values(document.components.securitySchemes)).toEqual([
      expect.objectContaining({ type: "http", scheme: "bearer" }),
    ]);
    const [name = ""] = Object.keys(document.components.securitySchemes);
    expect(document.security).toEqual([{ [name]: [] }]);
    for (const [, { security }] of operations()) expect(security).toBeUndefined();
  });

  test("has the contract's routes, and every status that they can return", () => {
    const everywhere = ["401", "403", "404", "429", "500"];
    const statuses = operations().map(([name, { responses }]) => [name, Object.keys(responses)]);
    for (const [name, found] of statuses)
      expect(found, String(name)).toEqual(expect.arrayContaining(everywhere));
    expect(Object.fromEntries(statuses)).toMatchObject({
      "GET /v1/automations": ["200", "400", ...everywhere],
      "GET /v1/automations/{id}": ["200", ...everywhere],
      "PATCH /v1/automations/{id}": [
        "200",
        "400",
        ...everywhere.slice(0, 3),
        "413",
        "415",
        "422",
        ...everywhere.slice(3),
      ],
      "GET /v1/automations/{id}/runs": ["200", "400", ...everywhere],
      "GET /v1/leads": ["200", "400", ...everywhere],
      "GET /v1/runs": ["200", "400", ...everywhere],
      "GET /v1/webhooks": ["200", "400", ...everywhere],
      "POST /v1/webhooks": [
        "201",
        "400",
        ...everywhere.slice(0, 3),
        "413",
        "415",
        ...everywhere.slice(3),
      ],
      "DELETE /v1/webhooks/{id}": ["204", ...everywhere],
    });
  });

  test("has the five headers on every response, WWW-Authenticate on 401 and Retry-After on 429", () => {
    for (const [name, { responses }] of operations())
      for (const [status, { headers }] of Object.entries(responses))
        expect(Object.keys(headers ?? {}).toSorted(), `${name} ${status}`).toEqual([
          "Cache-Control",
          ...(status === "429" ? ["Retry-After"] : []),
          ...(status === "401" ? ["WWW-Authenticate"] : []),
          "X-RateLimit-Limit",
          "X-RateLimit-Remaining",
          "X-RateLimit-Reset",
          "X-Request-Id",
        ]);
  });

  test("has an example of the error body for each code under its status", () => {
    for (const [name, { responses }] of operations())
      for (const [status, { content }] of Object.entries(responses)) {
        if (Number(status) < 400) continue;
        const examples = Object.values(content?.["application/json"].examples ?? {});
        expect(examples.length, `${name} ${status}`).toBeGreaterThan(0);
        for (const { value } of examples) {
          const { error } = ErrorBody.parse(value);
          expect(ERRORS[error.code].statuses).toContain(Number(status));
        }
      }
  });

  test("has limit and cursor on every list, neither required", () => {
    const lists = operations().filter(([name]) => /^GET .*(s|runs)$/.test(name));
    expect(lists).toHaveLength(5);
    for (const [name, { parameters }] of lists) {
      const query = parameters.filter((parameter) => parameter.in === "query");
      expect(
        query.map((parameter) => [parameter.name, parameter.required ?? false]),
        name,
      ).toEqual([
        ["limit", false],
        ["cursor", false],
      ]);
    }
  });

  test("has the closed lists of the contract", () => {
    const { schemas } = document.components;
    expect(schemas.ErrorCode?.enum).toEqual(Object.keys(ERRORS));
    expect(schemas.ErrorReason?.enum).toEqual(Object.keys(REASONS));
    expect(schemas.AutomationStatus?.enum).toEqual(["active", "paused", "draft", "error"]);
    expect(schemas.WebhookEvent?.enum).toEqual([
      "run.completed",
      "lead.created",
      "automation.status_changed",
    ]);
  });

  test("requires every field of the resources", () => {
    const contract = {
      Automation: [
        "id",
        "name",
        "type",
        "provider",
        "agent_id",
        "agent_name",
        "status",
        "updated_at",
      ],
      Lead: ["id", "source", "agent_id", "name", "email", "phone", "custom_fields", "created_at"],
      Run: ["id", "automation_id", "status", "trigger_type", "occurred_at", "actions", "lead_id"],
      Webhook: ["id", "url", "events", "created_at", "disabled_at"],
      WebhookWithSecret: ["id", "url", "events", "created_at", "disabled_at", "secret"],
    };
    for (const [name, fields] of Object.entries(contract)) {
      const { required, properties } = document.components.schemas[name] ?? {};
      expect(required, name).toEqual(expect.arrayContaining(fields));
      expect(Object.keys(properties ?? {})).toEqual(required);
    }
  });

  test("has the three webhooks, signed and without a key", () => {
    const deliveries = operationsOf(document, "webhooks");
    expect(deliveries.map(({ path }) => path).toSorted()).toEqual([
      "automation.status_changed",
      "lead.created",
      "run.completed",
    ]);
    for (const post of deliveries) {
      expect(post.security).toEqual([]);
      expect(post.requestBody?.required).toBe(true);
      expect(post.parameters.map((parameter) => [parameter.in, parameter.name])).toEqual([
        ["header", "X-Service-Signature"],
        ["header", "webhook-id"],
        ["header", "webhook-timestamp"],
        ["header", "webhook-signature"],
      ]);
    }
  });

  test("has the deliveries as one union, discriminated by type, as the subscription's callback", () => {
    const { WebhookDelivery } = document.components.schemas;
    const members = ["LeadCreated", "RunCompleted", "AutomationStatusChanged"];
    const references = members.map((name) => `#/components/schemas/${name}`);
    expect(WebhookDelivery?.oneOf?.map(({ $ref }) => $ref)).toEqual(references);
    expect(WebhookDelivery?.discriminator).toEqual({
      propertyName: "type",
      mapping: {
        "lead.created": references[0],
        "run.completed": references[1],
        "automation.status_changed": references[2],
      },
    });
    expect(document.paths["/v1/webhooks"]?.post?.callbacks).toEqual({
      event: { $ref: "#/components/callbacks/event" },
    });
    const { event } = document.components.callbacks;
    expect(JSON.stringify(event)).toContain('"#/components/schemas/WebhookDelivery"');
  });

  test("describes every field, every enumeration value and every operation", () => {
    const { schemas } = document.components;
    for (const [name, schema] of Object.entries(schemas)) {
      expect(schema.description, name).toMatch(/[.:]/);
      for (const [field, { description, $ref }] of Object.entries(schema.properties ?? {}))
        expect(description ?? $ref, `${name}.${field}`).toBeTruthy();
      // Codes and reasons have their own tables.
      if (/^Error/.test(name)) continue;
      for (const value of schema.enum ?? [])
        expect(schema.description, `${name} ${value}`).toMatch(`- \`${value}\`: `);
    }
    for (const [name, { description = "" }] of operations())
      expect(description.length, name).toBeGreaterThan(40);
  });

  test("repeats nothing that can be shared: every error and every header is a reference", () => {
    for (const methods of Object.values(document.paths))
      for (const { responses } of Object.values(methods))
        for (const [status, response] of Object.entries(responses))
          if (Number(status) >= 400) expect(Object.keys(response)).toEqual(["$ref"]);
          else
            for (const header of Object.values(response.headers))
              expect(header).toEqual({ $ref: expect.stringMatching(/^#.components.headers./) });
    expect(JSON.stringify(document).length).toBeLessThan(80_000);
  });

  test("is the same each time it is built", async () => {
    expect((await send("/openapi.json")).body).toEqual(document);
  });
});

import { beforeAll, describe, expect, test } from "vitest";
import { ERRORS, REASONS } from "../../src/contract/errors.ts";
import { EVERY_ANSWER, send } from "../support/api.ts";

interface Response {
  headers?: Record<string, { required?: boolean }>;
  content?: { "application/json": { examples?: Record<string, { value: unknown }> } };
}
interface Operation {
  operationId: string;
  security?: unknown[];
  parameters?: { name: string; in: string; required?: boolean }[];
  requestBody?: { required: boolean };
  responses: Record<string, Response>;
}
interface Document {
  openapi: string;
  info: { version: string };
  security: unknown;
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, { post: Operation }>;
  components: {
    securitySchemes: Record<string, { type: string; scheme: string }>;
    schemas: Record<string, { enum?: string[]; required?: string[]; properties?: object }>;
  };
}

let document: Document;
beforeAll(async () => {
  const answer = await send<Document>("/openapi.json");
  expect(answer).toMatchObject({ status: 200, headers: EVERY_ANSWER });
  document = answer.body;
});

function operations(): [name: string, operation: Operation][] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]): [string, Operation] => [
      `${method.toUpperCase()} ${path}`,
      operation,
    ]),
  );
}

describe("the OpenAPI document", () => {
  test("is of OpenAPI 3.1 and of the version of the contract, and needs no key", () => {
    expect(document.openapi).toMatch(/^3\.1\./);
    expect(document.info.version).toBe("1.0.0-draft.2");
  });

  test("has the nine routes and no other", () => {
    expect(
      operations()
        .map(([name]) => name)
        .toSorted(),
    ).toEqual([
      "DELETE /v1/webhooks/{id}",
      "GET /v1/automations",
      "GET /v1/automations/{id}",
      "GET /v1/automations/{id}/runs",
      "GET /v1/leads",
      "GET /v1/runs",
      "GET /v1/webhooks",
      "PATCH /v1/automations/{id}",
      "POST /v1/webhooks",
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

  test("has every status that a route can answer", () => {
    const everywhere = ["401", "403", "404", "429", "500"];
    const statuses = operations().map(([name, { responses }]) => [name, Object.keys(responses)]);
    expect(Object.fromEntries(statuses)).toEqual({
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

  test("has the four headers on every answer, WWW-Authenticate on 401 and Retry-After on 429", () => {
    for (const [name, { responses }] of operations())
      for (const [status, { headers }] of Object.entries(responses))
        expect(Object.keys(headers ?? {}).toSorted(), `${name} ${status}`).toEqual([
          "Cache-Control",
          ...(status === "429" ? ["Retry-After"] : []),
          ...(status === "401" ? ["WWW-Authenticate"] : []),
          "X-RateLimit-Limit",
          "X-RateLimit-Remaining",
          "X-RateLimit-Reset",
        ]);
  });

  test("has an example of the error body for each code under its status", () => {
    for (const [name, { responses }] of operations())
      for (const [status, { content }] of Object.entries(responses)) {
        if (Number(status) < 400) continue;
        const examples = Object.entries(content?.["application/json"].examples ?? {});
        expect(examples.length, `${name} ${status}`).toBeGreaterThan(0);
        for (const [code, { value }] of examples) {
          expect(ERRORS[code as keyof typeof ERRORS].statuses).toContain(Number(status));
          expect(value).toEqual({
            error: { code, message: expect.any(String), details: expect.any(Object) },
          });
        }
      }
  });

  test("has limit and cursor on every list, neither required", () => {
    const lists = operations().filter(([name]) => /^GET .*(s|runs)$/.test(name));
    expect(lists).toHaveLength(5);
    for (const [name, { parameters = [] }] of lists) {
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
    expect(JSON.stringify(schemas.Error)).toContain(JSON.stringify(Object.keys(REASONS)));
    expect(schemas.AutomationStatus?.enum).toEqual(["active", "paused", "draft", "error"]);
    expect(schemas.WebhookEvent?.enum).toEqual([
      "run.completed",
      "lead.created",
      "automation.status_changed",
    ]);
  });

  test("requires every field of the resources", () => {
    const fields = {
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
    for (const [name, required] of Object.entries(fields)) {
      expect(document.components.schemas[name]?.required, name).toEqual(required);
      expect(Object.keys(document.components.schemas[name]?.properties ?? {})).toEqual(required);
    }
  });

  test("has the three deliveries, signed and without a key", () => {
    expect(Object.keys(document.webhooks).toSorted()).toEqual([
      "automation.status_changed",
      "lead.created",
      "run.completed",
    ]);
    for (const { post } of Object.values(document.webhooks)) {
      expect(post.security).toEqual([]);
      expect(post.requestBody?.required).toBe(true);
      expect(post.parameters?.map((parameter) => [parameter.in, parameter.name])).toEqual([
        ["header", "X-Service-Signature"],
        ["header", "webhook-id"],
        ["header", "webhook-timestamp"],
        ["header", "webhook-signature"],
      ]);
    }
  });

  test("is the same each time", async () => {
    expect((await send("/openapi.json")).body).toEqual(document);
  });
});

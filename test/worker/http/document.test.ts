import { describe, expect, test } from "vitest";
import committed from "../../../openapi.json";
import { buildDocument } from "../../../src/http/document/document.ts";
import { EVERY_ANSWER, send } from "../../support/api.ts";
import { operationsOf } from "../../support/document.ts";

interface Document {
  openapi: string;
  info: { version: string };
  components: { schemas: Record<string, Schema> };
}
interface Schema {
  description?: string;
  enum?: string[];
  properties?: Record<string, { description?: string; $ref?: string }>;
}

const { body: document } = await send<Document>("/openapi.json");

describe("the OpenAPI document", () => {
  test.each([
    ["/openapi.json", /^3\.1\./],
    ["/openapi-3.0.json", /^3\.0\./],
  ])(
    "%s has its version of OpenAPI, version 1 of the contract, and needs no key",
    async (...row) => {
      const [path, version] = row;
      const { status, headers, body } = await send<Document>(path);
      expect({ status, headers }).toEqual({
        status: 200,
        headers: {
          ...EVERY_ANSWER,
          "access-control-allow-origin": "*",
          "content-type": "application/json; charset=utf-8",
        },
      });
      expect(body.openapi).toMatch(version);
      expect(body.info.version).toMatch(/^1\.0\.0/);
    },
  );

  test("is the committed one, with the contract's routes, statuses, headers, fields and lists", () => {
    expect(JSON.parse(JSON.stringify(buildDocument()))).toEqual(committed);
    const servers = [{ url: "https://api.example", description: expect.any(String) }];
    expect(document).toEqual({ ...committed, servers });
  });

  test("describes every field, every enumeration value and every operation", () => {
    const { schemas } = document.components;
    for (const [name, schema] of Object.entries(schemas)) {
      expect(schema.description, name).toMatch(/[.:]/);
      for (const [field, { description, $ref }] of Object.entries(schema.properties ?? {}))
        expect(description ?? $ref, `${name}.${field}`).toBeTruthy();
      // Codes and reasons have their own tables, and event types are the document's webhooks.
      if (/^Error|^WebhookEvent$/.test(name)) continue;
      for (const value of schema.enum ?? [])
        expect(schema.description, `${name} ${value}`).toMatch(`- \`${value}\`: `);
    }
    for (const { operationId, description = "" } of operationsOf(document))
      expect(description.length, operationId).toBeGreaterThan(40);
    const events = operationsOf(document, "webhooks");
    expect(events.map(({ path }) => path)).toEqual(schemas.WebhookEvent?.enum);
    for (const { path, description } of events) expect(description, path).toMatch(/^Sent when /);
  });
});

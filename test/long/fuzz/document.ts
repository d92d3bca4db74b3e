import { type Schema, Validator } from "@cfworker/json-schema";
import { expect } from "vitest";
import { type Operation, operationsOf } from "../../support/document.ts";
import type { Answer } from "./client.ts";

/** Reads the OpenAPI document that the service at `base` serves, to check its responses. */
export async function readContract(base: URL) {
  const answer = await fetch(new URL("/openapi.json", base));
  const document = (await answer.json()) as { components: object };
  const operations = operationsOf(document);
  const validators = new Map<string, Validator>();

  /** The operation of a request; undefined if the contract has none. HEAD counts as GET. */
  function find(method: string, pathname: string): Operation | undefined {
    const segments = pathname.split("/");
    return operations.find((operation) => {
      const expected = operation.path.split("/");
      return (
        operation.method === (method === "HEAD" ? "GET" : method) &&
        expected.length === segments.length &&
        expected.every((part, i) =>
          part.startsWith("{") ? segments[i] !== "" : part === segments[i],
        )
      );
    });
  }

  /** Fails unless the operation allows this response: status, headers and body. */
  function expectAllowed(
    { operationId, responses }: Operation,
    { status, body }: Answer,
    hasBody: boolean,
  ): void {
    const response = responses[status];
    expect(response, `${operationId} answered ${status}`).toBeDefined();
    const schema = response?.content?.["application/json"].schema;
    if (!schema || !hasBody) {
      expect(body).toBeNull();
      return;
    }
    const name = `${operationId} ${status}`;
    const whole = { ...schema, components: document.components } as Schema;
    const validator = validators.get(name) ?? new Validator(whole, "2020-12");
    validators.set(name, validator);
    const { valid, errors } = validator.validate(body);
    expect(valid, `${operationId}: ${JSON.stringify(errors)}`).toBe(true);
  }

  return { operations, find, expectAllowed };
}

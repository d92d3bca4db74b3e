import { type Schema, Validator } from "@cfworker/json-schema";
import { expect } from "vitest";
import { type Operation, operationsOf } from "../../support/document.ts";
import type { Answer } from "./client.ts";

/** Checks responses against the OpenAPI document that the service serves. */
export class Contract {
  readonly operations: Operation[];
  #components: object;
  #validators = new Map<string, Validator>();

  private constructor(document: { components: object }) {
    this.operations = operationsOf(document);
    this.#components = document.components;
  }

  /** Reads the document of the service at `base`. */
  static async read(base: URL): Promise<Contract> {
    const answer = await fetch(new URL("/openapi.json", base));
    return new Contract((await answer.json()) as { components: object });
  }

  /** The operation of a request; undefined if the contract has none. HEAD counts as GET. */
  find(method: string, pathname: string): Operation | undefined {
    const segments = pathname.split("/");
    return this.operations.find((operation) => {
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
  expectAllowed(operation: Operation, answer: Answer, hasBody: boolean): void {
    const response = operation.responses[answer.status];
    expect(response, `${operation.operationId} answered ${answer.status}`).toBeDefined();
    const schema = response?.content?.["application/json"].schema;
    if (!schema || !hasBody) {
      expect(answer.body).toBeNull();
      return;
    }
    const { valid, errors } = this.#validator(operation, answer.status, schema).validate(
      answer.body,
    );
    expect(valid, `${operation.operationId}: ${JSON.stringify(errors)}`).toBe(true);
  }

  #validator({ operationId }: Operation, status: number, schema: Schema): Validator {
    const name = `${operationId} ${status}`;
    const known = this.#validators.get(name);
    if (known) return known;
    const whole = { ...schema, components: this.#components } as Schema;
    const validator = new Validator(whole, "2020-12");
    this.#validators.set(name, validator);
    return validator;
  }
}

import { type Schema, Validator } from "@cfworker/json-schema";
import { expect } from "vitest";
import type { Answer } from "./client.ts";

interface Operation {
  operationId: string;
  responses: Record<
    string,
    { headers?: object; content?: { "application/json": { schema: Schema } } }
  >;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: object;
}

/** Judges answers by the OpenAPI document that the service itself serves. */
export class Contract {
  readonly document: Document;
  #validators = new Map<string, Validator>();

  private constructor(document: Document) {
    this.document = document;
  }

  /** Reads the document of the service at `base`. */
  static async read(base: URL): Promise<Contract> {
    const answer = await fetch(new URL("/openapi.json", base));
    return new Contract((await answer.json()) as Document);
  }

  /** The operation that a request means; undefined when the contract has none. HEAD is GET. */
  find(method: string, pathname: string): Operation | undefined {
    const segments = pathname.split("/");
    const match = Object.entries(this.document.paths).find(([template]) => {
      const expected = template.split("/");
      return (
        expected.length === segments.length &&
        expected.every((part, i) =>
          part.startsWith("{") ? segments[i] !== "" : part === segments[i],
        )
      );
    });
    return match?.[1][(method === "HEAD" ? "GET" : method).toLowerCase()];
  }

  /** Fails unless the operation may answer so: status, headers and body. */
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
    const { components } = this.document;
    const validator = new Validator({ ...schema, components } as Schema, "2020-12");
    this.#validators.set(name, validator);
    return validator;
  }
}

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { type Changes, findChanges } from "../../../scripts/openapi/changes.ts";
import { type Part, resolve } from "../../../scripts/openapi/schemas.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";

/** The committed document. */
export const committed: Part = JSON.parse(readFileSync(join(ROOT, "openapi.json"), "utf8"));

export type Change = (document: Part) => unknown;

/** What a client of the committed document, modified by `prepare`, finds after `change`. */
export function changesBy(change: Change, prepare?: Change): Changes {
  const before = structuredClone(committed);
  prepare?.(before);
  const after = structuredClone(before);
  change(after);
  return findChanges(before, after);
}

/** Removes an item from a list. */
export function drop(list: unknown[], item: unknown): void {
  expect(list).toContain(item);
  list.splice(list.indexOf(item), 1);
}

export function schema(document: Part, name: string): Part {
  return document.components.schemas[name];
}

export function operation(document: Part, method: string, path: string): Part {
  return document.paths[path][method];
}

/** The schema of the parameter `limit` of a list. */
export function limit(document: Part): Part {
  return parameters(document, "get", "/v1/leads")[0]?.schema;
}

/** The response of an operation, made its own if it was shared, and its headers too. */
export function response(document: Part, method: string, path: string, status: string): Part {
  const { responses } = operation(document, method, path);
  const own = structuredClone(resolve(document, responses[status]).part);
  for (const [name, header] of Object.entries<Part>(own.headers))
    own.headers[name] = structuredClone(resolve(document, header).part);
  responses[status] = own;
  return own;
}

/** The parameters of an operation, made its own if they were shared. */
export function parameters(document: Part, method: string, path: string): Part[] {
  const one = operation(document, method, path);
  one.parameters = one.parameters.map((each: Part) =>
    structuredClone(resolve(document, each).part),
  );
  return one.parameters;
}

/** A part of an OpenAPI document, used untyped. */
// biome-ignore lint/suspicious/noExplicitAny: documents are untyped
type Part = Record<string, any>;

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  example?: unknown;
  schema: Part;
}
interface Content {
  schema: Part;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}
interface Response {
  headers?: Record<string, { required?: boolean; schema: Part }>;
  content?: { "application/json": Content };
}
export interface Operation {
  method: string;
  path: string;
  operationId: string;
  tags: string[];
  description?: string;
  security?: unknown[];
  parameters: Parameter[];
  requestBody?: { required: boolean; content: { "application/json": Content } };
  responses: Record<string, Response>;
}

/** Resolves `part` in `document`: its reference is followed, those inside are not. */
function follow(document: Part, part: Part): Part {
  if (typeof part.$ref !== "string") return part;
  const keys = part.$ref.split("/").slice(1);
  return follow(
    document,
    keys.reduce((parent: Part, key) => parent[key.replaceAll("~1", "/")], document),
  );
}

/** The operations of a document, with parameters, responses and headers resolved. */
export function operationsOf(document: Part, of: "paths" | "webhooks" = "paths"): Operation[] {
  return Object.entries<Part>(document[of]).flatMap(([path, methods]) =>
    Object.entries<Part>(methods).map(([method, operation]) => ({
      ...(operation as Operation),
      method: method.toUpperCase(),
      path,
      parameters: (operation.parameters ?? []).map((one: Part) => follow(document, one)),
      responses: Object.fromEntries(
        Object.entries<Part>(operation.responses).map(([status, one]) => {
          const response = follow(document, one);
          const headers = Object.entries<Part>(response.headers ?? {}).map(([name, header]) => [
            name,
            follow(document, header),
          ]);
          return [status, { ...response, headers: Object.fromEntries(headers) }];
        }),
      ),
    })),
  );
}

import { isDeepStrictEqual } from "node:util";
import { Comparison, type Direction, type Part, resolve } from "./schemas.ts";

/** What changes for a client from one OpenAPI document to another. */
export interface Changes {
  /** What breaks it, one sentence each: where, and what happened there. */
  breaking: string[];
  /** New values of enumerations that may grow, once announced. */
  growing: { name: string; value: unknown }[];
}

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/**
 * Compares two OpenAPI 3.1 documents from a client's point of view. Breaking is what makes a
 * correct client fail: a route, parameter, field, value, status, header or error code is removed,
 * more is required of it, or less promised to it. Optional additions are not breaking, nor are
 * changed descriptions.
 *
 * No npm library finds as much: `openapi-diff` does not support OpenAPI 3.1; `api-smart-diff` misses
 * webhooks and error codes, and reports a new response field as breaking. `oasdiff` and
 * `openapi-changes` are binaries that npm does not install.
 */
export function findChanges(before: Part, after: Part): Changes {
  const comparison = new DocumentComparison(before, after);
  comparison.compare();
  const { breaking, growing } = comparison;
  return { breaking: [...breaking], growing: [...growing.values()] };
}

class DocumentComparison extends Comparison {
  compare(): void {
    const { before, after } = this;
    for (const { url } of before.servers ?? [])
      if (!after.servers?.some((server: Part) => server.url === url))
        this.breaks(`server ${url}`, "it is gone");
    this.#compareOperations("sent", before.paths, after.paths, (path, method) =>
      [method.toUpperCase(), path].join(" "),
    );
    // The service calls webhooks: clients receive their requests and send their answers.
    const toName = (name: string) => `webhook ${name}`;
    this.#compareOperations("received", before.webhooks, after.webhooks, toName);
  }

  #compareOperations(
    direction: Direction,
    before: Part = {},
    after: Part = {},
    toName: (path: string, method: string) => string,
  ): void {
    for (const [path, item] of Object.entries<Part>(before))
      for (const method of METHODS.filter((method) => method in item)) {
        const operation = after[path]?.[method];
        const at = toName(path, method);
        if (operation)
          this.#compareOperation(
            direction,
            withShared(item, method),
            withShared(after[path], method),
            at,
          );
        else this.breaks(at, "it is gone");
      }
  }

  #compareOperation(direction: Direction, before: Part, after: Part, at: string): void {
    if (before.operationId !== after.operationId)
      this.breaks(at, `its operationId ${before.operationId} became ${after.operationId}`);
    if (direction === "sent") this.#compareSecurity(before, after, at);
    for (const place of ["path", "query", "header", "cookie"]) {
      const inPlace = (document: Part, parameters: Part[]) =>
        Object.fromEntries(
          parameters
            .map((parameter) => resolve(document, parameter).part)
            .filter((parameter) => parameter.in === place)
            .map((parameter) => [parameter.name, parameter]),
        );
      const was = inPlace(this.before, before.parameters);
      const is = inPlace(this.after, after.parameters);
      this.#compareNamed(direction, was, is, place === "header", `${at} ${place}`);
    }
    this.#compareBodies(direction, before.requestBody, after.requestBody, at);
    const answers: Direction = direction === "sent" ? "received" : "sent";
    for (const [status, response] of Object.entries<Part>(before.responses ?? {})) {
      const counterpart = after.responses?.[status];
      if (counterpart) this.#compareResponses(answers, response, counterpart, `${at} ${status}`);
      else this.breaks(`${at} ${status}`, "it is gone");
    }
  }

  /** Credentials that were accepted must still be accepted. */
  #compareSecurity(before: Part, after: Part, at: string): void {
    const ways = (document: Part, operation: Part): Part[] =>
      (operation.security ?? document.security ?? []).map((way: Part) =>
        Object.entries(way).map(([name, scopes]) => {
          const { description: _, ...scheme } = document.components.securitySchemes[name];
          return { scheme, scopes };
        }),
      );
    const was = ways(this.before, before);
    const is = ways(this.after, after);
    const open = is.length === 0 || is.some((way) => way.length === 0);
    const kept = was.length > 0 && was.every((way) => is.some((it) => isDeepStrictEqual(it, way)));
    if (!open && !kept) this.breaks(at, "its authentication changed");
  }

  /** Compares parameters or headers by name, like the properties of one object. */
  #compareNamed(
    direction: Direction,
    before: Part,
    after: Part,
    ignoreCase: boolean,
    at: string,
  ): void {
    const toObject = (document: Part, named: Part) => {
      const all = Object.entries<Part>(named).map(([name, part]): [string, Part] => [
        ignoreCase ? name.toLowerCase() : name,
        resolve(document, part).part,
      ]);
      return {
        properties: Object.fromEntries(all.map(([name, { schema }]) => [name, schema])),
        required: all.filter(([, { required }]) => required).map(([name]) => name),
        all: Object.fromEntries(all),
      };
    };
    const { all: was, ...objectBefore } = toObject(this.before, before);
    const { all: is, ...objectAfter } = toObject(this.after, after);
    this.compareSchemas(direction, objectBefore, objectAfter, at);
    for (const name of Object.keys(was).filter((name) => name in is))
      for (const key of ["style", "explode", "allowReserved", "allowEmptyValue", "content"])
        if (!isDeepStrictEqual(was[name]?.[key], is[name]?.[key]))
          this.breaks(`${at}.${name}`, `its ${key} changed`);
  }

  #compareBodies(
    direction: Direction,
    before: Part | undefined,
    after: Part | undefined,
    at: string,
  ): void {
    const was = before && resolve(this.before, before).part;
    const is = after && resolve(this.after, after).part;
    if (direction === "sent" && is?.required && !was?.required)
      this.breaks(`${at} body`, "it is now required");
    if (direction === "received" && was?.required && is && !is.required)
      this.breaks(`${at} body`, "it is no longer always there");
    if (was && !is) this.breaks(`${at} body`, "it is gone");
    if (was && is) this.#compareContent(direction, was.content, is.content, at);
  }

  #compareContent(direction: Direction, before: Part = {}, after: Part = {}, at: string): void {
    for (const [type, { schema }] of Object.entries<Part>(before)) {
      const counterpart = after[type];
      if (counterpart) this.compareSchemas(direction, schema, counterpart.schema, `${at} body`);
      else this.breaks(`${at} ${type}`, "it is gone");
    }
  }

  #compareResponses(direction: Direction, before: Part, after: Part, at: string): void {
    const { part: was } = resolve(this.before, before);
    const { part: is } = resolve(this.after, after);
    this.#compareNamed(direction, was.headers ?? {}, is.headers ?? {}, true, `${at} header`);
    this.#compareContent(direction, was.content, is.content, at);
    const codes = errorCodes(is);
    for (const code of errorCodes(was))
      if (!codes.includes(code)) this.breaks(at, `the error code ${code} is gone`);
  }
}

/** The operation of a path, with the parameters shared by all its operations. */
function withShared(item: Part, method: string): Part {
  const operation = item[method];
  return {
    ...operation,
    parameters: [...(item.parameters ?? []), ...(operation.parameters ?? [])],
  };
}

/** The error codes of a response: its examples have one error body for each. */
function errorCodes({ content = {} }: Part): string[] {
  return Object.values<Part>(content)
    .flatMap(({ examples = {} }) => Object.values<Part>(examples))
    .flatMap(({ value }) => value?.error?.code ?? []);
}

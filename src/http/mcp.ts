import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError } from "../contract/errors.ts";
import { isServed, type Part as ServedPart } from "../contract/served.ts";
import { isText } from "../contract/text.ts";
import { authenticate } from "./authentication.ts";
import { readJson } from "./body.ts";
import type { AppEnv } from "./context.ts";
import { partLetThrough } from "./served.ts";

// biome-ignore lint/suspicious/noExplicitAny: an OpenAPI document is read by shape
type Part = Record<string, any>;

/** A route as a tool, and how to turn the tool's arguments into its request. */
interface Tool {
  definition: Part & { name: string };
  method: string;
  path: string;
  parameters: Part[];
  hasBody: boolean;
  /** What a deployment must serve for it to be there. */
  parts: ServedPart[];
}

/** What a call is sent with, besides its arguments: whose key it is, and where it comes from. */
const PASSED_ON = ["Authorization", "CF-Connecting-IP", "CF-Ray", "User-Agent"];

/**
 * Serves the routes of `app` as tools, over stateless Streamable HTTP: a new route is a tool without another
 * line (https://modelcontextprotocol.io). Call it after the routes. A call of a tool is a request of its
 * route, which authenticates and counts it; any other message counts as a request of its own.
 */
export function serveMcp(app: OpenAPIHono<AppEnv>): void {
  let tools: Tool[] | undefined;
  app.on(["POST", "GET", "DELETE"], "/mcp", async (c) => {
    tools ??= toolsOf(app);
    const served = tools.filter(({ parts }) =>
      parts.every((part) => isServed(c.env.SERVED_ROUTES, part)),
    );
    const message = c.req.method === "POST" ? ((await readJson(c)) as Part | null) : null;
    const handle = () => answer(app, c, served, message);
    const called = message?.method === "tools/call" ? await handle() : undefined;
    if (called?.isCounted) return called.response;
    let response: Response | undefined;
    await authenticate(c, async () => {
      ({ response } = called ?? (await handle()));
      c.res = response;
    });
    return response;
  });
}

/** Answers a message; if it is a call of a tool, also says whether a route has authenticated and counted it. */
async function answer(
  app: OpenAPIHono<AppEnv>,
  c: Context<AppEnv>,
  tools: Tool[],
  message: Part | null,
): Promise<{ response: Response; isCounted: boolean }> {
  let refused: Response | undefined;
  let isCounted = false;
  const limits: [string, string][] = [];
  // Its schemas would take a quarter of the start of every isolate, and few requests need them.
  const { createMcpHandler, Server } = await import("@modelcontextprotocol/server");
  const handler = createMcpHandler(() => {
    const server = new Server(
      { name: "public-api", version: "1.0.0" },
      { capabilities: { tools: {} } },
    );
    server.setRequestHandler("tools/list", () => ({
      tools: tools.map(({ definition }) => definition as never),
    }));
    server.setRequestHandler("tools/call", async ({ params }) => {
      const tool = tools.find(({ definition }) => definition.name === params.name);
      if (!tool) return toResult(404, new ApiError("route_not_found").toBody());
      const request = toRequest(c, tool, params.arguments ?? {});
      if (request instanceof ApiError) return toResult(request.status, request.toBody());
      const response = await app.fetch(request, c.env, c.executionCtx);
      isCounted = true;
      for (const [name, value] of response.headers)
        if (/^(x-)?ratelimit/.test(name)) limits.push([name, value]);
      if (response.status === 401) refused = response.clone();
      const text = await response.text();
      return toResult(response.status, text === "" ? null : JSON.parse(text));
    });
    return server;
  });
  const given = message === null ? {} : { parsedBody: message };
  const response = await handler.fetch(c.req.raw, given);
  if (message?.method !== "tools/call") return { response, isCounted };
  // The route has answered once the body is read, whether or not it is a stream.
  const text = await response.text();
  // An HTTP client learns of an invalid key as everywhere else.
  const told = refused ?? new Response(text === "" ? null : text, response);
  for (const [name, value] of limits) told.headers.set(name, value);
  return { response: told, isCounted };
}

function toResult(status: number, body: unknown) {
  const text = JSON.stringify(body ?? { status });
  const content = [{ type: "text" as const, text }];
  if (status >= 400) return { content, isError: true };
  return body === null ? { content } : { content, structuredContent: body as Part };
}

/** The request of a call: an argument that is no parameter belongs to the body. */
function toRequest(c: Context<AppEnv>, { method, path, parameters, hasBody }: Tool, given: Part) {
  const headers = new Headers();
  for (const name of PASSED_ON) {
    const value = c.req.header(name);
    if (value !== undefined) headers.set(name, value);
  }
  const url = new URL(c.req.url);
  url.pathname = path;
  url.search = "";
  const rest = { ...given };
  for (const { name, in: place } of parameters) {
    const value = rest[name];
    delete rest[name];
    if (place === "path") {
      if (value === undefined)
        return new ApiError("invalid_request", { parameter: name, reason: "required" });
      const text = String(value);
      // A dot segment would name another route, and half a surrogate pair has no encoding.
      if (/^\.{0,2}$/.test(text) || !isText(text))
        return new ApiError("invalid_request", { parameter: name, reason: "invalid_type" });
      url.pathname = url.pathname.replace(encodeURI(`{${name}}`), () => encodeURIComponent(text));
    } else if (value === undefined || value === null) continue;
    else if (place === "query") url.searchParams.set(name, String(value));
    else headers.set(name, String(value));
  }
  if (!hasBody) return new Request(url, { method, headers });
  headers.set("Content-Type", "application/json");
  return new Request(url, { method, headers, body: JSON.stringify(rest) });
}

/** The tools of an app's routes. */
function toolsOf(app: OpenAPIHono<AppEnv>): Tool[] {
  const { paths, components }: Part = app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: { title: "", version: "" },
  });
  const schemas: Part = components?.schemas ?? {};
  // References within a tool's schema lead to its own definitions.
  const local = (part: unknown) =>
    JSON.parse(JSON.stringify(part ?? {}).replaceAll("#/components/schemas/", "#/$defs/"));
  const whole = ({ $ref, ...own }: Part): Part =>
    $ref ? schemas[String($ref).split("/").at(-1) ?? ""] : own;
  const selfContained = (schema: Part): Part => {
    const used: Part = {};
    const collect = (part: unknown) => {
      for (const [, name = ""] of JSON.stringify(part).matchAll(/#\/\$defs\/(\w+)"/g)) {
        if (used[name]) continue;
        used[name] = local(schemas[name]);
        collect(used[name]);
      }
    };
    collect(schema);
    return Object.keys(used).length > 0 ? { ...schema, $defs: used } : schema;
  };
  return Object.entries<Part>(paths).flatMap(([path, methods]) =>
    Object.entries<Part>(methods).map(([verb, operation]): Tool => {
      const {
        operationId,
        summary,
        description,
        parameters = [],
        requestBody,
        responses,
      } = operation;
      const json = (part: Part | undefined) => part?.content?.["application/json"]?.schema;
      const body = requestBody ? whole(json(requestBody)) : undefined;
      const taken = (parameters as Part[]).map(({ name, schema, description, required }) => ({
        name,
        required,
        schema: { ...schema, description },
      }));
      const success = json(responses[200] ?? responses[201]);
      const inputSchema = {
        type: "object",
        properties: {
          ...Object.fromEntries(taken.map(({ name, schema }) => [name, schema])),
          ...body?.properties,
        },
        required: [
          ...taken.flatMap(({ name, required }) => (required ? name : [])),
          ...(body?.required ?? []),
        ],
        additionalProperties: false,
      };
      return {
        definition: {
          name: operationId,
          title: summary,
          description: `${summary}. ${description}`,
          inputSchema: selfContained(local(inputSchema)),
          ...(success && { outputSchema: selfContained(local(whole(success))) }),
          annotations: { readOnlyHint: verb === "get", destructiveHint: verb === "delete" },
        },
        method: verb.toUpperCase(),
        path,
        parameters,
        hasBody: body !== undefined,
        parts: partsOf(app, verb.toUpperCase(), path),
      };
    }),
  );
}

/** The parts of the contract that the handlers of a route let through. */
function partsOf({ routes }: OpenAPIHono<AppEnv>, method: string, path: string): ServedPart[] {
  const pattern = path.replaceAll(/\{(\w+)\}/g, ":$1");
  return routes
    .filter((route) => route.method === method && route.path === pattern)
    .flatMap(({ handler }) => partLetThrough(handler) ?? []);
}

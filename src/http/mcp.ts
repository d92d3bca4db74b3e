import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { ApiError, type ErrorDetails, type Reason } from "../contract/errors.ts";
import { type Feature, isServed } from "../contract/served.ts";
import { CONTRACT_VERSION } from "../contract/version.ts";
import { isText } from "../primitives/text.ts";
import { authenticate, readApiKey } from "./authentication.ts";
import { readJson } from "./body.ts";
import type { AppEnv } from "./context.ts";
import { featureOf } from "./served.ts";

// biome-ignore lint/suspicious/noExplicitAny: an OpenAPI document is read by shape
type JsonObject = Record<string, any>;

/** A route as a tool, with the data that converts the tool's arguments to a request. */
interface Tool {
  definition: JsonObject & { name: string };
  method: string;
  path: string;
  parameters: JsonObject[];
  hasBody: boolean;
  /** The features of the contract that a deployment must serve to have the tool. */
  features: Feature[];
}

/** The headers of a message that the request of a call gets, too: the key, and the origin of the message. */
const PASSED_ON = ["Authorization", "CF-Connecting-IP", "CF-Ray", "User-Agent"];

/** The statuses with which `authenticate` refuses a request. */
const REFUSED_STATUSES = [401, 403, 429];

/** The first version of the protocol with `structuredContent`. */
const STRUCTURED_SINCE = "2025-06-18";

/**
 * Serves the routes of `app` as tools over stateless Streamable HTTP (https://modelcontextprotocol.io). Call it after
 * the routes; a new route becomes a tool without further code. A tool call is a request to its route, which
 * authenticates and counts it. Any other message counts as a request of its own.
 */
export function serveMcp(app: OpenAPIHono<AppEnv>): void {
  let tools: Tool[] | undefined;
  app.on(["POST", "GET", "DELETE"], ["/mcp", "/mcp/"], async (c) => {
    tools ??= toolsOf(app);
    const served = tools.filter(({ features }) =>
      features.every((feature) => isServed(c.env.SERVED_ROUTES, feature)),
    );
    // A request without an issued key is refused before the SDK reads it.
    const called = (await readApiKey(c)) === null ? undefined : await callTool(app, c, served);
    if (called?.isCounted) return called.response;
    let response: Response | undefined;
    await authenticate(c, async () => {
      // A response that reads nothing would not wait for the key's gate, and Hono would add its headers to a refusal.
      const admission = await c.get("admission");
      if (admission?.isAdmitted === false) throw admission.error;
      response = called?.response ?? (await handle(c, served, await readMessage(c)));
      c.res = response;
    });
    return response;
  });
}

/**
 * Responds to a tool call with its route; undefined for any other message. `isCounted` says whether the route has
 * authenticated and counted the call, because a call with invalid arguments reaches no route.
 */
async function callTool(
  app: OpenAPIHono<AppEnv>,
  c: Context<AppEnv>,
  tools: Tool[],
): Promise<{ response: Response; isCounted: boolean } | undefined> {
  const message = await readMessage(c).catch(() => null);
  if (message?.method !== "tools/call") return undefined;
  let routed: Response | undefined;
  let refusal: Response | undefined;
  const response = await handle(c, tools, message, async (request) => {
    routed = await app.fetch(request, c.env, c.executionCtx);
    if (REFUSED_STATUSES.includes(routed.status)) refusal = routed.clone();
    return routed;
  });
  // A refused key gets the HTTP response that it gets everywhere else.
  if (refusal) return { response: refusal, isCounted: true };
  for (const [name, value] of routed?.headers ?? [])
    if (/^(x-)?ratelimit/.test(name)) response.headers.set(name, value);
  return { response, isCounted: routed !== undefined };
}

/**
 * Reads the message of a request; null for a GET or DELETE, which has none.
 *
 * @throws ApiError `invalid_request` for a message that is not an object. A batch is rejected, too, because the protocol
 *   has none since version 2025-06-18, and a batch of a hundred calls would make a response of a hundred pages.
 */
async function readMessage(c: Context<AppEnv>): Promise<JsonObject | null> {
  if (c.req.method !== "POST") return null;
  const message = await readJson(c);
  if (typeof message !== "object" || message === null || Array.isArray(message))
    throw new ApiError("invalid_request", { reason: "invalid_type" });
  return message;
}

/** Responds to a message. @param send sends the request of a call to its route. */
async function handle(
  c: Context<AppEnv>,
  tools: Tool[],
  message: JsonObject | null,
  send?: (request: Request) => Promise<Response>,
): Promise<Response> {
  const isStructured = (c.req.header("MCP-Protocol-Version") ?? "") >= STRUCTURED_SINCE;
  // The SDK is imported when needed, because its schemas take a quarter of the start of an isolate, and few requests
  // need them.
  const { createMcpHandler, Server } = await import("@modelcontextprotocol/server");
  const handler = createMcpHandler(() => {
    const server = new Server(
      { name: "public-api", version: CONTRACT_VERSION },
      { capabilities: { tools: {} } },
    );
    server.setRequestHandler("tools/list", () => ({
      tools: tools.map(({ definition }) => definition as never),
    }));
    server.setRequestHandler("tools/call", async ({ params }) => {
      const tool = tools.find(({ definition }) => definition.name === params.name);
      if (!tool || !send) return toError(new ApiError("route_not_found").toBody());
      const request = toRequest(c, tool, params.arguments ?? {});
      if (request instanceof ApiError) return toError(request.toBody());
      const response = await send(request);
      const text = await response.text();
      const body = text === "" ? null : JSON.parse(text);
      return response.ok ? toResult(response.status, body, isStructured) : toError(body);
    });
    return server;
  });
  // The SDK requires a client to accept both media types, although each message has one response.
  const headers = new Headers(c.req.raw.headers);
  if (message !== null) headers.set("Accept", "application/json, text/event-stream");
  const request = new Request(c.req.url, { method: c.req.method, headers });
  const response = await handler.fetch(request, message === null ? {} : { parsedBody: message });
  // This response is a stream of two events. It ends at once, because the server announces no changes of its tools.
  return message?.method === "subscriptions/listen" ? response : toJsonResponse(response);
}

/** Converts a response that is a stream of one event to JSON, because not every client accepts a stream. */
async function toJsonResponse(response: Response): Promise<Response> {
  const text = await response.text();
  const headers = new Headers(response.headers);
  const isStream = headers.get("Content-Type")?.startsWith("text/event-stream");
  if (isStream) headers.set("Content-Type", "application/json");
  const body = isStream ? lastData(text) : text;
  return new Response(body || null, { status: response.status, headers });
}

/** Returns the data of the last event of a stream (server-sent events), in which each event has one line of data. */
function lastData(stream: string): string | undefined {
  const field = "data: ";
  // Not by a regular expression, whose `.` ends at U+2028 and U+2029, which JSON may contain.
  return stream
    .split("\n")
    .findLast((line) => line.startsWith(field))
    ?.slice(field.length);
}

function toError(body: unknown) {
  return { content: [{ type: "text" as const, text: JSON.stringify(body) }], isError: true };
}

/** Makes the result of a call: structured content, or text for clients that do not support it. */
function toResult(status: number, body: unknown, isStructured: boolean) {
  if (body !== null && isStructured) return { content: [], structuredContent: body as JsonObject };
  return { content: [{ type: "text" as const, text: JSON.stringify(body ?? { status }) }] };
}

/** Makes the request of a call. An argument that is not a parameter belongs to the body. */
function toRequest(
  c: Context<AppEnv>,
  { definition, method, path, parameters, hasBody }: Tool,
  given: JsonObject,
): Request | ApiError {
  const known = Object.keys(definition.inputSchema.properties);
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined)
    return invalidArgument(unknown, "unknown_property", { allowed: known });
  const headers = new Headers();
  for (const name of PASSED_ON) {
    const value = c.req.header(name);
    if (value !== undefined) headers.set(name, value);
  }
  const url = new URL(c.req.url);
  url.pathname = path;
  url.search = "";
  const rest = { ...given };
  for (const { name, in: place, schema } of parameters) {
    const value = rest[name];
    delete rest[name];
    if (value === undefined || value === null) {
      if (place === "path") return invalidArgument(name, "required");
      continue;
    }
    const text = String(value);
    if (typeof value === "object" || !isText(text)) return invalidArgument(name, "invalid_type");
    if (place === "path") {
      // A dot segment would lead to another route.
      if (/^\.{0,2}$/.test(text)) return invalidArgument(name, "invalid_type");
      url.pathname = url.pathname.replace(encodeURI(`{${name}}`), () => encodeURIComponent(text));
    } else if (place === "query") {
      url.searchParams.set(name, text);
    } else {
      const { minLength: min, maxLength: max } = schema;
      // No header can have this value, because HTTP rejects a line break before the route sees it.
      if (!/^[\x20-\x7e]*$/.test(text)) return invalidArgument(name, "out_of_range", { min, max });
      headers.set(name, text);
    }
  }
  if (!hasBody) return new Request(url, { method, headers });
  headers.set("Content-Type", "application/json");
  return new Request(url, { method, headers, body: JSON.stringify(rest) });
}

function invalidArgument(parameter: string, reason: Reason, more: ErrorDetails = {}): ApiError {
  return new ApiError("invalid_request", { parameter, reason, ...more });
}

/** Makes a tool of each route of an app. */
function toolsOf(app: OpenAPIHono<AppEnv>): Tool[] {
  const { paths, components }: JsonObject = app.getOpenAPI31Document({
    openapi: "3.1.0",
    info: { title: "", version: "" },
  });
  const schemas: JsonObject = components?.schemas ?? {};
  const jsonSchema = (part: JsonObject | undefined): JsonObject =>
    toToolSchema(part?.content?.["application/json"]?.schema, schemas);
  return Object.entries<JsonObject>(paths).flatMap(([path, methods]) =>
    Object.entries<JsonObject>(methods).map(([verb, operation]): Tool => {
      const { operationId, summary, description, requestBody, responses } = operation;
      const parameters: JsonObject[] = operation.parameters ?? [];
      const properties: JsonObject = {};
      const required: string[] = [];
      for (const parameter of parameters) {
        const schema = { ...parameter.schema, description: parameter.description };
        properties[parameter.name] = toToolSchema(schema, schemas);
        if (parameter.required) required.push(parameter.name);
      }
      if (requestBody) {
        const body = jsonSchema(requestBody);
        Object.assign(properties, body.properties);
        required.push(...(body.required ?? []));
      }
      const success = responses[200] ?? responses[201];
      return {
        definition: {
          name: operationId,
          title: summary,
          description: `${summary}. ${description}`,
          inputSchema: { type: "object", properties, required, additionalProperties: false },
          ...(success && { outputSchema: jsonSchema(success) }),
          annotations: { readOnlyHint: verb === "get", destructiveHint: verb === "delete" },
        },
        method: verb.toUpperCase(),
        path,
        parameters,
        hasBody: requestBody !== undefined,
        features: featuresOf(app, verb.toUpperCase(), path),
      };
    }),
  );
}

/**
 * Converts a schema of the document to one that models accept. Some widespread models reject all requests of an MCP
 * client if one of its tools has a reference, an `example`, or a `format` other than `date-time`.
 */
function toToolSchema(part: unknown, schemas: JsonObject): JsonObject {
  const { $ref, example: _, format, ...own } = part as JsonObject;
  const referred = $ref ? toToolSchema(schemas[String($ref).split("/").at(-1) ?? ""], schemas) : {};
  const schema: JsonObject = { ...referred };
  if (format === "date-time") schema.format = format;
  for (const [keyword, value] of Object.entries(own)) {
    if (keyword === "properties") {
      const named = Object.entries(value as JsonObject);
      schema[keyword] = Object.fromEntries(
        named.map(([name, property]) => [name, toToolSchema(property, schemas)]),
      );
    } else if (["anyOf", "allOf", "oneOf"].includes(keyword)) {
      schema[keyword] = (value as unknown[]).map((each) => toToolSchema(each, schemas));
    } else if (keyword === "items" || (keyword === "additionalProperties" && value !== false)) {
      schema[keyword] = toToolSchema(value, schemas);
    } else schema[keyword] = value;
  }
  return schema;
}

/** Lists the features of the contract that a deployment must serve for a route to exist. */
function featuresOf({ routes }: OpenAPIHono<AppEnv>, method: string, path: string): Feature[] {
  const pattern = path.replaceAll(/\{(\w+)\}/g, ":$1");
  return routes
    .filter((route) => route.method === method && route.path === pattern)
    .flatMap(({ handler }) => featureOf(handler) ?? []);
}

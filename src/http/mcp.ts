import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import {
  ApiError,
  ERRORS,
  type ErrorBody,
  type ErrorDetails,
  type Reason,
} from "../contract/errors.ts";
import { RECORD_MAX_BYTES } from "../contract/limits.ts";
import { type Feature, isServed } from "../contract/served.ts";
import { CONTRACT_VERSION } from "../contract/version.ts";
import { isText } from "../primitives/text.ts";
import { admit, identifyKey, readKeyHash } from "./authentication.ts";
import { readJson } from "./body.ts";
import type { AppEnv, served } from "./context.ts";
import { handleError, RETRY_AFTER_SECONDS } from "./finish-response.ts";

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

/** The headers of a message that the request of a call also gets: the key, and the origin of the message. */
const PASSED_ON = ["Authorization", "CF-Connecting-IP", "CF-Ray", "User-Agent"];

/**
 * The JSON-RPC error code of an error of ours, and the code of any other refusal, from the range that MCP leaves to
 * servers.
 */
const INTERNAL_ERROR = -32_603;
const REFUSED = -32_010;

/** The sentences that the tool of a list has beyond the description of its route. */
const ASK_FOR_FEW = ` Ask for few, such as \`limit\` 5: one can be ${RECORD_MAX_BYTES / 1024} KiB.`;

/** The messages with which a client connects. With an invalid key, they fail by HTTP status, as clients expect. */
const HANDSHAKE = ["initialize", "server/discover"];

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
    const read = await readMessage(c);
    try {
      return await respond(app, c, served, read);
    } catch (error) {
      return refuse(c, read.message, await handleError(error as Error, c));
    }
  });
}

async function respond(
  app: OpenAPIHono<AppEnv>,
  c: Context<AppEnv>,
  tools: Tool[],
  { message, error }: ReadMessage,
): Promise<Response> {
  // A key that was never issued, or was refused just now, costs neither the SDK nor the route.
  const keyHash = await identifyKey(c);
  const isCall = message?.method === "tools/call";
  const called = isCall ? await callTool(app, c, tools, message) : undefined;
  if (called?.isCounted) return called.response;
  await admit(c, keyHash);
  if (error) throw error;
  return called?.response ?? handle(c, tools, message);
}

/**
 * Responds to a tool call with its route. `isCounted` says whether the route has authenticated and counted the call,
 * because a call with invalid arguments reaches no route.
 */
async function callTool(
  app: OpenAPIHono<AppEnv>,
  c: Context<AppEnv>,
  tools: Tool[],
  message: JsonObject,
): Promise<{ response: Response; isCounted: boolean }> {
  let routed: Response | undefined;
  let refusal: Response | undefined;
  const response = await handle(c, tools, message, async (request) => {
    routed = await app.fetch(request, c.env, c.executionCtx);
    const { status } = routed;
    if ([401, 403, 429].includes(status) || status >= 500) refusal = routed.clone();
    return routed;
  });
  if (refusal) return { response: await refuse(c, message, refusal), isCounted: true };
  for (const [name, value] of routed?.headers ?? [])
    if (/^(x-)?ratelimit/.test(name)) response.headers.set(name, value);
  return { response, isCounted: routed !== undefined };
}

/**
 * Converts a refusal to the JSON-RPC error of its request, with status 200. Clients and proxies such as `mcp-remote`
 * lose a response with any other status, and wait for the request until it times out. The status stays if the key was
 * never issued, or if it is refused when the client connects. It also stays if the message cannot be used, because a
 * client finds no request for an error without an id (JSON-RPC 2.0, 5), so that only the status ends its wait.
 */
async function refuse(
  c: Context<AppEnv>,
  message: JsonObject | null,
  refusal: Response,
): Promise<Response> {
  if (c.req.method !== "POST") return refusal;
  const { id, method } = message ?? { id: null };
  // A notification has no id, and gets no JSON-RPC response.
  if (id !== null && typeof id !== "string" && typeof id !== "number") return refusal;
  const isAtHandshake = HANDSHAKE.includes(method) && refusal.status === 401;
  const isKept = id === null || isAtHandshake || (await readKeyHash(c)) === null;
  const status = isKept ? refusal.status : 200;
  const { error } = (await refusal.json()) as ErrorBody;
  const headers = new Headers(refusal.headers);
  headers.set("Content-Type", "application/json");
  headers.delete("Content-Length");
  if (status === 200) headers.delete("WWW-Authenticate");
  return Response.json({ jsonrpc: "2.0", id, error: toRpcError(error) }, { status, headers });
}

/** Many agents show their model only the message of a JSON-RPC error, so it says how long to wait, as `data` does. */
function toRpcError({ code, message, details }: ErrorBody["error"]) {
  const isOurs = code === "internal_error";
  const seconds = details.retry_after_seconds ?? (isOurs ? RETRY_AFTER_SECONDS : undefined);
  const wait = seconds === undefined ? {} : { retry_after_seconds: seconds };
  return {
    code: isOurs ? INTERNAL_ERROR : REFUSED,
    message: `${code}: ${ERRORS[code].when}${seconds === undefined ? "" : ` Retry after ${seconds} s.`}`,
    data: { code, message, details: { ...details, ...wait } },
  };
}

/** The message of a request, or the error of one that cannot be used; a GET or DELETE has neither. */
interface ReadMessage {
  message: JsonObject | null;
  error?: unknown;
}

/**
 * Reads the message of a request. One that is not an object is an error. So is a batch, because the protocol has none
 * since version 2025-06-18, and a batch of a hundred calls would make a response of a hundred pages.
 */
async function readMessage(c: Context<AppEnv>): Promise<ReadMessage> {
  if (c.req.method !== "POST") return { message: null };
  try {
    const message = await readJson(c);
    if (typeof message === "object" && message !== null && !Array.isArray(message))
      return { message };
    throw new ApiError("invalid_request", { reason: "invalid_type" });
  } catch (error) {
    return { message: null, error };
  }
}

/** Responds to a message. @param send sends the request of a call to its route. */
async function handle(
  c: Context<AppEnv>,
  tools: Tool[],
  message: JsonObject | null,
  send?: (request: Request) => Promise<Response>,
): Promise<Response> {
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
      return toResult(response, await response.text());
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
  return { content: toContent(JSON.stringify(body)), isError: true };
}

function toContent(text: string) {
  return [{ type: "text" as const, text }];
}

/**
 * Makes the result of a call. It has the JSON twice: as text, because most agents pass only that to their model, and as
 * structured content, because clients require it of a tool with an `outputSchema`.
 */
function toResult({ ok, status }: Response, text: string) {
  if (text === "") return { content: toContent(JSON.stringify({ status })) };
  if (!ok) return { content: toContent(text), isError: true };
  return { content: toContent(text), structuredContent: JSON.parse(text) as JsonObject };
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
          description: `${summary}. ${description}${"limit" in properties ? ASK_FOR_FEW : ""}`,
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
    .flatMap(({ handler }) => (handler as Partial<ReturnType<typeof served>>).feature ?? []);
}

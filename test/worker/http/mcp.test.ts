import { env, exports } from "cloudflare:workers";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { describe, expect, test } from "vitest";
import { ApiError, type ErrorCode, type ErrorDetails } from "../../../src/contract/errors.ts";
import {
  authorizedBy,
  deployedWith,
  fetchText,
  freshAddress,
  openWorkspace,
  Platform,
  rateLimitOf,
  recordAutomation,
  recordLead,
  refusal,
  send,
} from "../../support/api.ts";
import { operationsOf } from "../../support/document.ts";
import { interposed } from "../../support/interposed.ts";
import { keepLog } from "../../support/log-lines.ts";

const lines = keepLog();

const URL_OF_MCP = new URL("https://api.example/mcp");
const VERSIONS = { current: { pin: "2026-07-28" }, former: "legacy" } as const;

/** The SDK's own client, connected with a key in one version of the protocol. */
function connect(apiKey: string, mode: (typeof VERSIONS)[keyof typeof VERSIONS]) {
  return connectTo(URL_OF_MCP, { Authorization: `Bearer ${apiKey}` }, mode);
}

async function connectTo(
  at: URL,
  headers: Record<string, string>,
  mode: (typeof VERSIONS)[keyof typeof VERSIONS] = VERSIONS.current,
) {
  const client = new Client({ name: "test", version: "1" }, {
    versionNegotiation: { mode },
  } as ConstructorParameters<typeof Client>[1]);
  await client.connect(
    new StreamableHTTPClientTransport(at, {
      fetch: (url, init) => exports.default.fetch(new Request(String(url), init as RequestInit)),
      requestInit: { headers },
    }),
  );
  return client;
}

const { body: document } = await send<{ info: { version: string } }>("/openapi.json");

/** The names of an operation's parameters, according to the document. */
function parametersOf(id: string): string[] {
  const found = operationsOf(document).find(({ operationId }) => operationId === id);
  return found?.parameters.map(({ name }) => name) ?? [];
}

describe.each(Object.entries(VERSIONS))("an agent with the %s version of MCP", (_, mode) => {
  test("gets each route as a tool, and the responses of the route", async () => {
    const { workspaceId, apiKey, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId);
    const client = await connect(apiKey, mode);
    expect(client.getServerVersion()?.version).toBe(document.info.version);
    const { tools } = await client.listTools();
    expect(tools.map(({ name, annotations }) => [name, annotations])).toEqual(
      operationsOf(document).map(({ operationId, method }) => [
        operationId,
        { readOnlyHint: method === "GET", destructiveHint: method === "DELETE" },
      ]),
    );
    const call = (name: string, args: object = {}) =>
      client.callTool({ name, arguments: args as Record<string, unknown> });
    const page = await call("listAutomations", { limit: 1 });
    expect(page.structuredContent).toEqual((await api.get("/v1/automations")).body);
    await recordLead(workspaceId, { name: "line\u2028paragraph\u2029end" });
    const leads = await call("listLeads");
    expect(leads.structuredContent).toEqual((await api.get("/v1/leads")).body);
    const paused = await call("controlAutomation", { id, status: "paused" });
    expect(paused.structuredContent).toMatchObject({ id, status: "paused" });
    const url = "https://ok-mcp.example/";
    const created = await call("createWebhook", { url, events: ["lead.created"] });
    const webhook = created.structuredContent as { id: string };
    expect((await call("deleteWebhook", { id: webhook.id })).isError).toBeFalsy();
    for (const [name, args, refused] of [
      ["deleteWebhook", { id: webhook.id }, refusal(404, "webhook_not_found")],
      ["getAutomation", { id: "../leads" }, refusal(404, "automation_not_found")],
    ] as const) {
      const { isError, content } = await call(name, args);
      expect({ isError, content }).toEqual({
        isError: true,
        content: [{ type: "text", text: JSON.stringify(refused.body) }],
      });
    }
    for (const [wrong, reason] of [
      [{}, "required"],
      [{ id: ".." }, "invalid_type"],
      [{ id: "\ud800" }, "invalid_type"],
    ] as const) {
      const { error } = new ApiError("invalid_request", { parameter: "id", reason }).toBody();
      const { content } = await call("listRunsOfAutomation", wrong);
      expect(content).toEqual([{ type: "text", text: JSON.stringify({ error }) }]);
    }
  });
});

test("GET and DELETE of /mcp get 405, because the server sends no messages of its own", async () => {
  const { apiKey } = await openWorkspace();
  for (const method of ["GET", "DELETE"]) {
    const headers = { Authorization: `Bearer ${apiKey}`, Accept: "text/event-stream" };
    const response = await exports.default.fetch(new Request(URL_OF_MCP, { method, headers }));
    expect(response.status).toBe(405);
  }
});

test("an agent that listens for changes is told that none will come, and the stream ends", async () => {
  const { apiKey } = await openWorkspace();
  const client = await connect(apiKey, VERSIONS.current);
  const listening = await client.listen({ toolsListChanged: true, promptsListChanged: true });
  expect(listening.honoredFilter).toEqual({});
  expect(await listening.closed).toBe("graceful");
});

/** The JSON-RPC error of a refused call. Its message says how long to wait, and its data is the error of the HTTP API. */
function refusedCall(errorCode: ErrorCode, details: ErrorDetails = {}, code = -32_010) {
  const { error } = new ApiError(errorCode, details).toBody();
  const wait = details.retry_after_seconds;
  const message = expect.stringMatching(`^${errorCode}: .*${wait ? ` ${wait} s` : ""}`);
  return { jsonrpc: "2.0", id: 1, error: { code, message, data: error } };
}

/** The JSON-RPC error of a message that cannot be used, whose id is unknown. */
const unread = (details: ErrorDetails) => ({
  ...refusedCall("invalid_request", details),
  id: null,
});

/** Sends a call of a tool as it is. */
function ask(params: unknown, more: object = {}): Promise<Response> {
  const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
  const headers = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-11-25",
    ...more,
  };
  const body = JSON.stringify(message);
  return exports.default.fetch(new Request(URL_OF_MCP, { method: "POST", headers, body }));
}

test("a call counts once against the quota, and one without a key is 401", async () => {
  const { apiKey, api } = await openWorkspace({ requestsPerWindow: 10 });
  const call = { name: "listLeads", arguments: {} };
  const first = await ask(call, { Authorization: `Bearer ${apiKey}` });
  expect(first.status).toBe(200);
  expect(first.headers.get("X-RateLimit-Remaining")).toBe("9");
  expect(first.headers.get("RateLimit")).toMatch(/^"default";r=9;t=/);
  await first.text();
  expect((await api.get("/v1/leads")).headers["x-ratelimit-remaining"]).toBe("8");
  const refused = await ask(call);
  expect([refused.status, await refused.json()]).toEqual([401, refusedCall("invalid_api_key")]);
});

test.each([
  ["of an unknown tool", { name: "nope", arguments: {} }, "route_not_found"],
  ["that lacks an id", { name: "getAutomation" }, "invalid_request"],
  [
    "with half a character",
    { name: "getAutomation", arguments: { id: "\ud800" } },
    "invalid_request",
  ],
  ["that is malformed", { name: "listLeads", arguments: "all" }, "record"],
])("a call %s is no route's, and counts all the same", async (_, call, said) => {
  const { apiKey } = await openWorkspace({ requestsPerWindow: 10 });
  const answer = await ask(call, { Authorization: `Bearer ${apiKey}` });
  expect(answer.headers.get("X-RateLimit-Remaining")).toBe("9");
  expect(await answer.text()).toContain(said);
  const refused = await ask(call, { "CF-Connecting-IP": "203.0.113.77" });
  expect([refused.status, await refused.json()]).toEqual([401, refusedCall("invalid_api_key")]);
});

/** Sends any message, or several. */
function post(
  apiKey: string,
  message: unknown,
  { path = "/mcp", accept = "*/*" as string | null } = {},
) {
  const headers = new Headers({
    Authorization: `Bearer ${apiKey}`,
    "Content-Type": "application/json",
    "CF-Connecting-IP": freshAddress(),
  });
  if (accept !== null) headers.set("Accept", accept);
  const body = JSON.stringify(message);
  return exports.default.fetch(
    new Request(`https://api.example${path}`, { method: "POST", headers, body }),
  );
}

const INITIALIZE = {
  ...{ jsonrpc: "2.0", id: 1, method: "initialize" },
  params: {
    protocolVersion: "2025-06-18",
    capabilities: {},
    clientInfo: { name: "test", version: "1" },
  },
};
const LIST_TOOLS = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} };

interface ToolResult {
  isError?: boolean;
  content: { text: string }[];
  structuredContent?: object;
}

/** The result of a call of a tool. */
async function resultOf(apiKey: string, name: string, args: object, more: object = {}) {
  const headers = { Authorization: `Bearer ${apiKey}`, ...more };
  const response = await ask({ name, arguments: args }, headers);
  return ((await response.json()) as { result: ToolResult }).result;
}

describe("a request to /mcp", () => {
  test.each([
    ["/mcp", "application/json, text/event-stream"],
    ["/mcp", "*/*"],
    ["/mcp", null],
    ["/mcp", "application/json, text/*"],
    ["/mcp", "application/json"],
    ["/mcp/", "application/json, text/event-stream"],
  ])("is answered in JSON at %s with Accept %s", async (path, accept) => {
    const { apiKey } = await openWorkspace();
    const response = await post(apiKey, LIST_TOOLS, { path, accept });
    expect(response.status).toBe(200);
    expect(response.headers.get("Content-Type")).toBe("application/json; charset=utf-8");
    const { result } = (await response.json()) as { result: { tools: object[] } };
    expect(result.tools).toHaveLength(9);
  });

  test.each([[[LIST_TOOLS]], [[]], [null], ["text"]])(
    "that is no single message is refused: %j",
    async (message) => {
      const { apiKey } = await openWorkspace({ requestsPerWindow: 1 });
      const response = await post(apiKey, message);
      expect(response.status).toBe(400);
      expect(await response.json()).toEqual(unread({ reason: "invalid_type" }));
      // It has counted.
      expect((await post(apiKey, message)).status).toBe(429);
      expect((await post("nonsense", message)).status).toBe(401);
    },
  );

  test("that is no JSON is rejected once its key is accepted", async () => {
    const { apiKey } = await openWorkspace();
    const ask = (token: string) =>
      send("/mcp", { method: "POST", body: "{", headers: { Authorization: `Bearer ${token}` } });
    expect((await ask("nonsense")).status).toBe(401);
    expect((await ask(apiKey)).status).toBe(415);
  });

  test("gets 404 with OPTIONS, as every path outside the API", async () => {
    expect(await send("/mcp", { method: "OPTIONS" })).toEqual(refusal(404, "route_not_found"));
  });

  test("with a key over its quota gets 429, although no route of it reads anything", async () => {
    const { apiKey, api } = await openWorkspace({ requestsPerWindow: 1 });
    // Afterwards, this isolate knows the key.
    await api.get("/v1/leads");
    const answer = await send("/mcp", { headers: { Authorization: `Bearer ${apiKey}` } });
    const { resetSeconds } = rateLimitOf(answer);
    const limited = refusal(429, "rate_limited", { retry_after_seconds: resetSeconds });
    expect(answer).toEqual(limited);
  });

  test("without a valid key gets 429 from an address over its failures, as over HTTP", async () => {
    const address = freshAddress();
    for (let i = 0; i < 20; i++) await authorizedBy(null, address);
    const call = { name: "listLeads", arguments: {} };
    const answers = await Promise.all([
      ask(call, { "CF-Connecting-IP": address }),
      exports.default.fetch("https://api.example/v1/leads", {
        headers: { "CF-Connecting-IP": address },
      }),
    ]);
    const [mcp, http] = await Promise.all(
      answers.map(async (answer) => ({
        status: answer.status,
        limit: answer.headers.get("X-RateLimit-Limit"),
        after: answer.headers.get("Retry-After"),
      })),
    );
    expect(mcp).toEqual({ status: 429, limit: "20", after: http?.after });
  });
});

describe("a call of a tool", () => {
  test("with the key of a workspace without access is refused in JSON-RPC", async () => {
    const { workspaceId, apiKey } = await openWorkspace();
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    const call = { name: "listLeads", arguments: {} };
    const response = await ask(call, { Authorization: `Bearer ${apiKey}` });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual(refusedCall("workspace_access_denied"));
    const named = await post(apiKey, {
      ...LIST_TOOLS,
      id: "a",
      method: "tools/call",
      params: call,
    });
    expect(named.status).toBe(200);
    expect(await named.json()).toEqual({ ...refusedCall("workspace_access_denied"), id: "a" });
  });

  test.each(["initialize", "tools/call", "tools/list"])(
    "with a key over its rate limit learns in JSON-RPC how long to wait: %s",
    async (method) => {
      const { apiKey, api } = await openWorkspace({ requestsPerWindow: 1 });
      await api.get("/v1/leads");
      const response = await post(apiKey, { ...LIST_TOOLS, method, params: { name: "listLeads" } });
      const wait = Number(response.headers.get("Retry-After"));
      expect(response.status).toBe(200);
      expect(wait).toBeGreaterThan(0);
      expect(await response.json()).toEqual(
        refusedCall("rate_limited", { retry_after_seconds: wait }),
      );
    },
  );

  test("with a key that was revoked since `initialize` is refused in JSON-RPC, and `initialize` with 401", async () => {
    const { keyId, apiKey } = await openWorkspace();
    expect((await post(apiKey, INITIALIZE)).status).toBe(200);
    await Platform.revokeApiKey({ keyId });
    const message = { ...LIST_TOOLS, method: "tools/call", params: { name: "listLeads" } };
    const response = await post(apiKey, message);
    expect([response.status, response.headers.get("WWW-Authenticate")]).toEqual([200, null]);
    expect(await response.json()).toEqual(refusedCall("invalid_api_key"));
    for (const message of [INITIALIZE, { ...LIST_TOOLS, method: "server/discover" }]) {
      const handshake = await post(apiKey, message);
      const challenge = handshake.headers.get("WWW-Authenticate");
      expect([handshake.status, challenge]).toEqual([401, "Bearer"]);
    }
  });

  test("that fails on our side says in JSON-RPC when to retry", async () => {
    const { apiKey } = await openWorkspace();
    const DB = interposed(env.DB, () => Promise.reject(new Error("down")));
    const failing = deployedWith({ DB });
    const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    const params = { name: "listLeads" };
    const body = JSON.stringify({ ...LIST_TOOLS, method: "tools/call", params });
    const response = await failing(new Request(URL_OF_MCP, { method: "POST", headers, body }));
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual(
      refusedCall("internal_error", { retry_after_seconds: 5 }, -32_603),
    );
  });

  test.each([
    ["is nested without end", 400, `${'{"a":'.repeat(2_000)}1${"}".repeat(2_000)}`, 64],
    ["is too large", 413, `{"cursor":"${"a".repeat(17_000)}"}`, 16_384],
  ])("that %s is refused in JSON-RPC before it is parsed", async (_, status, given, max) => {
    const { apiKey } = await openWorkspace();
    const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"listLeads","arguments":${given}}}`;
    const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    const reason = status === 413 ? "body_too_large" : "out_of_range";
    expect(await send("/mcp", { method: "POST", headers, body: call })).toMatchObject({
      status,
      body: unread({ reason, max }),
    });
  });

  test("with a key that was refused just now reaches neither the SDK nor a route", async () => {
    const { keyId, apiKey } = await openWorkspace();
    await Platform.revokeApiKey({ keyId });
    const call = { ...LIST_TOOLS, method: "tools/call", params: { name: "listLeads" } };
    const routesOf = async () => {
      lines.length = 0;
      const response = await post(apiKey, call);
      expect(await response.json()).toEqual(refusedCall("invalid_api_key"));
      return lines.map((line) => JSON.parse(line)).map(({ route }) => route);
    };
    expect(await routesOf()).toEqual(["/v1/leads", "/mcp"]);
    expect(await routesOf()).toEqual(["/mcp"]);
  });

  test("has the id and the client of its message in the log line of its route", async () => {
    const { apiKey } = await openWorkspace();
    lines.length = 0;
    const requestId = "9c1f2e6a4b7d8035-CDG";
    const from = { "CF-Ray": requestId, "User-Agent": "curl/8.5.0" };
    await ask({ name: "listLeads", arguments: {} }, { Authorization: `Bearer ${apiKey}`, ...from });
    const line = lines.map((each) => JSON.parse(each)).find(({ route }) => route === "/v1/leads");
    expect(line).toMatchObject({ event: "request", requestId, agent: "curl" });
  });

  test("takes a null for an argument that is not given, as some models send it", async () => {
    const { apiKey, api } = await openWorkspace();
    const { body } = await api.get("/v1/leads");
    expect(await resultOf(apiKey, "listLeads", { limit: null, cursor: null })).toMatchObject({
      structuredContent: body,
    });
  });

  test("ignores the query of the URL that it is sent to", async () => {
    const { apiKey } = await openWorkspace();
    const call = { ...LIST_TOOLS, method: "tools/call", params: { name: "listLeads" } };
    const response = await post(apiKey, call, { path: "/mcp?limit=0" });
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ result: { structuredContent: { data: [] } } });
  });

  test("rejects a value that is an object or a list", async () => {
    const { apiKey } = await openWorkspace();
    for (const id of [{}, ["aut_1"]])
      expect((await resultOf(apiKey, "getAutomation", { id })).content[0]?.text).toContain(
        '"details":{"parameter":"id","reason":"invalid_type"}',
      );
  });

  test.each([
    ["listLeads", { colour: "blue" }, parametersOf("listLeads")],
    ["getAutomation", { id: "aut_1", status: "active" }, ["id"]],
    ["controlAutomation", { id: "aut_1", status: "paused", force: true }, ["id", "status"]],
  ])("rejects arguments that %s does not know: %j", async (name, args, allowed) => {
    const { workspaceId, apiKey } = await openWorkspace();
    await recordLead(workspaceId, { name: "Yanis Roux" });
    const parameter = Object.keys(args).at(-1) ?? "";
    const error = new ApiError("invalid_request", {
      parameter,
      reason: "unknown_property",
      allowed,
    });
    expect(await resultOf(apiKey, name, args)).toEqual({
      content: [{ type: "text", text: JSON.stringify(error.toBody()) }],
      isError: true,
    });
  });

  test.each([
    ["a line break", "a\nb"],
    ["a character that no header has", "😀"],
    ["an accent", "é"],
  ])("names the limits of an Idempotency-Key with %s", async (_, key) => {
    const { apiKey } = await openWorkspace();
    const creation = { url: "https://ok-mcp.example/", events: ["lead.created"] };
    const args = { ...creation, "idempotency-key": key };
    const { isError, content } = await resultOf(apiKey, "createWebhook", args);
    expect({ isError, ...JSON.parse(content[0]?.text ?? "").error.details }).toEqual({
      ...{ isError: true, parameter: "idempotency-key", reason: "out_of_range", min: 1, max: 255 },
    });
  });

  test.each([null, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])(
    "has its result as JSON text and as structured content in version %s",
    async (version) => {
      const { workspaceId, apiKey, api } = await openWorkspace();
      await recordLead(workspaceId);
      const { body } = await api.get("/v1/leads");
      const headers = version === null ? {} : { "MCP-Protocol-Version": version };
      expect(await resultOf(apiKey, "listLeads", {}, headers)).toEqual({
        content: [{ type: "text", text: JSON.stringify(body) }],
        structuredContent: body,
      });
    },
  );
});

/** The parts of a schema or document that widespread models and importers of agents refuse, with their place. */
function* refusedParts(part: unknown, place: string): Generator<string> {
  if (typeof part !== "object" || part === null) return;
  const { type, properties } = part as { type?: unknown; properties?: unknown };
  if (type === "object" && properties === undefined) yield `${place} has no properties`;
  for (const [key, value] of Object.entries(part)) {
    if (key === "description" && String(value).length > DESCRIPTION_MAX && isText(value))
      yield `${place}/${key} is too long`;
    yield* refusedParts(value, `${place}/${key}`);
  }
}

/** The longest description that importers of agents accept. */
const DESCRIPTION_MAX = 300;
const isText = (value: unknown) => typeof value === "string";

/** The keywords of a tool's schema that widespread models refuse, with their place. */
function* refusedKeywords(schema: unknown, place = ""): Generator<string> {
  if (typeof schema !== "object" || schema === null) return;
  for (const [key, value] of Object.entries(schema)) {
    const isName = place.endsWith("/properties");
    const isRefused =
      ["$ref", "$defs", "example"].includes(key) || (key === "format" && value !== "date-time");
    if (isRefused && !isName) yield `${place}/${key}`;
    yield* refusedKeywords(value, `${place}/${key}`);
  }
}

interface ListedTool {
  name: string;
  description: string;
  inputSchema: { properties: Record<string, { type?: string; items?: { type?: string } }> };
  outputSchema?: object;
}

/** The tools as an agent lists them, without the SDK's client. */
async function listTools() {
  const { apiKey } = await openWorkspace();
  const response = await post(apiKey, LIST_TOOLS);
  const { result } = (await response.json()) as {
    result: { tools: ListedTool[] };
  };
  return result.tools;
}

test("the schemas of the tools have no reference, example or unusual format", async () => {
  const tools = await listTools();
  const found = tools.flatMap(({ name, inputSchema, outputSchema }) => [
    ...refusedKeywords(inputSchema, name),
    ...refusedKeywords(outputSchema, name),
  ]);
  expect(found).toEqual([]);
  const { inputSchema } = tools.find(({ name }) => name === "createWebhook") ?? {};
  expect(inputSchema).toMatchObject({
    properties: { events: { items: { enum: expect.arrayContaining(["lead.created"]) } } },
    required: ["url", "events"],
  });
});

test("importers accept every description of a tool and of the document, and each object has properties", async () => {
  const { info: _, tags: __, ...described } = document as Record<string, unknown>;
  expect([...refusedParts(described, ""), ...refusedParts(await listTools(), "")]).toEqual([]);
});

test("no argument of a tool has an object in it", async () => {
  const all = (await listTools()).flatMap(({ inputSchema }) =>
    Object.values(inputSchema.properties),
  );
  expect(all.flatMap(({ type, items }) => [type, items?.type])).not.toContain("object");
});

test("the tool of a list says to ask for few items", async () => {
  const lists = (await listTools()).filter(({ inputSchema }) => "limit" in inputSchema.properties);
  expect(lists.map(({ name }) => name)).toHaveLength(5);
  for (const { description } of lists)
    expect(description).toMatch(/Ask for few, such as `limit` 5/);
});

test("the schemas of the tools mark times as such", async () => {
  const tool = (await listTools()).find(({ name }) => name === "getAutomation");
  expect(tool?.outputSchema).toMatchObject({
    properties: { updated_at: { type: "string", format: "date-time" } },
  });
});

test("the settings that the docs show for editors connect, with a key in its place", async () => {
  const { apiKey } = await openWorkspace();
  const { text } = await fetchText("/docs/guides/mcp.md");
  const shown = [...text.matchAll(/```json\n(.*?)\n```/gs)].map(([, json = ""]) =>
    JSON.parse(json),
  );
  expect(shown.map((settings) => Object.keys(settings))).toEqual([
    ["mcpServers"],
    ["inputs", "servers"],
  ]);
  for (const { mcpServers, servers } of shown) {
    const { url, headers } = (mcpServers ?? servers)["public-api"];
    const filled = headers.Authorization.replace(/\$\{(?:env:API_KEY|input:api-key)\}/, apiKey);
    const client = await connectTo(new URL(url), { Authorization: filled });
    expect((await client.listTools()).tools).toHaveLength(9);
  }
});

import { exports } from "cloudflare:workers";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { describe, expect, test } from "vitest";
import { fetchText, openWorkspace, recordAutomation, refusal, send } from "../../support/api.ts";
import { operationsOf } from "../../support/document.ts";

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

const { body: document } = await send<object>("/openapi.json");

describe.each(Object.entries(VERSIONS))("an agent with the %s version of MCP", (_, mode) => {
  test("gets each route as a tool, and its answers as the route gives them", async () => {
    const { workspaceId, apiKey, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId);
    const client = await connect(apiKey, mode);
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
    for (const wrong of [{}, { id: ".." }])
      expect(JSON.stringify(await call("listRunsOfAutomation", wrong))).toContain(
        "invalid_request",
      );
  });
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
  await first.text();
  expect((await api.get("/v1/leads")).headers["x-ratelimit-remaining"]).toBe("8");
  const refused = await ask(call);
  expect(refused.status).toBe(401);
  expect(await refused.json()).toEqual(refusal(401, "invalid_api_key").body);
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
  expect(refused.status).toBe(401);
  expect(await refused.json()).toEqual(refusal(401, "invalid_api_key").body);
});

test("the settings that the docs show for editors connect, with a key in its place", async () => {
  const { apiKey } = await openWorkspace();
  const { text } = await fetchText("/docs.md");
  const [, guide = ""] = text.split("\n## Agents (MCP)\n");
  const [mine = ""] = guide.split("\n## ");
  const shown = [...mine.matchAll(/```json\n(.*?)\n```/gs)].map(([, json = ""]) =>
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

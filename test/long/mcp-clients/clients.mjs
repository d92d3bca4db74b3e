/**
 * Calls tools with one MCP client, and prints what a model gets of each call, one JSON string a line:
 *
 *     node clients.mjs CLIENT URL API_KEY < calls.json
 *
 * A call that fails prints the message of its error.
 */
import { json } from "node:stream/consumers";

const [client = "", url = "", apiKey = ""] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${apiKey}` };
const WHO = { name: "test", version: "1" };

/** Connects a client of the SDK, old or new. Lists the tools, so that it validates results. */
async function connect(sdk, transport) {
  await sdk.connect(transport);
  await sdk.listTools();
  return {
    call: async (name, args) => (await sdk.callTool({ name, arguments: args })).content,
    close: () => sdk.close(),
  };
}

/** Imports and connects a client of the oldest SDK that has Streamable HTTP. */
async function connectOldest(openTransport) {
  const { Client } = await import("oldest-sdk/client/index.js");
  return connect(new Client(WHO), await openTransport());
}

/** How each client connects; `call` resolves to what its model gets. */
const CLIENTS = {
  "newest SDK": async () => {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    return connect(
      new Client(WHO, { versionNegotiation: { mode: { pin: "2026-07-28" } } }),
      new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
    );
  },
  "oldest SDK": () =>
    connectOldest(async () => {
      const { StreamableHTTPClientTransport } = await import("oldest-sdk/client/streamableHttp.js");
      return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
    }),
  "mcp-remote": () =>
    connectOldest(async () => {
      const { StdioClientTransport } = await import("oldest-sdk/client/stdio.js");
      const header = `Authorization: Bearer ${apiKey}`;
      const options = ["--allow-http", "--transport", "http-only", "--header", header];
      const args = ["node_modules/mcp-remote/dist/proxy.js", url, ...options];
      const { execPath: command, env } = process;
      return new StdioClientTransport({ command, args, env, stderr: "ignore" });
    }),
  "OpenAI Agents": async () => {
    const openai = await import("@openai/agents-core");
    const server = new openai.MCPServerStreamableHttp({
      ...{ url, name: "api", requestInit: { headers } },
      // Without this, a model gets a fixed sentence in place of any error.
      errorFunction: ({ error }) => String(error),
    });
    await server.connect();
    const tools = await openai.getAllMcpTools([server]);
    return {
      call: (name, args) =>
        tools
          .find((tool) => tool.name === name)
          .invoke(new openai.RunContext({}), JSON.stringify(args)),
      close: () => server.close(),
    };
  },
  "Vercel AI": async () => {
    const { createMCPClient } = await import("@ai-sdk/mcp");
    const connected = await createMCPClient({ transport: { type: "http", url, headers } });
    const tools = await connected.tools();
    return {
      call: async (name, args) => {
        const options = { toolCallId: "1", messages: [] };
        const output = await tools[name].execute(args, options);
        return tools[name].toModelOutput({ output, toolCallId: "1", input: args });
      },
      close: () => connected.close(),
    };
  },
  LangChain: async () => {
    const { MultiServerMCPClient } = await import("@langchain/mcp-adapters");
    const connected = new MultiServerMCPClient({
      mcpServers: { api: { transport: "http", url, headers } },
    });
    const tools = await connected.getTools();
    return {
      call: async (name, args) => {
        const tool = tools.find((each) => each.name.endsWith(name));
        const call = { type: "tool_call", id: "1", name: tool.name, args };
        return (await tool.invoke(call)).content;
      },
      close: () => connected.close(),
    };
  },
};

const calls = await json(process.stdin);
const { call, close } = await CLIENTS[client]();
for (const [name, args] of calls) {
  const got = await call(name, args).catch((error) => `error: ${error.message}`);
  console.log(JSON.stringify(typeof got === "string" ? got : JSON.stringify(got)));
}
await close();
process.exit();

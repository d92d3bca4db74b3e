import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { install } from "../../node/support/client.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { runProgram } from "../../node/support/process.ts";
import { openWorkspace } from "../../node/support/workspace.ts";

/** Enough to connect with any of the clients, and to make the first calls. */
const REQUESTS = 20;

const runtime = await shareRuntime();
// The clients have packages of their own, because they are as large as those of this project.
const folder = mkdtempSync(join(tmpdir(), "mcp-clients-"));
afterAll(() => rmSync(folder, { recursive: true }));
for (const file of ["package.json", "package-lock.json", "clients.mjs"])
  cpSync(join(ROOT, "test/long/mcp-clients", file), join(folder, file));
const isInstalled = await install(folder);

test
  .skipIf(!isInstalled)
  .each(["newest SDK", "oldest SDK", "mcp-remote", "OpenAI Agents", "Vercel AI", "LangChain"])(
  "with %s, a model sees a lead, a new secret, and how long to wait",
  async (client) => {
    const { apiKey, recordLeads } = await openWorkspace(runtime, { requestsPerWindow: REQUESTS });
    await recordLeads(["1"], () => ({ name: "Camille Durand" }));
    const calls = [
      ["listLeads", { limit: 1 }],
      ["createWebhook", { url: "https://ok-mcp.example/", events: ["lead.created"] }],
      ...Array.from({ length: REQUESTS }, () => ["listRuns", { limit: 1 }]),
    ];
    const words = ["clients.mjs", client, `${runtime.url.origin}/mcp`, apiKey];
    const end = await runProgram([process.execPath, ...words], {
      cwd: folder,
      stdin: JSON.stringify(calls),
      env: { ...process.env, MCP_REMOTE_CONFIG_DIR: folder },
    });
    expect(end.code, end.stderr).toBe(0);
    const seen = end.stdout.trim().split("\n");
    expect(seen[0]).toContain("Camille Durand");
    expect(seen[1]).toMatch(/whsec_[\w+/]{43}=/);
    expect(seen.at(-1)).toMatch(/rate_limited: .* Retry after \d+ s/);
  },
);

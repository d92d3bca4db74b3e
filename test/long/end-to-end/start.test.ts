import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { openPortalSession } from "../../../scripts/shared/portal-session.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { startLocalServer } from "../../node/support/local-server.ts";
import { opened } from "../../node/support/opened.ts";
import { childrenOf } from "../../node/support/process.ts";
import { until } from "../../support/until.ts";

const server = await opened(startLocalServer());
const api = openApi(server.base, String(server.state.apiKey));
const leads = () => api<Page<Lead>>("GET", "/v1/leads");
const isLinux = process.platform === "linux";

/** Runs `npm run platform` to its end. */
async function platform(...args: string[]) {
  const command = server.start("platform", ...args);
  const code = await command.ended;
  return { code, output: command.output() };
}

describe("the terminal of npm start", () => {
  // First, because the link soon expires.
  test("shows a link to the portal, which shows the event that the start caused", async () => {
    const shown = /Portal +(\S+)\/portal#(\S+)/.exec(server.output());
    const [link, origin] = shown ?? [];
    expect(origin).toBe(new URL(server.base).origin);
    const token = await openPortalSession(new URL(String(link).replace(/^Portal +/, "")));
    expect((await fetch(`${origin}/portal`)).status).toBe(200);
    const read = async (path: string) => {
      const headers = { Authorization: `Bearer ${token}` };
      const answer = await fetch(`${origin}/portal/api/webhooks${path}`, { headers });
      return ((await answer.json()) as { items: Record<string, string>[] }).items;
    };
    await until(() => server.output().includes("signature verified"));
    const [webhook] = await read("");
    await until(
      async () => (await read(`/${webhook?.webhookId}/deliveries`))[0]?.state === "delivered",
    );
  });

  test("stays as it is while Platform calls succeed", async () => {
    await until(() => server.output().includes("signature verified"));
    const before = server.output();
    const { code } = await platform("ledger");
    expect(code).toBe(0);
    await setTimeout(500);
    expect(server.output()).toBe(before);
  });
});

describe("publishing to npm start", () => {
  const text = readFileSync(join(import.meta.dirname, "../../../docs/recording.md"), "utf8");
  const [, byQueue = ""] = text.split("## By queue");
  const [settings = "", curl = ""] = ["api=http://localhost", "curl"].map(
    (start) => new RegExp(`\`\`\`sh\n(${start}[^\`]+)`).exec(byQueue)?.[1],
  );

  test.skipIf(spawnSync("curl", ["--version"]).error)(
    "as the documentation does: the lead is in GET /v1/leads",
    async () => {
      const { workspaceId } = server.state;
      const script = `${settings}\n${curl}`
        .replace("http://localhost:8787", server.base)
        .replaceAll("wks_…", workspaceId);
      const { stdout, stderr } = spawnSync("bash", ["-euc", script], { encoding: "utf8" });
      expect(JSON.parse(stdout), stderr).toMatchObject({ success: true, errors: [] });
      const newest = async () => (await api<Page<Lead>>("GET", "/v1/leads?limit=1")).data[0]?.name;
      await until(async () => (await newest()) === "Camille Durand");
    },
  );

  const body = { method: "recordLeads", input: {} };
  test.each([
    ["a batch", "/batch", { messages: [{ body, content_type: "json" }, { body: "{}" }] }, 200],
    ["a batch of 101", "/batch", { messages: Array(101).fill({ body }) }, 400],
    ["a message over 128 KB", "", { body: "x".repeat(128_001) }, 400],
    ["a batch as a message", "", { messages: [] }, 400],
    ["what is not JSON", "", "{", 400],
    ["another path", "/pull", { body }, 404],
  ])("answers %s to …/messages%s", async (_what, path, content, status) => {
    const url = `${server.base}/client/v4/accounts/local/queues/platform-records/messages${path}`;
    const post = (headers: HeadersInit) =>
      fetch(url, {
        method: "POST",
        headers,
        body: typeof content === "string" ? content : JSON.stringify(content),
      });
    expect((await post({ Authorization: "Bearer any" })).status).toBe(status);
    expect((await post({})).ok).toBe(false);
  });
});

test.runIf(isLinux)(
  "npm start goes on serving when a broken source builds again, and ends when its server does",
  { timeout: 120_000 },
  async () => {
    const index = join(server.folder, "src/index.ts");
    const source = readFileSync(index, "utf8");
    writeFileSync(index, `${source}const broken = ;\n`);
    await until(() => server.output().includes("Build failed"));
    writeFileSync(index, source);
    await leads();
    const [wrangler = 0] = childrenOf(Number(server.child.pid));
    process.kill(wrangler, "SIGKILL");
    await until(() => server.output().includes("The server ended: see"), 60_000);
  },
);

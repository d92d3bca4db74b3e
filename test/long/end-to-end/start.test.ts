import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { openPortalSession } from "../../../scripts/shared/portal-session.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { type LocalServer, startLocalServer } from "../../node/support/local-server.ts";
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

  test("shows nothing for a successful Platform call", async () => {
    // Wait for the event that the start itself causes.
    await until(() => server.output().includes("signature verified"));
    const before = server.output();
    const { code } = await platform("ledger");
    expect(code).toBe(0);
    // The runtime would log a false alarm a moment later.
    await setTimeout(1_000);
    expect(server.output()).toBe(before);
    expect(server.log()).not.toContain("had hung");
  });

  test("shows each refused input in one line, without a stack", async () => {
    const before = server.output();
    const refusal = { code: 1, output: "ledger: workspaceId: no such workspace\n" };
    for (let time = 0; time < 3; time++)
      expect(await platform("ledger", '{ "workspaceId": "wks_unknown" }')).toEqual(refusal);
    await setTimeout(1_000);
    const shown = server.output().slice(before.length);
    expect(shown).toMatch(/^([\d:]{8} {2}refused: ledger: workspaceId: no such workspace\n){3}$/);
    const log = server.log();
    expect(log.match(/^refused: ledger: workspaceId: no such workspace$/gm)).toHaveLength(3);
    expect(log).not.toMatch(/^ +at /m);
    expect(log).not.toContain("had hung");
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

test("a webhook to a host that does not exist takes one line of the terminal and one of the log", async () => {
  const url = "https://nobody.invalid/hook";
  const events = ["lead.created"];
  const { id } = await api<{ id: string }>("POST", "/v1/webhooks", { url, events });
  const [shown, logged] = [server.output().length, server.log().length];
  const trigger = server.start("trigger", "lead.created");
  await trigger.ended;
  const [eventId] = /evt_\w+/.exec(trigger.output()) ?? [];
  const line = `${eventId} was not delivered to nobody.invalid: no connection, or no such host, attempt 1`;
  await until(() => server.output().includes(line));
  await setTimeout(500);
  expect(server.output().slice(shown)).not.toContain("ERROR");
  const log = server.log().slice(logged);
  expect(log.match(/nobody\.invalid/g)).toHaveLength(1);
  expect(log).not.toMatch(/ERROR|stack:/);
  await api("DELETE", `/v1/webhooks/${id}`);
});

const ended = () => childrenOf(Number(server.child.pid))[0];
test.runIf(isLinux).each([
  ["has ended", ended, "The server ended; restarting it"],
  ["stopped answering", () => frontOf(server), "The server stopped answering; restarting it"],
])(
  "npm start restarts a server that %s, with the same data, and says so in two lines",
  { timeout: 120_000 },
  async (_, victim, reason) => {
    const before = await leads();
    const shown = server.output().length;
    const said = () => server.output().slice(shown);
    process.kill(Number(victim()), "SIGKILL");
    await until(() => said().includes("The server is back."), 60_000);
    expect(said().replaceAll(/^[\d:]{8} {2}|\(see \S+\)/gm, "…")).toBe(
      `…${reason} ….\n…The server is back.\n`,
    );
    expect(await leads()).toEqual(before);
  },
);

test.runIf(isLinux)(
  "npm start does not restart a server whose source does not build, or whose Worker alone crashed",
  { timeout: 120_000 },
  async () => {
    const shown = server.output().length;
    const said = () => server.output().slice(shown);
    const index = join(server.folder, "src/index.ts");
    const source = readFileSync(index, "utf8");
    writeFileSync(index, `${source}const broken = ;\n`);
    await until(() => said().includes("Build failed"));
    const front = frontOf(server);
    const [behind] = workerdsOf(server).filter((pid) => pid !== front);
    process.kill(Number(behind), "SIGKILL");
    await setTimeout(12_000);
    expect(said()).not.toContain("The server");
    writeFileSync(index, source);
    await leads();
    expect(frontOf(server)).toBe(front);
    expect(said()).not.toContain("The server");
  },
);

/** The processes of the runtime: the proxy that accepts requests, and the Worker behind it. */
function workerdsOf({ child }: LocalServer): number[] {
  const [wrangler = 0] = childrenOf(Number(child.pid));
  return childrenOf(wrangler).filter((pid) => commandOf(pid).includes("workerd"));
}

function frontOf(server: LocalServer): number | undefined {
  const { port } = new URL(server.base);
  return workerdsOf(server).find((pid) => commandOf(pid).includes(`entry=localhost:${port}`));
}

const commandOf = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, "utf8");

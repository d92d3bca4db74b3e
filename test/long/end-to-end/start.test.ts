import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { startLocalServer } from "../../node/support/local-server.ts";
import { opened } from "../../node/support/opened.ts";
import { openPortalSession } from "../../node/support/portal-session.ts";
import { childrenOf } from "../../node/support/process.ts";
import { until } from "../../support/until.ts";

const PLATFORM_KEY = Buffer.alloc(32, "key").toString("base64");
const server = await opened(
  startLocalServer(() => {}, [], { PLATFORM_KEYS: `crm:${PLATFORM_KEY}` }),
);
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

  test("has keys of callers over HTTPS, which no command line shows", async () => {
    const call = (key: string) =>
      fetch(`${server.base}/platform/listWorkspaces`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
        body: "{}",
      });
    expect((await call(PLATFORM_KEY)).status).toBe(200);
    expect((await call(PLATFORM_KEY.toLowerCase())).status).toBe(401);
    if (!isLinux) return;
    const familyOf = (pid: number): number[] => [pid, ...childrenOf(pid).flatMap(familyOf)];
    const lines = familyOf(Number(server.child.pid)).map((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, "utf8"),
    );
    expect(lines.join()).toContain("workerd");
    for (const line of lines) expect(line).not.toContain(PLATFORM_KEY);
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

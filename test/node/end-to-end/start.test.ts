import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import type { Lead, Page } from "../../../src/contract/resources.ts";
import { until } from "../../support/until.ts";
import { type LocalServer, startLocalServer } from "../support/local-server.ts";

let server: LocalServer;
beforeAll(async () => {
  server = await startLocalServer();
}, 90_000);
afterAll(() => server.stop());

/** Runs `npm run platform` to its end. */
async function platform(...args: string[]) {
  const command = server.start("platform", ...args);
  const code = await command.ended;
  return { code, output: command.output() };
}

describe("the terminal of npm start", () => {
  test("shows nothing of a call of the platform", async () => {
    const before = server.output();
    const { code } = await platform("ledger");
    expect(code).toBe(0);
    // What the runtime has to say, it says a moment later.
    await setTimeout(1_000);
    expect(server.output()).toBe(before);
    expect(server.log()).not.toContain("had hung");
  });

  test("shows each refused input in one line, without a stack", async () => {
    const before = server.output();
    for (let time = 0; time < 3; time++) {
      const { code, output } = await platform("ledger", '{ "workspaceId": "wks_unknown" }');
      expect({ code, output }).toEqual({
        code: 1,
        output: "ledger: workspaceId: no such workspace\n",
      });
    }
    await setTimeout(1_000);
    const shown = server.output().slice(before.length);
    expect(shown).toMatch(/^([\d:]{8} {2}refused: ledger: workspaceId: no such workspace\n){3}$/);
    const log = server.log();
    expect(log.match(/^refused: ledger: workspaceId: no such workspace$/gm)).toHaveLength(3);
    expect(log).not.toMatch(/^ +at /m);
    expect(log).not.toContain("had hung");
  });
});

test.runIf(process.platform === "linux")(
  "npm start starts a server again that has ended, with the same data",
  async () => {
    const api = openApi(server.base, String(server.state.apiKey));
    const before = await api<Page<Lead>>("GET", "/v1/leads");
    const [wrangler] = childrenOf(Number(server.child.pid));
    process.kill(Number(wrangler), "SIGKILL");
    await until(() => server.output().includes("The server ended, and is started again"));
    await until(() => server.output().includes("The server is back."), 60_000);
    expect(await api<Page<Lead>>("GET", "/v1/leads")).toEqual(before);
  },
);

function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

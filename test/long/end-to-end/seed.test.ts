import { describe, expect, test } from "vitest";
import { opened } from "../../node/support/opened.ts";
import { openPlatformCommand } from "../../node/support/platform-command.ts";

const command = await opened(openPlatformCommand());
const { run, inTerminal, makeWorkspace, countLeads } = command;
const seed = (...args: string[]) => run([process.execPath, "scripts/seed.ts", ...args]);

describe("npm run seed", () => {
  test("records as many leads as it is told, and doubles none when it runs again", async () => {
    const workspaceId = await makeWorkspace();
    const first = await seed("--leads", "250", "--workspace", workspaceId);
    expect(first.stderr).toBe("");
    expect(first.stdout).toMatch(/^250 leads in [\d.]+ s: [\d,]+ leads per second\.$/m);
    expect(await countLeads(workspaceId)).toBe(250);
    await seed("--leads", "260", "--workspace", workspaceId);
    expect(await countLeads(workspaceId)).toBe(260);
  });

  test("--from continues after an interruption", async () => {
    const workspaceId = await makeWorkspace();
    const { stdout } = await seed("--leads", "250", "--from", "201", "--workspace", workspaceId);
    expect(stdout).toContain("50 leads in ");
    expect(await countLeads(workspaceId)).toBe(50);
    await seed("--leads", "200", "--workspace", workspaceId);
    expect(await countLeads(workspaceId)).toBe(250);
  });

  test.runIf(process.platform === "linux")("shows its progress in a terminal", async () => {
    const workspaceId = await makeWorkspace();
    const { stdout } = await inTerminal(`scripts/seed.ts --leads 5000 --workspace ${workspaceId}`);
    expect(stdout).toContain("5,000 of 5,000 leads");
  });

  test.each([
    [["--leads", "many"], "--leads: a whole number from 1 on is expected"],
    [[], "--leads: a whole number from 1 on is expected"],
    [["--leads", "10", "--from", "11"], "--from: 11 lies beyond --leads 10"],
    [["--leads", "10", "--workspace", "wks_unknown"], "workspaceId: no such workspace"],
  ])("says in one sentence what is wrong with %j", async (args, sentence) => {
    const { code, stdout, stderr } = await seed(...args);
    expect(stderr).toContain(sentence);
    expect(stdout).toBe("");
    expect(code).toBe(1);
  });
});

import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";
import { startInTerminal } from "../../node/support/process.ts";
import { until } from "../../support/until.ts";
import {
  DEPLOY,
  deploymentEnv,
  home,
  MADE,
  openAccount,
  readAccount,
  SECRET,
  SECRETS,
  takeCalls,
  useFolders,
} from "./deployment.ts";

const DOWN = "\u001b[B";

useFolders();

// `script` of Debian gives a program a terminal.
describe.runIf(process.platform === "linux")("npm run deploy in a terminal", () => {
  /** Runs it in a terminal; `say` waits for `question` and answers it. */
  function open() {
    const run = startInTerminal(`'${DEPLOY}'`, { env: deploymentEnv() });
    const say = async (question: string, answer: string) => {
      await until(() => stripVTControlCharacters(run.output()).includes(question), 20_000);
      run.child.stdin.write(answer);
    };
    const end = run.ended.then(({ code }) => ({ code, output: run.output() }));
    return { say, end };
  }

  test("generates the secrets, writes a copy to the given file, and deploys with them", async () => {
    openAccount();
    const { say, end } = open();
    await say("Generate one", "\r");
    await say("Where to?", "\r");
    const { code, output } = await end;
    expect(output).toContain(`Deployed: ${readAccount().address}`);
    expect(code).toBe(0);
    const secrets = readAccount().secrets ?? {};
    expect(Object.keys(secrets)).toEqual(Object.keys(SECRETS));
    for (const secret of Object.values(secrets)) {
      expect(secret).toMatch(MADE);
      expect(output).not.toContain(secret.split(":")[1]);
    }
    expect(new Set(Object.values(secrets)).size).toBe(3);
    const [id] = secrets.ENCRYPTION_KEYS?.split(":") ?? [];
    const copy = join(home(), `public-api.${id}.txt`);
    const lines = Object.entries(secrets).map(([name, secret]) => `${name}="${secret}"\n`);
    expect(readFileSync(copy, "utf8")).toBe(lines.join(""));
    expect(statSync(copy).mode & 0o777).toBe(0o600);
  });

  test("asks which account, and for a secret, which it hides and checks", async () => {
    openAccount({ accounts: ["a1", "a2"].map((id) => ({ id, name: `Account ${id}` })) });
    const { say, end } = open();
    await say("Account a2", `${DOWN}\r`);
    await say("Generate one", `${DOWN}\r`);
    await say("◆  ENCRYPTION_KEYS\r", "c2VjcmV0\r");
    await say("entry 1 is not id:base64 of 32 bytes", `${"\u007f".repeat(8)}${SECRET}\r`);
    await say("Where to?", "\r");
    const { code, output } = await end;
    expect(code).toBe(0);
    expect(output).not.toContain(SECRET.slice(3));
    expect(output).not.toContain("c2VjcmV0");
    const calls = takeCalls();
    expect(calls.length).toBeGreaterThan(6);
    expect(new Set(calls.slice(1).map(({ accountId }) => accountId))).toEqual(new Set(["a2"]));
    expect(calls.at(-1)?.secretsFile?.content).toEqual({
      ENCRYPTION_KEYS: SECRET,
      API_KEY_CHECKSUM_KEYS: expect.stringMatching(MADE),
      PORTAL_SIGNING_KEYS: expect.stringMatching(MADE),
    });
  });

  test("changes nothing if a question is cancelled", async () => {
    openAccount();
    const { say, end } = open();
    await say("Generate one", "\u0003");
    const { code, output } = await end;
    expect(output).toContain("Cancelled: nothing was deployed.");
    expect(code).toBe(1);
    expect(readAccount()).toMatchObject({ databases: [], secrets: null });
  });
});

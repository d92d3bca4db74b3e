import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/checkout.ts";
import { until } from "../support/until.ts";
import type { Call, FakeAccount } from "./fake-wrangler.ts";

const SECRET = "k1:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
const DOWN = "\u001b[B";
const DEPLOY = join(ROOT, "scripts/deploy.ts");

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "deploy-test-"));
  const fake = join(import.meta.dirname, "fake-wrangler.ts");
  const script = `#!/bin/sh\nexec '${process.execPath}' --no-warnings '${fake}' "$@"\n`;
  writeFileSync(join(folder, "wrangler"), script, { mode: 0o755 });
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** An account as it is before the first deployment, with some differences. */
function openAccount(differences: Partial<FakeAccount> = {}): void {
  const account: FakeAccount = {
    loggedIn: true,
    accounts: [{ id: "a1", name: "Main" }],
    databases: [],
    migrated: false,
    secrets: null,
    ...differences,
  };
  writeFileSync(join(folder, "account.json"), JSON.stringify(account));
}

function readAccount(): FakeAccount {
  return JSON.parse(readFileSync(join(folder, "account.json"), "utf8"));
}

/** The calls since the last reading. */
function takeCalls(): Call[] {
  const file = join(folder, "calls");
  if (!existsSync(file)) return [];
  const calls = readFileSync(file, "utf8").trim().split("\n");
  rmSync(file);
  return calls.map((line) => JSON.parse(line));
}

function commandsOf(calls: Call[]): string[] {
  return calls.map(({ args }) =>
    args.filter((arg) => !arg.startsWith("-") && !arg.includes("/")).join(" "),
  );
}

function start(
  command: string[],
  env: NodeJS.ProcessEnv = {},
): ChildProcessWithoutNullStreams & { output: string } {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    env: {
      PATH: [folder, dirname(process.execPath), process.env.PATH].join(delimiter),
      HOME: folder,
      TMPDIR: folder,
      NODE_NO_WARNINGS: "1",
      FAKE_ACCOUNT: join(folder, "account.json"),
      FAKE_CALLS: join(folder, "calls"),
      ...env,
    },
  });
  const run = Object.assign(child, { output: "" });
  for (const stream of [run.stdout, run.stderr])
    stream.on("data", (chunk) => {
      run.output += chunk;
    });
  return run;
}

function ended(run: ReturnType<typeof start>): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve) => {
    run.on("close", (code) => resolve({ code, output: run.output }));
  });
}

/** Deploys where nobody can be asked. */
async function deploy(env: NodeJS.ProcessEnv = {}) {
  const run = start([process.execPath, DEPLOY], env);
  run.stdin.end();
  const end = await ended(run);
  return { ...end, calls: takeCalls() };
}

const FIRST = ["whoami", "secret list json", "d1 list", "d1 create public-api"];
const ALWAYS = ["d1 migrations apply DB", "deploy"];

describe("npm run deploy, where nobody can be asked", () => {
  test("makes the database, migrates it and deploys with the secret, in this order", async () => {
    openAccount();
    const { code, output, calls } = await deploy({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
    expect(output).toContain("Deployed: https://public-api.example.workers.dev");
    expect(code).toBe(0);
    // The secret is at hand: the Worker need not be asked for it.
    expect(commandsOf(calls)).toEqual([
      ...FIRST.filter((c) => c !== "secret list json"),
      ...ALWAYS,
    ]);
    expect(calls.at(-2)?.args).toContain("--remote");
    expect(readAccount().secrets).toEqual({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
  });

  test("shows the secret to nobody, and leaves no file with it", async () => {
    openAccount();
    const { output, calls } = await deploy({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
    const [, key = ""] = SECRET.split(":");
    expect(output).not.toContain(key);
    expect(JSON.stringify(calls.map(({ args }) => args))).not.toContain(key);
    expect(calls.some(({ sawSecret }) => sawSecret)).toBe(false);
    const { secretsFile } = calls.at(-1) as Call;
    expect(secretsFile?.mode).toBe(0o600);
    expect(secretsFile?.content).toEqual({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
    expect(existsSync(dirname(secretsFile?.path ?? ""))).toBe(false);
  });

  test("the second time makes nothing and needs no secret", async () => {
    openAccount();
    await deploy({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
    const before = readAccount();
    const { code, calls } = await deploy();
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual(["whoami", "secret list json", "d1 list", ...ALWAYS]);
    expect(calls.at(-1)?.secretsFile).toBeUndefined();
    expect(readAccount()).toEqual(before);
  });

  test.each<[string, Partial<FakeAccount>, NodeJS.ProcessEnv, string, string[]]>([
    [
      "no secret",
      {},
      {},
      "Set WEBHOOK_ENCRYPTION_KEYS: the Worker has none yet.",
      FIRST.slice(0, 2),
    ],
    [
      "a secret that is none",
      {},
      { WEBHOOK_ENCRYPTION_KEYS: "c2VjcmV0" },
      "WEBHOOK_ENCRYPTION_KEYS: entry 1 is not id:base64 of 32 bytes",
      [],
    ],
    ["nobody logged in", { loggedIn: false }, {}, "Not logged in to Cloudflare: run", ["whoami"]],
    [
      "several accounts",
      {
        accounts: [
          { id: "a1", name: "Main" },
          { id: "a2", name: "Other" },
        ],
      },
      { WEBHOOK_ENCRYPTION_KEYS: SECRET },
      "Set CLOUDFLARE_ACCOUNT_ID: these credentials reach several accounts, a1, a2.",
      ["whoami"],
    ],
    [
      "secrets that cannot be listed",
      { fails: "secret list" },
      {},
      "The Worker's secrets cannot be listed:\nA request to the Cloudflare API failed.",
      FIRST.slice(0, 2),
    ],
    [
      "a database that cannot be made",
      { secrets: { WEBHOOK_ENCRYPTION_KEYS: SECRET }, fails: "d1 create" },
      {},
      "The database public-api could not be made:\nA request to the Cloudflare API failed.",
      FIRST,
    ],
    [
      "a migration that fails",
      { secrets: { WEBHOOK_ENCRYPTION_KEYS: SECRET }, fails: "d1 migrations" },
      {},
      "The database could not be brought up to date: nothing was deployed.",
      [...FIRST, ...ALWAYS.slice(0, 1)],
    ],
    [
      "a deployment that fails",
      { fails: "deploy" },
      { WEBHOOK_ENCRYPTION_KEYS: SECRET },
      "The Worker was not deployed; what served before still does.",
      [...FIRST.filter((command) => command !== "secret list json"), ...ALWAYS],
    ],
    [
      "a deployment that ends well without having deployed",
      { secrets: { WEBHOOK_ENCRYPTION_KEYS: SECRET }, declines: "deploy" },
      {},
      "The Worker was not deployed; what served before still does.",
      [...FIRST, ...ALWAYS],
    ],
  ])("stops at %s, and says so", async (_, differences, env, sentence, commands) => {
    openAccount(differences);
    const { code, output, calls } = await deploy(env);
    expect(output).toContain(sentence);
    expect(output).not.toContain("    at ");
    expect(code).toBe(1);
    expect(commandsOf(calls)).toEqual(commands);
    expect(output).not.toContain("c2VjcmV0");
    const file = calls.at(-1)?.secretsFile?.path;
    if (file) expect(existsSync(dirname(file))).toBe(false);
  });

  test("leaves no file with the secret when it is ended while it deploys", async () => {
    openAccount({ hangs: "deploy" });
    const run = start([process.execPath, DEPLOY], { WEBHOOK_ENCRYPTION_KEYS: SECRET });
    const end = ended(run);
    let calls: Call[] = [];
    await until(() => {
      calls = [...calls, ...takeCalls()];
      return commandsOf(calls).at(-1) === "deploy";
    }, 20_000);
    const file = calls.at(-1)?.secretsFile?.path ?? "";
    expect(existsSync(file)).toBe(true);
    run.kill("SIGTERM");
    expect((await end).code).toBe(1);
    expect(existsSync(dirname(file))).toBe(false);
  });

  test("with the real wrangler and no account, says that nobody is logged in", async () => {
    openAccount();
    rmSync(join(folder, "wrangler"));
    const { code, output } = await deploy({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
    expect(output).toBe(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.\n",
    );
    expect(code).toBe(1);
  });
});

// `script` of Debian gives a program a terminal.
describe.runIf(process.platform === "linux")("npm run deploy in a terminal", () => {
  /** Runs it in a terminal; `say` answers once `question` stands there. */
  function startInTerminal() {
    const command = `stty cols 120 rows 40 && '${process.execPath}' '${DEPLOY}'`;
    const run = start(["script", "-qec", command, "/dev/null"], { TERM: "xterm", CI: "" });
    const say = async (question: string, answer: string) => {
      await until(() => stripVTControlCharacters(run.output).includes(question), 20_000);
      run.stdin.write(answer);
    };
    return { run, say, end: ended(run) };
  }

  test("makes a secret, keeps a copy where it is told, and deploys with it", async () => {
    openAccount();
    const { say, end } = startInTerminal();
    await say("Generate one", "\r");
    await say("Where to?", "\r");
    const { code, output } = await end;
    expect(output).toContain("Deployed: https://public-api.example.workers.dev");
    expect(code).toBe(0);
    const secret = readAccount().secrets?.WEBHOOK_ENCRYPTION_KEYS ?? "";
    expect(secret).toMatch(/^k\d{8}:[A-Za-z0-9+/]{43}=$/);
    expect(output).not.toContain(secret.split(":")[1]);
    const copy = join(folder, `public-api.${secret.split(":")[0]}.txt`);
    expect(readFileSync(copy, "utf8")).toBe(`WEBHOOK_ENCRYPTION_KEYS="${secret}"\n`);
    expect(statSync(copy).mode & 0o777).toBe(0o600);
  });

  test("asks which account, and for a secret, which it hides and checks", async () => {
    openAccount({ accounts: ["a1", "a2"].map((id) => ({ id, name: `Account ${id}` })) });
    const { say, end } = startInTerminal();
    await say("Account a2", `${DOWN}\r`);
    await say("Generate one", `${DOWN}\r`);
    await say("◆  WEBHOOK_ENCRYPTION_KEYS\r", "c2VjcmV0\r");
    await say("entry 1 is not id:base64 of 32 bytes", `${"\u007f".repeat(8)}${SECRET}\r`);
    const { code, output } = await end;
    expect(code).toBe(0);
    expect(output).not.toContain(SECRET.slice(3));
    expect(output).not.toContain("c2VjcmV0");
    const calls = takeCalls();
    expect(calls.slice(1).map(({ account }) => account)).toEqual(Array(5).fill("a2"));
    expect(calls.at(-1)?.secretsFile?.content).toEqual({ WEBHOOK_ENCRYPTION_KEYS: SECRET });
  });

  test("makes nothing when a question is cancelled", async () => {
    openAccount();
    const { say, end } = startInTerminal();
    await say("Generate one", "\u0003");
    const { code, output } = await end;
    expect(output).toContain("Given up: nothing was deployed.");
    expect(code).toBe(1);
    expect(readAccount()).toMatchObject({ databases: [], secrets: null });
  });
});

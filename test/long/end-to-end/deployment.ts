import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import type { Call, FakeAccount } from "./fake-wrangler.ts";

/** A valid secret. */
export const SECRET = "k1:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
/** All secrets, as a pipeline provides them. */
export const SECRETS = {
  ENCRYPTION_KEYS: SECRET,
  API_KEY_CHECKSUM_KEYS: `c1:${Buffer.alloc(32, "c").toString("base64")}`,
  PORTAL_SIGNING_KEYS: `p1:${Buffer.alloc(32, "p").toString("base64")}`,
};
/** A generated secret; its id is the date. */
export const MADE = /^k\d{8}:[A-Za-z0-9+/]{43}=$/;
/** What `npm run deploy` runs. */
export const DEPLOY = join(ROOT, "scripts/deploy/deploy.ts");

let folder = "";

/** The folder of the current test: home, temporary files, and the fake `wrangler`. */
export function home(): string {
  return folder;
}

/** Gives each test a folder of its own. */
export function useFolders(): void {
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "deploy-test-"));
    const fake = join(import.meta.dirname, "fake-wrangler.ts");
    const script = `#!/bin/sh\nexec '${process.execPath}' --no-warnings '${fake}' "$@"\n`;
    writeFileSync(join(folder, "wrangler"), script, { mode: 0o755 });
  });

  afterEach(() => rmSync(folder, { recursive: true, force: true }));
}

/** An account as it is before the first deployment, with some differences. */
export function openAccount(differences: Partial<FakeAccount> = {}): void {
  const account: FakeAccount = {
    loggedIn: true,
    accounts: [{ id: "a1", name: "Main" }],
    databases: [],
    migrated: [],
    secrets: null,
    ...differences,
  };
  writeFileSync(join(folder, "account.json"), JSON.stringify(account));
}

/** The account as the last call left it. */
export function readAccount(): FakeAccount {
  return JSON.parse(readFileSync(join(folder, "account.json"), "utf8"));
}

/** The calls so far, without one that is still being written. */
export function readCalls(): Call[] {
  const file = join(folder, "calls");
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line));
}

/** The calls since the last taking, of programs that have ended. */
export function takeCalls(): Call[] {
  const calls = readCalls();
  rmSync(join(folder, "calls"), { force: true });
  return calls;
}

/** What the calls did, without options, files and statements. */
export function commandsOf(calls: Call[]): string[] {
  return calls.map(({ args }) => args.filter((arg) => !/^-|[/ ]/.test(arg)).join(" "));
}

/** Runs a command with the stand-in first on its path, and gathers what it prints. */
export function start(
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
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
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

/** Waits for its end. */
export function ended(
  run: ReturnType<typeof start>,
): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve) => {
    run.on("close", (code) => resolve({ code, output: run.output }));
  });
}

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeAll, beforeEach, vi } from "vitest";
import { deploy as deployWith } from "../../../scripts/deploy/deployment.ts";
import { parseOptions } from "../../../scripts/deploy/options.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { complaintOf, type openWrangler } from "../../../scripts/shared/wrangler.ts";
import { type Program, startProgram } from "../../node/support/process.ts";
import { serve } from "../../node/support/server.ts";
import { act, type Call, type FakeAccount, migrate } from "./fake-wrangler.ts";

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
const DEPLOY = join(ROOT, "scripts/deploy/deploy.ts");

/** The queues of wrangler.toml. */
export const QUEUES = ["webhook-deliveries", "webhook-redeliveries", "webhook-emails"];

/** The folder of the current test: home, temporary files, and the fake `wrangler`. */
let folder = "";
export const home = () => folder;
/** The address that is deployed to: the built Worker, but for the answers that a test replaces. */
let address = "";
let replaced: Record<string, RequestListener> = {};

/** Answers a path of the deployed Worker differently, in this test. */
export function replace(path: string, answer: RequestListener): void {
  replaced[path] = answer;
}

/** Which versions were asked for by name, in this test. */
const overrides = new Set<string>();
export const askedFor = () => [...overrides];

/** The options for a Worker whose address is known, so that a version is tested before it has traffic. */
export const withOrigin = () => configWith('PORTAL_ORIGIN = ""', `PORTAL_ORIGIN = "${address}"`);

/** Answers as the Worker does that is deployed. */
const answerAs =
  (worker: Runtime): RequestListener =>
  async (request, response) => {
    const { url = "/", headers } = request;
    const override = headers["cloudflare-workers-version-overrides"];
    if (override) overrides.add(String(override));
    const answer = replaced[url];
    if (answer) return answer(request, response);
    const { authorization = "" } = headers;
    const real = await fetch(new URL(url, worker.url), { headers: { authorization } });
    // `fetch` has decoded the body.
    const shown = new Headers(real.headers);
    for (const name of ["content-encoding", "content-length"]) shown.delete(name);
    response.writeHead(real.status, Object.fromEntries(shown));
    response.end(Buffer.from(await real.arrayBuffer()));
  };

/** Gives each test a folder of its own, and all of them a Worker that is deployed to. */
export function useFolders(): void {
  beforeAll(async () => {
    const worker = await startRuntime();
    const server = await serve(answerAs(worker));
    address = server.url;
    return () => Promise.all([server.close(), worker.stop()]);
  });

  beforeEach(() => {
    replaced = {};
    overrides.clear();
    folder = mkdtempSync(join(tmpdir(), "deploy-test-"));
    const fake = join(import.meta.dirname, "fake-wrangler.ts");
    const script = `#!/bin/sh\nexec '${process.execPath}' --no-warnings '${fake}' "$@"\n`;
    writeFileSync(join(folder, "wrangler"), script, { mode: 0o755 });
  });

  afterEach(() => rmSync(folder, { recursive: true, force: true }));
}

/** An account as it is before the first deployment, with some differences. */
export function openAccount(differences: Partial<FakeAccount> = {}): void {
  const none = { databases: [], queues: [], secrets: null, versions: {}, serving: {} };
  const account: FakeAccount = { loggedIn: true, ...none, address, ...differences };
  writeFileSync(join(folder, "account.json"), JSON.stringify(account));
}

/** An account to which the Worker was deployed before, with some differences. @returns its database. */
export function openDeployed(differences: Partial<FakeAccount> = {}): DatabaseSync {
  const resources = { databases: inEu("public-api"), queues: inEu(...QUEUES) };
  const made = { ...resources, secrets: SECRETS, versions: { old: {} }, serving: { old: 100 } };
  openAccount({ ...made, ...differences });
  const database = new DatabaseSync(join(folder, "public-api.sqlite"));
  migrate(database);
  return database;
}

/** Databases or queues in the jurisdiction of wrangler.toml. */
export const inEu = (...names: string[]) => names.map((name) => ({ name, jurisdiction: "eu" }));

/** The options for another configuration: that of this checkout, with one text replaced. */
export function configWith(text: string, other: string): string[] {
  const toml = readFileSync(join(ROOT, "wrangler.toml"), "utf8");
  if (!toml.includes(text)) throw new Error(`wrangler.toml has no ${text}`);
  const file = join(folder, "wrangler.toml");
  writeFileSync(file, toml.replace(text, other));
  return ["--config", file];
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

/** How a deployment ended, with its calls of wrangler: whole, and without options, files and statements. */
function endOf(code: number | null, output: string) {
  const calls = readCalls();
  rmSync(join(folder, "calls"), { force: true });
  const commands = calls.map(({ args }) => args.filter((arg) => !/^-|[/ ]/.test(arg)).join(" "));
  return { code, output, calls, commands, account: readAccount() };
}

/** The Worker is here, so what is wrong with it does not pass: it is asked once. */
const WAIT = "--wait=1";

/** Starts a deployment: the stand-in comes first on the path. */
export function startDeploy(
  env: NodeJS.ProcessEnv = {},
  args: string[] = [],
  start: (words: string[], options: { env: NodeJS.ProcessEnv }) => Program = startProgram,
) {
  const { child, ended, output } = start([process.execPath, DEPLOY, WAIT, ...args], {
    env: {
      PATH: [folder, dirname(process.execPath), process.env.PATH].join(delimiter),
      HOME: folder,
      TMPDIR: folder,
      NODE_NO_WARNINGS: "1",
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      FAKE_FOLDER: folder,
      ...env,
    },
  });
  return { child, output, ended: ended.then(({ code }) => endOf(code, output())) };
}

/** Deploys in this process, which takes a twentieth of the time. */
export async function deploy(env: NodeJS.ProcessEnv = {}, ...args: string[]) {
  let output = "";
  const print = (text: string) => {
    output += text;
  };
  const log = vi.spyOn(console, "log").mockImplementation((line) => print(`${line}\n`));
  /** The stand-in, without a process of its own. */
  const open: typeof openWrangler = (base, options = []) => ({
    async ask(...given) {
      const { code, stdout, stderr } = act(folder, [...given, ...options], { ...base, CI: "1" });
      return { ok: code === 0, stdout, complaint: complaintOf(stderr || stdout) };
    },
    async show(given, more) {
      const { code, stdout, stderr } = act(folder, [...given, ...options], { ...base, ...more });
      print(stdout + stderr);
      return code ?? 1;
    },
  });
  const code = await deployWith(parseOptions([WAIT, ...args]), { HOME: folder, ...env }, open).then(
    () => 0,
    (error: Error) => {
      print(`${error.message}\n`);
      return 1;
    },
  );
  log.mockRestore();
  return endOf(code, output);
}

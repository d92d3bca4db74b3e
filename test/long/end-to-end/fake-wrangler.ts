/**
 * Replaces wrangler, which needs an account: the only part of a deployment that the tests cannot
 * run. It keeps an account in a file, answers in the words and formats of wrangler 4.124 (`whoami
 * --json`, `secret list`, `d1 list --json`, WRANGLER_OUTPUT_FILE_PATH) and refuses what Cloudflare
 * refuses. Every call is recorded, with what it could see of the secret.
 */
import { appendFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The account, and what should go wrong in it. */
export interface FakeAccount {
  loggedIn: boolean;
  accounts: { id: string; name: string }[];
  databases: string[];
  /** The databases whose migrations were applied. */
  migrated: string[];
  /** How many workspaces live in which database other than `DB`. */
  living?: Record<string, number>;
  /** The secrets of the Worker; null while there is no Worker. */
  secrets: Record<string, string> | null;
  /** The command that fails, and the one that is declined: it succeeds without doing anything. */
  fails?: string;
  declines?: string;
  /** The command that does not end by itself. */
  hangs?: string;
}

/** The input of one call. */
export interface Call {
  args: string[];
  account: string | null;
  ci: boolean;
  /** Whether the environment contained a secret. */
  sawSecret: boolean;
  secretsFile?: { path: string; mode: number; content: Record<string, string> };
}

const SECRETS = ["ENCRYPTION_KEYS", "API_KEY_CHECKSUM_KEYS", "PORTAL_SIGNING_KEYS"];

const { FAKE_ACCOUNT = "", FAKE_CALLS = "", WRANGLER_OUTPUT_FILE_PATH } = process.env;
if (FAKE_ACCOUNT) act(process.argv.slice(2));

function act(args: string[]): void {
  const account: FakeAccount = JSON.parse(readFileSync(FAKE_ACCOUNT, "utf8"));
  const file = args[args.indexOf("--secrets-file") + 1];
  const call: Call = {
    args,
    account: process.env.CLOUDFLARE_ACCOUNT_ID ?? null,
    ci: Boolean(process.env.CI),
    sawSecret: SECRETS.some((name) => name in process.env),
  };
  if (args.includes("--secrets-file") && file)
    call.secretsFile = {
      path: file,
      mode: statSync(file).mode & 0o777,
      content: JSON.parse(readFileSync(file, "utf8")),
    };
  appendFileSync(FAKE_CALLS, `${JSON.stringify(call)}\n`);
  const command = args.filter((arg) => !arg.startsWith("-")).join(" ");
  if (account.hangs && command.startsWith(account.hangs)) {
    setInterval(() => {}, 1_000);
    return;
  }
  if (account.fails && command.startsWith(account.fails))
    fail("A request to the Cloudflare API failed.");
  if (account.declines && command.startsWith(account.declines)) report(null);
  else answer(command, call, account);
  writeFileSync(FAKE_ACCOUNT, JSON.stringify(account));
}

function answer(command: string, call: Call, account: FakeAccount): void {
  if (command === "whoami") {
    if (!account.loggedIn) {
      console.log(JSON.stringify({ loggedIn: false }));
      process.exit(1);
    }
    const { accounts } = account;
    console.log(JSON.stringify({ loggedIn: true, authType: "User API Token", accounts }, null, 2));
  } else if (command.startsWith("secret list")) {
    if (!account.secrets) fail('Worker "public-api" not found.');
    const secrets = Object.keys(account.secrets).map((name) => ({ name, type: "secret_text" }));
    console.log(JSON.stringify(secrets, null, 2));
  } else if (command === "d1 list") {
    console.log(JSON.stringify(account.databases.map((name) => ({ uuid: "0-0", name }))));
  } else if (command.startsWith("d1 create")) {
    const name = call.args[2] ?? "";
    if (account.databases.includes(name)) fail("A database with that name already exists");
    account.databases.push(name);
    console.log(`✅ Successfully created DB '${name}'`);
  } else if (command.startsWith("d1 migrations apply")) {
    const binding = call.args[3] ?? "";
    const name = bound(call.args)[binding] ?? "";
    if (!account.databases.includes(name))
      fail(`Couldn't find a D1 DB named '${name}' (bound as '${binding}') in the API.`);
    if (!account.migrated.includes(name)) account.migrated.push(name);
    console.log("✅ No migrations to apply!");
  } else if (command.startsWith("d1 execute DB")) {
    const results = Object.entries(account.living ?? {}).map(([database, workspaces]) => ({
      database,
      workspaces,
    }));
    console.log(JSON.stringify([{ results, success: true, meta: {} }]));
  } else if (command === "deploy" && call.args.includes("--dry-run")) {
    console.log("--dry-run: exiting now.");
  } else if (command.startsWith("deploy")) {
    const secrets = { ...account.secrets, ...call.secretsFile?.content };
    const missing = SECRETS.filter((name) => !(name in secrets));
    if (missing.length > 0)
      fail(`The following required secrets have not been set: ${missing.join(", ")}`);
    for (const name of Object.values(bound(call.args)))
      if (!account.migrated.includes(name)) fail("the new code would serve before the migrations");
    account.secrets = secrets;
    report("11111111-2222-3333-4444-555555555555");
  } else fail(`Unknown arguments: ${command}`);
}

/** The databases of the configuration, by their bindings. */
function bound(args: string[]): Record<string, string> {
  const given = args.find((arg) => arg.startsWith("--config="))?.slice("--config=".length);
  const text = readFileSync(given ?? join(import.meta.dirname, "../../../wrangler.toml"), "utf8");
  const blocks = text.matchAll(/\[\[d1_databases\]\]\nbinding = "(.+)"\ndatabase_name = "(.+)"/g);
  return Object.fromEntries([...blocks].map(([, binding, name]) => [binding, name]));
}

function report(versionId: string | null): void {
  if (!WRANGLER_OUTPUT_FILE_PATH) return;
  const session = { version: 1, type: "wrangler-session", wrangler_version: "4.124.0" };
  const deployment = {
    type: "deploy",
    version: 1,
    version_id: versionId,
    targets: versionId ? ["https://public-api.example.workers.dev", "schedule: * * * * *"] : [],
  };
  const lines = [session, deployment].map((entry) => `${JSON.stringify(entry)}\n`);
  appendFileSync(WRANGLER_OUTPUT_FILE_PATH, lines.join(""));
}

function fail(message: string): never {
  console.error(`\u001b[31m✘ \u001b[41;31m[\u001b[41;97mERROR\u001b[41;31m]\u001b[0m ${message}\n`);
  process.exit(1);
}

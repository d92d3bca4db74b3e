/**
 * Replaces wrangler, which needs an account: the only part of a deployment that the tests cannot
 * run. It keeps an account in a file and its databases in SQLite, answers in the words and formats of
 * wrangler 4.155 (`whoami --json`, `secret list`, `d1 list --json`, `d1 execute --json`, `queues info`,
 * `versions view --json`, WRANGLER_OUTPUT_FILE_PATH) and refuses what Cloudflare refuses. Every call is
 * recorded, with what it could see of the secret.
 */
import { appendFileSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";

const ROOT = join(import.meta.dirname, "../../..");

/** A database or a queue of the account. */
interface Resource {
  name: string;
  jurisdiction: string | null;
  /** How long a queue keeps messages. */
  keptSeconds?: number;
}

/** The account, and what should go wrong in it. */
export interface FakeAccount {
  loggedIn: boolean;
  accounts: { id: string; name: string }[];
  databases: Resource[];
  queues: Resource[];
  /** Whether queues keep messages for a day at most. */
  isFree?: boolean;
  /** The secrets of the Worker; null while there is no Worker. */
  secrets: Record<string, string> | null;
  /** The annotations of the versions, by id. */
  versions: Record<string, Record<string, string>>;
  /** The version that serves, and where. */
  serving?: string;
  address: string;
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

/** The bookmark of every database. */
export const BOOKMARK = "00000085-0000024c-00004c6d-8e61117bf38d7adb71b934ebbf891683";

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
  if (account.declines && command.startsWith(account.declines)) report(null, account.address);
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
    if (!account.secrets) fail(`Worker "${configOf(call.args).name}" not found.`);
    const secrets = Object.keys(account.secrets).map((name) => ({ name, type: "secret_text" }));
    console.log(JSON.stringify(secrets, null, 2));
  } else if (command === "d1 list") {
    const shown = account.databases.map(({ name, ...more }) => ({
      uuid: `id-of-${name}`,
      name,
      ...more,
    }));
    console.log(JSON.stringify(shown));
  } else if (command.startsWith("d1 create")) {
    const name = call.args[2] ?? "";
    if (account.databases.some((database) => database.name === name))
      fail("A database with that name already exists");
    account.databases.push({ name, jurisdiction: option(call.args, "jurisdiction") ?? null });
    console.log(`✅ Successfully created DB '${name}'`);
  } else if (command.startsWith("d1 migrations apply")) {
    migrate(openDatabase(call.args, call.args[3] ?? "", account));
    console.log("✅ No migrations to apply!");
  } else if (command.startsWith("d1 execute")) {
    const database = openDatabase(call.args, call.args[2] ?? "", account);
    const sql = call.args[call.args.indexOf("--command") + 1] ?? "";
    try {
      const results = database.prepare(sql).all();
      console.log(JSON.stringify([{ results, success: true, meta: {} }]));
    } catch (error) {
      const text = `${(error as Error).message}: SQLITE_ERROR`;
      console.log(JSON.stringify({ error: { text, notes: [], kind: "error" } }));
      process.exit(1);
    }
  } else if (command.startsWith("d1 time-travel info")) {
    openDatabase(call.args, call.args[3] ?? "", account);
    console.log(JSON.stringify({ bookmark: BOOKMARK }));
  } else if (command.startsWith("queues info")) {
    const queue = findQueue(call, account);
    console.log(`Queue Name: ${queue.name}`);
    if (queue.jurisdiction) console.log(`Jurisdiction: ${queue.jurisdiction}`);
  } else if (command.startsWith("queues create") || command.startsWith("queues update")) {
    const keptSeconds = Number(option(call.args, "message-retention-period-secs"));
    if (account.isFree && keptSeconds > 86_400) fail("The specified queue settings are invalid.");
    if (call.args[1] === "update") findQueue(call, account).keptSeconds = keptSeconds;
    else {
      const jurisdiction = option(call.args, "jurisdiction") ?? null;
      account.queues.push({ name: call.args[2] ?? "", jurisdiction, keptSeconds });
    }
  } else if (command.startsWith("versions view")) {
    const id = call.args[2] ?? "";
    const annotations = account.versions[id];
    if (!annotations) fail("A request to the Cloudflare API failed.\n  Version not found");
    console.log(JSON.stringify({ id, annotations }));
  } else if (command.startsWith("rollback")) {
    account.serving = call.args[1] ?? "";
  } else if (command === "deploy" && call.args.includes("--dry-run")) {
    console.log("--dry-run: exiting now.");
  } else if (command.startsWith("deploy")) {
    const secrets = { ...account.secrets, ...call.secretsFile?.content };
    const missing = SECRETS.filter((name) => !(name in secrets));
    if (missing.length > 0)
      fail(`The following required secrets have not been set: ${missing.join(", ")}`);
    const { databases, queues } = configOf(call.args);
    for (const { binding } of databases.filter(({ binding }) => /^DB(_\d+)?$/.test(binding)))
      if (!tablesOf(openDatabase(call.args, binding, account)).includes("api_keys"))
        fail("the new code would serve before the migrations");
    for (const { name } of queues)
      if (!account.queues.some((queue) => queue.name === name))
        fail(`the queue ${name} would be created without a jurisdiction`);
    account.secrets = secrets;
    const id = `11111111-2222-3333-4444-${String(Object.keys(account.versions).length).padStart(12, "0")}`;
    const tag = option(call.args, "tag");
    const message = option(call.args, "message");
    account.versions[id] = {
      ...(tag && { "workers/tag": tag }),
      ...(message && { "workers/message": message }),
    };
    account.serving = id;
    report(id, account.address);
  } else fail(`Unknown arguments: ${command}`);
}

/** The value of `--name=value`. */
function option(args: string[], name: string): string | undefined {
  return args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
}

/** What the configuration binds: wrangler would take a second to read it. */
function configOf(args: string[]) {
  const text = readFileSync(option(args, "config") ?? join(ROOT, "wrangler.toml"), "utf8");
  const env = option(args, "env");
  const within = env ? `env.${env}.` : "";
  const read = (list: string, key: string) =>
    [
      ...text.matchAll(
        new RegExp(`^\\[\\[${within}${list}\\]\\]\nbinding = "(.+)"\n${key} = "(.+)"`, "gm"),
      ),
    ].map(([, binding = "", name = ""]) => ({ binding, name }));
  return {
    name: `public-api${env ? `-${env}` : ""}`,
    databases: read("d1_databases", "database_name"),
    queues: read("queues.producers", "queue"),
  };
}

/** The database that is bound, in a file beside the account. */
function openDatabase(args: string[], binding: string, account: FakeAccount): DatabaseSync {
  const bound = configOf(args).databases.find((database) => database.binding === binding);
  const name = bound?.name ?? "";
  if (!account.databases.some((database) => database.name === name))
    fail(`Couldn't find a D1 DB named '${name}' (bound as '${binding}') in the API.`);
  return new DatabaseSync(join(dirname(FAKE_ACCOUNT), `${name}.sqlite`));
}

/** Applies the migrations that wrangler would. */
export function migrate(database: DatabaseSync): void {
  const folder = join(ROOT, "migrations");
  database.exec("CREATE TABLE IF NOT EXISTS d1_migrations (name TEXT PRIMARY KEY)");
  for (const name of readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()) {
    if (database.prepare("SELECT 1 FROM d1_migrations WHERE name = ?").get(name)) continue;
    database.exec(readFileSync(join(folder, name), "utf8"));
    database.prepare("INSERT INTO d1_migrations VALUES (?)").run(name);
  }
}

function tablesOf(database: DatabaseSync): unknown[] {
  return database
    .prepare("SELECT name FROM sqlite_schema")
    .all()
    .map(({ name }) => name);
}

function findQueue({ args }: Call, { queues }: FakeAccount): Resource {
  const [, , name = ""] = args;
  return (
    queues.find((queue) => queue.name === name) ??
    fail(`Queue "${name}" does not exist. To create it, run: wrangler queues create ${name}`)
  );
}

function report(versionId: string | null, address: string): void {
  if (!WRANGLER_OUTPUT_FILE_PATH) return;
  const session = { version: 1, type: "wrangler-session", wrangler_version: "4.155.0" };
  const deployment = {
    type: "deploy",
    version: 1,
    version_id: versionId,
    targets: versionId ? [address, "schedule: * * * * *"] : [],
  };
  const lines = [session, deployment].map((entry) => `${JSON.stringify(entry)}\n`);
  appendFileSync(WRANGLER_OUTPUT_FILE_PATH, lines.join(""));
}

function fail(message: string): never {
  console.error(`\u001b[31m✘ \u001b[41;31m[\u001b[41;97mERROR\u001b[41;31m]\u001b[0m ${message}\n`);
  process.exit(1);
}

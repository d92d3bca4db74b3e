/**
 * Replaces wrangler, which needs an account: the only part of a deployment that the tests cannot
 * run. It keeps an account in a file and its databases in SQLite, answers in the words and formats of
 * wrangler 4.155 (`whoami --json`, `secret list`, `d1 list --json`, `d1 execute --json`, `queues info`,
 * `versions view --json`, WRANGLER_OUTPUT_FILE_PATH) and refuses what Cloudflare refuses. Every call is
 * recorded, with what it could see of the secret.
 */
import { appendFileSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
  accountId: string | null;
  /** Whether the environment contained a secret. */
  sawSecret: boolean;
  secretsFile?: { path: string; mode: number; content: Record<string, string> };
}

/** The bookmark of every database. */
export const BOOKMARK = "00000085-0000024c-00004c6d-8e61117bf38d7adb71b934ebbf891683";

const TABLES = "SELECT name FROM sqlite_schema";
const SECRETS = ["ENCRYPTION_KEYS", "API_KEY_CHECKSUM_KEYS", "PORTAL_SIGNING_KEYS"];

/** A call that fails, with what it says. */
class Failure extends Error {}

/** A call in progress. */
interface Running extends Call {
  /** What it is to do, without options. */
  command: string;
  env: NodeJS.ProcessEnv;
  account: FakeAccount;
  /** The folder of the account and its databases. */
  folder: string;
  print(line: string): void;
}

const { FAKE_FOLDER } = process.env;
if (FAKE_FOLDER) {
  const end = act(FAKE_FOLDER, process.argv.slice(2), process.env);
  process.stdout.write(end.stdout);
  process.stderr.write(end.stderr);
  if (end.code === null) setInterval(() => {}, 1_000);
  else process.exitCode = end.code;
}

/** Carries out a call. @returns what it prints, and its exit code; null if it hangs. */
export function act(folder: string, args: string[], env: NodeJS.ProcessEnv) {
  const end = { code: 0 as number | null, stdout: "", stderr: "" };
  const account: FakeAccount = JSON.parse(readFileSync(join(folder, "account.json"), "utf8"));
  const file = args[args.indexOf("--secrets-file") + 1];
  const call: Call = {
    args,
    accountId: env.CLOUDFLARE_ACCOUNT_ID ?? null,
    sawSecret: SECRETS.some((name) => name in env),
  };
  if (args.includes("--secrets-file") && file)
    call.secretsFile = {
      path: file,
      mode: statSync(file).mode & 0o777,
      content: JSON.parse(readFileSync(file, "utf8")),
    };
  appendFileSync(join(folder, "calls"), `${JSON.stringify(call)}\n`);
  const command = args.filter((arg) => !arg.startsWith("-")).join(" ");
  const meets = (start: string | undefined) => start !== undefined && command.startsWith(start);
  if (meets(account.hangs)) return { ...end, code: null };
  const print = (line: string) => {
    end.stdout += `${line}\n`;
  };
  try {
    if (meets(account.fails)) fail("A request to the Cloudflare API failed.");
    if (meets(account.declines)) report(env, null, account.address);
    else answer({ ...call, command, env, account, folder, print });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    end.code = 1;
    end.stderr = error.message;
  }
  writeFileSync(join(folder, "account.json"), JSON.stringify(account));
  return end;
}

function answer(call: Running): void {
  const { command, account, print } = call;
  if (command === "whoami") {
    const { loggedIn, accounts } = account;
    print(
      JSON.stringify(loggedIn ? { loggedIn, authType: "User API Token", accounts } : { loggedIn }),
    );
    if (!loggedIn) throw new Failure();
  } else if (command.startsWith("secret list")) {
    if (!account.secrets) fail(`Worker "${configOf(call.args).name}" not found.`);
    const names = Object.keys(account.secrets);
    print(JSON.stringify(names.map((name) => ({ name, type: "secret_text" }))));
  } else if (command === "d1 list") {
    print(
      JSON.stringify(account.databases.map((each) => ({ uuid: `id-of-${each.name}`, ...each }))),
    );
  } else if (command.startsWith("d1 create")) {
    const name = call.args[2] ?? "";
    if (account.databases.some((database) => database.name === name))
      fail("A database with that name already exists");
    account.databases.push({ name, jurisdiction: option(call.args, "jurisdiction") ?? null });
    print(`✅ Successfully created DB '${name}'`);
  } else if (command.startsWith("d1 migrations apply")) {
    // Without CI, it asks first, and does nothing unless somebody agrees.
    if (call.env.CI) migrate(openDatabase(call, call.args[3] ?? ""));
    print("✅ No migrations to apply!");
  } else if (command.startsWith("d1 execute")) {
    const database = openDatabase(call, call.args[2] ?? "");
    const sql = call.args[call.args.indexOf("--command") + 1] ?? "";
    try {
      const results = database.prepare(sql).all();
      print(JSON.stringify([{ results, success: true, meta: {} }]));
    } catch (error) {
      const text = `${(error as Error).message}: SQLITE_ERROR`;
      print(JSON.stringify({ error: { text, notes: [], kind: "error" } }));
      throw new Failure();
    }
  } else if (command.startsWith("d1 time-travel info")) {
    openDatabase(call, call.args[3] ?? "");
    print(JSON.stringify({ bookmark: BOOKMARK }));
  } else if (command.startsWith("queues info")) {
    const queue = findQueue(call);
    print(`Queue Name: ${queue.name}`);
    if (queue.jurisdiction) print(`Jurisdiction: ${queue.jurisdiction}`);
  } else if (command.startsWith("queues create") || command.startsWith("queues update")) {
    const keptSeconds = Number(option(call.args, "message-retention-period-secs"));
    if (account.isFree && keptSeconds > 86_400) fail("The specified queue settings are invalid.");
    if (call.args[1] === "update") findQueue(call).keptSeconds = keptSeconds;
    else {
      const jurisdiction = option(call.args, "jurisdiction") ?? null;
      account.queues.push({ name: call.args[2] ?? "", jurisdiction, keptSeconds });
    }
  } else if (command.startsWith("versions view")) {
    const id = call.args[2] ?? "";
    const annotations = account.versions[id];
    if (!annotations) fail("A request to the Cloudflare API failed.\n  Version not found");
    print(JSON.stringify({ id, annotations }));
  } else if (command.startsWith("rollback")) {
    account.serving = call.args[1] ?? "";
  } else if (command === "deploy" && call.args.includes("--dry-run")) {
    print("--dry-run: exiting now.");
  } else if (command.startsWith("deploy")) {
    const secrets = { ...account.secrets, ...call.secretsFile?.content };
    const missing = SECRETS.filter((name) => !(name in secrets));
    if (missing.length > 0)
      fail(`The following required secrets have not been set: ${missing.join(", ")}`);
    const { databases, queues } = configOf(call.args);
    for (const { binding } of databases.filter(({ binding }) => /^DB(_\d+)?$/.test(binding)))
      if (
        !openDatabase(call, binding)
          .prepare(TABLES)
          .all()
          .some(({ name }) => name === "api_keys")
      )
        fail("the new code would serve before the migrations");
    for (const { name } of queues)
      if (!account.queues.some((queue) => queue.name === name))
        fail(`the queue ${name} would be created without a jurisdiction`);
    account.secrets = secrets;
    const id = `11111111-2222-3333-4444-${String(Object.keys(account.versions).length).padStart(12, "0")}`;
    const [tag, message] = ["tag", "message"].map((name) => option(call.args, name));
    account.versions[id] = {
      ...(tag && { "workers/tag": tag }),
      ...(message && { "workers/message": message }),
    };
    account.serving = id;
    report(call.env, id, account.address);
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
  const read = (list: string, key: string) => {
    const block = `^\\[\\[${within}${list}\\]\\]\nbinding = "(.+)"\n${key} = "(.+)"`;
    const found = [...text.matchAll(new RegExp(block, "gm"))];
    return found.map(([, binding = "", name = ""]) => ({ binding, name }));
  };
  return {
    name: `public-api${env ? `-${env}` : ""}`,
    databases: read("d1_databases", "database_name"),
    queues: read("queues.producers", "queue"),
  };
}

/** The database that is bound, in a file beside the account. */
function openDatabase({ args, account, folder }: Running, binding: string): DatabaseSync {
  const bound = configOf(args).databases.find((database) => database.binding === binding);
  const name = bound?.name ?? "";
  if (!account.databases.some((database) => database.name === name))
    fail(`Couldn't find a D1 DB named '${name}' (bound as '${binding}') in the API.`);
  return new DatabaseSync(join(folder, `${name}.sqlite`));
}

/** Applies the migrations that wrangler would. */
export function migrate(database: DatabaseSync): void {
  const folder = join(ROOT, "migrations");
  database.exec("CREATE TABLE IF NOT EXISTS d1_migrations (name TEXT PRIMARY KEY)");
  const files = readdirSync(folder).filter((file) => file.endsWith(".sql"));
  for (const name of files.sort()) {
    if (database.prepare("SELECT 1 FROM d1_migrations WHERE name = ?").get(name)) continue;
    database.exec(readFileSync(join(folder, name), "utf8"));
    database.prepare("INSERT INTO d1_migrations VALUES (?)").run(name);
  }
}

function findQueue({ args: [, , name], account }: Running): Resource {
  const found = account.queues.find((queue) => queue.name === name);
  return (
    found ??
    fail(`Queue "${name}" does not exist. To create it, run: wrangler queues create ${name}`)
  );
}

function report(env: NodeJS.ProcessEnv, versionId: string | null, address: string): void {
  const { WRANGLER_OUTPUT_FILE_PATH: file } = env;
  if (!file) return;
  const session = { version: 1, type: "wrangler-session", wrangler_version: "4.155.0" };
  const targets = versionId ? [address, "schedule: * * * * *"] : [];
  const deployment = { type: "deploy", version: 1, version_id: versionId, targets };
  for (const entry of [session, deployment]) appendFileSync(file, `${JSON.stringify(entry)}\n`);
}

function fail(message: string): never {
  throw new Failure(
    `\u001b[31m✘ \u001b[41;31m[\u001b[41;97mERROR\u001b[41;31m]\u001b[0m ${message}\n\n`,
  );
}

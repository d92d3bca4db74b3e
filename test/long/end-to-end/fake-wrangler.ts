/**
 * Replaces wrangler, which needs an account: the only part of a deployment that the tests cannot
 * run. It keeps an account in a file and its databases in SQLite, answers in the words and formats of
 * wrangler 4.155 (`whoami --json`, `secret list`, `d1 list --json`, `d1 execute --json`, `queues info`,
 * `deployments status --json`, WRANGLER_OUTPUT_FILE_PATH) and refuses what Cloudflare refuses. Every call is
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
}

/** The account, and what should go wrong in it. */
export interface FakeAccount {
  loggedIn: boolean;
  databases: Resource[];
  queues: Resource[];
  /** The secrets of the Worker; null while there is no Worker. */
  secrets: Record<string, string> | null;
  /** The annotations of the versions, by id. */
  versions: Record<string, Record<string, string | undefined>>;
  /** The versions that are deployed, with their shares of the traffic in percent. */
  serving: Record<string, number>;
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
  /** Whether the environment contained a secret. */
  sawSecret: boolean;
  secretsFile?: { path: string; mode: number; content: Record<string, string> };
}

/** The bookmark of every database. */
export const BOOKMARK = "00000085-0000024c-00004c6d-8e61117bf38d7adb71b934ebbf891683";

const SECRETS = ["ENCRYPTION_KEYS", "API_KEY_CHECKSUM_KEYS", "PORTAL_SIGNING_KEYS"];

/** A call that fails, with what it says and what it prints nevertheless. */
class Failure extends Error {
  readonly printed: unknown;

  constructor(message: string, printed?: unknown) {
    super(
      message && `\u001b[31m✘ \u001b[41;31m[\u001b[41;97mERROR\u001b[41;31m]\u001b[0m ${message}`,
    );
    this.printed = printed;
  }
}

/** A call in progress. */
interface Running extends Call {
  env: NodeJS.ProcessEnv;
  account: FakeAccount;
  /** The folder of the account and its databases. */
  folder: string;
}

/** What commands do, by their first words; they return what they print. */
const COMMANDS: Record<string, (call: Running) => unknown> = {
  whoami({ account: { loggedIn } }) {
    if (!loggedIn) throw new Failure("", { loggedIn });
    return { loggedIn, authType: "User API Token" };
  },
  "secret list"({ args, account: { secrets } }) {
    if (!secrets) throw new Failure(`Worker "${configOf(args).name}" not found.`);
    return Object.keys(secrets).map((name) => ({ name, type: "secret_text" }));
  },
  "d1 list": ({ account }) =>
    account.databases.map((each) => ({ uuid: `id-of-${each.name}`, ...each })),
  "d1 create": ({ args, account }) => void account.databases.push(resourceOf(args)),
  "d1 migrations apply"(call) {
    // Without CI, it asks first, and does nothing unless somebody agrees.
    if (call.env.CI) migrate(openDatabase(call, call.args[3]));
  },
  "d1 execute"(call) {
    const database = openDatabase(call, call.args[2]);
    try {
      const results = database
        .prepare(call.args.at(call.args.indexOf("--command") + 1) ?? "")
        .all();
      return [{ results, success: true, meta: {} }];
    } catch (error) {
      const text = `${(error as Error).message}: SQLITE_ERROR`;
      throw new Failure("", { error: { text, notes: [], kind: "error" } });
    }
  },
  "d1 time-travel info"(call) {
    openDatabase(call, call.args[3]);
    return { bookmark: BOOKMARK };
  },
  "queues info"(call) {
    const { name, jurisdiction } = findQueue(call);
    return `Queue Name: ${name}${jurisdiction ? `\nJurisdiction: ${jurisdiction}` : ""}`;
  },
  "queues create": ({ args, account }) => void account.queues.push(resourceOf(args)),
  "queues update": (call) => void findQueue(call),
  "deployments status"({ account }) {
    const versions = Object.entries(account.serving);
    if (versions.length === 0) throw new Failure("The Worker public-api has no deployments.");
    return {
      versions: versions.map(([version_id, percentage]) => ({ version_id, percentage })),
    };
  },
  "versions upload"({ args, account, env, secretsFile }) {
    const id = addVersion(args, account, secretsFile?.content);
    report(env, { type: "version-upload", version_id: id });
  },
  "versions deploy"({ args, account }) {
    const specs = args.slice(2).filter((arg) => !arg.startsWith("-"));
    account.serving = Object.fromEntries(
      specs.map((spec) => {
        const [id = "", percentage] = spec.split("@");
        if (!(id in account.versions)) throw new Failure("Version not found");
        return [id, Number(percentage)];
      }),
    );
  },
  "triggers deploy": () => "Deployed public-api triggers",
  deploy({ args, account, env, secretsFile }) {
    if (args.includes("--dry-run")) return "--dry-run: exiting now.";
    const id = addVersion(args, account, secretsFile?.content);
    account.serving = { [id]: 100 };
    const targets = [account.address, "schedule: * * * * *"];
    report(env, { type: "deploy", version_id: id, targets });
  },
};

/** Carries out a call. @returns what it prints, and its exit code; null if it hangs. */
export function act(folder: string, args: string[], env: NodeJS.ProcessEnv) {
  const file = join(folder, "account.json");
  const account: FakeAccount = JSON.parse(readFileSync(file, "utf8"));
  const call = readCall(args, env);
  appendFileSync(join(folder, "calls"), `${JSON.stringify(call)}\n`);
  const command = args.filter((arg) => !arg.startsWith("-")).join(" ");
  const meets = (start: string | undefined) =>
    start !== undefined && `${command} `.startsWith(`${start} `);
  const print = (printed: unknown) => {
    const text = typeof printed === "string" ? printed : JSON.stringify(printed);
    return text === undefined ? "" : `${text}\n`;
  };
  if (meets(account.hangs)) return { code: null, stdout: "", stderr: "" };
  try {
    if (meets(account.fails)) throw new Failure("A request to the Cloudflare API failed.");
    if (meets(account.declines)) report(env, { type: "deploy", version_id: null, targets: [] });
    const [, run] = Object.entries(COMMANDS).find(([start]) => meets(start)) ?? [];
    if (!run) throw new Failure(`Unknown arguments: ${command}`);
    const printed = meets(account.declines) ? "" : run({ ...call, env, account, folder });
    writeFileSync(file, JSON.stringify(account));
    return { code: 0, stdout: print(printed), stderr: "" };
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { code: 1, stdout: print(error.printed), stderr: error.message };
  }
}

function readCall(args: string[], env: NodeJS.ProcessEnv): Call {
  const path = args.includes("--secrets-file") && args[args.indexOf("--secrets-file") + 1];
  return {
    args,
    sawSecret: SECRETS.some((name) => name in env),
    ...(path && {
      secretsFile: {
        path,
        mode: statSync(path).mode & 0o777,
        content: JSON.parse(readFileSync(path, "utf8")),
      },
    }),
  };
}

/** The value of `--name=value`. */
function option(args: string[], name: string): string | undefined {
  return args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
}

/** What `d1 create` or `queues create` makes. */
const resourceOf = (args: string[]): Resource => ({
  name: args[2] ?? "",
  jurisdiction: option(args, "jurisdiction") ?? null,
});

/** What the configuration binds: wrangler would take a second to read it. */
function configOf(args: string[]) {
  const text = readFileSync(option(args, "config") ?? join(ROOT, "wrangler.toml"), "utf8");
  const env = option(args, "env");
  const list = `${env ? `env.${env}.` : ""}d1_databases`;
  const block = `^\\[\\[${list}\\]\\]\nbinding = "(.+)"\ndatabase_name = "(.+)"`;
  const found = [...text.matchAll(new RegExp(block, "gm"))];
  return {
    name: `public-api${env ? `-${env}` : ""}`,
    databases: new Map(found.map(([, binding, name]) => [binding, name])),
  };
}

/** The database that is bound, in a file beside the account. */
function openDatabase({ args, account, folder }: Running, binding = ""): DatabaseSync {
  const name = configOf(args).databases.get(binding);
  if (!account.databases.some((database) => database.name === name))
    throw new Failure(`Couldn't find a D1 DB named '${name}' (bound as '${binding}') in the API.`);
  return new DatabaseSync(join(folder, `${name}.sqlite`));
}

/** Applies the migrations that wrangler would. */
export function migrate(database: DatabaseSync): void {
  const folder = join(ROOT, "migrations");
  // It ends with the test: nothing has to wait for the disk.
  database.exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY");
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
  if (found) return found;
  throw new Failure(
    `Queue "${name}" does not exist. To create it, run: wrangler queues create ${name}`,
  );
}

/** Adds a version. @returns its id. */
function addVersion(args: string[], account: FakeAccount, secrets: object | undefined): string {
  const id = `11111111-2222-3333-4444-00000000000${Object.keys(account.versions).length}`;
  account.secrets = { ...account.secrets, ...secrets };
  account.versions[id] = {
    "workers/tag": option(args, "tag"),
    "workers/message": option(args, "message"),
  };
  return id;
}

function report({ WRANGLER_OUTPUT_FILE_PATH: file }: NodeJS.ProcessEnv, entry: object): void {
  if (!file) return;
  const session = { version: 1, type: "wrangler-session", wrangler_version: "4.155.0" };
  for (const line of [session, { version: 1, ...entry }])
    appendFileSync(file, `${JSON.stringify(line)}\n`);
}

const { FAKE_FOLDER } = process.env;
if (FAKE_FOLDER) {
  const end = act(FAKE_FOLDER, process.argv.slice(2), process.env);
  process.stdout.write(end.stdout);
  process.stderr.write(end.stderr);
  if (end.code === null) setInterval(() => {}, 1_000);
  else process.exitCode = end.code;
}

/**
 * `npm run deploy`: brings the Worker onto a Cloudflare account, the first time and every time.
 *
 * What it needs to know is asked in a terminal, and read from the environment elsewhere
 * (CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, WEBHOOK_ENCRYPTION_KEYS, API_KEY_CHECKSUM_KEYS,
 * PORTAL_SIGNING_KEYS). The order:
 *
 * 1. the account and the secrets: without them nothing is begun;
 * 2. the database, made if it is not there: wrangler would make it with the Worker, too late for 3;
 * 3. its migrations: what they change must suit the code that still serves;
 * 4. the Worker with its Durable Objects and its secrets: the deployment finds the database by its
 *    name and makes the queues.
 *
 * Each step finds what an earlier run has done and leaves it alone.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { confirm, select } from "@clack/prompts";
import { z } from "zod";
import { ROOT } from "../shared/checkout.ts";
import { fail, readArguments } from "../shared/command.ts";
import { SECRET_NAMES, type SecretName, type Secrets } from "../shared/secrets.ts";
import { type Answer, openWrangler, type Wrangler } from "../shared/wrangler.ts";
import {
  answered,
  askForSecrets,
  checkSecret,
  makeSecrets,
  openPrivateFolder,
  writeSecretsFile,
} from "./secret.ts";

const Account = z.object({ id: z.string(), name: z.string() });
const WhoAmI = z.object({ loggedIn: z.boolean(), accounts: z.array(Account).optional() });
const Named = z.array(z.object({ name: z.string() }));
const Deployment = z.object({
  type: z.literal("deploy"),
  version_id: z.string().nullable(),
  targets: z.array(z.string()).optional(),
});

/** The secret that its owner may have already; the others are made. */
const ASKED_FOR: SecretName = "WEBHOOK_ENCRYPTION_KEYS";

const USAGE = `npm run deploy -- [--dry-run]

Brings the Worker onto a Cloudflare account: makes the database, applies its migrations, asks for the
encryption key or makes one, makes the other secrets, and deploys. Run it again for each new version.

  --dry-run  looks at the account, if anybody is logged in, and builds the Worker; says what would be
             done, and changes nothing

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, ${SECRET_NAMES.join(", ")}
             in the environment: what it needs to know where nobody can be asked
`;

const { values } = readArguments(USAGE, { "dry-run": { type: "boolean", default: false } });
const dryRun = values["dry-run"];
const interactive = Boolean(process.stdin.isTTY && process.stdout.isTTY && !process.env.CI);

try {
  await deploy();
} catch (error) {
  fail(error);
}

async function deploy(): Promise<void> {
  const { given, env } = takeSecrets(process.env);
  const stranger = openWrangler(env);
  const me = await whoAmI(stranger);
  if (dryRun && !me.loggedIn) return rehearse(stranger, given, null);
  const accountId = await chooseAccount(stranger, me);
  const wrangler = openWrangler(
    accountId === null ? env : { ...env, CLOUDFLARE_ACCOUNT_ID: accountId },
  );
  const missing = await missingSecrets(wrangler, given);
  if (dryRun) {
    const lacks = { secrets: missing, database: (await lacksDatabase(wrangler)) !== null };
    return rehearse(wrangler, given, lacks);
  }
  const secrets = { ...given, ...(await completeSecrets(missing)) };
  await makeDatabase(wrangler);
  await migrate(wrangler);
  await upload(wrangler, secrets);
}

/**
 * Parts the secrets from the rest of the environment: they go to wrangler in a file, and are not left in
 * what it sees.
 */
function takeSecrets(environment: NodeJS.ProcessEnv) {
  const env = { ...environment };
  const given: Secrets = {};
  for (const name of SECRET_NAMES) {
    const secret = env[name];
    delete env[name];
    if (!secret) continue;
    checkSecret(name, secret);
    given[name] = secret;
  }
  return { given, env };
}

/** The account to deploy to; null when wrangler knows it. @throws Error when nobody is logged in. */
async function chooseAccount(
  wrangler: Wrangler,
  found: z.infer<typeof WhoAmI>,
): Promise<string | null> {
  let me = found;
  if (!me.loggedIn && interactive) {
    const agreed = await answered(confirm({ message: "Log in to Cloudflare in the browser?" }));
    if (agreed) await wrangler.show(["login"]);
    me = await whoAmI(wrangler);
  }
  if (!me.loggedIn)
    throw new Error(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  const { accounts = [] } = me;
  if (process.env.CLOUDFLARE_ACCOUNT_ID || accounts.length <= 1) return null;
  if ((await readConfig()).account_id) return null;
  if (!interactive) {
    const ids = accounts.map(({ id }) => id).join(", ");
    throw new Error(`Set CLOUDFLARE_ACCOUNT_ID: these credentials reach several accounts, ${ids}.`);
  }
  const options = accounts.map(({ id, name }) => ({ value: id, label: name }));
  return answered(select({ message: "Which account?", options }));
}

async function whoAmI(wrangler: Wrangler): Promise<z.infer<typeof WhoAmI>> {
  const { stdout, complaint } = await wrangler.ask("whoami", "--json");
  const answer = WhoAmI.safeParse(parse(stdout));
  if (!answer.success) throw new Error(`Cloudflare cannot be asked who you are:\n${complaint}`);
  return answer.data;
}

/**
 * Says what a deployment would do, and builds the Worker.
 *
 * @param lacks what the account lacks; null when nobody is logged in to look.
 */
async function rehearse(
  wrangler: Wrangler,
  given: Secrets,
  lacks: { secrets: SecretName[]; database: boolean } | null,
): Promise<void> {
  const unless = lacks ? "" : ", unless it is there";
  const secrets = lacks?.secrets ?? SECRET_NAMES.filter((name) => !given[name]);
  const { database_name, database_id } = await readDatabase();
  const steps = [
    ...(lacks ? [] : ["need a login: `npx wrangler login`, or CLOUDFLARE_API_TOKEN"]),
    ...secrets.map((name) =>
      name === ASKED_FOR ? `ask for ${name}, or make it${unless}` : `make ${name}${unless}`,
    ),
    ...((lacks?.database ?? !database_id) ? [`make the database ${database_name}${unless}`] : []),
    "apply the migrations that the database lacks",
    "deploy the Worker",
  ];
  const code = await wrangler.show(["deploy", "--dry-run"]);
  if (code !== 0) throw new Error("The Worker cannot be built.");
  if (!lacks) console.log("Nobody is logged in to Cloudflare: the account was not looked at.");
  console.log(["Nothing was changed. A deployment would", ...steps].join("\n  - "));
}

/** The names of the secrets that neither the environment nor the Worker has. */
async function missingSecrets(wrangler: Wrangler, given: Secrets): Promise<SecretName[]> {
  const wanted = SECRET_NAMES.filter((name) => !given[name]);
  if (wanted.length === 0) return [];
  const answer = await wrangler.ask("secret", "list", "--format", "json");
  const firstTime = !answer.ok && /Worker ".*" not found/.test(answer.complaint);
  const there = firstTime ? [] : namesIn(answer, "The Worker's secrets");
  return wanted.filter((name) => !there.includes(name));
}

/** The missing secrets, asked for or made. @throws Error when nobody can be asked. */
async function completeSecrets(missing: SecretName[]): Promise<Secrets> {
  if (interactive) return askForSecrets(missing);
  if (missing.includes(ASKED_FOR))
    throw new Error(
      `Set ${ASKED_FOR}: the Worker has none yet. It is an id, a colon and 32 random bytes in base64, ` +
        "such as `k1:` followed by the output of `openssl rand -base64 32`. Keep a copy.",
    );
  return makeSecrets(missing);
}

/** The name of the database, if there is none of it yet; else null. */
async function lacksDatabase(wrangler: Wrangler): Promise<string | null> {
  const { database_name: name, database_id } = await readDatabase();
  // One that is named by its id was made elsewhere.
  if (database_id) return null;
  const known = namesIn(await wrangler.ask("d1", "list", "--json"), "The databases");
  return known.includes(name) ? null : name;
}

/** The database, as `wrangler.toml` names it. */
async function readDatabase() {
  const [database] = (await readConfig()).d1_databases;
  if (!database?.database_name) throw new Error("wrangler.toml names no database");
  return { database_name: database.database_name, database_id: database.database_id };
}

/** Makes the database where there is none of its name. */
async function makeDatabase(wrangler: Wrangler): Promise<void> {
  const name = await lacksDatabase(wrangler);
  if (name === null) return;
  console.log(`Making the database ${name}.`);
  const made = await wrangler.ask("d1", "create", name);
  if (!made.ok) throw new Error(`The database ${name} could not be made:\n${made.complaint}`);
}

async function migrate(wrangler: Wrangler): Promise<void> {
  console.log("Bringing the database up to date.");
  // Without questions: a migration that is declined would look like one that was applied.
  const code = await wrangler.show(["d1", "migrations", "apply", "DB", "--remote"], { CI: "1" });
  if (code !== 0)
    throw new Error("The database could not be brought up to date: nothing was deployed.");
}

/** @throws Error when the new code does not serve. */
async function upload(wrangler: Wrangler, secrets: Secrets): Promise<void> {
  using folder = openPrivateFolder();
  const report = join(folder.path, "report.ndjson");
  const news = Object.keys(secrets).length > 0;
  const options = news ? ["--secrets-file", writeSecretsFile(folder, secrets)] : [];
  const code = await wrangler.show(["deploy", ...options], { WRANGLER_OUTPUT_FILE_PATH: report });
  const deployment = existsSync(report) ? readReport(readFileSync(report, "utf8")) : null;
  // Declining one of wrangler's questions ends it without an error.
  if (code !== 0 || !deployment?.version_id)
    throw new Error("The Worker was not deployed; what served before still does.");
  const address = deployment.targets?.find((target) => target.startsWith("https://"));
  console.log(`Deployed${address ? `: ${address}` : ""}. Make a workspace and a key in it:
  npm run platform -- --remote createWorkspace '{ "name": "…" }'
  npm run platform -- --remote createApiKey '{ "workspaceId": "wks_…" }'`);
}

/** The names in a list that wrangler gave. @throws Error when it gave none. */
function namesIn({ ok, stdout, complaint }: Answer, what: string): string[] {
  const list = Named.safeParse(ok ? parse(stdout) : null);
  if (!list.success) throw new Error(`${what} cannot be listed:\n${complaint}`);
  return list.data.map(({ name }) => name);
}

/** The deployment in what wrangler reports, a line of JSON for each thing it did. */
function readReport(lines: string): z.infer<typeof Deployment> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Deployment.safeParse(parse(line));
    if (success) return data;
  }
  return null;
}

async function readConfig() {
  // Large: the ways that end before do without it.
  const { unstable_readConfig } = await import("wrangler");
  return unstable_readConfig({ config: join(ROOT, "wrangler.toml") }, { hideWarnings: true });
}

/** JSON, or else null: what is not JSON is no answer. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * `npm run deploy`: brings the Worker onto a Cloudflare account, the first time and every time.
 *
 * What it needs to know is asked in a terminal, and read from the environment elsewhere
 * (CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, WEBHOOK_ENCRYPTION_KEYS, API_KEY_CHECKSUM_KEYS,
 * PORTAL_SIGNING_KEYS). The order:
 *
 * 1. the account and the secrets: without them nothing is begun;
 * 2. the databases, made if they are not there: wrangler would make them with the Worker, too late
 *    for 3;
 * 3. their migrations: what they change must suit the code that still serves;
 * 4. a look at the directory: every database that workspaces live in is bound;
 * 5. the Worker with its Durable Objects and its secrets: the deployment finds the databases by their
 *    names and makes the queues.
 *
 * Each step finds what an earlier run has done and leaves it alone.
 */
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { confirm, select } from "@clack/prompts";
import { z } from "zod";
import { ROOT } from "../shared/checkout.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { type ConfiguredDatabase, databasesIn, readConfig } from "../shared/databases.ts";
import { SECRET_NAMES, type SecretName, type Secrets } from "../shared/secrets.ts";
import { openWrangler, type Wrangler } from "../shared/wrangler.ts";
import {
  expectAllBound,
  makeDatabases,
  migrateDatabases,
  missingDatabases,
  namesIn,
  parse,
} from "./databases.ts";
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
const Deployment = z.object({
  type: z.literal("deploy"),
  version_id: z.string().nullable(),
  targets: z.array(z.string()).optional(),
});

/** The secret that its owner may have already; the others are made. */
const ASKED_FOR: SecretName = "WEBHOOK_ENCRYPTION_KEYS";

const USAGE = `npm run deploy -- [--dry-run] [--config FILE]

Brings the Worker onto a Cloudflare account: makes its databases, applies their migrations, asks for
the encryption key or makes one, makes the other secrets, and deploys. Run it again for each new version.

  --dry-run  looks at the account, if anybody is logged in, and builds the Worker; says what would be
             done, and changes nothing
  --config FILE
             deploys by another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, ${SECRET_NAMES.join(", ")}
             in the environment: what it needs to know where nobody can be asked
`;

const { values } = parseArguments(USAGE, {
  "dry-run": { type: "boolean", default: false },
  config: { type: "string" },
});
const dryRun = values["dry-run"];
const config = resolve(values.config ?? join(ROOT, "wrangler.toml"));
/** What each call of wrangler is given besides. */
const everyCall = values.config ? [`--config=${config}`] : [];
const interactive = Boolean(process.stdin.isTTY && process.stdout.isTTY && !process.env.CI);

try {
  await deploy();
} catch (error) {
  fail(error);
}

async function deploy(): Promise<void> {
  const { given, env } = takeSecrets(process.env);
  const stranger = openWrangler(env, everyCall);
  const me = await whoAmI(stranger);
  if (dryRun && !me.loggedIn) return rehearse(stranger, given, null);
  const accountId = await chooseAccount(stranger, me);
  const wrangler = openWrangler(
    accountId === null ? env : { ...env, CLOUDFLARE_ACCOUNT_ID: accountId },
    everyCall,
  );
  const missing = await missingSecrets(wrangler, given);
  const databases = await databasesIn(await readConfig(config));
  if (dryRun) {
    const lacking = await missingDatabases(wrangler, databases);
    return rehearse(wrangler, given, { secrets: missing, databases: lacking });
  }
  const secrets = { ...given, ...(await completeSecrets(missing)) };
  await makeDatabases(wrangler, databases);
  await migrateDatabases(wrangler, databases);
  await expectAllBound(wrangler, databases);
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
  if ((await readConfig(config)).account_id) return null;
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
  lacks: { secrets: SecretName[]; databases: ConfiguredDatabase[] } | null,
): Promise<void> {
  const unless = lacks ? "" : ", unless it is there";
  const secrets = lacks?.secrets ?? SECRET_NAMES.filter((name) => !given[name]);
  const databases = await databasesIn(await readConfig(config));
  const toMake = lacks?.databases ?? databases.filter(({ hasId }) => !hasId);
  const [, another] = databases;
  const steps = [
    ...(lacks ? [] : ["need a login: `npx wrangler login`, or CLOUDFLARE_API_TOKEN"]),
    ...secrets.map((name) =>
      name === ASKED_FOR ? `ask for ${name}, or make it${unless}` : `make ${name}${unless}`,
    ),
    ...toMake.map(({ name }) => `make the database ${name}${unless}`),
    `apply the migrations that ${another ? "each database" : "the database"} lacks`,
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

/** The deployment in what wrangler reports, a line of JSON for each thing it did. */
function readReport(lines: string): z.infer<typeof Deployment> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Deployment.safeParse(parse(line));
    if (success) return data;
  }
  return null;
}

/**
 * `npm run deploy`: deploys the Worker to a Cloudflare account, for the first time or again.
 *
 * In a terminal, it asks for what it needs. Without one, it reads CLOUDFLARE_API_TOKEN,
 * CLOUDFLARE_ACCOUNT_ID, ENCRYPTION_KEYS, API_KEY_CHECKSUM_KEYS and PORTAL_SIGNING_KEYS from
 * the environment. The steps:
 *
 * 1. choose the account and complete the secrets: nothing is changed without them;
 * 2. create the databases that do not exist: wrangler would create them along with the Worker, which is
 *    too late for step 3;
 * 3. migrate them: the migrations must suit the version that still serves;
 * 4. check the directory: every database that workspaces live in must be bound;
 * 5. deploy the Worker with its Durable Objects and secrets: wrangler finds the databases by their
 *    names and creates the queues.
 *
 * A step that was done before is skipped.
 */
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { confirm, select } from "@clack/prompts";
import { z } from "@hono/zod-openapi";
import { ROOT } from "../shared/checkout.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { type ConfiguredDatabase, databasesIn, readConfig } from "../shared/databases.ts";
import {
  refuseFormerName,
  SECRET_NAMES,
  type SecretName,
  type Secrets,
} from "../shared/secrets.ts";
import { openWrangler, type Wrangler } from "../shared/wrangler.ts";
import {
  expectAllBound,
  makeDatabases,
  migrateDatabases,
  missingDatabases,
  parseJson,
  parseNames,
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

/** The secret that the user may already have; the others are generated. */
const ASKED_FOR: SecretName = "ENCRYPTION_KEYS";

const USAGE = `npm run deploy -- [--dry-run] [--config FILE]

Deploys the Worker to a Cloudflare account: creates its databases, applies their migrations, asks for
the encryption key or generates one, generates the other secrets, and deploys. Run it again for each
new version.

  --dry-run  check the account, if you are logged in, and build the Worker; show what would be done,
             and change nothing
  --config FILE
             use another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, ${SECRET_NAMES.join(", ")}
             environment variables: what it needs when there is no terminal to ask in
`;

const { values } = parseArguments(USAGE, {
  "dry-run": { type: "boolean", default: false },
  config: { type: "string" },
});
const dryRun = values["dry-run"];
const config = resolve(values.config ?? join(ROOT, "wrangler.toml"));
/** Arguments of every wrangler call. */
const everyCall = values.config ? [`--config=${config}`] : [];
const interactive = Boolean(process.stdin.isTTY && process.stdout.isTTY && !process.env.CI);

try {
  await deploy();
} catch (error) {
  fail(error);
}

async function deploy(): Promise<void> {
  const { given, env } = takeSecrets(process.env);
  const anyAccount = openWrangler(env, everyCall);
  const me = await whoAmI(anyAccount);
  if (dryRun && !me.loggedIn) return rehearse(anyAccount, given, null);
  const accountId = await chooseAccount(anyAccount, me);
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
 * Separates the secrets from the rest of the environment: wrangler gets them in a file, not in its
 * environment.
 */
function takeSecrets(environment: NodeJS.ProcessEnv) {
  refuseFormerName((name) => Boolean(environment[name]));
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

/** The account to deploy to; null if wrangler knows it. @throws Error if you are not logged in. */
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
    throw new Error(
      `Set CLOUDFLARE_ACCOUNT_ID: these credentials have access to several accounts: ${ids}.`,
    );
  }
  const options = accounts.map(({ id, name }) => ({ value: id, label: name }));
  return answered(select({ message: "Which account?", options }));
}

async function whoAmI(wrangler: Wrangler): Promise<z.infer<typeof WhoAmI>> {
  const { stdout, complaint } = await wrangler.ask("whoami", "--json");
  const answer = WhoAmI.safeParse(parseJson(stdout));
  if (!answer.success) throw new Error(`Cloudflare does not say who is logged in:\n${complaint}`);
  return answer.data;
}

/**
 * Builds the Worker and prints what a deployment would do.
 *
 * @param lacks what the account lacks; null if you are not logged in.
 */
async function rehearse(
  wrangler: Wrangler,
  given: Secrets,
  lacks: { secrets: SecretName[]; databases: ConfiguredDatabase[] } | null,
): Promise<void> {
  const unless = lacks ? "" : ", unless it exists";
  const secrets = lacks?.secrets ?? SECRET_NAMES.filter((name) => !given[name]);
  const databases = await databasesIn(await readConfig(config));
  const toMake = lacks?.databases ?? databases.filter(({ hasId }) => !hasId);
  const [, another] = databases;
  const steps = [
    ...(lacks ? [] : ["need a login: `npx wrangler login`, or CLOUDFLARE_API_TOKEN"]),
    ...secrets.map((name) =>
      name === ASKED_FOR ? `ask for ${name}, or generate it${unless}` : `generate ${name}${unless}`,
    ),
    ...toMake.map(({ name }) => `create the database ${name}${unless}`),
    `apply the missing migrations${another ? " to each database" : ""}`,
    "deploy the Worker",
  ];
  const code = await wrangler.show(["deploy", "--dry-run"]);
  if (code !== 0) throw new Error("The Worker cannot be built.");
  if (!lacks) console.log("Not logged in to Cloudflare: the account was not checked.");
  console.log(["Nothing was changed. A deployment would", ...steps].join("\n  - "));
}

/** The secrets that neither the environment nor the Worker has. */
async function missingSecrets(wrangler: Wrangler, given: Secrets): Promise<SecretName[]> {
  const wanted = SECRET_NAMES.filter((name) => !given[name]);
  if (wanted.length === 0) return [];
  const answer = await wrangler.ask("secret", "list", "--format", "json");
  const firstTime = !answer.ok && /Worker ".*" not found/.test(answer.complaint);
  const there = firstTime ? [] : parseNames(answer, "The Worker's secrets");
  refuseFormerName((name) => there.includes(name));
  return wanted.filter((name) => !there.includes(name));
}

/** Asks for the missing secrets, or generates them. @throws Error if there is no terminal to ask in. */
async function completeSecrets(missing: SecretName[]): Promise<Secrets> {
  if (interactive) return askForSecrets(missing);
  if (missing.includes(ASKED_FOR))
    throw new Error(
      `Set ${ASKED_FOR}: the Worker has none yet. It is an id, a colon and 32 random bytes in base64, ` +
        "such as `k1:` followed by the output of `openssl rand -base64 32`. Keep a copy.",
    );
  return makeSecrets(missing);
}

/** Deploys the Worker. @throws Error if the new version does not serve. */
async function upload(wrangler: Wrangler, secrets: Secrets): Promise<void> {
  using folder = openPrivateFolder();
  const outputFile = join(folder.path, "output.ndjson");
  const news = Object.keys(secrets).length > 0;
  const options = news ? ["--secrets-file", writeSecretsFile(folder, secrets)] : [];
  const code = await wrangler.show(["deploy", ...options], {
    WRANGLER_OUTPUT_FILE_PATH: outputFile,
  });
  const deployment = existsSync(outputFile) ? parseOutput(readFileSync(outputFile, "utf8")) : null;
  // If the user declines a prompt of wrangler's, it exits without an error.
  if (code !== 0 || !deployment?.version_id)
    throw new Error("The Worker was not deployed; the previous version still serves.");
  const address = deployment.targets?.find((target) => target.startsWith("https://"));
  console.log(`Deployed${address ? `: ${address}` : ""}. Create a workspace and a key for it:
  npm run platform -- --remote createWorkspace '{ "name": "…" }'
  npm run platform -- --remote createApiKey '{ "workspaceId": "wks_…" }'`);
}

/** Finds the deployment in what wrangler did, one JSON text per line. */
function parseOutput(lines: string): z.infer<typeof Deployment> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Deployment.safeParse(parseJson(line));
    if (success) return data;
  }
  return null;
}

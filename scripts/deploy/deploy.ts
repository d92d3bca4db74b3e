/**
 * `npm run deploy`: deploys the Worker to a Cloudflare account, for the first time or again.
 *
 * In a terminal, it asks for what it needs. Without one, it reads CLOUDFLARE_API_TOKEN,
 * CLOUDFLARE_ACCOUNT_ID, ENCRYPTION_KEYS, API_KEY_CHECKSUM_KEYS and PORTAL_SIGNING_KEYS from
 * the environment. The steps:
 *
 * 1. choose the account, complete the secrets, and check that this version suits what is there: the
 *    databases and queues are where they should be, the keys decrypt what is stored, no migration
 *    forbids it. Nothing is changed if it does not;
 * 2. create the databases and queues that do not exist, in their jurisdiction: wrangler would create
 *    them without one;
 * 3. note how to restore the databases, and migrate them: the migrations must suit the version that
 *    still serves;
 * 4. deploy the Worker with its Durable Objects and secrets, tagged with the commit;
 * 5. ask it a few questions.
 *
 * A step that was done before is skipped.
 */
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { confirm, select } from "@clack/prompts";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { ROOT } from "../shared/checkout.ts";
import { fail, parseArguments, parseCount } from "../shared/command.ts";
import { type ConfiguredDatabase, databasesIn, readConfig } from "../shared/databases.ts";
import {
  refuseFormerName,
  SECRET_NAMES,
  type SecretName,
  type Secrets,
} from "../shared/secrets.ts";
import { openWrangler, type Wrangler } from "../shared/wrangler.ts";
import {
  bookmark,
  expectAllBound,
  expectReadable,
  expectRunsOn,
  type FoundDatabases,
  findDatabases,
  makeDatabases,
  migrateDatabases,
  migrationsHere,
  parseJson,
  parseNames,
} from "./databases.ts";
import { type FoundQueue, findQueues, makeQueues } from "./queues.ts";
import { queueNames, refuseShared } from "./resources.ts";
import {
  answered,
  askForSecrets,
  checkSecret,
  makeSecrets,
  openPrivateFolder,
  writeSecretsFile,
} from "./secret.ts";
import { findFaults } from "./smoke.ts";
import { commitTag, rollBack } from "./version.ts";

const Account = z.object({ id: z.string(), name: z.string() });
const WhoAmI = z.object({ loggedIn: z.boolean(), accounts: z.array(Account).optional() });
const Deployment = z.object({
  type: z.literal("deploy"),
  version_id: z.string().nullable(),
  targets: z.array(z.string()).optional(),
});

/** The secret that the user may already have; the others are generated. */
const ASKED_FOR: SecretName = "ENCRYPTION_KEYS";

const USAGE = `npm run deploy -- [--env NAME] [--dry-run] [--rollback VERSION] [--config FILE]

Deploys the Worker to a Cloudflare account: checks that this version suits what is stored there, creates
its databases and queues, applies migrations, asks for the encryption key or generates one, generates
the other secrets, deploys, and tests the result. Run it again for each new version.

  --env NAME     deploy the environment [env.NAME] of wrangler.toml instead of production
  --dry-run      check the account, if you are logged in, and build the Worker; show what would be
                 done, and change nothing
  --rollback VERSION
                 go back to an earlier version, unless the databases have moved on; the versions:
                 npx wrangler versions list
  --lost-key ID  deploy although nothing encrypted under this key can be read any more
  --wait SECONDS how long the new version may take to answer well (60)
  --config FILE  use another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, ${SECRET_NAMES.join(", ")}
                 environment variables: what it needs when there is no terminal to ask in
`;

const { values } = parseArguments(USAGE, {
  env: { type: "string" },
  "dry-run": { type: "boolean", default: false },
  rollback: { type: "string" },
  "lost-key": { type: "string", multiple: true, default: [] },
  wait: { type: "string", default: "60" },
  config: { type: "string" },
});
const dryRun = values["dry-run"];
const configFile = resolve(values.config ?? join(ROOT, "wrangler.toml"));
/** Arguments of every wrangler call. */
const everyCall = [
  ...(values.config ? [`--config=${configFile}`] : []),
  // Without it, CLOUDFLARE_ENV would decide.
  `--env=${values.env ?? ""}`,
];
/** What selects the deployment in other commands. */
const selection = values.env ? `--env ${values.env}` : "--remote";
const interactive = Boolean(process.stdin.isTTY && process.stdout.isTTY && !process.env.CI);

/** What the account has of the configuration's resources, and what it lacks. */
interface Found {
  databases: FoundDatabases;
  queues: FoundQueue[];
  /** The secrets that neither the environment nor the Worker has. */
  secrets: SecretName[];
  isFirst: boolean;
}

try {
  await deploy();
} catch (error) {
  fail(error);
}

async function deploy(): Promise<void> {
  const { given, env } = takeSecrets(process.env);
  const seconds = parseCount("--wait", values.wait);
  const config = await readConfig(configFile, values.env);
  if (values.env) refuseShared(values.env, config, await readConfig(configFile));
  const databases = databasesIn(config);
  const anyAccount = openWrangler(env, everyCall);
  const me = await whoAmI(anyAccount);
  if (dryRun && !me.loggedIn) return rehearse(anyAccount, config, given, null);
  const accountId = await chooseAccount(anyAccount, config, me);
  const wrangler = openWrangler(
    accountId === null ? env : { ...env, CLOUDFLARE_ACCOUNT_ID: accountId },
    everyCall,
  );
  if (values.rollback !== undefined) return rollBack(wrangler, values.rollback, databases);
  const found = await inspect(wrangler, config, given);
  if (dryRun) return rehearse(wrangler, config, given, found);
  const secrets = { ...given, ...(await completeSecrets(found.secrets)) };
  await expectKeys(wrangler, found.databases.existing, secrets);
  const jurisdiction = String(config.vars.JURISDICTION ?? "");
  await makeDatabases(wrangler, found.databases.missing, jurisdiction);
  await makeQueues(wrangler, found.queues, jurisdiction);
  const bookmarks = await bookmark(wrangler, found.databases.existing);
  await migrateDatabases(wrangler, databases);
  const targets = await upload(wrangler, secrets, bookmarks);
  await test(config, targets, seconds, found.isFirst);
}

/** Looks up what the account has. @throws Error if this version does not suit it. */
async function inspect(
  wrangler: Wrangler,
  config: Unstable_Config,
  given: Secrets,
): Promise<Found> {
  const { isFirst, secrets } = await missingSecrets(wrangler, given);
  const jurisdiction = String(config.vars.JURISDICTION ?? "");
  const closed = String(config.vars.DATABASES_CLOSED ?? "").split(",");
  const all = databasesIn(config);
  const databases = await findDatabases(wrangler, all, jurisdiction, closed);
  const queues = await findQueues(wrangler, queueNames(config), jurisdiction);
  await expectRunsOn(wrangler, databases.existing, migrationsHere());
  if (databases.existing.some(({ binding }) => binding === "DB"))
    await expectAllBound(wrangler, all);
  if (dryRun) await expectKeys(wrangler, databases.existing, given);
  return { databases, queues, secrets, isFirst };
}

/** @throws Error if the new encryption keys cannot decrypt what is stored. */
async function expectKeys(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  { ENCRYPTION_KEYS: keys }: Secrets,
): Promise<void> {
  // Those that the Worker has cannot be read, and stay.
  if (keys !== undefined) await expectReadable(wrangler, databases, keys, values["lost-key"]);
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
  config: Unstable_Config,
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
  if (config.account_id) return null;
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
 * @param found null if you are not logged in.
 */
async function rehearse(
  wrangler: Wrangler,
  config: Unstable_Config,
  given: Secrets,
  found: Found | null,
): Promise<void> {
  const unless = found ? "" : ", unless it exists";
  const secrets = found?.secrets ?? SECRET_NAMES.filter((name) => !given[name]);
  const databases = found?.databases.missing ?? databasesIn(config).filter(({ id }) => !id);
  const queues = found
    ? found.queues.filter(({ exists }) => !exists).map(({ name }) => name)
    : queueNames(config);
  const [, another] = databasesIn(config);
  const steps = [
    ...(found ? [] : ["need a login: `npx wrangler login`, or CLOUDFLARE_API_TOKEN"]),
    ...secrets.map((name) =>
      name === ASKED_FOR ? `ask for ${name}, or generate it${unless}` : `generate ${name}${unless}`,
    ),
    ...databases.map(({ name }) => `create the database ${name}${unless}`),
    ...queues.map((name) => `create the queue ${name}${unless}`),
    `apply the missing migrations${another ? " to each database" : ""}`,
    `deploy the Worker ${config.name}`,
  ];
  const code = await wrangler.show(["deploy", "--dry-run"]);
  if (code !== 0) throw new Error("The Worker cannot be built.");
  if (!found) console.log("Not logged in to Cloudflare: the account was not checked.");
  console.log(["Nothing was changed. A deployment would", ...steps].join("\n  - "));
}

/** The secrets that neither the environment nor the Worker has, and whether there is no Worker yet. */
async function missingSecrets(wrangler: Wrangler, given: Secrets) {
  const answer = await wrangler.ask("secret", "list", "--format", "json");
  const isFirst = !answer.ok && /Worker ".*" not found/.test(answer.complaint);
  const there = isFirst ? [] : parseNames(answer, "The Worker's secrets");
  refuseFormerName((name) => there.includes(name));
  const secrets = SECRET_NAMES.filter((name) => !given[name] && !there.includes(name));
  return { secrets, isFirst };
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

/**
 * Deploys the Worker, as a version that names its commit and the way back.
 *
 * @returns where it serves, in wrangler's words.
 * @throws Error if the new version does not serve.
 */
async function upload(
  wrangler: Wrangler,
  secrets: Secrets,
  [directory]: string[],
): Promise<string[]> {
  using folder = openPrivateFolder();
  const outputFile = join(folder.path, "output.ndjson");
  const tag = commitTag();
  const options = [
    ...(Object.keys(secrets).length > 0
      ? ["--secrets-file", writeSecretsFile(folder, secrets)]
      : []),
    ...(tag ? [`--tag=${tag}`] : []),
    // A version's message is short: the bookmark of the directory alone.
    ...(directory ? [`--message=Before: ${directory}`] : []),
  ];
  const code = await wrangler.show(["deploy", ...options], {
    WRANGLER_OUTPUT_FILE_PATH: outputFile,
  });
  const deployment = existsSync(outputFile) ? parseOutput(readFileSync(outputFile, "utf8")) : null;
  // If the user declines a prompt of wrangler's, it exits without an error.
  if (code !== 0 || !deployment?.version_id)
    throw new Error("The Worker was not deployed; the previous version still serves.");
  return deployment.targets ?? [];
}

/**
 * Tests the deployed Worker from outside, and says what is left to do.
 *
 * @throws Error if it does not answer well.
 */
async function test(
  { vars }: Unstable_Config,
  targets: string[],
  seconds: number,
  isFirst: boolean,
): Promise<void> {
  const address = String(
    vars.PORTAL_ORIGIN || targets.find((url) => /^https?:\/\//.test(url)) || "",
  );
  console.log(`Deployed${address ? `: ${address}` : ""}.`);
  const faults = address ? await findFaults(address, seconds) : [];
  if (faults.length > 0 && !isFirst)
    throw new Error(
      [
        "The new version serves, but does not answer well:",
        ...faults,
        "If this does not pass, roll back: npm run deploy -- --rollback VERSION",
      ].join("\n  "),
    );
  const steps = [
    ...faults.map(
      (fault) => `${fault}: a new address or schedule can take some minutes; ask again.`,
    ),
    ...(address ? [] : ["It has no address to test: give it a route, and set PORTAL_ORIGIN."]),
    ...(isFirst
      ? [
          `Create a workspace and a key for it:
    npm run platform -- ${selection} createWorkspace '{ "name": "…" }'
    npm run platform -- ${selection} createApiKey '{ "workspaceId": "wks_…" }'`,
        ]
      : []),
    ...(vars.PORTAL_ORIGIN ? [] : ["Set PORTAL_ORIGIN in wrangler.toml, for links to the portal."]),
    ...(String(vars.EMAIL_FROM).endsWith("@example.com")
      ? [
          "Set EMAIL_FROM in wrangler.toml, for e-mails to administrators (docs/operations.md, E-mail).",
        ]
      : []),
  ];
  if (address && faults.length === 0)
    console.log("It refuses an invented key, serves this document, and is healthy.");
  if (steps.length > 0) console.log(["Next:", ...steps].join("\n  - "));
}

/** Finds the deployment in what wrangler did, one JSON text per line. */
function parseOutput(lines: string): z.infer<typeof Deployment> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Deployment.safeParse(parseJson(line));
    if (success) return data;
  }
  return null;
}

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { ROOT } from "../shared/checkout.ts";
import { type ConfiguredDatabase, databasesIn, readConfig } from "../shared/databases.ts";
import { makeSecret, SECRET_NAMES, type SecretName, type Secrets } from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";
import type { openWrangler, Wrangler } from "../shared/wrangler.ts";
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
import type { Options } from "./options.ts";
import { type FoundQueue, findQueues, makeQueues } from "./queues.ts";
import { queueNames, refuseShared } from "./resources.ts";
import { generateSecrets, openPrivateFolder, writeSecretsFile } from "./secret.ts";
import { findFaults } from "./smoke.ts";

/** What wrangler reports of a version that it uploaded or deployed. */
const Uploaded = z.object({
  type: z.enum(["deploy", "version-upload"]),
  version_id: z.string().nullable(),
  targets: z.array(z.string()).optional(),
});
/** The versions that have the traffic. */
const Serving = z.object({
  versions: z.array(z.object({ version_id: z.string(), percentage: z.number() })),
});

/** What the account has of the configuration's resources, and what it lacks. */
interface Found {
  databases: FoundDatabases;
  queues: FoundQueue[];
  /** The secrets that neither the environment nor the Worker has. */
  secrets: SecretName[];
  isFirst: boolean;
}

/**
 * Deploys the Worker, or does with it what the options say.
 *
 * @param environment the environment variables, secrets included.
 * @param open opens wrangler with some of them.
 * @throws Error that says what is wrong, in words for the user.
 */
export async function deploy(
  options: Options,
  environment: NodeJS.ProcessEnv,
  open: typeof openWrangler,
): Promise<void> {
  const { dryRun, everyCall } = options;
  const { given, env } = takeSecrets(environment);
  const config = await readConfig(options.configFile, options.environment);
  if (options.environment)
    refuseShared(options.environment, config, await readConfig(options.configFile));
  const databases = databasesIn(config);
  const wrangler = open(env, everyCall);
  if (!(await isLoggedIn(wrangler))) {
    if (dryRun) return rehearse(wrangler, config, given, null);
    throw new Error(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  }
  const found = await inspect(options, wrangler, config, given);
  if (dryRun) return rehearse(wrangler, config, given, found);
  // A generated key decrypts nothing that is stored.
  const generated = found.secrets.includes("ENCRYPTION_KEYS") && {
    ENCRYPTION_KEYS: makeSecret("-"),
  };
  await expectKeys(options, wrangler, found.databases.existing, generated || given);
  const secrets = { ...given, ...completeSecrets(options, env, found.secrets) };
  const jurisdiction = String(config.vars.JURISDICTION ?? "");
  await makeDatabases(wrangler, found.databases.missing, jurisdiction);
  await makeQueues(wrangler, found.queues, jurisdiction);
  const bookmarks = await bookmark(wrangler, found.databases.existing);
  await migrateDatabases(wrangler, databases);
  const isTestedFirst = !found.isFirst && !options.atOnce && Boolean(config.vars.PORTAL_ORIGIN);
  const { version, targets } = await upload(wrangler, isTestedFirst, secrets, bookmarks);
  if (isTestedFirst) return shift(options, wrangler, config, version);
  await test(options, config, targets, found.isFirst);
}

/** Whether wrangler can reach an account. It says so itself, but after a build of half a minute. */
async function isLoggedIn(wrangler: Wrangler): Promise<boolean> {
  const { stdout, complaint } = await wrangler.ask("whoami", "--json");
  const answer = z.object({ loggedIn: z.boolean() }).safeParse(parseJson(stdout));
  if (!answer.success) throw new Error(`Cloudflare does not say who is logged in:\n${complaint}`);
  return answer.data.loggedIn;
}

/** Looks up what the account has. @throws Error if this version does not suit it. */
async function inspect(
  options: Options,
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
  if (options.dryRun) await expectKeys(options, wrangler, databases.existing, given);
  return { databases, queues, secrets, isFirst };
}

/** @throws Error if the new encryption keys cannot decrypt what is stored. */
async function expectKeys(
  { lostKeys }: Options,
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  { ENCRYPTION_KEYS: keys }: Secrets,
): Promise<void> {
  // Those that the Worker has cannot be read, and stay.
  if (keys !== undefined) await expectReadable(wrangler, databases, keys, lostKeys);
}

/**
 * Separates the secrets from the rest of the environment: wrangler gets them in a file, not in its
 * environment.
 */
function takeSecrets(environment: NodeJS.ProcessEnv) {
  const env = { ...environment };
  const given: Secrets = {};
  for (const name of SECRET_NAMES) {
    const secret = env[name];
    delete env[name];
    if (!secret) continue;
    parseKeyRing(name, secret);
    given[name] = secret;
  }
  return { given, env };
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
    ...secrets.map((name) => `generate ${name}${unless}`),
    ...databases.map(({ name }) => `create the database ${name}${unless}`),
    ...queues.map((name) => `create the queue ${name}${unless}`),
    `apply the missing migrations${another ? " to each database" : ""}`,
    `deploy the Worker ${config.name}`,
  ];
  const code = await wrangler.show(["deploy", "--dry-run"]);
  if (code !== 0) throw new Error("The Worker cannot be built.");
  if (!found) print("Not logged in to Cloudflare: the account was not checked.");
  print(["Nothing was changed. A deployment would", ...steps].join("\n  - "));
}

/** The secrets that neither the environment nor the Worker has, and whether there is no Worker yet. */
async function missingSecrets(wrangler: Wrangler, given: Secrets) {
  const answer = await wrangler.ask("secret", "list", "--format", "json");
  const isFirst = !answer.ok && /Worker ".*" not found/.test(answer.complaint);
  const there = isFirst ? [] : parseNames(answer, "The Worker's secrets");
  const secrets = SECRET_NAMES.filter((name) => !given[name] && !there.includes(name));
  return { secrets, isFirst };
}

/** Generates the missing secrets. @throws Error if a pipeline would have to generate the encryption key. */
function completeSecrets(
  { secretsCopy }: Options,
  env: NodeJS.ProcessEnv,
  missing: SecretName[],
): Secrets {
  if (env.CI && secretsCopy === undefined && missing.includes("ENCRYPTION_KEYS"))
    throw new Error(
      "Set ENCRYPTION_KEYS: the Worker has none yet. It is an id, a colon and 32 random bytes in base64, " +
        "such as `k1:` followed by the output of `openssl rand -base64 32`. Keep a copy.",
    );
  return generateSecrets(missing, secretsCopy, env);
}

/**
 * Uploads a version that names its commit and the way back.
 *
 * @param isTestedFirst whether it gets no traffic yet.
 * @returns its id, and where it serves, in wrangler's words.
 * @throws Error if nothing was uploaded.
 */
async function upload(
  wrangler: Wrangler,
  isTestedFirst: boolean,
  secrets: Secrets,
  [directory]: string[],
): Promise<{ version: string; targets: string[] }> {
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
  const command = isTestedFirst ? ["versions", "upload"] : ["deploy"];
  const code = await wrangler.show([...command, ...options], {
    WRANGLER_OUTPUT_FILE_PATH: outputFile,
  });
  const uploaded = existsSync(outputFile) ? parseOutput(readFileSync(outputFile, "utf8")) : null;
  // If the user declines a prompt of wrangler's, it exits without an error.
  if (code !== 0 || !uploaded?.version_id)
    throw new Error("The Worker was not deployed; the previous version still serves.");
  return { version: uploaded.version_id, targets: uploaded.targets ?? [] };
}

/**
 * Tests an uploaded version while the one before it has all the traffic, and then gives it the traffic.
 * Requests that name a version get it once it is part of the deployment, if only with 0 %.
 *
 * @throws Error if it does not answer well: it then gets no traffic.
 */
async function shift(
  { waitSeconds }: Options,
  wrangler: Wrangler,
  { name, vars }: Unstable_Config,
  version: string,
): Promise<void> {
  const status = await wrangler.ask("deployments", "status", "--json");
  const serving = Serving.safeParse(parseJson(status.stdout));
  const [former] = serving.data?.versions.toSorted((a, b) => b.percentage - a.percentage) ?? [];
  if (!former) throw new Error(`The version that serves is not known:\n${status.complaint}`);
  const share = async (...versions: string[]) => {
    const { ok, complaint } = await wrangler.ask("versions", "deploy", ...versions, "--yes");
    if (!ok)
      throw new Error(`${version} gets no traffic; ${former.version_id} serves:\n${complaint}`);
  };
  await share(`${former.version_id}@100`, `${version}@0`);
  const address = String(vars.PORTAL_ORIGIN);
  const header = { "Cloudflare-Workers-Version-Overrides": `${name}="${version}"` };
  const faults = await findFaults(address, waitSeconds, header);
  if (faults.length > 0)
    throw new Error(
      [
        `The new version does not answer well, and gets no traffic; ${former.version_id} serves:`,
        ...faults,
      ].join("\n  "),
    );
  await share(`${version}@100`);
  // Routes, schedules and consumers of queues belong to no version.
  const code = await wrangler.show(["triggers", "deploy"]);
  if (code !== 0) throw new Error("The new version serves, but its triggers were not updated.");
  print(
    `Deployed: ${address}. It refuses an invented key, serves this document, and is healthy.\nBack to the version before: npx wrangler rollback ${former.version_id}`,
  );
}

/** The commit that is checked out, as a version's tag; null without git. */
function commitTag(): string | null {
  const args = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-changed"];
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}

/**
 * Tests the deployed Worker from outside, and says what is left to do.
 *
 * @throws Error if it does not answer well.
 */
async function test(
  { waitSeconds, selection }: Options,
  { vars }: Unstable_Config,
  targets: string[],
  isFirst: boolean,
): Promise<void> {
  const address = String(
    vars.PORTAL_ORIGIN || targets.find((url) => /^https?:\/\//.test(url)) || "",
  );
  print(`Deployed${address ? `: ${address}` : ""}.`);
  const faults = address ? await findFaults(address, waitSeconds) : [];
  if (faults.length > 0 && !isFirst)
    throw new Error(
      [
        "The new version serves, but does not answer well:",
        ...faults,
        "If this does not pass, roll back: npx wrangler rollback",
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
    ...(vars.PORTAL_ORIGIN
      ? []
      : [
          "Set PORTAL_ORIGIN in wrangler.toml, for links to the portal, and so that the next version is tested before it gets traffic.",
        ]),
    ...(String(vars.EMAIL_FROM).endsWith("@example.com")
      ? [
          "Set EMAIL_FROM in wrangler.toml, for e-mails to administrators (docs/operations.md, E-mail).",
        ]
      : []),
  ];
  if (address && faults.length === 0)
    print("It refuses an invented key, serves this document, and is healthy.");
  if (steps.length > 0) print(["Next:", ...steps].join("\n  - "));
}

/** Finds the version in what wrangler did, one JSON text per line. */
function parseOutput(lines: string): z.infer<typeof Uploaded> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Uploaded.safeParse(parseJson(line));
    if (success) return data;
  }
  return null;
}

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { ROOT } from "../shared/checkout.ts";
import { databasesIn, readConfig } from "../shared/databases.ts";
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
  /** The version that has most of the traffic; null if there is no Worker yet, or nobody says so. */
  former: string | null;
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
    if (!dryRun) throw new Error(`${NOT_LOGGED_IN}.`);
    print(`${NOT_LOGGED_IN}. The account is not checked; the Worker is built:`);
    return build(wrangler);
  }
  const found = await inspect(options, wrangler, config, given);
  if (dryRun) return rehearse(wrangler, config, found);
  const secrets = { ...given, ...completeSecrets(options, env, found.secrets) };
  const jurisdiction = String(config.vars.JURISDICTION ?? "");
  await makeDatabases(wrangler, found.databases.missing, jurisdiction);
  await makeQueues(wrangler, found.queues, jurisdiction);
  const bookmarks = await bookmark(wrangler, found.databases.existing);
  await migrateDatabases(wrangler, databases);
  const { former } = found;
  if (former !== null && !options.atOnce && config.vars.PORTAL_ORIGIN) {
    const { version } = await upload(wrangler, ["versions", "upload"], secrets, bookmarks);
    await shift(options, wrangler, config, version, former);
  } else {
    const { targets } = await upload(wrangler, ["deploy"], secrets, bookmarks);
    await test(options, config, targets, former);
  }
  if (former !== null) print(`Back to the version before: ${wayBack(options, former)}`);
}

const NOT_LOGGED_IN =
  "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN";

/** The command that gives a version all the traffic again. */
function wayBack({ everyCall }: Options, version: string): string {
  return `npx wrangler rollback ${version} ${everyCall.join(" ")}`;
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
  { atOnce, lostKeys }: Options,
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
  // A generated key decrypts nothing that is stored; those that the Worker has cannot be read, and stay.
  const isMade = secrets.includes("ENCRYPTION_KEYS");
  const keys = isMade ? makeSecret("-") : given.ENCRYPTION_KEYS;
  if (keys !== undefined) await expectReadable(wrangler, databases.existing, keys, lostKeys);
  const former = isFirst ? null : await findFormer(wrangler, atOnce);
  return { databases, queues, secrets, former };
}

/** The version that has most of the traffic; null for none. @throws Error if nobody says, unless `atOnce`. */
async function findFormer(wrangler: Wrangler, atOnce: boolean): Promise<string | null> {
  const status = await wrangler.ask("deployments", "status", "--json");
  const serving = Serving.safeParse(parseJson(status.stdout));
  if (serving.success)
    return (
      serving.data.versions.toSorted((a, b) => b.percentage - a.percentage)[0]?.version_id ?? null
    );
  // A Worker that has secrets, but was never deployed.
  if (atOnce || /has no deployments/.test(status.complaint)) return null;
  throw new Error(
    `The version that serves is not known, so that nothing was deployed (--at-once does not ask):\n${status.complaint}`,
  );
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

/** Builds the Worker without deploying it. */
async function build(wrangler: Wrangler): Promise<void> {
  const code = await wrangler.show(["deploy", "--dry-run"]);
  if (code !== 0) throw new Error("The Worker cannot be built.");
}

/** Builds the Worker, and prints what a deployment would do. */
async function rehearse(
  wrangler: Wrangler,
  config: Unstable_Config,
  { secrets, databases, queues }: Found,
): Promise<void> {
  const [, another] = databasesIn(config);
  const steps = [
    ...secrets.map((name) => `generate ${name}`),
    ...databases.missing.map(({ name }) => `create the database ${name}`),
    ...queues.filter(({ exists }) => !exists).map(({ name }) => `create the queue ${name}`),
    `apply the missing migrations${another ? " to each database" : ""}`,
    `deploy the Worker ${config.name}`,
  ];
  await build(wrangler);
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
 * @param command of wrangler's, which decides whether it gets the traffic.
 * @returns its id, and where it serves, in wrangler's words.
 * @throws Error if nothing was uploaded.
 */
async function upload(
  wrangler: Wrangler,
  command: string[],
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
 * Requests that name a version get it once it is part of the deployment, if only with 0%.
 *
 * @throws Error if it does not answer well: it then gets no traffic.
 */
async function shift(
  { waitSeconds }: Options,
  wrangler: Wrangler,
  { name, vars }: Unstable_Config,
  version: string,
  former: string,
): Promise<void> {
  const share = async (...versions: string[]) => {
    const { ok, complaint } = await wrangler.ask("versions", "deploy", ...versions, "--yes");
    if (!ok) throw new Error(`${version} gets no traffic; ${former} serves:\n${complaint}`);
  };
  await share(`${former}@100`, `${version}@0`);
  const address = String(vars.PORTAL_ORIGIN);
  const header = { "Cloudflare-Workers-Version-Overrides": `${name}="${version}"` };
  const faults = await findFaults(address, waitSeconds, header);
  if (faults.length > 0)
    throw new Error(
      [
        `The new version does not answer well, and gets no traffic; ${former} serves:`,
        ...faults,
      ].join("\n  "),
    );
  await share(`${version}@100`);
  // Routes, schedules and consumers of queues belong to no version.
  const code = await wrangler.show(["triggers", "deploy"]);
  if (code !== 0) throw new Error("The new version serves, but its triggers were not updated.");
  print(`Deployed: ${address}. ${ANSWERS_WELL}`);
}

const ANSWERS_WELL = "It refuses an invented key, serves this document, and is healthy.";

/** The commit that is checked out, as a version's tag; null without git. */
function commitTag(): string | null {
  const args = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-changed"];
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}

/**
 * Tests the deployed Worker from outside, and says what is left to do.
 *
 * @param former the version before it, if there is one.
 * @throws Error if it does not answer well.
 */
async function test(
  options: Options,
  { vars }: Unstable_Config,
  targets: string[],
  former: string | null,
): Promise<void> {
  const address = String(
    vars.PORTAL_ORIGIN || targets.find((url) => /^https?:\/\//.test(url)) || "",
  );
  print(`Deployed${address ? `: ${address}` : ""}.`);
  const faults = address ? await findFaults(address, options.waitSeconds) : [];
  if (faults.length > 0 && former !== null)
    throw new Error(
      [
        "The new version serves, but does not answer well:",
        ...faults,
        `If this does not pass, go back: ${wayBack(options, former)}`,
      ].join("\n  "),
    );
  const steps = [
    ...faults.map(
      (fault) => `${fault}: a new address or schedule can take some minutes; ask again.`,
    ),
    ...(address ? [] : ["It has no address to test: give it a route, and set PORTAL_ORIGIN."]),
    ...(former === null
      ? [
          `Create a workspace and a key for it:
    npm run platform -- ${options.selection} createWorkspace '{ "name": "…" }'
    npm run platform -- ${options.selection} createApiKey '{ "workspaceId": "wks_…" }'`,
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
  if (address && faults.length === 0) print(ANSWERS_WELL);
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

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempDisposableSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { ROOT } from "../shared/checkout.ts";
import {
  type Cloudflare,
  findCloudflare,
  NOT_LOGGED_IN,
  orIfNoWorker,
} from "../shared/cloudflare.ts";
import { databasesIn, readConfig } from "../shared/databases.ts";
import { writePrivateFile } from "../shared/private-file.ts";
import { type FoundQueue, findQueues } from "../shared/queues.ts";
import {
  DEPLOYED_SECRETS,
  makeSecret,
  SECRET_NAMES,
  type SecretName,
  type Secrets,
  withoutSecrets,
} from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";
import { openWrangler, parseJson, SIGNALS, type Wrangler } from "../shared/wrangler.ts";
import {
  expectAllThere,
  expectDirectory,
  expectNoBarrier,
  expectReadable,
  type FoundDatabases,
  findDatabases,
  makeDatabases,
  migrateDatabases,
} from "./databases.ts";
import type { Options } from "./options.ts";
import { expectPlaced, makeQueues, queueNames, refuseShared } from "./resources.ts";
import { completeSecrets } from "./secret.ts";
import { testVersion } from "./smoke.ts";

/** The report of wrangler about a version that it uploaded or deployed. */
const Uploaded = z.object({
  type: z.enum(["deploy", "version-upload"]),
  version_id: z.string().nullable(),
});
/** The share of the Worker's versions in the traffic; the newest deployment comes first. */
const Deployments = z.object({
  deployments: z.array(
    z.object({
      versions: z.array(z.object({ version_id: z.string(), percentage: z.number() })),
    }),
  ),
});
const SecretList = z.array(z.object({ name: z.string() }));

/**
 * A secret that `wrangler.toml` requires and only this command sets, when it has created the databases and
 * queues in their jurisdiction and applied the migrations. Without it, Cloudflare refuses a version: no other
 * tool can deploy the Worker for the first time.
 */
const MARK = "CREATED_BY_NPM_RUN_DEPLOY";

/** The configuration's resources that the account has, and those that it lacks. */
interface Found {
  databases: FoundDatabases;
  queues: FoundQueue[];
  /** The secrets that neither the environment nor the Worker has. */
  secrets: SecretName[];
  /** The version that has most of the traffic; null if this command has not deployed yet. */
  former: string | null;
}

/**
 * Deploys the Worker.
 *
 * @param environment the environment variables, secrets included.
 * @param seconds how long the new version may take to respond as expected.
 * @throws Error that says what is wrong, in words for the user.
 */
export async function deploy(
  options: Options,
  environment: NodeJS.ProcessEnv,
  seconds = 60,
): Promise<void> {
  const { everyCall } = options;
  const given = findSecrets(environment);
  // Wrangler gets them in a file.
  const env = withoutSecrets(environment);
  const config = await readConfig(options.configFile, options.environment);
  if (options.environment)
    refuseShared(options.environment, config, await readConfig(options.configFile));
  const cloudflare = await findCloudflare(openWrangler(env, everyCall), env, config.account_id);
  if (!cloudflare) throw new Error(`${NOT_LOGGED_IN}.`);
  const account = { ...env, CLOUDFLARE_ACCOUNT_ID: cloudflare.accountId };
  const wrangler = openWrangler(account, everyCall);
  const found = await inspect(options, cloudflare, config, given);
  expectCopied(env, found.secrets);
  const { former } = found;
  const secrets = {
    ...given,
    ...completeSecrets(String(config.name), found.secrets, env),
    ...(former === null && { [MARK]: "true" }),
  };
  const jurisdiction = String(config.vars.JURISDICTION ?? "");
  const { existing, missing } = found.databases;
  await makeQueues(cloudflare, found.queues, jurisdiction);
  const made = await makeDatabases(cloudflare, missing, jurisdiction);
  await migrateDatabases(cloudflare, [...existing, ...made]);
  if (former !== null && config.vars.PORTAL_ORIGIN && !options.atOnce) {
    const version = await upload(options, wrangler, ["versions", "upload"], secrets);
    await shift(seconds, wrangler, cloudflare, config, version, former);
  } else {
    const version = await upload(options, wrangler, ["deploy"], secrets);
    await test(options, seconds, config, version, former);
  }
  if (former !== null) print(`Back to the version before: ${wayBack(options, former)}`);
}

/** The command that gives a version all the traffic again. */
function wayBack({ everyCall }: Options, version: string): string {
  return `npx wrangler rollback ${version} ${everyCall.join(" ")}`;
}

/** Looks up what the account has. @throws Error if this version does not suit it. */
async function inspect(
  { lostKeys }: Options,
  cloudflare: Cloudflare,
  config: Unstable_Config,
  given: Secrets,
): Promise<Found> {
  const all = databasesIn(config);
  const [there, databases, queues] = await Promise.all([
    listSecrets(cloudflare, config),
    findDatabases(cloudflare, all),
    findQueues(cloudflare, queueNames(config)),
  ]);
  const isMarked = there?.includes(MARK) === true;
  const { existing, missing } = databases;
  if (isMarked) expectDirectory(missing);
  const closed = String(config.vars.DATABASES_CLOSED ?? "").split(",");
  expectPlaced(existing, queues, String(config.vars.JURISDICTION ?? ""), closed);
  const secrets = SECRET_NAMES.filter((name) => !given[name] && !there?.includes(name));
  await expectNoBarrier(cloudflare, existing);
  const directory = existing.find(({ binding }) => binding === "DB");
  if (directory) await expectAllThere(cloudflare, directory, all, missing);
  // A generated key decrypts nothing that is stored; those that the Worker has cannot be read, and stay.
  const isMade = secrets.includes("ENCRYPTION_KEYS");
  const keys = isMade ? makeSecret("-") : given.ENCRYPTION_KEYS;
  if (keys !== undefined) await expectReadable(cloudflare, existing, keys, lostKeys);
  // The placeholder of another tool lacks the Durable Object classes, so Cloudflare refuses to upload a version beside it.
  const former = isMarked ? await findServing(cloudflare, config) : null;
  return { databases, queues, secrets, former };
}

/** The version that has most of the traffic; null for none. */
async function findServing({ call }: Cloudflare, { name }: Unstable_Config) {
  const { deployments } = await call(
    Deployments,
    "GET",
    `/workers/scripts/${name}/deployments`,
  ).catch((error) => orIfNoWorker(error, { deployments: [] }));
  const [first] = (deployments[0]?.versions ?? []).toSorted((a, b) => b.percentage - a.percentage);
  return first?.version_id ?? null;
}

/** Finds the secrets in the environment, and checks them. @throws Error if one is not a key ring. */
function findSecrets(environment: NodeJS.ProcessEnv): Secrets {
  const given: Secrets = {};
  for (const name of DEPLOYED_SECRETS) {
    const secret = environment[name];
    if (!secret) continue;
    parseKeyRing(name, secret);
    given[name] = secret;
  }
  return given;
}

/** The names of the Worker's secrets; null if there is no Worker yet. */
async function listSecrets({ call }: Cloudflare, { name }: Unstable_Config) {
  const listed = await call(SecretList, "GET", `/workers/scripts/${name}/secrets`).catch((error) =>
    orIfNoWorker(error, null),
  );
  return listed === null ? null : listed.map((secret) => secret.name);
}

/** @throws Error if a pipeline would have to generate secrets: nobody would have a copy of them. */
function expectCopied(env: NodeJS.ProcessEnv, missing: SecretName[]) {
  if (!env.CI || missing.length === 0) return;
  throw new Error(
    `Set ${missing.join(" and ")}: the Worker does not have ${missing.length > 1 ? "them" : "it"} yet. Each is an id, a colon and 32 random bytes in base64, ` +
      "such as `k1:` followed by the output of `openssl rand -base64 32`. Keep a copy.",
  );
}

/**
 * Uploads a version that names its commit.
 *
 * @param command of wrangler's, which decides whether it gets the traffic.
 * @returns the version's id.
 * @throws Error if wrangler failed, or the user declined a prompt.
 */
async function upload(
  { everyCall }: Options,
  wrangler: Wrangler,
  command: string[],
  secrets: Record<string, string>,
): Promise<string> {
  const tag = commitTag();
  using folder = openPrivateFolder();
  const outputFile = join(folder.path, "output.ndjson");
  const secretsFile = join(folder.path, "secrets.json");
  writePrivateFile(secretsFile, JSON.stringify(secrets));
  const options = [
    ...(Object.keys(secrets).length > 0 ? ["--secrets-file", secretsFile] : []),
    ...(tag ? [`--tag=${tag}`] : []),
  ];
  const code = await wrangler.show([...command, ...options], {
    WRANGLER_OUTPUT_FILE_PATH: outputFile,
  });
  const uploaded = existsSync(outputFile) ? parseOutput(readFileSync(outputFile, "utf8")) : null;
  // If the user declines a prompt of wrangler's, it exits without an error.
  if (code !== 0 || !uploaded?.version_id)
    throw new Error(
      `Wrangler did not finish: run the command again. To see which version serves: npx wrangler deployments list ${everyCall.join(" ")}`,
    );
  return uploaded.version_id;
}

/** Creates a folder that only this user can read. It is deleted even if a signal ends wrangler. */
function openPrivateFolder(): Disposable & { path: string } {
  // Without a listener, a signal would end this process before it deletes the folder.
  const stay = () => {};
  for (const signal of SIGNALS) process.on(signal, stay);
  const folder = mkdtempDisposableSync(join(tmpdir(), "deploy-"));
  return {
    path: folder.path,
    [Symbol.dispose]() {
      folder.remove();
      for (const signal of SIGNALS) process.off(signal, stay);
    },
  };
}

/**
 * Tests an uploaded version while the one before it has all the traffic, and then gives it the traffic.
 * Requests that name a version get it once it is part of the deployment, if only with 0%.
 *
 * @throws Error if it fails its test: it then gets no traffic.
 */
async function shift(
  seconds: number,
  wrangler: Wrangler,
  cloudflare: Cloudflare,
  { name, vars }: Unstable_Config,
  version: string,
  former: string,
): Promise<void> {
  const withoutTraffic = (complaint: string) =>
    new Error(`${version} gets no traffic; ${former} serves:\n${complaint}`);
  // Wrangler would make the same call, but takes seconds to start.
  const versions = [
    { version_id: former, percentage: 100 },
    { version_id: version, percentage: 0 },
  ];
  const shares = { strategy: "percentage", versions };
  await cloudflare
    .call(z.unknown(), "POST", `/workers/scripts/${name}/deployments`, shares)
    .catch((error: Error) => {
      throw withoutTraffic(error.message);
    });
  const address = String(vars.PORTAL_ORIGIN);
  const headers = { "Cloudflare-Workers-Version-Overrides": `${name}="${version}"` };
  const faults = await testVersion(address, seconds, { id: version, headers });
  if (faults.length > 0)
    throw new Error(
      [
        `The new version fails its test, and gets no traffic; ${former} serves:`,
        ...faults,
        `${version} stays in the deployment with 0%. Fix this, and run the command again; if ${address} is new, add --at-once.`,
      ].join("\n  "),
    );
  // Wrangler also updates the settings that belong to no version, such as the sampling of logs.
  const { ok, complaint } = await wrangler.ask("versions", "deploy", `${version}@100`, "--yes");
  if (!ok) throw withoutTraffic(complaint);
  // Routes, schedules and consumers of queues belong to no version.
  const code = await wrangler.show(["triggers", "deploy"]);
  if (code !== 0) throw new Error("The new version serves, but its triggers were not updated.");
  print(`Deployed: ${address}. ${PASSED}`);
}

const PASSED = "It passes its test.";

/** The commit that is checked out, as a version's tag; null without git. */
function commitTag(): string | null {
  const args = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-changed"];
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}

/**
 * Tests a version that has the traffic, if it has an address.
 *
 * @param former the version before it, if there is one.
 * @throws Error if it fails its test.
 */
async function test(
  options: Options,
  seconds: number,
  { vars }: Unstable_Config,
  version: string,
  former: string | null,
): Promise<void> {
  const address = String(vars.PORTAL_ORIGIN ?? "");
  const faults = address ? await testVersion(address, seconds, { id: version }) : [];
  if (faults.length > 0)
    throw new Error(
      [
        "The new version serves, but fails its test:",
        ...faults,
        "A new address can take some minutes to lead to it.",
        former === null
          ? "If this lasts, fix it, and run the command again."
          : `If this lasts, go back: ${wayBack(options, former)}`,
      ].join("\n  "),
    );
  print(
    address
      ? `Deployed: ${address}. ${PASSED}`
      : "Deployed, and not tested: wrangler.toml sets no PORTAL_ORIGIN.",
  );
  if (former === null) print("Continue with docs/admin.md, Day one, step 4.");
}

/** Finds the version in what wrangler did, one JSON text per line. */
function parseOutput(lines: string): z.infer<typeof Uploaded> | null {
  for (const line of lines.split("\n")) {
    const { success, data } = Uploaded.safeParse(parseJson(line));
    if (success) return data;
  }
  return null;
}

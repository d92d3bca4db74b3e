import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { until } from "../../support/until.ts";
import {
  commandsOf,
  DEPLOY,
  deploy,
  ended,
  home,
  inEu,
  MADE,
  openAccount,
  openDatabase,
  QUEUES,
  readAccount,
  readCalls,
  runDeploy,
  SECRET,
  SECRETS,
  start,
  useFolders,
} from "./deployment.ts";
import type { Call, FakeAccount } from "./fake-wrangler.ts";

useFolders();

const LOOKED_UP = QUEUES.map((name) => `queues info ${name}`);
/** What it asks about, before it changes anything. */
const ASKED = ["whoami", "secret list json", "d1 list", ...LOOKED_UP];
const FIRST = [...ASKED, "d1 create public-api", ...QUEUES.map((name) => `queues create ${name}`)];
/** What it asks of a database that exists: its migrations, and which databases are in use. */
const READ = ["d1 execute DB", "d1 execute DB"];
const UPDATED = QUEUES.map((name) => `queues update ${name}`);
const SERVED = ["d1 migrations apply DB", "deploy"];
const AGAIN = [...ASKED, ...READ, ...UPDATED, "d1 time-travel info DB", ...SERVED];

describe("npm run deploy with several databases", () => {
  /** A configuration with three databases of the service, and one that is not the service's. */
  function withThree(): string {
    const block = (binding: string, name: string) =>
      `\n[[d1_databases]]\nbinding = "${binding}"\ndatabase_name = "${name}"\n`;
    const toml = readFileSync(join(ROOT, "wrangler.toml"), "utf8");
    const more = [block("DB_2", "public-api-2"), block("DB_3", "public-api-3")];
    const file = join(home(), "wrangler.toml");
    writeFileSync(file, toml + more.join("") + block("REPORTS", "reports"));
    return file;
  }

  test("creates and migrates each of them before it deploys", async () => {
    openAccount({
      databases: inEu("public-api", "reports"),
      queues: inEu(...QUEUES),
      secrets: SECRETS,
    });
    openDatabase();
    const { code, output, calls } = await deploy({}, "--config", withThree());
    expect(output).toContain("Deployed: ");
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual([
      ...ASKED,
      ...READ,
      "d1 create public-api-2",
      "d1 create public-api-3",
      ...UPDATED,
      "d1 time-travel info DB",
      "d1 migrations apply DB",
      "d1 migrations apply DB_2",
      "d1 migrations apply DB_3",
      "deploy",
    ]);
    for (const { args } of calls) expect(args).toContain(`--config=${home()}/wrangler.toml`);
    expect(readAccount().databases).toEqual(
      inEu("public-api", "reports", "public-api-2", "public-api-3"),
    );
  });

  test("deploys nothing if workspaces live in a database that is not bound", async () => {
    openAccount({ databases: inEu("public-api"), secrets: SECRETS });
    const database = openDatabase();
    const live = (count: number, name: string) => {
      const insert =
        "INSERT INTO workspaces (id, name, admin_emails, created_at, database) VALUES (?, '', '[]', 0, ?)";
      for (let i = 0; i < count; i++) database.prepare(insert).run(`wks_${name}_${i}`, name);
    };
    live(3, "DB_2");
    live(12, "DB_7");
    const { code, output, calls } = await deploy({}, "--config", withThree());
    expect(output).toContain(
      "wrangler.toml does not bind DB_7, but workspaces live there (12): nothing was deployed.",
    );
    expect(code).toBe(1);
    expect(commandsOf(calls)).not.toContain("deploy");
    database.exec("DELETE FROM workspaces WHERE database = 'DB_7'");
    expect((await deploy({}, "--config", withThree())).code).toBe(0);
    expect((await deploy({})).output).toContain(
      "does not bind DB_2, but workspaces live there (3)",
    );
  });

  test("--dry-run lists the databases that would be created, with a login or without", async () => {
    openAccount({ databases: inEu("public-api"), queues: inEu(...QUEUES), secrets: SECRETS });
    const config = withThree();
    const { code, output } = await deploy({}, "--dry-run", "--config", config);
    expect(output).toContain(`Nothing was changed. A deployment would
  - create the database public-api-2
  - create the database public-api-3
  - apply the missing migrations to each database
  - deploy the Worker public-api
`);
    expect(code).toBe(0);
    openAccount({ loggedIn: false });
    const alone = await deploy(SECRETS, "--dry-run", "--config", config);
    expect(alone.code).toBe(0);
    expect(commandsOf(alone.calls)).toEqual(["whoami", "deploy"]);
    expect(alone.output).toContain(`Not logged in to Cloudflare: the account was not checked.
Nothing was changed. A deployment would
  - need a login: \`npx wrangler login\`, or CLOUDFLARE_API_TOKEN
  - create the database public-api, unless it exists
  - create the database public-api-2, unless it exists
  - create the database public-api-3, unless it exists
  - create the queue webhook-deliveries, unless it exists
  - create the queue webhook-redeliveries, unless it exists
  - create the queue platform-records, unless it exists
  - create the queue platform-records-dead, unless it exists
  - apply the missing migrations to each database
`);
  });

  test("refuses a configuration without DB", async () => {
    openAccount({ secrets: SECRETS });
    const file = join(home(), "wrangler.toml");
    writeFileSync(
      file,
      readFileSync(withThree(), "utf8").replace('binding = "DB"', 'binding = "OLD"'),
    );
    const { code, output, calls } = await deploy({}, "--config", file);
    expect(output).toContain("wrangler.toml binds no database as DB");
    expect(code).toBe(1);
    expect(commandsOf(calls)).not.toContain("deploy");
  });
});

describe("npm run deploy without a terminal", () => {
  test("creates the database, migrates it and deploys with the secrets, which it never shows", async () => {
    openAccount();
    const { code, output, calls } = await runDeploy(SECRETS);
    expect(output).toContain(`Deployed: ${readAccount().address}`);
    expect(output).toContain("It refuses an invented key, serves this document, and is healthy.");
    expect(output).toContain("npm run platform -- --remote createWorkspace");
    expect(output).toContain("Set PORTAL_ORIGIN");
    expect(output).toContain("Set EMAIL_FROM");
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual([...FIRST, ...SERVED]);
    expect(calls.at(-2)?.args).toContain("--remote");
    for (const { args } of calls) expect(args).toContain("--env=");
    expect(readAccount().secrets).toEqual(SECRETS);
    for (const secret of Object.values(SECRETS)) {
      const [, key = ""] = secret.split(":");
      expect(output).not.toContain(key);
      expect(JSON.stringify(calls.map(({ args }) => args))).not.toContain(key);
    }
    expect(calls.some(({ sawSecret }) => sawSecret)).toBe(false);
    const { secretsFile } = calls.at(-1) as Call;
    expect(secretsFile?.mode).toBe(0o600);
    expect(secretsFile?.content).toEqual(SECRETS);
    expect(existsSync(dirname(secretsFile?.path ?? ""))).toBe(false);
  });

  test("generates the other secrets, once", async () => {
    openAccount();
    const first = await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(first.code).toBe(0);
    expect(commandsOf(first.calls)).toEqual([...FIRST, ...SERVED]);
    const { secrets } = readAccount();
    expect(secrets).toEqual({
      ENCRYPTION_KEYS: SECRET,
      API_KEY_CHECKSUM_KEYS: expect.stringMatching(MADE),
      PORTAL_SIGNING_KEYS: expect.stringMatching(MADE),
    });
    for (const secret of Object.values(secrets ?? {}))
      expect(first.output).not.toContain(secret.split(":")[1]);
    expect(secrets?.API_KEY_CHECKSUM_KEYS).not.toBe(secrets?.PORTAL_SIGNING_KEYS);
    await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(readAccount().secrets).toEqual(secrets);
  });

  test("adds missing secrets to a Worker that was deployed before they existed, and keeps the others", async () => {
    openAccount({ secrets: { ENCRYPTION_KEYS: SECRET } });
    const { code, calls } = await deploy();
    expect(code).toBe(0);
    expect(calls.at(-1)?.secretsFile?.content).toEqual({
      API_KEY_CHECKSUM_KEYS: expect.stringMatching(MADE),
      PORTAL_SIGNING_KEYS: expect.stringMatching(MADE),
    });
  });

  test("--help and --dry-run change nothing", async () => {
    openAccount();
    const before = readAccount();
    const help = await runDeploy({}, "--help");
    expect(help).toMatchObject({ code: 0, calls: [] });
    const { code, output, calls } = await deploy({}, "--dry-run");
    expect(readAccount()).toEqual(before);
    expect(calls.map(({ args }) => args.filter((arg) => arg !== "--env=").join(" "))).toEqual([
      "whoami --json",
      "secret list --format json",
      "d1 list --json",
      ...LOOKED_UP,
      "deploy --dry-run",
    ]);
    expect(output).toContain(`Nothing was changed. A deployment would
  - ask for ENCRYPTION_KEYS, or generate it
  - generate API_KEY_CHECKSUM_KEYS
  - generate PORTAL_SIGNING_KEYS
  - create the database public-api
  - create the queue webhook-deliveries
  - create the queue webhook-redeliveries
  - create the queue platform-records
  - create the queue platform-records-dead
  - apply the missing migrations
  - deploy the Worker public-api
`);
    expect(code).toBe(0);
    await deploy(SECRETS);
    const again = await deploy({}, "--dry-run");
    expect(again.output).toContain("would\n  - apply the missing migrations");
  });

  test("the second time creates nothing and needs no secrets", async () => {
    openAccount();
    await deploy(SECRETS);
    const before = readAccount();
    const { code, calls } = await deploy();
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual(AGAIN);
    expect(calls.at(-1)?.secretsFile).toBeUndefined();
    const { versions: _, serving: __, ...same } = before;
    expect(readAccount()).toMatchObject(same);
  });

  test.each<[string, Partial<FakeAccount>, NodeJS.ProcessEnv, string, string[]]>([
    ["no secret", {}, {}, "Set ENCRYPTION_KEYS: the Worker has none yet.", ASKED],
    [
      "the encryption key under its former name",
      {},
      { WEBHOOK_ENCRYPTION_KEYS: SECRET },
      "WEBHOOK_ENCRYPTION_KEYS is now called ENCRYPTION_KEYS: rename it, and keep its value.",
      [],
    ],
    [
      "a Worker that has the encryption key under its former name",
      { secrets: { WEBHOOK_ENCRYPTION_KEYS: SECRET } },
      {},
      "WEBHOOK_ENCRYPTION_KEYS is now called ENCRYPTION_KEYS: rename it, and keep its value.",
      ASKED.slice(0, 2),
    ],
    [
      "an invalid encryption key",
      {},
      { ENCRYPTION_KEYS: "c2VjcmV0" },
      "ENCRYPTION_KEYS: entry 1 is not id:base64 of 32 bytes",
      [],
    ],
    [
      "an invalid checksum key",
      {},
      { ...SECRETS, API_KEY_CHECKSUM_KEYS: "k1=c2VjcmV0" },
      "API_KEY_CHECKSUM_KEYS: entry 1 is not id:base64 of 32 bytes",
      [],
    ],
    ["nobody logged in", { loggedIn: false }, {}, "Not logged in to Cloudflare: run", ["whoami"]],
    [
      "several accounts",
      {
        accounts: [
          { id: "a1", name: "Main" },
          { id: "a2", name: "Other" },
        ],
      },
      { ENCRYPTION_KEYS: SECRET },
      "Set CLOUDFLARE_ACCOUNT_ID: these credentials have access to several accounts: a1, a2.",
      ["whoami"],
    ],
    [
      "secrets that cannot be listed",
      { fails: "secret list" },
      {},
      "The Worker's secrets cannot be listed:\nA request to the Cloudflare API failed.",
      ASKED.slice(0, 2),
    ],
    [
      "a database that cannot be created",
      { secrets: SECRETS, fails: "d1 create" },
      {},
      "The database public-api could not be created:\nA request to the Cloudflare API failed.",
      [...ASKED, "d1 create public-api"],
    ],
    [
      "a migration that fails",
      { secrets: SECRETS, fails: "d1 migrations" },
      {},
      "The database public-api could not be migrated: nothing was deployed.",
      [...FIRST, ...SERVED.slice(0, 1)],
    ],
    [
      "a deployment that fails",
      { fails: "deploy" },
      SECRETS,
      "The Worker was not deployed; the previous version still serves.",
      [...FIRST, ...SERVED],
    ],
    [
      "a deployment that exits with 0 without having deployed",
      { secrets: SECRETS, declines: "deploy" },
      {},
      "The Worker was not deployed; the previous version still serves.",
      [...FIRST, ...SERVED],
    ],
  ])("stops at %s, and says why", async (_, differences, env, sentence, commands) => {
    openAccount(differences);
    const { code, output, calls } = await deploy(env);
    expect(output).toContain(sentence);
    expect(output).not.toContain("    at ");
    expect(code).toBe(1);
    expect(commandsOf(calls)).toEqual(commands);
    expect(output).not.toContain("c2VjcmV0");
    const file = calls.at(-1)?.secretsFile?.path;
    if (file) expect(existsSync(dirname(file))).toBe(false);
  });

  test("leaves no file with the secret if it is ended during the deployment", async () => {
    openAccount({ hangs: "deploy" });
    const run = start([process.execPath, DEPLOY], { ENCRYPTION_KEYS: SECRET });
    const end = ended(run);
    await until(() => commandsOf(readCalls()).at(-1) === "deploy", 20_000);
    const file = readCalls().at(-1)?.secretsFile?.path ?? "";
    expect(existsSync(file)).toBe(true);
    run.kill("SIGTERM");
    expect((await end).code).toBe(1);
    expect(existsSync(dirname(file))).toBe(false);
  });

  test("with the real wrangler and no account, says that you are not logged in", async () => {
    openAccount();
    rmSync(join(home(), "wrangler"));
    const { code, output } = await runDeploy({ ENCRYPTION_KEYS: SECRET });
    expect(output).toBe(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.\n",
    );
    expect(code).toBe(1);
  });
});

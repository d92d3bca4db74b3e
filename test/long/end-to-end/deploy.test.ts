import { existsSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { until } from "../../support/until.ts";
import {
  commandsOf,
  configWith,
  deploy,
  home,
  inEu,
  MADE,
  openAccount,
  openDeployed,
  QUEUES,
  readAccount,
  readCalls,
  runDeploy,
  SECRET,
  SECRETS,
  startDeploy,
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
  const withThree = () => {
    const block = (binding: string, name: string) =>
      `[[d1_databases]]\nbinding = "${binding}"\ndatabase_name = "${name}"\n\n`;
    const own = block("DB_2", "public-api-2") + block("DB_3", "public-api-3");
    const first = "[[queues.producers]]";
    return configWith(first, own + block("REPORTS", "reports") + first);
  };

  test("creates and migrates each of them before it deploys", async () => {
    openDeployed({ databases: inEu("public-api", "reports") });
    const { code, output, calls } = await deploy({}, ...withThree());
    expect(output).toContain("Deployed: ");
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual([
      ...[...ASKED, ...READ, "d1 create public-api-2", "d1 create public-api-3", ...UPDATED],
      ...["d1 time-travel info DB", "d1 migrations apply DB"],
      ...["d1 migrations apply DB_2", "d1 migrations apply DB_3", "deploy"],
    ]);
    for (const { args } of calls) expect(args).toContain(`--config=${home()}/wrangler.toml`);
    expect(readAccount().databases).toEqual(
      inEu("public-api", "reports", "public-api-2", "public-api-3"),
    );
  });

  test("deploys nothing if workspaces live in a database that is not bound", async () => {
    const database = openDeployed({ queues: [] });
    const insert = database.prepare(
      "INSERT INTO workspaces (id, name, admin_emails, created_at, database) VALUES (?, '', '[]', 0, ?)",
    );
    for (let i = 0; i < 15; i++) insert.run(`wks_${i}`, i < 3 ? "DB_2" : "DB_7");
    const { code, output, calls } = await deploy({}, ...withThree());
    expect(output).toContain(
      "wrangler.toml does not bind DB_7, but workspaces live there (12): nothing was deployed.",
    );
    expect(code).toBe(1);
    expect(commandsOf(calls)).not.toContain("deploy");
    database.exec("DELETE FROM workspaces WHERE database = 'DB_7'");
    expect((await deploy({}, ...withThree())).code).toBe(0);
    expect((await deploy()).output).toContain("does not bind DB_2, but workspaces live there (3)");
  });

  test("--dry-run lists the databases that would be created, with a login or without", async () => {
    openAccount({ databases: inEu("public-api"), queues: inEu(...QUEUES), secrets: SECRETS });
    const { code, output } = await deploy({}, "--dry-run", ...withThree());
    expect(output).toContain(`Nothing was changed. A deployment would
  - create the database public-api-2
  - create the database public-api-3
  - apply the missing migrations to each database
  - deploy the Worker public-api
`);
    expect(code).toBe(0);
    openAccount({ loggedIn: false });
    const alone = await deploy(SECRETS, "--dry-run", ...withThree());
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
    const without = configWith('binding = "DB"', 'binding = "DB_2"');
    const { code, output, calls } = await deploy({}, ...without);
    expect(output).toContain("wrangler.toml binds no database as DB");
    expect(code).toBe(1);
    expect(commandsOf(calls)).not.toContain("deploy");
  });
});

describe("npm run deploy without a terminal", () => {
  test("creates the database, migrates it and deploys with the secrets, which it never shows", async () => {
    openAccount();
    const { code, output, calls } = await runDeploy(SECRETS);
    for (const text of [
      `Deployed: ${readAccount().address}`,
      "It refuses an invented key, serves this document, and is healthy.",
      "npm run platform -- --remote createWorkspace",
      "Set PORTAL_ORIGIN",
      "Set EMAIL_FROM",
    ])
      expect(output).toContain(text);
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual([...FIRST, ...SERVED]);
    expect(calls.at(-2)?.args).toContain("--remote");
    for (const { args } of calls) expect(args).toContain("--env=");
    expect(readAccount().secrets).toEqual(SECRETS);
    const shown = output + JSON.stringify(calls.map(({ args }) => args));
    for (const secret of Object.values(SECRETS)) expect(shown).not.toContain(secret.split(":")[1]);
    expect(calls.some(({ sawSecret }) => sawSecret)).toBe(false);
    const { secretsFile } = calls.at(-1) as Call;
    expect(secretsFile).toMatchObject({ mode: 0o600, content: SECRETS });
    expect(existsSync(dirname(secretsFile?.path ?? ""))).toBe(false);
  });

  test("generates the other secrets, once, and keeps those that a Worker has", async () => {
    const generated = {
      API_KEY_CHECKSUM_KEYS: expect.stringMatching(MADE),
      PORTAL_SIGNING_KEYS: expect.stringMatching(MADE),
    };
    openAccount();
    const first = await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(first.code).toBe(0);
    expect(commandsOf(first.calls)).toEqual([...FIRST, ...SERVED]);
    const { secrets } = readAccount();
    expect(secrets).toEqual({ ENCRYPTION_KEYS: SECRET, ...generated });
    expect(new Set(Object.values(secrets ?? {})).size).toBe(3);
    for (const secret of Object.values(secrets ?? {}))
      expect(first.output).not.toContain(secret.split(":")[1]);
    await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(readAccount().secrets).toEqual(secrets);

    openAccount({ secrets: { ENCRYPTION_KEYS: SECRET } });
    const { code, calls } = await deploy();
    expect(code).toBe(0);
    expect(calls.at(-1)?.secretsFile?.content).toEqual(generated);
  });

  test("--help and --dry-run change nothing", async () => {
    openAccount();
    const before = readAccount();
    expect(await runDeploy({}, "--help")).toMatchObject({ code: 0, calls: [] });
    const { code, output, calls } = await deploy({}, "--dry-run");
    expect(readAccount()).toEqual(before);
    expect(calls.map(({ args }) => args.filter((arg) => arg !== "--env=").join(" "))).toEqual([
      ...["whoami --json", "secret list --format json", "d1 list --json", ...LOOKED_UP],
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
  });

  test("the second time creates nothing and needs no secrets", async () => {
    openAccount();
    await deploy(SECRETS);
    const { versions: _, serving: __, ...same } = readAccount();
    const planned = await deploy({}, "--dry-run");
    expect(planned.output).toContain("would\n  - apply the missing migrations");
    const { code, calls } = await deploy();
    expect(code).toBe(0);
    expect(commandsOf(calls)).toEqual(AGAIN);
    expect(calls.at(-1)?.secretsFile).toBeUndefined();
    expect(readAccount()).toMatchObject(same);
  });

  const RENAMED =
    "WEBHOOK_ENCRYPTION_KEYS is now called ENCRYPTION_KEYS: rename it, and keep its value.";
  const NOT_DEPLOYED = "The Worker was not deployed; the previous version still serves.";
  const MALFORMED = "entry 1 is not id:base64 of 32 bytes";
  const REFUSED = "A request to the Cloudflare API failed.";

  test.each<[string, string[], NodeJS.ProcessEnv, Partial<FakeAccount>]>([
    ["Set ENCRYPTION_KEYS: the Worker has none yet.", ASKED, {}, {}],
    [RENAMED, [], { WEBHOOK_ENCRYPTION_KEYS: SECRET }, {}],
    [RENAMED, ASKED.slice(0, 2), {}, { secrets: { WEBHOOK_ENCRYPTION_KEYS: SECRET } }],
    [`ENCRYPTION_KEYS: ${MALFORMED}`, [], { ENCRYPTION_KEYS: "c2VjcmV0" }, {}],
    [
      `API_KEY_CHECKSUM_KEYS: ${MALFORMED}`,
      [],
      { ...SECRETS, API_KEY_CHECKSUM_KEYS: "k1=c2VjcmV0" },
      {},
    ],
    ["Not logged in to Cloudflare: run", ["whoami"], {}, { loggedIn: false }],
    [
      "Set CLOUDFLARE_ACCOUNT_ID: these credentials have access to several accounts: a1, a2.",
      ["whoami"],
      { ENCRYPTION_KEYS: SECRET },
      { accounts: ["a1", "a2"].map((id) => ({ id, name: id })) },
    ],
    [
      `The Worker's secrets cannot be listed:\n${REFUSED}`,
      ASKED.slice(0, 2),
      {},
      { fails: "secret list" },
    ],
    [
      `The database public-api could not be created:\n${REFUSED}`,
      [...ASKED, "d1 create public-api"],
      {},
      { secrets: SECRETS, fails: "d1 create" },
    ],
    [
      "The database public-api could not be migrated: nothing was deployed.",
      [...FIRST, ...SERVED.slice(0, 1)],
      {},
      { secrets: SECRETS, fails: "d1 migrations" },
    ],
    [NOT_DEPLOYED, [...FIRST, ...SERVED], SECRETS, { fails: "deploy" }],
    // It exits with 0 without having deployed.
    [NOT_DEPLOYED, [...FIRST, ...SERVED], {}, { secrets: SECRETS, declines: "deploy" }],
  ])("stops, and says why: %s", async (sentence, commands, env, differences) => {
    openAccount(differences);
    const { code, output, calls } = await deploy(env);
    expect(output).toContain(sentence);
    expect(output).not.toMatch(/ {4}at |c2VjcmV0/);
    expect(code).toBe(1);
    expect(commandsOf(calls)).toEqual(commands);
    const file = calls.at(-1)?.secretsFile?.path;
    if (file) expect(existsSync(dirname(file))).toBe(false);
  });

  test("leaves no file with the secret if it is ended during the deployment", async () => {
    openAccount({ hangs: "deploy" });
    const { child, ended } = startDeploy({ ENCRYPTION_KEYS: SECRET });
    await until(() => commandsOf(readCalls()).at(-1) === "deploy", 20_000);
    const file = readCalls().at(-1)?.secretsFile?.path ?? "";
    expect(existsSync(file)).toBe(true);
    child.kill("SIGTERM");
    expect((await ended).code).toBe(1);
    expect(existsSync(dirname(file))).toBe(false);
  });

  test("with the real wrangler and no account, says that you are not logged in", async () => {
    openAccount();
    rmSync(join(home(), "wrangler"));
    expect(await runDeploy({ ENCRYPTION_KEYS: SECRET })).toMatchObject({
      code: 1,
      output:
        "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.\n",
    });
  });
});

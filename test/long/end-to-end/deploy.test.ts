import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { until } from "../../support/until.ts";
import {
  askedFor,
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
  replace,
  SECRET,
  SECRETS,
  startDeploy,
  useFolders,
  withOrigin,
} from "./deployment.ts";
import type { FakeAccount } from "./fake-wrangler.ts";

useFolders();

/** What it asks about, before it changes anything. */
const ASKED = [
  ...["whoami", "secret list json", "d1 list"],
  ...QUEUES.map((name) => `queues info ${name}`),
];
const FIRST = [...ASKED, "d1 create public-api", ...QUEUES.map((name) => `queues create ${name}`)];
/** What it asks of a database that exists: its migrations, and which databases are in use. */
const READ = ["d1 execute DB", "d1 execute DB"];
const FORMER = "deployments status";
const UPDATED = QUEUES.map((name) => `queues update ${name}`);
const SERVED = ["d1 migrations apply DB", "deploy"];
const AGAIN = [...ASKED, ...READ, FORMER, ...UPDATED, "d1 time-travel info DB", ...SERVED];
const GENERATED = {
  API_KEY_CHECKSUM_KEYS: expect.stringMatching(MADE),
  PORTAL_SIGNING_KEYS: expect.stringMatching(MADE),
};

/** The options for three databases of the service, and one that is not the service's. */
function withThree(): string[] {
  const block = (binding: string, name: string) =>
    `[[d1_databases]]\nbinding = "${binding}"\ndatabase_name = "${name}"\n\n`;
  const own = block("DB_2", "public-api-2") + block("DB_3", "public-api-3");
  const first = "[[queues.producers]]";
  return configWith(first, own + block("REPORTS", "reports") + first);
}

describe("npm run deploy with several databases", () => {
  test("creates and migrates each of them before it deploys", async () => {
    openDeployed({ databases: inEu("public-api", "reports") });
    const { calls, ...end } = await deploy({}, ...withThree());
    expect(end).toMatchObject({
      code: 0,
      output: expect.stringContaining("Deployed: "),
      commands: [
        ...[...ASKED, ...READ, FORMER, "d1 create public-api-2", "d1 create public-api-3"],
        ...UPDATED,
        ...["d1 time-travel info DB", "d1 migrations apply DB"],
        ...["d1 migrations apply DB_2", "d1 migrations apply DB_3", "deploy"],
      ],
      account: { databases: inEu("public-api", "reports", "public-api-2", "public-api-3") },
    });
    for (const { args } of calls) expect(args).toContain(`--config=${home()}/wrangler.toml`);
  });

  test("deploys nothing if workspaces live in a database that is not bound", async () => {
    const database = openDeployed();
    const insert = database.prepare(
      "INSERT INTO workspaces (id, name, admin_emails, created_at, database) VALUES (?, '', '[]', 0, ?)",
    );
    for (let i = 0; i < 15; i++) insert.run(`wks_${i}`, i < 3 ? "DB_2" : "DB_7");
    const { code, output, commands } = await deploy({}, ...withThree());
    expect(output).toContain(
      "wrangler.toml does not bind DB_7, but workspaces live there (12): nothing was deployed.",
    );
    expect([code, commands]).toEqual([1, expect.not.arrayContaining(["deploy"])]);
    database.exec("DELETE FROM workspaces WHERE database = 'DB_7'");
    expect((await deploy({}, ...withThree())).code).toBe(0);
    expect((await deploy()).output).toContain("does not bind DB_2, but workspaces live there (3)");
  });
});

const SAME = { databases: inEu("public-api"), queues: inEu(...QUEUES), secrets: SECRETS };
const MAKE_SECRETS = [
  ...["generate ENCRYPTION_KEYS", "generate API_KEY_CHECKSUM_KEYS"],
  "generate PORTAL_SIGNING_KEYS",
];
const MAKE_QUEUES = QUEUES.map((name) => `create the queue ${name}`);
const MAKE_FIRST = "create the database public-api";
const MAKE_MORE = ["create the database public-api-2", "create the database public-api-3"];
const MIGRATE = "apply the missing migrations";
const MIGRATE_ALL = "apply the missing migrations to each database";

test.each<[string, Partial<FakeAccount>, options: () => string[], calls: string[], string[]]>([
  [
    "for the first time",
    {},
    () => [],
    ["whoami --json", "secret list --format json", "d1 list --json", ...ASKED.slice(3)],
    [...MAKE_SECRETS, MAKE_FIRST, ...MAKE_QUEUES, MIGRATE],
  ],
  ["again", SAME, () => [], [...ASKED, ...READ, FORMER], [MIGRATE]],
  [
    "with more databases",
    SAME,
    withThree,
    [...ASKED, ...READ, FORMER],
    [...MAKE_MORE, MIGRATE_ALL],
  ],
])(
  "npm run deploy --dry-run says what a deployment would do %s, and changes nothing",
  async (when, differences, options, calls, steps) => {
    openAccount(differences);
    const before = readAccount();
    const end = await deploy({}, "--dry-run", ...options());
    const would = ["Nothing was changed. A deployment would", ...steps].join("\n  - ");
    expect(end).toMatchObject({ code: 0, account: before });
    expect(end.output).toContain(`${would}\n  - deploy the Worker public-api\n`);
    if (when !== "for the first time") expect(end.commands).toEqual([...calls, "deploy"]);
    else
      expect(end.calls.map(({ args }) => args.join(" ").replace(" --env=", ""))).toEqual([
        ...calls,
        "deploy --dry-run",
      ]);
  },
);

test("npm run deploy --dry-run says that you are not logged in before it builds the Worker", async () => {
  openAccount({ loggedIn: false });
  const { code, output, commands } = await deploy({}, "--dry-run");
  expect(output).toBe(
    "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN. The account is not checked; the Worker is built:\n--dry-run: exiting now.\n",
  );
  expect([code, commands]).toEqual([0, ["whoami", "deploy"]]);
});

describe("npm run deploy without a terminal", () => {
  test("creates the database, migrates it and deploys with the secrets, which it never shows", async () => {
    openAccount();
    const { code, output, calls, commands, account } = await startDeploy(SECRETS).ended;
    for (const text of [
      `Deployed: ${account.address}`,
      "It refuses an invented key, serves this document, and is healthy.",
      "npm run platform -- --remote createWorkspace",
      "Set PORTAL_ORIGIN",
      "Set EMAIL_FROM",
    ])
      expect(output).toContain(text);
    expect({ code, commands }).toEqual({ code: 0, commands: [...FIRST, ...SERVED] });
    expect(calls.at(-2)?.args).toContain("--remote");
    for (const { args } of calls) expect(args).toContain("--env=");
    expect(account.secrets).toEqual(SECRETS);
    const shown = output + JSON.stringify(calls.map(({ args }) => args));
    for (const secret of Object.values(SECRETS)) expect(shown).not.toContain(secret.split(":")[1]);
    expect(calls.some(({ sawSecret }) => sawSecret)).toBe(false);
    const secretsFile = calls.at(-1)?.secretsFile;
    expect(secretsFile).toMatchObject({ mode: 0o600, content: SECRETS });
    expect(existsSync(dirname(secretsFile?.path ?? ""))).toBe(false);
  });

  test("generates the other secrets, once, and keeps those that a Worker has", async () => {
    openAccount();
    const { account, output, ...first } = await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(first).toMatchObject({ code: 0, commands: [...FIRST, ...SERVED] });
    expect(account.secrets).toEqual({ ENCRYPTION_KEYS: SECRET, ...GENERATED });
    const secrets = Object.values(account.secrets ?? {});
    expect(new Set(secrets).size).toBe(3);
    for (const secret of secrets) expect(output).not.toContain(secret.split(":")[1]);
    const again = await deploy({ ENCRYPTION_KEYS: SECRET });
    expect(again.account.secrets).toEqual(account.secrets);

    openAccount({ secrets: { ENCRYPTION_KEYS: SECRET } });
    const { code, calls } = await deploy({ CI: "1" });
    expect([code, calls.at(-1)?.secretsFile?.content]).toEqual([0, GENERATED]);
  });

  test("the second time creates nothing and needs no secrets", async () => {
    openAccount();
    const { versions: _, serving: __, ...same } = (await deploy(SECRETS)).account;
    const { calls, ...end } = await deploy();
    expect(end).toMatchObject({ code: 0, commands: AGAIN, account: same });
    expect(calls.at(-1)?.secretsFile).toBeUndefined();
  });

  const NOT_DEPLOYED = "The Worker was not deployed; the previous version still serves.";
  const MALFORMED = "entry 1 is not id:base64 of 32 bytes";
  const REFUSED = "A request to the Cloudflare API failed.";
  const GIVEN = { secrets: SECRETS };
  const FIRST_AFTER_SECRETS = FIRST.toSpliced(ASKED.length, 0, FORMER);
  const BAD = { ...SECRETS, API_KEY_CHECKSUM_KEYS: "k1=c2VjcmV0" };

  test.each<[string, string[], NodeJS.ProcessEnv, Partial<FakeAccount>]>([
    ["Set ENCRYPTION_KEYS: the Worker has none yet.", ASKED, { CI: "1" }, {}],
    [`ENCRYPTION_KEYS: ${MALFORMED}`, [], { ENCRYPTION_KEYS: "c2VjcmV0" }, {}],
    [`API_KEY_CHECKSUM_KEYS: ${MALFORMED}`, [], BAD, {}],
    ["Not logged in to Cloudflare: run", ["whoami"], {}, { loggedIn: false }],
    [`secrets cannot be listed:\n${REFUSED}`, ASKED.slice(0, 2), {}, { fails: "secret list" }],
    [
      `The database public-api could not be created:\n${REFUSED}`,
      [...ASKED, FORMER, "d1 create public-api"],
      {},
      { ...GIVEN, fails: "d1 create" },
    ],
    [
      "The database public-api could not be migrated: nothing was deployed.",
      [...FIRST_AFTER_SECRETS, ...SERVED.slice(0, 1)],
      {},
      { ...GIVEN, fails: "d1 migrations" },
    ],
    [NOT_DEPLOYED, [...FIRST, ...SERVED], SECRETS, { fails: "deploy" }],
    // It exits with 0 without having deployed.
    [NOT_DEPLOYED, [...FIRST_AFTER_SECRETS, ...SERVED], {}, { ...GIVEN, declines: "deploy" }],
  ])("stops, and says why: %s", async (sentence, commands, env, differences) => {
    openAccount(differences);
    const { output, calls, ...end } = await deploy(env);
    expect(output).toContain(sentence);
    expect(output).not.toMatch(/ {4}at |c2VjcmV0/);
    expect(end).toMatchObject({ code: 1, commands });
    const file = calls.at(-1)?.secretsFile?.path;
    if (file) expect(existsSync(dirname(file))).toBe(false);
  });

  test("leaves no file with the secret if it is ended during the deployment", async () => {
    openAccount({ hangs: "deploy" });
    const { child, ended } = startDeploy({ ENCRYPTION_KEYS: SECRET });
    await until(() => readCalls().at(-1)?.secretsFile !== undefined);
    const file = readCalls().at(-1)?.secretsFile?.path ?? "";
    expect(existsSync(file)).toBe(true);
    child.kill("SIGTERM");
    expect((await ended).code).toBe(1);
    expect(existsSync(dirname(file))).toBe(false);
  });

  test("with the real wrangler and no account, says that you are not logged in", async () => {
    openAccount();
    rmSync(join(home(), "wrangler"));
    expect(await startDeploy({ ENCRYPTION_KEYS: SECRET }).ended).toMatchObject({
      code: 1,
      output:
        "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.\n",
    });
  });
});

describe("the secrets that npm run deploy generates", () => {
  const copyOf = (secrets: Record<string, string>) =>
    Object.entries(secrets)
      .map(([name, secret]) => `${name}="${secret}"\n`)
      .join("");

  test("are copied to a file that only this user can read, and shown nowhere", async () => {
    openAccount();
    const { code, output, account } = await startDeploy({ CI: "" }).ended;
    const secrets = account.secrets ?? {};
    expect(code).toBe(0);
    expect(secrets.ENCRYPTION_KEYS).toMatch(MADE);
    for (const secret of Object.values(secrets)) expect(output).not.toContain(secret.split(":")[1]);
    const copy = join(home(), `public-api.${secrets.ENCRYPTION_KEYS?.split(":")[0]}.txt`);
    expect(output).toContain(`copied to ${copy}`);
    expect(readFileSync(copy, "utf8")).toBe(copyOf(secrets));
    expect(statSync(copy).mode & 0o777).toBe(0o600);
  });

  test("overwrite no file, and are not deployed without their copy", async () => {
    openAccount();
    const file = join(home(), "copy.txt");
    writeFileSync(file, "mine");
    const end = await deploy({ CI: "1" }, "--secrets-copy", file);
    expect(end).toMatchObject({ code: 1, commands: ASKED, account: { secrets: null } });
    expect(end.output).toContain(`${file} already exists: choose a new file`);
    expect(readFileSync(file, "utf8")).toBe("mine");
  });
});

describe("npm run deploy of a later version", () => {
  const [NEW] = ["11111111-2222-3333-4444-000000000001"];
  const AT_0 = `versions deploy old@100 ${NEW}@0`;

  test("tests it by its name before it has traffic, and then gives it all of it", async () => {
    openDeployed();
    const { code, output, commands, account } = await deploy({}, ...withOrigin());
    const [, file] = withOrigin();
    expect(output).toContain(
      `Back to the version before: npx wrangler rollback old --config=${file} --env=\n`,
    );
    expect(code).toBe(0);
    const uploadedAt = commands.indexOf("versions upload");
    expect(commands.slice(uploadedAt)).toEqual([
      ...["versions upload", AT_0, `versions deploy ${NEW}@100`, "triggers deploy"],
    ]);
    expect(account.serving).toEqual({ [String(NEW)]: 100 });
    expect(askedFor()).toEqual([`public-api="${NEW}"`]);
  });

  test("gives it no traffic if it does not answer well", async () => {
    openDeployed();
    replace("/health", (_, response) => response.writeHead(503).end("{}"));
    const { code, output, commands, account } = await deploy({}, ...withOrigin());
    expect(output).toContain(
      "The new version does not answer well, and gets no traffic; old serves:\n  GET /health answers 503",
    );
    expect([code, commands.at(-1)]).toEqual([1, AT_0]);
    expect(account.serving).toEqual({ old: 100, [String(NEW)]: 0 });
  });

  test("tests it afterwards with --at-once", async () => {
    openDeployed();
    const { code, commands } = await deploy({}, "--at-once", ...withOrigin());
    expect([code, commands.at(-1), askedFor()]).toEqual([0, "deploy", []]);
  });

  test("changes nothing if nobody says which version serves, unless it is to serve at once", async () => {
    openDeployed({ fails: "deployments status" });
    const { code, output, commands } = await deploy({}, ...withOrigin());
    expect(output).toContain("The version that serves is not known");
    expect([code, commands.at(-1)]).toEqual([1, FORMER]);
    expect((await deploy({}, "--at-once", ...withOrigin())).code).toBe(0);
  });
});

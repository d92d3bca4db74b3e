import { execFileSync } from "node:child_process";
import type { RequestListener } from "node:http";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { createDataKey } from "../../../src/encryption/personal-data.ts";
import {
  configWith,
  deploy,
  inEu,
  openAccount,
  openDeployed,
  QUEUES,
  replace,
  SECRETS,
  useFolders,
} from "./deployment.ts";
import { BOOKMARK } from "./fake-wrangler.ts";

useFolders();

const STAGING = ["--env", "staging"];
const K1 = SECRETS.ENCRYPTION_KEYS;
const K2 = `k2:${Buffer.alloc(32, "2").toString("base64")}`;
const OTHER_K1 = `k1:${Buffer.alloc(32, "1").toString("base64")}`;
const COMMIT = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" }).slice(
  0,
  12,
);
const VARS = "[env.staging.vars]";
const KEPT = "--message-retention-period-secs=1209600";

/** An account with two workspaces, whose data keys are stored under K1 and another ring. */
async function openStored(ring: string): Promise<void> {
  const insert = openDeployed().prepare(
    "INSERT INTO workspaces (id, name, admin_emails, created_at, data_key) VALUES (?, '', '[]', 0, ?)",
  );
  for (const [id, keys] of Object.entries({ wks_1: K1, wks_2: ring }))
    insert.run(id, await createDataKey(keys, id));
}

/** An account whose database has one more migration. */
function openMigrated(migration: string): void {
  openDeployed().exec(`INSERT INTO d1_migrations VALUES ('${migration}')`);
}

type Case = [sentence: RegExp, open: () => unknown, env: NodeJS.ProcessEnv, args?: () => string[]];

const FORBIDS = "0999_drops_it_forbids_rollback.sql";
const FORBIDDEN =
  /^The database public-api has the migration 0999_drops_it_forbids_rollback\.sql, which this version is too old for/;
const QUEUE = 'queue = "webhook-deliveries"';
const SHARED: [what: string, text: string, other: string][] = [
  ["queue webhook-deliveries", 'queue = "webhook-deliveries-staging"', QUEUE],
  ["database public-api", '"public-api-staging"', '"public-api"'],
  ["rate limit 1", 'namespace_id = "2"', 'namespace_id = "1"'],
  ["Worker public-api", VARS, `[env.staging]\nname = "public-api"\n${VARS}`],
];
const storedIn = (jurisdiction: string | null) => () =>
  openDeployed({ databases: [{ name: "public-api", jurisdiction }] });

test.each<Case>([
  [
    /^wrangler\.toml has no \[env\.production\]; without --env, a command acts on production$/m,
    openAccount,
    SECRETS,
    () => ["--env", "production"],
  ],
  ...SHARED.map(
    ([name, text, other]): Case => [
      new RegExp(`^\\[env\\.staging\\] uses the ${name}, which is production's`),
      openAccount,
      SECRETS,
      () => [...STAGING, ...configWith(text, other)],
    ],
  ),
  [
    /wrangler\.toml binds no database as DB/,
    () => openAccount({ secrets: SECRETS }),
    {},
    () => configWith('binding = "DB"', 'binding = "DB_2"'),
  ],
  [
    /^The database public-api is stored in no jurisdiction, not in the jurisdiction eu.*list it in DATABASES_CLOSED, bind a new one, and moveWorkspace/,
    storedIn(null),
    {},
  ],
  [/^The database public-api is stored in the jurisdiction fedramp/, storedIn("fedramp"), {}],
  [
    /^The queue webhook-deliveries is stored in no jurisdiction.*give it a new name/,
    () => openDeployed({ queues: QUEUES.map((name) => ({ name, jurisdiction: null })) }),
    {},
  ],
  ...[[], ["--dry-run"]].map(
    (args): Case => [
      /^ENCRYPTION_KEYS lacks the key k2, under which the database public-api has secrets/,
      () => openStored(K2),
      { ENCRYPTION_KEYS: K1 },
      () => args,
    ],
  ),
  [/^ENCRYPTION_KEYS lacks the key k1/, () => openStored(K1), { ENCRYPTION_KEYS: OTHER_K1 }],
  [FORBIDDEN, () => openMigrated(FORBIDS), {}],
])(
  "npm run deploy refuses in one sentence, before it changes anything: %s",
  async (sentence, open, env, args = () => []) => {
    await open();
    const { code, output, commands } = await deploy(env, ...args());
    expect(output).toMatch(sentence);
    expect(output.trimEnd().split("\n")).toHaveLength(1);
    expect(code).toBe(1);
    const changes = /^(d1 (create|migrations)|queues (create|update)|deploy|rollback)/;
    expect(commands.filter((command) => changes.test(command))).toEqual([]);
  },
);

test.each<[string, () => unknown, NodeJS.ProcessEnv, (() => string[])?]>([
  [
    "a database elsewhere that is closed",
    storedIn(null),
    {},
    () => configWith('DATABASES_CLOSED = ""', 'DATABASES_CLOSED = "DB"'),
  ],
  ["all keys", () => openStored(K2), { ENCRYPTION_KEYS: `${K1},${K2}` }],
  ["a key that is lost", () => openStored(K2), { ENCRYPTION_KEYS: K1 }, () => ["--lost-key", "k2"]],
  ["the Worker's own keys", () => openStored(OTHER_K1), {}],
  ["a migration that forbids nothing", () => openMigrated("0999_drops_a_column.sql"), {}],
])("npm run deploy accepts %s", async (_, open, env, args = () => []) => {
  await open();
  expect(await deploy(env, ...args())).toMatchObject({ code: 0 });
});

test("npm run deploy --env deploys another Worker, with databases and queues of its own", async () => {
  openAccount();
  const { calls, ...end } = await deploy(SECRETS, ...STAGING);
  expect(end).toMatchObject({
    code: 0,
    output: expect.stringContaining("npm run platform -- --env staging createWorkspace"),
    account: {
      databases: inEu("public-api-staging"),
      queues: inEu(...QUEUES.map((name) => `${name}-staging`)),
    },
  });
  expect(calls).toHaveLength(10);
  for (const { args } of calls) expect(args).toContain("--env=staging");
  const planned = await deploy({}, ...STAGING, "--dry-run");
  expect(planned.output).toContain("deploy the Worker public-api-staging");
});

test.each(["eu", ""])("npm run deploy creates things in the jurisdiction %j", async (where) => {
  openAccount();
  const config = configWith('JURISDICTION = "eu"', `JURISDICTION = "${where}"`);
  const { code, account } = await deploy(SECRETS, ...config);
  const jurisdiction = where || null;
  expect(code).toBe(0);
  expect(account.databases).toEqual([{ name: "public-api", jurisdiction }]);
  expect(account.queues).toEqual(QUEUES.map((name) => ({ name, jurisdiction })));
});

test("npm run deploy lets the queues keep messages for 14 days, also those that exist", async () => {
  for (const open of [openAccount, openDeployed]) {
    open();
    const { calls } = await deploy(SECRETS);
    expect(calls.filter(({ args }) => args.includes(KEPT))).toHaveLength(QUEUES.length);
  }
  openDeployed({ fails: "queues update" });
  const { code, output, commands } = await deploy();
  expect(output).toContain(
    "The queue webhook-deliveries cannot keep messages for 14 days, which takes the paid plan: nothing was deployed.",
  );
  expect([code, commands]).toEqual([1, expect.not.arrayContaining(["deploy"])]);
});

test("a version names its commit, and the bookmark from before its migrations", async () => {
  openDeployed();
  const { output, commands, account } = await deploy();
  expect(output).toContain(`The database public-api can be restored to ${BOOKMARK}.`);
  const order = commands.filter((command) => /time-travel|migrations/.test(command));
  expect(order).toEqual(["d1 time-travel info DB", "d1 migrations apply DB"]);
  expect(Object.values(account.versions).slice(1)).toEqual([
    {
      "workers/tag": expect.stringMatching(new RegExp(`^${COMMIT}(-changed)?$`)),
      "workers/message": `Before: DB ${BOOKMARK}`,
    },
  ]);
});

const HEADERS = {
  "Cache-Control": "no-store",
  "X-RateLimit-Limit": "20",
  "X-RateLimit-Remaining": "19",
  "X-RateLimit-Reset": "1",
};
const UNRESET = { ...HEADERS, "X-RateLimit-Reset": [] };
const LIST = "/v1/automations";
test.each<[string, path: string, RequestListener]>([
  [`${LIST} answers an invented key with 500`, LIST, (_, to) => to.writeHead(500, HEADERS).end()],
  [`${LIST} answers without x-ratelimit-reset`, LIST, (_, to) => to.writeHead(401, UNRESET).end()],
  [
    "/openapi.json is not the document of this checkout",
    "/openapi.json",
    (_, to) => to.end('{ "openapi": "3.1.0" }'),
  ],
  ["/health answers 503", "/health", (_, to) => to.writeHead(503).end("{}")],
  ["/health gets no answer", "/health", (request) => request.destroy()],
])("after a deployment, npm run deploy says that GET %s", async (fault, path, answer) => {
  openDeployed();
  replace(path, answer);
  const { code, output } = await deploy();
  expect(output).toContain(`The new version serves, but does not answer well:\n  GET ${fault}`);
  expect(output).toContain("If this does not pass, go back: npx wrangler rollback old --env=\n");
  expect(code).toBe(1);
});

test("npm run deploy gives a new deployment time: its address and schedule may not be there yet", async () => {
  openAccount();
  replace("/health", (_, response) => response.writeHead(503).end("{}"));
  const { code, output } = await deploy(SECRETS);
  expect(output).toContain(
    "GET /health answers 503: a new address or schedule can take some minutes",
  );
  expect(output).not.toContain("is healthy");
  expect(code).toBe(0);
});

import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test, vi } from "vitest";
import { testVersion } from "../../../scripts/deploy/smoke.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { migrationsHere } from "../../../scripts/shared/databases.ts";
import { openPlatform } from "../../../scripts/shared/platform-client.ts";
import { createDataKey } from "../../../src/workspaces/data-keys.ts";
import { serve } from "../../node/support/server.ts";
import { MARK, QUEUES, SECRETS, type Site, SMALL_WORKER, useSite } from "./deployment.ts";

// Wrangler takes seconds to start, and longer on a busy machine.
vi.setConfig({ testTimeout: 600_000 });

const site = useSite("test");
const STAGING = ["--env", "staging"];
const K1 = SECRETS.ENCRYPTION_KEYS;
const K2 = `k2:${Buffer.alloc(32, "2").toString("base64")}`;

/** Adds the database and queues of wrangler.toml to the account. @returns the database's content. */
function addResources({ cloudflare }: Site, jurisdiction: string | null = "eu"): DatabaseSync {
  for (const name of QUEUES) cloudflare.addQueue(name, jurisdiction);
  return cloudflare.addDatabase("public-api", jurisdiction).content;
}

/** Applies these migrations, all of the checkout by default, as `wrangler d1 migrations apply` does. */
function migrate(content: DatabaseSync, names = migrationsHere()): void {
  content.exec("CREATE TABLE d1_migrations (id INTEGER PRIMARY KEY, name TEXT UNIQUE)");
  for (const name of names) {
    content.exec(readFileSync(join(ROOT, "migrations", name), "utf8"));
    content.prepare("INSERT INTO d1_migrations (name) VALUES (?)").run(name);
  }
}

/** Adds a workspace, whose data key is encrypted under the first of `keys`. */
async function addWorkspace(content: DatabaseSync, id: string, keys: string, database?: string) {
  content
    .prepare(
      "INSERT INTO workspaces (id, name, admin_emails, created_at, sealed_data_key, database) VALUES (?, '', '[]', 0, ?, ?)",
    )
    .run(id, await createDataKey(keys, id), database ?? null);
}

/** Adds the Worker with these secrets, by default as `npm run deploy` leaves it. */
function addWorker({ cloudflare }: Site, names = [...Object.keys(SECRETS), MARK]) {
  const bindings = names.map((name) => ({ type: "secret_text", name, text: "-" }));
  const version = { id: randomUUID(), annotations: {}, bindings };
  const worker = cloudflare.addWorker("public-api");
  worker.versions.push(version);
  worker.deployments.push({ [version.id]: 100 });
}

/** Binds a second database. */
function bindSecond({ configure }: Site): void {
  const second = `[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\nmigrations_dir = "${ROOT}/migrations"\n\n`;
  const at = '[[queues.producers]]\nbinding = "DELIVERIES"';
  configure(at, second + at);
}

type Case = [sentence: RegExp, prepare: (site: Site) => unknown, args: string[]];

const SHARED: [what: string, text: string, other: string][] = [
  [
    "queue webhook-deliveries",
    'queue = "webhook-deliveries-staging"',
    'queue = "webhook-deliveries"',
  ],
  ["database public-api", '"public-api-staging"', '"public-api"'],
  ["Worker public-api", "[env.staging]\n", '[env.staging]\nname = "public-api"\n'],
];

test.each<Case>([
  [
    /^wrangler\.toml has no \[env\.production\]; without --env, a command acts on production$/m,
    () => {},
    ["--env", "production"],
  ],
  ...SHARED.map(
    ([name, text, other]): Case => [
      new RegExp(`^\\[env\\.staging\\] uses the ${name}, which is production's`),
      ({ configure }) => configure(text, other),
      STAGING,
    ],
  ),
  [
    /^\[env\.staging\] uses the route api\.example\.com, which is production's/,
    ({ configure }) => {
      configure(SMALL_WORKER, `routes = ["api.example.com"]\n${SMALL_WORKER}`);
      // Without this line, it inherits production's routes.
      configure("routes = []\n", "");
    },
    STAGING,
  ],
  [
    /^wrangler\.toml binds no database as DB$/m,
    ({ configure }) => configure('binding = "DB"', 'binding = "DB_2"'),
    [],
  ],
  [
    /^Not stored in eu, and immovable: the database public-api, the queue webhook-deliveries, the queue webhook-\S+, the queue webhook-emails\. See docs\/deploying\.md, What a deployment does\./,
    (site) => addResources(site, null),
    [],
  ],
  [
    /^Not stored in eu, and immovable: the queue webhook-emails\. See/,
    (site) => {
      addResources(site);
      Object.assign(site.cloudflare.queues.at(-1) ?? {}, { jurisdiction: "us" });
    },
    [],
  ],
  [
    /^The account has no database with the id 00000000-0000-4000-8000-000000000000/,
    ({ configure }) =>
      configure(
        'database_name = "public-api"\n',
        'database_name = "public-api"\ndatabase_id = "00000000-0000-4000-8000-000000000000"\n',
      ),
    [],
  ],
  [
    /^ENCRYPTION_KEYS lacks the key k2, under which the database public-api has secrets/,
    async (site) => {
      const content = addResources(site);
      migrate(content);
      await addWorkspace(content, "wks_1", K1);
      await addWorkspace(content, "wks_2", K2);
    },
    [],
  ],
  [
    /^wrangler\.toml does not bind DB_7, but workspaces live there \(1\): nothing was deployed\.$/m,
    async (site) => {
      const content = addResources(site);
      migrate(content);
      await addWorkspace(content, "wks_1", K1, "DB_7");
    },
    [],
  ],
  [
    /^The account has no database public-api-2, but workspaces live in DB_2 \(1\): give it its former/,
    async (site) => {
      const content = addResources(site);
      migrate(content);
      await addWorkspace(content, "wks_1", K1, "DB_2");
      bindSecond(site);
    },
    [],
  ],
  [
    /^The account has no database renamed, but the Worker was deployed with one: give DB its former/,
    (site) => {
      migrate(addResources(site));
      addWorker(site);
      site.configure('"public-api"\nmigrations_dir', '"renamed"\nmigrations_dir');
    },
    [],
  ],
  [
    /^The database public-api has the migration 0999_drops_it_forbids_rollback\.sql, which this version is too old for/,
    (site) => {
      const content = addResources(site);
      migrate(content);
      content.exec("INSERT INTO d1_migrations VALUES (999, '0999_drops_it_forbids_rollback.sql')");
    },
    [],
  ],
])(
  "npm run deploy stops with one sentence, before it changes anything: %s",
  async (sentence, prepare, args) => {
    await prepare(site());
    expect(await site().refusal(SECRETS, ...args)).toMatch(sentence);
    expect(site().cloudflare.changes).toEqual([]);
  },
);

test.each<[RegExp, NodeJS.ProcessEnv]>([
  [
    /^Set ENCRYPTION_KEYS and API_KEY_CHECKSUM_KEYS and PORTAL_SIGNING_KEYS: the Worker does not have them/,
    {},
  ],
  [
    /^Set PORTAL_SIGNING_KEYS: the Worker does not have it yet\./,
    { ...SECRETS, PORTAL_SIGNING_KEYS: "" },
  ],
  [/^ENCRYPTION_KEYS: entry 1 is not id:base64 of 32 bytes$/m, { ENCRYPTION_KEYS: "c2VjcmV0" }],
  [/^PLATFORM_KEYS: entry 1 is not id:base64 of 32 bytes$/m, { PLATFORM_KEYS: "c2VjcmV0" }],
  [/^Not logged in to Cloudflare: run/, { CLOUDFLARE_API_TOKEN: "" }],
])("npm run deploy in a pipeline stops, and shows no secret: %s", async (sentence, env) => {
  const said = await site().refusal(env);
  expect(said).toMatch(sentence);
  expect(said).not.toContain("c2VjcmV0");
  expect(site().cloudflare.changes).toEqual([]);
});

test("npm run deploy gives a Worker that lost its database the one with the id in wrangler.toml", async () => {
  const { cloudflare, configure } = site();
  expect((await site().deploy(SECRETS)).code).toBe(0);
  cloudflare.databases.length = 0;
  const { uuid } = cloudflare.addDatabase("public-api", "eu");
  // Without the id, wrangler looks for the database that the Worker has, and fails.
  const name = 'database_name = "public-api"\n';
  configure(name, `${name}database_id = "${uuid}"\n`);
  expect((await site().deploy({}, "--at-once")).code).toBe(0);
  const bindings = cloudflare.workers.get("public-api")?.versions.at(-1)?.bindings;
  expect(bindings).toContainEqual(expect.objectContaining({ name: "DB", id: uuid }));
  expect(bindings).toContainEqual(expect.objectContaining({ name: "ENCRYPTION_KEYS", text: K1 }));
});

test("npm run deploy replaces the placeholder that another tool has left, as a first version", async () => {
  addWorker(site(), Object.keys(SECRETS));
  const { code, output } = await site().deploy({});
  expect([code, output]).toEqual([0, expect.stringContaining("Continue with docs/admin.md")]);
  const bindings = site().cloudflare.workers.get("public-api")?.versions.at(-1)?.bindings;
  expect(bindings).toContainEqual(expect.objectContaining({ name: MARK }));
});

test("npm run deploy stops with the sentence alone, and the exit code 1", async () => {
  const { code, output } = await site().command({ ENCRYPTION_KEYS: "c2VjcmV0" });
  expect(output).toBe("ENCRYPTION_KEYS: entry 1 is not id:base64 of 32 bytes\n");
  expect(code).toBe(1);
});

test("npm run deploy finds the account of the user who is logged in to wrangler", async () => {
  const { folder, cloudflare } = site();
  migrate(cloudflare.addDatabase("public-api", null).content);
  const login = join(folder, ".config/.wrangler/config");
  mkdirSync(login, { recursive: true });
  writeFileSync(
    join(login, "default.toml"),
    `oauth_token = "${cloudflare.env.CLOUDFLARE_API_TOKEN}"\nexpiration_time = "2999-01-01T00:00:00.000Z"\n`,
  );
  expect(await site().refusal({ CLOUDFLARE_API_TOKEN: "" })).toMatch(/^Not stored in eu/);
});

test("npm run deploy asks which of several accounts of a token is meant", async () => {
  const { cloudflare } = site();
  migrate(cloudflare.addDatabase("public-api", null).content);
  const environment = { ...SECRETS, CLOUDFLARE_ACCOUNT_ID: undefined };
  expect(await site().refusal(environment)).toMatch(/^Not stored in eu/);
  cloudflare.accounts.push({ id: "f".repeat(32), name: "Another account" });
  expect(await site().refusal(environment)).toBe(
    "Set CLOUDFLARE_ACCOUNT_ID: which account is meant is not clear.",
  );
});

test("npm run deploy asks which account is meant if the token may not list accounts", async () => {
  site().cloudflare.outage = /^GET .accounts$/;
  const environment = { ...SECRETS, CLOUDFLARE_ACCOUNT_ID: undefined };
  expect(await site().refusal(environment)).toBe(
    "Set CLOUDFLARE_ACCOUNT_ID: which account is meant is not clear.",
  );
});

test("npm run deploy and the Platform API use the account that the configuration names", async () => {
  const { cloudflare, configure, folder } = site();
  const account = "f".repeat(32);
  configure(SMALL_WORKER, `account_id = "${account}"\n${SMALL_WORKER}`);
  const refused = `/accounts/${account}/workers/`;
  // The environment names the other account.
  expect(await site().refusal(SECRETS)).toContain(refused);
  for (const [name, value] of Object.entries(cloudflare.env)) vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const opening = openPlatform({ remote: true, configFile: join(folder, "wrangler.toml") });
  await expect(opening).rejects.toThrow(refused);
});

test("npm run deploy uses a database elsewhere that is closed, and several databases, and migrates them", async () => {
  const { cloudflare, configure } = site();
  const names = migrationsHere();
  migrate(cloudflare.addDatabase("public-api", null).content, names.slice(0, 1));
  for (const queue of QUEUES) cloudflare.addQueue(queue, "eu");
  configure('DATABASES_CLOSED = ""', 'DATABASES_CLOSED = "DB"');
  bindSecond(site());
  const { code, output } = await site().deploy();
  expect([code, output]).toEqual([0, expect.stringContaining("It passes its test.")]);
  const places = cloudflare.databases.map(({ name, jurisdiction }) => [name, jurisdiction]);
  expect(places).toEqual([
    ["public-api", null],
    ["public-api-2", "eu"],
  ]);
  for (const { content } of cloudflare.databases) {
    expect(content.prepare("SELECT count(*) AS rows FROM workspaces").get()).toEqual({ rows: 0 });
    const applied = content.prepare("SELECT name FROM d1_migrations ORDER BY id").all();
    expect(applied.map(({ name }) => name)).toEqual(names);
  }
});

const HEADERS = {
  "Cache-Control": "no-store",
  "X-RateLimit-Limit": "20",
  "X-RateLimit-Remaining": "19",
  "X-RateLimit-Reset": "1",
};
const UNRESET = { ...HEADERS, "X-RateLimit-Reset": [] };
const LIST = "/v1/automations";
const VERSION = "00000000-0000-4000-8000-000000000001";
const OTHER = "00000000-0000-4000-8000-000000000002";
const NAMED = { "X-Service-Version": VERSION };

/** A deployment that answers well, but for one path. */
const WELL: Record<string, RequestListener> = {
  [LIST]: (_, to) => to.writeHead(401, HEADERS).end("{}"),
  "/health": (_, to) => to.writeHead(200, NAMED).end('{ "status": "ok" }'),
};

/** Tests a deployment that answers so. */
async function testAt(
  answers: Record<string, RequestListener>,
  seconds: number,
  headers?: Record<string, string>,
) {
  const server = await serve((request, response) =>
    answers[String(request.url)]?.(request, response),
  );
  const faults = await testVersion(server.url, seconds, {
    id: VERSION,
    ...(headers && { headers }),
  });
  await server.close();
  return faults;
}

test.each<[string, path: string, RequestListener]>([
  [
    `${LIST} responds to an invented key with 500`,
    LIST,
    (_, to) => to.writeHead(500, HEADERS).end(),
  ],
  [`${LIST} responds without x-ratelimit-reset`, LIST, (_, to) => to.writeHead(401, UNRESET).end()],
  ["/health responds with 503", "/health", (_, to) => to.writeHead(503, NAMED).end()],
  [
    `/health responds with 200, from the version ${OTHER}, not from ${VERSION}`,
    "/health",
    (_, to) => to.writeHead(200, { "X-Service-Version": OTHER }).end('{ "status": "ok" }'),
  ],
  [
    `/health responds with 500, from a server that names no version, not from ${VERSION}`,
    "/health",
    (_, to) => to.writeHead(500).end(),
  ],
  ["/health gets no answer", "/health", (request) => request.destroy()],
])("the test of a deployment finds that GET %s", async (fault, path, answer) => {
  const faults = await testAt({ ...WELL, [path]: answer }, 1);
  expect(faults).toEqual([expect.stringContaining(`GET ${fault}`)]);
});

test("the test of a deployment waits while requests that name the version get the one before", async () => {
  const names = [OTHER, OTHER, VERSION];
  const health: RequestListener = (_, to) =>
    to.writeHead(200, { "X-Service-Version": names.shift() ?? VERSION }).end('{ "status": "ok" }');
  expect(await testAt({ ...WELL, "/health": health }, 60)).toEqual([]);
  expect(names).toEqual([]);
});

test.each([
  [503, []],
  [500, ["GET /health responds with 500"]],
])(
  "a version whose /health responds with %i while the service is unhealthy has the faults %j",
  async (status, faults) => {
    const health: RequestListener = ({ headers }, to) =>
      to.writeHead("x-version" in headers ? status : 503, NAMED).end();
    const answers = { ...WELL, "/health": health };
    expect(await testAt(answers, 1, { "X-Version": VERSION })).toEqual(faults);
  },
);

import { execFileSync } from "node:child_process";
import type { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { parseEncryptionKeys, seal } from "../../../src/encryption/seal.ts";
import {
  commandsOf,
  configWith,
  deploy,
  inEu,
  openAccount,
  openDeployed,
  QUEUES,
  readAccount,
  replace,
  SECRETS,
  useFolders,
} from "./deployment.ts";
import { BOOKMARK } from "./fake-wrangler.ts";

useFolders();

/** Expects a refusal in one sentence, before anything was changed. */
function expectRefusal(
  { code, output, calls }: Awaited<ReturnType<typeof deploy>>,
  sentence: RegExp,
) {
  expect(output).toMatch(sentence);
  expect(output.trimEnd().split("\n")).toHaveLength(1);
  expect(code).toBe(1);
  const changes = /^(d1 (create|migrations)|queues (create|update)|deploy|rollback)/;
  expect(commandsOf(calls).filter((command) => changes.test(command))).toEqual([]);
}

describe("npm run deploy --env", () => {
  test("deploys another Worker, with databases and queues of its own", async () => {
    openAccount();
    const { code, output, calls } = await deploy(SECRETS, "--env", "staging");
    expect(output).toContain("npm run platform -- --env staging createWorkspace");
    expect(code).toBe(0);
    expect(calls.length).toBeGreaterThan(10);
    for (const { args } of calls) expect(args).toContain("--env=staging");
    const { databases, queues } = readAccount();
    expect(databases).toEqual(inEu("public-api-staging"));
    expect(queues.map(({ name }) => name)).toEqual(QUEUES.map((name) => `${name}-staging`));
    const planned = await deploy({}, "--env", "staging", "--dry-run");
    expect(planned.output).toContain("deploy the Worker public-api-staging");
  });

  test("refuses an environment that wrangler.toml lacks, with no call", async () => {
    openAccount();
    const end = await deploy(SECRETS, "--env", "production");
    expectRefusal(
      end,
      /^wrangler\.toml has no \[env\.production\]; without --env, a command acts on production$/m,
    );
    expect(end.calls).toEqual([]);
  });

  const VARS = "[env.staging.vars]";
  test.each([
    [
      "queue webhook-deliveries",
      'queue = "webhook-deliveries-staging"',
      'queue = "webhook-deliveries"',
    ],
    ["database public-api", '"public-api-staging"', '"public-api"'],
    ["rate limit 1", 'namespace_id = "2"', 'namespace_id = "1"'],
    ["Worker public-api", VARS, `[env.staging]\nname = "public-api"\n${VARS}`],
  ])("refuses an environment that uses production's %s", async (name, text, other) => {
    openAccount();
    const end = await deploy(SECRETS, "--env", "staging", ...configWith(text, other));
    expectRefusal(end, new RegExp(`^\\[env\\.staging\\] uses the ${name}, which is production's`));
  });
});

describe("where npm run deploy creates things", () => {
  test("is the jurisdiction of wrangler.toml, or anywhere without one", async () => {
    openAccount();
    expect((await deploy(SECRETS)).code).toBe(0);
    const { databases, queues } = readAccount();
    expect(databases).toEqual(inEu("public-api"));
    expect(queues).toEqual(inEu(...QUEUES).map((queue) => ({ ...queue, keptSeconds: 1_209_600 })));
    openAccount();
    const anywhere = configWith('JURISDICTION = "eu"', 'JURISDICTION = ""');
    expect((await deploy(SECRETS, ...anywhere)).code).toBe(0);
    for (const { jurisdiction } of [...readAccount().databases, ...readAccount().queues])
      expect(jurisdiction).toBeNull();
  });

  test("is not changed for what exists: it says what to do instead", async () => {
    openDeployed({ databases: [{ name: "public-api", jurisdiction: null }] });
    expectRefusal(
      await deploy(),
      /^The database public-api is stored in no jurisdiction, not in the jurisdiction eu.*list it in DATABASES_CLOSED, bind a new one, and moveWorkspace/,
    );
    const closing = configWith('DATABASES_CLOSED = ""', 'DATABASES_CLOSED = "DB"');
    expect((await deploy({}, ...closing)).code).toBe(0);
    openDeployed({ databases: [{ name: "public-api", jurisdiction: "fedramp" }] });
    expectRefusal(await deploy(), /^The database public-api is stored in the jurisdiction fedramp/);
    const [first = "", ...others] = QUEUES;
    openDeployed({ queues: [{ name: first, jurisdiction: null }, ...inEu(...others)] });
    expectRefusal(
      await deploy(),
      /^The queue webhook-deliveries is stored in no jurisdiction.*give it a new name/,
    );
  });
});

describe("before it changes anything, npm run deploy", () => {
  const K1 = SECRETS.ENCRYPTION_KEYS;
  const K2 = `k2:${Buffer.alloc(32, "2").toString("base64")}`;
  const OTHER_K1 = `k1:${Buffer.alloc(32, "1").toString("base64")}`;

  /** Stores a secret of each kind under K1, but those of one table under another ring. */
  async function store(database: DatabaseSync, where: string, ring: string) {
    const sealed = (table: string, owner: string) =>
      seal(parseEncryptionKeys(table === where ? ring : K1), owner, "secret");
    database
      .prepare(
        "INSERT INTO workspaces (id, name, admin_emails, created_at, data_key) VALUES ('wks_1', '', '[]', 0, ?)",
      )
      .run(await sealed("workspaces", "wks_1"));
    database
      .prepare(
        "INSERT INTO subscriptions (id, workspace_id, url, events, sealed_secret, created_at) VALUES ('whk_1', 'wks_1', '', '[]', ?, 0)",
      )
      .run(await sealed("subscriptions", "whk_1"));
    database
      .prepare(
        "INSERT INTO earlier_secrets (subscription_id, sealed_secret, until) VALUES ('whk_1', ?, 0)",
      )
      .run(await sealed("earlier_secrets", "whk_1"));
  }

  test.each(["workspaces", "subscriptions", "earlier_secrets"])(
    "checks that the new keys decrypt what is stored in %s",
    async (where) => {
      const lacks =
        /^ENCRYPTION_KEYS lacks the key k2, under which the database public-api has secrets/;
      await store(openDeployed(), where, K2);
      expectRefusal(await deploy({ ENCRYPTION_KEYS: K1 }), lacks);
      expectRefusal(await deploy({ ENCRYPTION_KEYS: K1 }, "--dry-run"), lacks);
      expect((await deploy({ ENCRYPTION_KEYS: `${K1},${K2}` })).code).toBe(0);
      expect((await deploy({ ENCRYPTION_KEYS: K1 }, "--lost-key", "k2")).code).toBe(0);
    },
  );

  test("notices another key under the same id", async () => {
    await store(openDeployed(), "subscriptions", K1);
    expectRefusal(await deploy({ ENCRYPTION_KEYS: OTHER_K1 }), /^ENCRYPTION_KEYS lacks the key k1/);
    // Without new keys, those of the Worker stay.
    expect((await deploy()).code).toBe(0);
  });

  test("refuses code that a migration forbids", async () => {
    const database = openDeployed();
    database.exec("INSERT INTO d1_migrations VALUES ('0999_drops_a_column.sql')");
    expect((await deploy()).code).toBe(0);
    database.exec("INSERT INTO d1_migrations VALUES ('0999_drops_it_forbids_rollback.sql')");
    expectRefusal(
      await deploy(),
      /^The database public-api has the migration 0999_drops_it_forbids_rollback\.sql, which this version is too old for/,
    );
  });

  test("lets the queues keep messages for 14 days, also those that exist", async () => {
    openDeployed();
    expect((await deploy()).code).toBe(0);
    const kept = readAccount().queues.map(({ keptSeconds }) => keptSeconds);
    expect(kept).toEqual(Array(4).fill(1_209_600));
    openDeployed({ isFree: true });
    const { code, output, calls } = await deploy();
    expect(output).toContain(
      "The queue webhook-deliveries cannot keep messages for 14 days, which takes the paid plan: nothing was deployed.",
    );
    expect(code).toBe(1);
    expect(commandsOf(calls)).not.toContain("deploy");
  });
});

const COMMIT = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" }).slice(
  0,
  12,
);

test("a version names its commit, and the bookmark from before its migrations", async () => {
  openDeployed();
  const { output, calls } = await deploy();
  expect(output).toContain(`The database public-api can be restored to ${BOOKMARK}.`);
  const order = commandsOf(calls);
  expect(order.indexOf("d1 time-travel info DB")).toBeLessThan(
    order.indexOf("d1 migrations apply DB"),
  );
  const [annotations] = Object.values(readAccount().versions);
  expect(annotations?.["workers/tag"]?.replace("-changed", "")).toBe(COMMIT);
  expect(annotations?.["workers/message"]).toBe(`Before: DB ${BOOKMARK}`);
});

describe("after a deployment, npm run deploy", () => {
  const HEADERS = {
    "Cache-Control": "no-store",
    "X-RateLimit-Limit": "20",
    "X-RateLimit-Remaining": "19",
    "X-RateLimit-Reset": "1",
  };
  const LIST = "/v1/automations";

  test.each<[string, ...Parameters<typeof replace>]>([
    [`${LIST} answers an invented key with 500`, LIST, (_, to) => to.writeHead(500, HEADERS).end()],
    [
      `${LIST} answers without x-ratelimit-reset`,
      LIST,
      (_, to) => to.writeHead(401, { ...HEADERS, "X-RateLimit-Reset": [] }).end(),
    ],
    [
      "/openapi.json is not the document of this checkout",
      "/openapi.json",
      (_, to) => to.end('{ "openapi": "3.1.0" }'),
    ],
    ["/health answers 503", "/health", (_, to) => to.writeHead(503).end("{}")],
    ["/health gets no answer", "/health", (request) => request.destroy()],
  ])("says that GET %s", async (fault, path, answer) => {
    openDeployed();
    replace(path, answer);
    const { code, output } = await deploy();
    expect(output).toContain(`The new version serves, but does not answer well:\n  GET ${fault}`);
    expect(output).toContain("roll back: npm run deploy -- --rollback VERSION");
    expect(code).toBe(1);
  });

  test("gives a new deployment time: its address and schedule may not be there yet", async () => {
    openAccount();
    replace("/health", (_, response) => response.writeHead(503).end("{}"));
    const { code, output } = await deploy(SECRETS);
    expect(output).toContain(
      "GET /health answers 503: a new address or schedule can take some minutes",
    );
    expect(output).not.toContain("is healthy");
    expect(code).toBe(0);
  });
});

describe("npm run deploy --rollback", () => {
  const rollBack = (id = "old") => deploy({}, "--rollback", id);
  const version = (tag: string) => ({ old: { "workers/tag": tag } });

  test("goes back to a version", async () => {
    openDeployed({ versions: version(COMMIT) });
    const { code, output, calls } = await rollBack();
    expect({ code, output }).toEqual({ code: 0, output: "" });
    expect(commandsOf(calls)).toEqual([
      ...["whoami", "versions view old", "d1 execute DB", "rollback old"],
    ]);
    expect(readAccount().serving).toBe("old");
  });

  test("refuses one from before a migration that forbids it", async () => {
    const database = openDeployed({ versions: version(`${COMMIT}-changed`) });
    database.exec("INSERT INTO d1_migrations VALUES ('0999_drops_it_forbids_rollback.sql')");
    expectRefusal(
      await rollBack(),
      /^The database public-api has the migration 0999_drops_it_forbids_rollback\.sql/,
    );
  });

  test("refuses one that would post empty bodies of what is stored apart", async () => {
    // Git's name of the empty tree: a commit without migrations.
    openDeployed({ versions: version("4b825dc642cb6eb9a060e54bf8d69288fbee4904") });
    expect((await deploy()).code).toBe(0);
    expectRefusal(await rollBack(), /has the migration 0010_large_parts_forbids_rollback\.sql/);
  });

  test("refuses one whose code it does not know", async () => {
    openDeployed({ versions: { ...version("0123456789ab"), bare: {} } });
    expectRefusal(await rollBack(), /^This checkout lacks the commit 0123456789ab/);
    for (const id of ["bare", "none"])
      expect((await rollBack(id)).output).toContain(
        `The version ${id} is not one that npm run deploy made`,
      );
    expect(readAccount().serving).toBeUndefined();
  });
});

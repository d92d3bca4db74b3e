import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Schema, Validator } from "@cfworker/json-schema";
import { describe, expect, test } from "vitest";
import {
  experimental_readRawConfig,
  type Unstable_Config,
  type Unstable_RawConfig,
  unstable_readConfig,
} from "wrangler";
import { resourcesIn } from "../../scripts/deploy/resources.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { TEST_VARS, withTestSettings } from "../../scripts/shared/test-settings.ts";
import { CONCURRENCY_MAX } from "../../src/delivery/policy.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const schema: Schema = JSON.parse(read("node_modules/wrangler/config-schema.json"));
const validator = new Validator(schema, "7", false);

/** The configuration as parsed by wrangler, before any defaults. */
const config = experimental_readRawConfig({ config: join(ROOT, "wrangler.toml") })
  .rawConfig as Unstable_RawConfig;

/** Where a configuration violates wrangler's schema. */
const faultsOf = (config: unknown) =>
  validator.validate(config).errors.map((each) => `${each.instanceLocation}: ${each.error}`);

describe("the configuration", () => {
  test("matches wrangler's schema, and would not with a misspelt key", () => {
    expect(faultsOf(config)).toEqual([]);
    const observability = { enabled: true, logs: { sampling_rate: 1 } };
    expect(faultsOf({ ...config, observability }).join()).toContain("sampling_rate");
  });

  test("requires a secret that only npm run deploy sets, so that plain wrangler deploys no first version", () => {
    expect(config.secrets?.required).toContain("CREATED_BY_NPM_RUN_DEPLOY");
  });

  test("sends to every queue that it consumes, so that a first deployment creates it", () => {
    const { producers, consumers } = config.queues ?? {};
    const made = producers?.map(({ queue }) => queue);
    expect(made).toEqual(expect.arrayContaining(consumers?.map(({ queue }) => queue) ?? [null]));
  });

  test("gives a consumer of deliveries no more subscriptions at once than a Worker has connections", () => {
    const sizes = config.queues?.consumers
      ?.filter(({ queue }) => queue.startsWith("webhook-deliveries"))
      .map(({ max_batch_size }) => max_batch_size);
    expect(sizes).toEqual([CONCURRENCY_MAX, CONCURRENCY_MAX]);
  });

  test("gives [env.staging] everything that production has, and nothing that is production's", () => {
    const readAs = (env?: string): Unstable_Config =>
      unstable_readConfig(
        { config: join(ROOT, "wrangler.toml"), ...(env && { env }) },
        { hideWarnings: true },
      );
    const [production, staging] = [readAs(), readAs("staging")];
    const taken = resourcesIn(production);
    expect(taken.length).toBeGreaterThan(4);
    const renamed: typeof staging = JSON.parse(JSON.stringify(staging).replaceAll("-staging", ""));
    expect(resourcesIn(staging).filter((resource) => taken.includes(resource))).toEqual([]);
    // Its databases may be fewer; its variables, addresses and concurrency have other values.
    const { d1_databases, queues, ratelimits, routes, vars, workers_dev } = production;
    const own = { d1_databases, queues, ratelimits, routes, vars, workers_dev };
    const same = { ...renamed, ...own, targetEnvironment: undefined };
    expect(JSON.parse(JSON.stringify(production))).toMatchObject(JSON.parse(JSON.stringify(same)));
    expect(queues.producers).toEqual(renamed.queues.producers);
    const consumed = renamed.queues.consumers?.map(({ queue }) => queue);
    expect(queues.consumers?.map(({ queue }) => queue)).toEqual(consumed);
    expect(Object.keys(staging.vars)).toEqual(Object.keys(vars));
    const bound = renamed.d1_databases.map(({ binding }) => binding);
    expect(d1_databases.map(({ binding }) => binding)).toEqual(expect.arrayContaining(bound));
  });

  test("logs no URLs, and traces a sample", () => {
    expect(config.observability).toMatchObject({
      enabled: true,
      logs: { enabled: true, invocation_logs: false },
      traces: { enabled: true },
    });
    expect(config.observability?.traces?.head_sampling_rate).toBeLessThan(0.1);
  });

  test("does not disable the policy for webhook URLs", () => {
    expect(config.vars).not.toHaveProperty("ALLOW_LOCAL_WEBHOOKS");
  });
});

/** wrangler.toml as tests use it, and edits of a deployment (docs/admin.md), each of a text that it has. */
const FOR_TESTS = withTestSettings(read("wrangler.toml"));
const EDITS: [text: string, other: string][] = [
  [
    "workers_dev = true\npreview_urls",
    'routes = [\n  { pattern = "api.acme.test", custom_domain = true },\n]\nworkers_dev = false\npreview_urls',
  ],
  ["[env.staging]\nroutes = []", '[env.staging]\nroutes = ["staging.acme.test/*"]'],
  ['PORTAL_ORIGIN = ""', 'PORTAL_ORIGIN = "https://api.acme.test"'],
  ['EMAIL_FROM = "api@example.com"', 'EMAIL_FROM = "api@acme.test"'],
  ["EVENTS_KEPT_DAYS = 30", "EVENTS_KEPT_DAYS = 14"],
  ['JURISDICTION = "eu"', 'JURISDICTION = ""'],
  ['DNS_OVER_HTTPS_URL = ""', 'DNS_OVER_HTTPS_URL = "https://cloudflare-dns.com/dns-query"'],
  ['name = "public-api"\n', 'name = "public-api"\ndatabase_id = "00000000"\n'],
  [
    "[[durable_objects",
    '[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\n\n[[durable_objects',
  ],
];

test.each(EDITS)("tests use the same configuration where %j has become %j", (text, other) => {
  const edited = FOR_TESTS.replaceAll(text, other);
  expect(edited).not.toBe(FOR_TESTS);
  expect(withTestSettings(edited)).toBe(FOR_TESTS);
});

test("tests have a value for each variable of the configuration", () => {
  expect(Object.keys(TEST_VARS)).toEqual(Object.keys(config.vars ?? {}));
  expect(FOR_TESTS.match(/^PORTAL_ORIGIN = .*$/gm)).toEqual(Array(2).fill('PORTAL_ORIGIN = ""'));
});

test.skipIf(!existsSync(join(ROOT, ".git")))(
  "no text file of the repository has a line that ends with CRLF",
  () => {
    // Migrations with CRLF, for instance, would create other triggers than those that are tested.
    const files = execFileSync("git", ["ls-files", "--eol"], { cwd: ROOT, encoding: "utf8" });
    const faulty = files.split("\n").filter((line) => /^[^\t]*[iw]\/(crlf|mixed)/.test(line));
    expect(faulty).toEqual([]);
  },
);

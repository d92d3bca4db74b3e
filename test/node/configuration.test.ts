import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Schema, Validator } from "@cfworker/json-schema";
import { describe, expect, test } from "vitest";
import { experimental_readRawConfig, type Unstable_RawConfig, unstable_readConfig } from "wrangler";
import { resourcesIn } from "../../scripts/deploy/resources.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

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

  test("sends to every queue that it consumes, so that a first deployment creates it", () => {
    const { producers, consumers } = config.queues ?? {};
    const made = producers?.map(({ queue }) => queue);
    expect(made).toEqual(expect.arrayContaining(consumers?.map(({ queue }) => queue) ?? [null]));
  });

  test("gives [env.staging] everything that production has, and nothing that is production's", () => {
    const readAs = (env?: string) =>
      unstable_readConfig(
        { config: join(ROOT, "wrangler.toml"), ...(env && { env }) },
        { hideWarnings: true },
      );
    const [production, staging] = [readAs(), readAs("staging")];
    const taken = resourcesIn(production);
    expect(taken.length).toBeGreaterThan(4);
    expect(resourcesIn(staging).filter((resource) => taken.includes(resource))).toEqual([]);
    // Its databases may be fewer, and its variables have other values.
    const own = { ratelimits: production.ratelimits, targetEnvironment: undefined };
    const renamed = JSON.stringify({ ...staging, ...own }).replaceAll("-staging", "");
    const { d1_databases: databases, vars: _, routes, ...same } = JSON.parse(renamed);
    // Production's would be inherited.
    expect(routes).toEqual([]);
    expect(production).toMatchObject(same);
    expect(Object.keys(staging.vars)).toEqual(Object.keys(production.vars));
    expect(production.d1_databases).toEqual(expect.arrayContaining(databases));
    expect(staging.queues.consumers?.length).toBe(production.queues.consumers?.length);
  });

  test("logs everything but URLs, and traces a sample", () => {
    expect(config.observability).toEqual({
      enabled: true,
      logs: { enabled: true, head_sampling_rate: 1, invocation_logs: false },
      traces: { enabled: true, head_sampling_rate: 0.01 },
    });
  });

  test("does not disable the policy for webhook URLs", () => {
    expect(config.vars).not.toHaveProperty("ALLOW_LOCAL_WEBHOOKS");
  });
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

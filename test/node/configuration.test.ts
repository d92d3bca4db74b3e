import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Schema, Validator } from "@cfworker/json-schema";
import { describe, expect, test } from "vitest";
import { experimental_readRawConfig, type Unstable_RawConfig, unstable_readConfig } from "wrangler";
import { resourcesIn } from "../../scripts/deploy/resources.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";

const schema: Schema = JSON.parse(
  readFileSync(join(ROOT, "node_modules/wrangler/config-schema.json"), "utf8"),
);
const validator = new Validator(schema, "7", false);

/** A configuration file as parsed by wrangler, before any defaults. */
function readConfig(file: string): Unstable_RawConfig {
  return experimental_readRawConfig({ config: join(ROOT, file) }).rawConfig as Unstable_RawConfig;
}

/** Where a configuration violates wrangler's schema. */
function faultsOf(config: unknown): string[] {
  return validator.validate(config).errors.map(({ instanceLocation, error }) => {
    return `${instanceLocation}: ${error}`;
  });
}

describe("the configuration", () => {
  test("matches wrangler's schema", () => {
    expect(faultsOf(readConfig("wrangler.toml"))).toEqual([]);
  });

  test("would not match with a misspelt key", () => {
    const observability = { enabled: true, logs: { sampling_rate: 1 } };
    expect(faultsOf({ ...readConfig("wrangler.toml"), observability }).join()).toContain(
      "sampling_rate",
    );
  });

  test("sends to every queue that it consumes, so that a first deployment creates it", () => {
    const { queues = {} } = readConfig("wrangler.toml");
    const made = queues.producers?.map(({ queue }) => queue);
    expect(
      queues.consumers?.map(({ queue }) => queue).filter((queue) => !made?.includes(queue)),
    ).toEqual([]);
  });

  test("gives [env.staging] everything that production has, and nothing that is production's", () => {
    const config = join(ROOT, "wrangler.toml");
    const production = unstable_readConfig({ config }, { hideWarnings: true });
    const staging = unstable_readConfig({ config, env: "staging" }, { hideWarnings: true });
    const taken = resourcesIn(production);
    expect(taken.length).toBeGreaterThan(6);
    expect(resourcesIn(staging).filter((resource) => taken.includes(resource))).toEqual([]);
    // Its databases may be fewer, and its variables have other values.
    const {
      d1_databases: databases,
      vars,
      ...same
    } = JSON.parse(
      JSON.stringify({
        ...staging,
        ratelimits: production.ratelimits,
        targetEnvironment: undefined,
      }).replaceAll("-staging", ""),
    );
    expect(production).toMatchObject(same);
    expect(Object.keys(staging.vars)).toEqual(Object.keys(production.vars));
    expect(production.d1_databases).toEqual(expect.arrayContaining(databases));
    expect(staging.queues.consumers?.length).toBe(production.queues.consumers?.length);
  });

  test("logs everything but URLs, and traces a sample", () => {
    expect(readConfig("wrangler.toml").observability).toEqual({
      enabled: true,
      logs: { enabled: true, head_sampling_rate: 1, invocation_logs: false },
      traces: { enabled: true, head_sampling_rate: 0.01 },
    });
  });

  test("does not disable the policy for webhook URLs", () => {
    expect(readConfig("wrangler.toml").vars).not.toHaveProperty("ALLOW_LOCAL_WEBHOOKS");
  });

  test("lists, for the Deploy to Cloudflare button, the secrets that the Worker requires", () => {
    const required = readConfig("wrangler.toml").secrets?.required;
    const example = readFileSync(join(ROOT, ".dev.vars.example"), "utf8");
    expect([...example.matchAll(/^(\w+)=/gm)].map(([, name]) => name)).toEqual(required);
    // A working example would be deployed unchanged.
    for (const name of required ?? []) expect(example).toContain(`\n${name}=""\n`);
    const { cloudflare } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(Object.keys(cloudflare.bindings)).toEqual(required);
  });
});

test("no command of the docs writes npm's own output into a file", () => {
  const pages = readdirSync(join(ROOT, "docs")).filter((name) => name.endsWith(".md"));
  const files = ["README.md", ...pages.map((name) => join("docs", name))];
  const lines = files.flatMap((file) => readFileSync(join(ROOT, file), "utf8").split("\n"));
  const written = lines.filter((line) => /^\s*npm run [^#]*> \S/.test(line));
  expect(written.length).toBeGreaterThan(0);
  for (const line of written) expect(line).toMatch(/npm run -s /);
});

describe("docs/operations.md", () => {
  test("says what to do for each of the ten alarms that page", () => {
    const alarms: { name: string; count?: number }[] = JSON.parse(
      readFileSync(join(ROOT, "scripts/alarms/alarms.json"), "utf8"),
    );
    const page = readFileSync(join(ROOT, "docs/operations.md"), "utf8");
    const [, section = ""] = page.split(/^### Alarms$/m);
    const [own = ""] = section.split(/^###? /m);
    const told = [...own.matchAll(/^- (?:`(\w+)`|\*\*(\w+)\*\*)/gm)].map(([, a, b]) => a ?? b);
    expect(told).toEqual(alarms.map(({ name }) => name));
    expect(told).toHaveLength(10);
  });

  test("lists every event that the code logs, and no other", () => {
    const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" });
    const logged = files
      .filter((file) => file.endsWith(".ts"))
      .flatMap((file) => {
        const text = readFileSync(join(ROOT, "src", file), "utf8");
        return [...text.matchAll(/\blog(?:Error)?\("(\w+)"/g)].map(([, event]) => event);
      });
    const page = readFileSync(join(ROOT, "docs/operations.md"), "utf8");
    const [, section = ""] = page.split("## What to watch");
    const items = [...section.matchAll(/^- ((?:`[a-z_]+`(?:, )?)+)/gm)];
    const told = items.flatMap(([, names = ""]) => names.match(/[a-z_]+/g) ?? []);
    expect(logged.length).toBeGreaterThan(10);
    expect(new Set(told)).toEqual(new Set(logged));
  });
});

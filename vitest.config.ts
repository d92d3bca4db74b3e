import { join } from "node:path";
import { cloudflareTest, readD1Migrations } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { TEST_VARS, writeTestConfiguration } from "./scripts/shared/test-settings.ts";
import { useMemory } from "./test/node/support/memory.ts";
import { answerAsSubscriber } from "./test/support/subscribers.ts";

/** Packages that are bundled once instead of being loaded module by module in each test file. */
const BUNDLED = [
  "@hono/zod-openapi",
  "@modelcontextprotocol/client",
  "@modelcontextprotocol/server",
  "drizzle-orm",
  "drizzle-orm/d1",
  "drizzle-orm/sqlite-core",
  "hono/factory",
  "hono/http-exception",
  "hono/route",
  "ipaddr.js",
];

/**
 * `expect.poll` gives up after a second by default, which a busy machine may take. It looks less often than each
 * 50 ms, because a look may cost several calls.
 */
const POLL = { poll: { timeout: 15_000, interval: 200 } };

/** Tests that run in workerd, with the bindings of wrangler.toml for tests, and two more databases. */
const inWorkerd = {
  plugins: [
    cloudflareTest(async () => ({
      main: "./scripts/shared/limited-worker.ts",
      wrangler: { configPath: writeTestConfiguration() },
      miniflare: {
        d1Databases: { DB_2: "second", DB_3: "third" },
        bindings: {
          MIGRATIONS: await readD1Migrations("./migrations"),
          ...TEST_VARS,
          ALLOW_LOCAL_WEBHOOKS: "false",
          ENCRYPTION_KEYS: "test:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=",
          API_KEY_CHECKSUM_KEYS: "test:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
          PORTAL_SIGNING_KEYS: "test:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=",
          // An operator may end it with a slash, which no link repeats.
          PORTAL_ORIGIN: "https://api.example/",
          // The local runtime has no jurisdictions.
          JURISDICTION: "",
        },
        outboundService: answerAsSubscriber,
      },
    })),
  ],
  test: {
    name: "worker",
    include: ["test/worker/**/*.test.ts", "test/databases/**/*.test.ts"],
    globalSetup: ["./test/node/support/assets.ts"],
    // Otherwise starting a runtime and importing the Worker for each file takes longer than most tests.
    isolate: false,
    // Each starts a runtime and imports the Worker, and few of these tests wait. A project whose number of
    // workers differs from that of others needs a group of its own.
    maxWorkers: 3,
    sequence: { groupOrder: 1 },
    setupFiles: ["./test/support/quiet.ts", "./test/support/reset.ts"],
    // Long enough for a busy machine; a test that hangs still fails.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: POLL,
    deps: { optimizer: { ssr: { enabled: true, include: BUNDLED } } },
  },
};

/** Tests that run in Node, with or without the built Worker. */
function inNode(
  name: string,
  include: string[],
  more: { globalSetup?: string[]; setupFiles?: string[]; maxConcurrency?: number } = {},
) {
  return {
    test: {
      name,
      include,
      // Otherwise each file imports wrangler and the sources again.
      isolate: false,
      // Node loads the sources as commands do, which takes half the time. No test replaces a module.
      experimental: { viteModuleRunner: false, nodeLoader: false },
      ...more,
      testTimeout: 120_000,
      hookTimeout: 120_000,
      expect: POLL,
    },
  };
}

// Otherwise wrangler lists the secrets for every test file.
process.env.WRANGLER_LOG = "error";

/**
 * What the runtime reports beside the tests' own assertions: an error that an RPC method throws to its caller,
 * a connection that a test cuts, and a header that a test sends on purpose.
 */
const EXPECTED =
  /^(uncaught exception|exception = \S+: disconnected|A header value for "Idempotency-Key")/;
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream);
  stream.write = ((text: string, ...rest: []) =>
    EXPECTED.test(String(text)) || write(text, ...rest)) as typeof write;
}

/**
 * Goes from project to project, in their order. Vitest ends a worker whose next file belongs to another project, and
 * starting a runtime and importing everything again takes longer than most files. In a fresh clone, where no time is
 * known, a file's size decides which one of a project is first.
 */
class ByProject extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = this.ctx.projects.map(({ name }) => name);
    return sorted.toSorted(
      (a, b) => projects.indexOf(a.project.name) - projects.indexOf(b.project.name),
    );
  }
}

useMemory();

// Tests start scripts about two hundred times: as quickly as npm does.
const READY = `--import="${join(import.meta.dirname, "scripts/ready.js")}"`;
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} ${READY}`;
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "node_modules/.cache/node");

export default defineConfig({
  test: {
    // More than there are cores: some tests wait.
    maxWorkers: 5,
    reporters: ["minimal"],
    sequence: { sequencer: ByProject },
    // They run in this order, those in workerd last. At the end of both come small files, so that all workers end
    // together.
    projects: [
      inNode("long", ["test/long/**/*.test.ts"], {
        globalSetup: ["./test/node/support/build.ts"],
        setupFiles: ["./test/long/watchdog.ts"],
      }),
      inNode("contract", ["test/contract/*.test.ts"], {
        globalSetup: ["./test/contract/server/setup.ts"],
        setupFiles: ["./test/long/watchdog.ts"],
        // Deliveries wait for their retries together.
        maxConcurrency: 40,
      }),
      inNode("node", ["test/node/**/*.test.ts"]),
      inWorkerd,
    ],
  },
});

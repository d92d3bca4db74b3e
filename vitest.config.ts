import { cloudflareTest, readD1Migrations } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";
import { answerAsSubscriber } from "./test/support/subscribers.ts";

/** Loaded once, bundled, rather than module by module in every test file. */
const BUNDLED = [
  "hono",
  "zod",
  "drizzle-orm",
  "drizzle-orm/d1",
  "drizzle-orm/sqlite-core",
  "hono/factory",
  "hono/route",
];

/** What clients, the platform and other platforms see. */
const DOORS = ["http/**", "platform*", "ingest*"].map(
  (name) => `test/worker/doors/${name}.test.ts`,
);

/** Tests that run in workerd, with the bindings of wrangler.toml and some more. */
function inWorkerd(
  name: string,
  include: string[],
  more: { d1Databases?: Record<string, string>; bindings?: Record<string, string> } = {},
) {
  return {
    plugins: [
      cloudflareTest(async () => ({
        wrangler: { configPath: "./wrangler.toml" },
        miniflare: {
          ...more,
          bindings: {
            MIGRATIONS: await readD1Migrations("./migrations"),
            // Whatever a local .dev.vars says.
            ALLOW_LOCAL_WEBHOOKS: "false",
            WEBHOOK_ENCRYPTION_KEYS: "test:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=",
            API_KEY_CHECKSUM_KEYS: "test:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
            PORTAL_SIGNING_KEYS: "test:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=",
            PORTAL_ORIGIN: "https://api.example",
            ...more.bindings,
          },
          outboundService: answerAsSubscriber,
        },
      })),
    ],
    test: {
      name,
      include,
      globalSetup: ["./test/node/support/assets.ts"],
      setupFiles: ["./test/support/quiet.ts", "./test/support/migrate.ts"],
      // A test that hangs fails; one on a machine that others load does not.
      testTimeout: 60_000,
      hookTimeout: 60_000,
      deps: { optimizer: { ssr: { enabled: true, include: BUNDLED } } },
    },
  };
}

// Of every test file, it would say again which secrets it was given.
process.env.WRANGLER_LOG = "error";

// An error that an RPC method throws to its caller is an uncaught exception to the runtime, too.
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream);
  stream.write = ((text: string, ...rest: []) =>
    String(text).startsWith("uncaught exception") || write(text, ...rest)) as typeof write;
}

export default defineConfig({
  test: {
    // Some files wait more than they work: for leases, for limits of ten seconds.
    maxWorkers: 3,
    reporters: ["dot"],
    projects: [
      inWorkerd("worker", ["test/worker/**/*.test.ts"]),
      // The same doors where three databases are bound, and workspaces live in the second one.
      inWorkerd("databases", ["test/databases/**/*.test.ts", ...DOORS], {
        d1Databases: { DB_2: "second", DB_3: "third" },
        bindings: { HOME: "DB_2" },
      }),
      {
        test: {
          name: "node",
          include: ["test/node/**/*.test.ts"],
          globalSetup: ["./test/node/support/build.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: "long",
          include: ["test/long/**/*.test.ts"],
          globalSetup: ["./test/node/support/build.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});

import { existsSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cloudflareTest, readD1Migrations } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";
import { answerAsSubscriber } from "./test/support/subscribers.ts";

/** Loaded once, bundled, rather than module by module in every test file. */
const BUNDLED = [
  "drizzle-orm",
  "drizzle-orm/d1",
  "drizzle-orm/sqlite-core",
  "hono/factory",
  "hono/hono-base",
  "hono/route",
  "hono/router/trie-router",
  "zod",
  "zod/mini",
  "zod/v4/locales/en.js",
];

/**
 * What clients, the platform and other platforms see: of it, what reads or writes the data of
 * workspaces, or with `ALL_DOORS` everything, which takes a minute or two more.
 */
const DOORS = (
  process.env.ALL_DOORS
    ? ["http/**", "platform*", "ingest*"]
    : [
        "http/{control,leads,replicas,runs,tenants,webhooks}",
        "platform-{erasure,export,redelivery}",
        "ingest",
      ]
).map((name) => `test/worker/doors/${name}.test.ts`);

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
            MIGRATIONS: (await readD1Migrations("./migrations")).flatMap(({ queries }) => queries),
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
      // A hanging test fails; one on a busy machine does not.
      testTimeout: 60_000,
      hookTimeout: 60_000,
      deps: { optimizer: { ssr: { enabled: true, include: BUNDLED } } },
    },
  };
}

/** Tests that run in Node, on the built Worker or without it. */
function inNode(name: string, include: string[]) {
  return {
    test: {
      name,
      env: { TMPDIR: DISK },
      include,
      globalSetup: ["./test/node/support/build.ts"],
      testTimeout: 60_000,
      hookTimeout: 60_000,
    },
  };
}

// It would list the given secrets for every test file.
process.env.WRANGLER_LOG = "error";

// To the runtime, an error that an RPC method throws to its caller is also an uncaught exception.
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream);
  stream.write = ((text: string, ...rest: []) =>
    String(text).startsWith("uncaught exception") || write(text, ...rest)) as typeof write;
}

// The databases of the Worker's tests lie in memory where there is room, which a container may lack: in
// a file, each commit waits for the disk.
const MEMORY = "/dev/shm";
const DISK = tmpdir();
if (existsSync(MEMORY) && spaceIn(MEMORY) > 2 ** 31) process.env.TMPDIR = MEMORY;

function spaceIn(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

// Commands that tests start, some two hundred, read their scripts from a cache.
process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "node_modules/.cache/node");

export default defineConfig({
  test: {
    // Some files mostly wait: for holds, for timeouts of ten seconds.
    maxWorkers: 3,
    reporters: ["dot"],
    projects: [
      inWorkerd("worker", ["test/worker/**/*.test.ts"]),
      // The same doors where three databases are bound, and workspaces live in the second one.
      inWorkerd("databases", ["test/databases/**/*.test.ts", ...DOORS], {
        d1Databases: { DB_2: "second", DB_3: "third" },
        bindings: { HOME: "DB_2" },
      }),
      inNode("node", ["test/node/**/*.test.ts"]),
      inNode("long", ["test/long/**/*.test.ts"]),
    ],
  },
});

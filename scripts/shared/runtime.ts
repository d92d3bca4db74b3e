import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import type { RequestListener } from "node:http";
import { join } from "node:path";
import type { V4WorkerOptions } from "miniflare";
import { isDatabaseName } from "../../src/db/databases.ts";
import type { Platform } from "../../src/platform/entrypoint.ts";
import { makeWritable, ROOT, WRANGLER_ENV } from "./checkout.ts";
import { migrate, runOn } from "./databases.ts";
import { TEST_VARS } from "./test-settings.ts";
import { openWorkerdOutput } from "./workerd-output.ts";

const OUTDIR = join(ROOT, "dist/worker");
const BUNDLE = join(OUTDIR, "index.js");

/**
 * Builds the Worker as a deployment would, into `dist/worker`.
 *
 * @returns the bundle.
 * @throws Error with wrangler's output.
 */
export function buildWorker(): string {
  for (const folder of [OUTDIR, join(ROOT, ".wrangler")]) makeWritable(folder);
  const { status, stdout, stderr } = spawnSync(
    join(ROOT, "node_modules/.bin/wrangler"),
    ["deploy", "--env=", "--dry-run", "--outdir", OUTDIR],
    { cwd: ROOT, encoding: "utf8", env: { ...process.env, ...WRANGLER_ENV } },
  );
  if (status !== 0 || !existsSync(BUNDLE)) throw new Error(`the build failed:\n${stdout}${stderr}`);
  return BUNDLE;
}

export interface RuntimeOptions {
  /** The bundle to run; by default that of the shipped Worker. */
  bundle?: string;
  /** The folder for its storage; without one, storage ends with the process. */
  persist?: string;
  /** How many databases are bound: `DB`, `DB_2`, and so on; one when left out. */
  databases?: number;
  /** Overrides of the variables for tests. */
  vars?: Record<string, string | number>;
  /** Workers that run next to it, in Miniflare's terms. */
  beside?: V4WorkerOptions[];
  /** Compatibility flags of wrangler.toml that the Worker runs without. */
  withoutFlags?: string[];
  /** Serves static assets, such as pages and /openapi.json. Their router is one more Worker, which is slow to start. */
  assets?: boolean;
  /** Answers all requests that the Worker makes, whatever their host. */
  outbound?: RequestListener;
  /** Receives each e-mail that the Worker sends, as its headers. */
  onEmail?: (email: string) => void;
  /** Receives what the Worker prints; dropped by default. */
  onLog?: (line: string) => void;
}

/** The bindings of the Worker, as Node reaches them, and the Platform API. */
type RuntimeEnv = Env & { PLATFORM: Service<typeof Platform> };

/** The built Worker in the real runtime, without a development server in front. */
export interface Runtime {
  url: URL;
  env: RuntimeEnv;
  /** Runs the scheduled job as if it were `now`. */
  scheduled(now?: number): Promise<void>;
  stop(): Promise<void>;
}

/** The settings of the Worker in wrangler.toml, in Miniflare's terms. */
interface WorkerSettings {
  compatibilityFlags: string[];
  [setting: string]: unknown;
}

/**
 * Reads wrangler.toml for `startRuntime`, without variables, databases and secrets, which it has from elsewhere. The tests
 * read it once, into the environment variable `WORKER_SETTINGS`, because loading wrangler takes longer than starting a
 * runtime.
 */
export async function readSettings(): Promise<WorkerSettings> {
  const { unstable_getMiniflareWorkerOptions, unstable_readConfig } = await import("wrangler");
  const settings = unstable_readConfig(
    { config: join(ROOT, "wrangler.toml") },
    { hideWarnings: true },
  );
  const { workerOptions } = unstable_getMiniflareWorkerOptions({
    ...settings,
    vars: {},
    // It is at its own address.
    routes: undefined,
    d1_databases: [],
    secrets: undefined,
  });
  // The bundle is already built, so source paths and build settings are irrelevant.
  const { rootPath: _, modulesRules: __, ...others } = workerOptions;
  return others as WorkerSettings;
}

/** The `ENCRYPTION_KEYS` of these runtimes. */
export const ENCRYPTION_KEYS = "local:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
/** The `PORTAL_SIGNING_KEYS` of these runtimes. */
export const PORTAL_SIGNING_KEYS = "local:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=";

/** Starts the bundle that `buildWorker` made, with the tables of `migrations/`. */
export async function startRuntime(options: RuntimeOptions = {}): Promise<Runtime> {
  // Loaded on demand: a command that only prints its usage starts quickly.
  const { convertV4MiniflareOptions, Miniflare, NoOpLog } = await import("miniflare");
  const settings: WorkerSettings = JSON.parse(
    process.env.WORKER_SETTINGS ?? JSON.stringify(await readSettings()),
  );
  const config: Record<string, unknown> = { ...settings };
  if (!options.assets) delete config.assets;
  const { withoutFlags = [] } = options;
  config.compatibilityFlags = [
    ...settings.compatibilityFlags.filter((flag) => !withoutFlags.includes(flag)),
    // A bench's Worker tells its invocations apart.
    ...(options.bundle ? ["nodejs_als"] : []),
  ];
  const bundle = options.bundle ?? BUNDLE;
  const output = openWorkerdOutput(options.onLog);
  const log = new NoOpLog();
  // Miniflare logs e-mails instead of sending them.
  log.logWithLevel = (_level, message) => {
    if (message.includes("send_email binding called")) options.onEmail?.(message);
  };
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      workers: [
        {
          ...config,
          name: "public-api",
          d1Databases: databaseNames(options.databases ?? 1),
          // Otherwise Miniflare copies the headers of each request that the Worker makes.
          stripCfConnectingIp: false,
          modules: [{ type: "ESModule", path: bundle }],
          ...(options.outbound ? { outboundService: { node: options.outbound } } : {}),
          bindings: {
            ...TEST_VARS,
            ALLOW_LOCAL_WEBHOOKS: "true",
            ENCRYPTION_KEYS,
            API_KEY_CHECKSUM_KEYS: "local:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
            PORTAL_SIGNING_KEYS,
            PORTAL_ORIGIN: "http://localhost",
            // The local runtime has no jurisdictions.
            JURISDICTION: "",
            ...options.vars,
          },
          serviceBindings: { PLATFORM: { name: "public-api", entrypoint: "Platform" } },
        },
        ...(options.beside ?? []),
      ],
      ...(options.persist ? { resourcePersistencePath: options.persist } : {}),
      unsafeRuntimeEnv: output.env,
      log,
      // The runtime is asked for structured logs if there is a handler.
      handleStructuredLogs: () => {},
    }),
  );
  const url = await miniflare.ready.catch((error) => {
    const reason = output.errors() || error;
    output.close();
    throw new Error(`the runtime does not start: ${reason}`, { cause: error });
  });
  const env = await miniflare.getBindings<RuntimeEnv>();
  const worker = (await miniflare.getWorker()) as unknown as {
    scheduled(options: { scheduledTime: Date }): Promise<{ outcome: string }>;
  };
  const bindings = env as unknown as Record<string, D1Database>;
  await Promise.all(
    Object.keys(bindings)
      .filter(isDatabaseName)
      .map((name) => migrate(runOn(bindings[name] as D1Database))),
  );
  return {
    url,
    env,
    scheduled: async (now = Date.now()) => {
      const { outcome } = await worker.scheduled({ scheduledTime: new Date(now) });
      if (outcome !== "ok") throw new Error(`the scheduled job ended with ${outcome}`);
    },
    stop: async () => {
      await miniflare.dispose();
      output.close();
    },
  };
}

/** The bindings of databases, as wrangler.toml would have them. */
function databaseNames(count: number): string[] {
  return Array.from({ length: count }, (_, i) => (i === 0 ? "DB" : `DB_${i + 1}`));
}

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { RequestListener, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { afterEach, beforeAll, beforeEach, expect } from "vitest";
import { deploy } from "../../../scripts/deploy/deployment.ts";
import { parseOptions } from "../../../scripts/deploy/options.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import type { Runtime } from "../../../scripts/shared/runtime.ts";
import { withAbsolutePaths, withTestSettings } from "../../../scripts/shared/test-settings.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { runHere, startProgram } from "../../node/support/process.ts";
import { serve } from "../../node/support/server.ts";
import { type Cloudflare, startCloudflare } from "./cloudflare.ts";

/** A valid secret. */
const SECRET = "k1:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
/** The secrets of a Worker, as a pipeline provides them. */
export const SECRETS = {
  ENCRYPTION_KEYS: SECRET,
  API_KEY_CHECKSUM_KEYS: `c1:${Buffer.alloc(32, "c").toString("base64")}`,
  PORTAL_SIGNING_KEYS: `p1:${Buffer.alloc(32, "p").toString("base64")}`,
};
/** The secret that only `npm run deploy` sets. */
export const MARK = "CREATED_BY_NPM_RUN_DEPLOY";
/** The header in which the Worker names its version. */
const VERSION = "X-Service-Version";
/** Takes the Worker's headers from an answer, as from the page that Cloudflare serves for a Worker that throws. */
export function bare(response: ServerResponse): ServerResponse {
  for (const name of ["X-RateLimit-Limit", VERSION]) response.removeHeader(name);
  return response;
}

/** The file, in the folder of a site, with the environment of the last build that wrangler has run. */
export const BUILD_ENVIRONMENT = "build-environment.txt";
/** The queues of wrangler.toml. */
export const QUEUES = ["webhook-deliveries", "webhook-deliveries-slow", "webhook-emails"];

/** A place to deploy to: an account, and the address where the deployed Worker answers. */
export interface Site {
  cloudflare: Cloudflare;
  /** The home of the user who deploys, and the place of the configuration. */
  folder: string;
  /** Answers that replace the deployed Worker's, by path. */
  replaced: Record<string, RequestListener>;
  /** Which versions were asked for by name, in the form of the header. */
  overrides: string[];
  /** The address of the Worker. */
  address: string;
  /**
   * Replaces a text of the configuration, which names the Worker's address as PORTAL_ORIGIN, and a small Worker in
   * place of the real one: wrangler builds and uploads that more quickly.
   */
  configure(text: string, other: string): void;
  /**
   * Does what `npm run deploy` does, with the real wrangler, in this process, which need not load wrangler each time.
   * The output lacks what wrangler prints.
   */
  deploy(env?: NodeJS.ProcessEnv, ...args: string[]): Promise<Ended>;
  /** The same for a deployment that stops before it prints anything. @returns the sentence with which it stops. */
  refusal(env: NodeJS.ProcessEnv, ...args: string[]): Promise<string>;
  /** Runs `npm run deploy` to its end. */
  command(env?: NodeJS.ProcessEnv, ...args: string[]): Promise<Ended>;
  /** Starts `npm run deploy`. */
  start(env?: NodeJS.ProcessEnv, ...args: string[]): ReturnType<typeof startProgram>;
}

/** How a command ended. */
interface Ended {
  code: number | null;
  output: string;
}

/** The lines of the configuration that name the real Worker and the small one. */
const REAL_WORKER = `main = "${ROOT}/src/index.ts"`;
export const SMALL_WORKER = 'main = "worker.js"';
const SMALL_WORKER_CODE = `export class KeyGate {}
export class AddressGate {}
export default { fetch: () => new Response() };
`;

/** Gives the tests of a file a place to deploy to: each its own, or all of them one. */
export function useSite(lifetime: "test" | "file"): () => Site {
  let site: (Site & { close(): Promise<unknown> }) | undefined;
  let worker: Runtime;
  beforeAll(async () => {
    worker = await shareRuntime();
    if (lifetime === "file") site = await openSite(worker);
    return () => site?.close();
  });
  if (lifetime === "test") {
    beforeEach(async () => {
      site = await openSite(worker);
    });
    afterEach(() => site?.close());
  }
  return () => {
    if (!site) throw new Error("there is no place yet");
    return site;
  };
}

async function openSite(worker: Runtime): Promise<Site & { close(): Promise<unknown> }> {
  const cloudflare = await startCloudflare();
  const folder = mkdtempSync(join(tmpdir(), "deploy-test-"));
  const config = join(folder, "wrangler.toml");
  const replaced: Site["replaced"] = {};
  const overrides: string[] = [];
  /** The version that answers a request, which may ask for one of the deployment by name. */
  const versionFor = (override: string): string => {
    // The address serves the Worker that was added last.
    const worker = [...cloudflare.workers.values()].at(-1);
    const shares = Object.entries(worker?.deployments[0] ?? {});
    const named = shares.find(([id]) => override.endsWith(`="${id}"`));
    const serving = shares.find(([, share]) => share === 100);
    return (named ?? serving)?.[0] ?? "";
  };
  const server = await serve(async (request, response) => {
    const { url = "/", headers } = request;
    const override = String(headers["cloudflare-workers-version-overrides"] ?? "");
    if (override) overrides.push(override);
    const version = versionFor(override);
    const answer = replaced[url];
    if (answer) {
      // As all answers of the Worker.
      response.setHeader("X-RateLimit-Limit", "20");
      response.setHeader(VERSION, version);
      return answer(request, response);
    }
    // Cloudflare runs the scheduled job each minute. Other files may have used this runtime for longer without it.
    if (url === "/health") await worker.scheduled();
    const { authorization = "" } = headers;
    const real = await fetch(new URL(url, worker.url), { headers: { authorization } });
    // `fetch` has decoded the body.
    const shown = new Headers(real.headers);
    for (const name of ["content-encoding", "content-length"]) shown.delete(name);
    // The runtime here has a version of its own.
    if (shown.has(VERSION)) shown.set(VERSION, version);
    response.writeHead(real.status, Object.fromEntries(shown));
    response.end(Buffer.from(await real.arrayBuffer()));
  });

  const env = {
    PATH: [join(ROOT, "node_modules/.bin"), dirname(process.execPath), process.env.PATH].join(
      delimiter,
    ),
    HOME: folder,
    TMPDIR: folder,
    CI: "1",
    NODE_NO_WARNINGS: "1",
    NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
    ASSETS_ARE_BUILT: process.env.ASSETS_ARE_BUILT,
    WRANGLER_SEND_METRICS: "false",
    ...cloudflare.env,
  };
  const start = (words: string[], more: NodeJS.ProcessEnv = {}) =>
    startProgram([process.execPath, ...words], { env: { ...env, ...more } });
  const run = async (...call: Parameters<typeof start>) => {
    const { ended, output } = start(...call);
    const { code } = await ended;
    return { code, output: stripVTControlCharacters(output()) };
  };
  const options = (args: string[]) => ["--config", config, ...args];
  // The Worker is here, so what is wrong with it does not pass: it is asked once.
  const deployHere = (more: NodeJS.ProcessEnv, args: string[]) =>
    runHere(() =>
      deploy(parseOptions(options(args)), { ...env, WRANGLER_LOG: "none", ...more }, 1),
    );
  const deployment = (args: string[]) => [join(ROOT, "scripts/deploy/deploy.ts"), ...options(args)];
  const site: Site = {
    cloudflare,
    folder,
    replaced,
    overrides,
    address: server.url,
    configure(text, other) {
      const toml = readFileSync(config, "utf8");
      if (!toml.includes(text)) throw new Error(`the configuration has no ${text}`);
      writeFileSync(config, toml.replaceAll(text, other));
    },
    async deploy(more = SECRETS, ...args) {
      const { code, stdout, stderr } = await deployHere(more, args);
      return { code, output: stdout + stderr };
    },
    async refusal(more, ...args) {
      const { code, stdout, stderr } = await deployHere(more, args);
      expect([code, stdout, stderr]).toEqual([1, "", expect.stringMatching(/^.+\n$/)]);
      return stderr.trimEnd();
    },
    command: (more = SECRETS, ...args) => run(deployment(args), more),
    start: (more = SECRETS, ...args) => start(deployment(args), more),
  };
  const toml = withTestSettings(readFileSync(join(ROOT, "wrangler.toml"), "utf8"));
  writeFileSync(config, withAbsolutePaths(toml));
  site.configure('PORTAL_ORIGIN = ""', `PORTAL_ORIGIN = "${server.url}"`);
  site.configure(REAL_WORKER, SMALL_WORKER);
  writeFileSync(join(folder, "worker.js"), SMALL_WORKER_CODE);
  // The build also notes which environment wrangler has.
  site.configure(
    "node scripts/assets.ts",
    `env > '${join(folder, BUILD_ENVIRONMENT)}' && cd '${ROOT}' && node scripts/assets.ts`,
  );
  const close = () => {
    rmSync(folder, { recursive: true, force: true });
    return Promise.all([server.close(), cloudflare.close()]);
  };
  return Object.assign(site, { close });
}

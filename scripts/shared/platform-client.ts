import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Unstable_Config } from "wrangler";
import type {
  PlatformInput,
  PlatformMethod,
  PlatformOutput,
} from "../../src/platform/operations.ts";
import { makeWritable, ROOT, WRANGLER_ENV } from "./checkout.ts";
import { readConfig } from "./databases.ts";
import { findServer, notRunning, request } from "./local-server.ts";
import type { LocalServer } from "./local-state.ts";

/** The Platform API of the local server, or of the deployed Worker, opened from Node. */
export interface PlatformClient extends AsyncDisposable {
  /** Calls a method. @throws Error that says what is wrong, or that the server is gone. */
  call<M extends PlatformMethod>(method: M, input: PlatformInput<M>): Promise<PlatformOutput<M>>;
}

/** How long a call may take; a hundred records take less than a second. */
const CALL_TIMEOUT_MS = 60_000;

/** How wrangler says that it has no credentials. */
const NO_CREDENTIALS = /CLOUDFLARE_API_TOKEN environment variable|not logged in/i;

/** The options of a command that select whose Platform API it calls. */
export const SELECTION = {
  remote: { type: "boolean", default: false },
  env: { type: "string" },
} as const;

/**
 * Opens the platform of the local server, or, with wrangler's credentials, of the deployed Worker.
 *
 * @param options.remote opens that of the deployed Worker.
 * @param options.env opens that of an environment of the configuration.
 * @param options.configFile the configuration that names the deployed Worker.
 * @throws Error if no local server is running, or nobody is logged in.
 */
export function openPlatform({
  remote = false,
  env = undefined as string | undefined,
  configFile = join(ROOT, "wrangler.toml"),
} = {}): Promise<PlatformClient> {
  return remote || env !== undefined ? openRemote(configFile, env) : findServer().then(platformAt);
}

/** The platform of a local server, over HTTP. */
export function platformAt({ base, platformKey }: LocalServer): PlatformClient {
  const headers = { Authorization: `Bearer ${platformKey}`, "Content-Type": "application/json" };
  return {
    async call(method, input) {
      const init = { method: "POST", headers, body: JSON.stringify(input) };
      const { status, text } = await request(`${base}/platform/${method}`, init, CALL_TIMEOUT_MS);
      if (status === 200) return JSON.parse(text);
      if (status >= 500)
        throw new Error(`${method}: the local server failed: see .wrangler/start.log`);
      throw errorOf(method, status, text);
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

/** Returns the error for a response of the local server, or of another program that has its port now. */
function errorOf(method: string, status: number, text: string): Error {
  let error: { code?: string; message?: string; details?: object } | undefined;
  try {
    ({ error } = JSON.parse(text));
  } catch {}
  // The key of a running server is always valid.
  if (!error?.code || status === 401) return notRunning();
  // The message is for developers with this status, and in French with any other.
  if (status === 400) return new Error(error.message);
  const details = JSON.stringify(error.details);
  return new Error(`${method}: the local server responded ${status} ${error.code} ${details}`);
}

/** Writes the configuration of a Worker that calls the Platform API of a deployed one. @returns the file. */
function writeClientConfig({ name: worker, account_id }: Unstable_Config): string {
  const folder = join(ROOT, ".wrangler");
  makeWritable(folder);
  const file = join(folder, `platform-client-${worker}.json`);
  const service = { binding: "PLATFORM", service: worker, entrypoint: "Platform", remote: true };
  const config = {
    name: "platform-client",
    ...(account_id && { account_id }),
    compatibility_date: "2026-10-20",
    services: [service],
  };
  writeFileSync(file, JSON.stringify(config));
  return file;
}

/** Opens that of a deployed Worker, through a Worker of wrangler's that calls it. */
async function openRemote(configFile: string, env: string | undefined): Promise<PlatformClient> {
  // wrangler's progress messages would be mixed with the output.
  Object.assign(process.env, WRANGLER_ENV, { WRANGLER_LOG: "error" });
  const config = await readConfig(configFile, env);
  const { getPlatformProxy } = await import("wrangler");
  const proxy = await getPlatformProxy<{
    PLATFORM: Record<PlatformMethod, (input: unknown) => Promise<unknown>>;
  }>({
    configPath: writeClientConfig(config),
    envFiles: [],
    persist: false,
    remoteBindings: true,
  }).catch((error: unknown) => {
    if (!(error instanceof Error && NO_CREDENTIALS.test(error.message))) throw error;
    throw new Error(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  });
  return {
    // The output arrives as a proxy, whose JSON has the values.
    call: async (method, input) =>
      JSON.parse(JSON.stringify(await proxy.env.PLATFORM[method](input))),
    [Symbol.asyncDispose]: () => proxy.dispose(),
  };
}

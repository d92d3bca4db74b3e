import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import type { Unstable_Config } from "wrangler";
import type {
  PlatformInput,
  PlatformMethod,
  PlatformOutput,
} from "../../src/platform/operations.ts";
import { makeWritable, ROOT, WRANGLER_ENV } from "./checkout.ts";
import { readConfig } from "./databases.ts";

/** The Platform API of the local server, or of the deployed Worker, opened from Node. */
export interface PlatformClient extends AsyncDisposable {
  /** Calls a method. @throws Error that says what is wrong, or that the server is gone. */
  call<M extends PlatformMethod>(method: M, input: PlatformInput<M>): Promise<PlatformOutput<M>>;
}

/** The runtime's messages for a server that was never registered, or is gone. */
const NO_SERVER = /Make sure it is running locally|Network connection lost/;

/** How long it may take to find a running server. */
const FIND_SERVER_MAX_MS = 2_000;
/** How long the server may take to respond to the first call, which is cheap. */
const PROBE_TIMEOUT_MS = 5_000;
/** How long a call may take; a hundred records take less than a second. */
const CALL_TIMEOUT_MS = 60_000;

/** How wrangler says that it has no credentials. */
const NO_CREDENTIALS = /CLOUDFLARE_API_TOKEN environment variable|not logged in/i;

/**
 * A Worker that relays calls: as a Worker, it reaches what other Workers on this machine offer and,
 * unlike a proxy in Node, allows concurrent calls.
 */
const RELAY = `export default {
  async fetch(request, env) {
    const { token, method, input } = await request.json();
    if (token !== env.TOKEN) return new Response(null, { status: 403 });
    try {
      return Response.json({ answer: await env.PLATFORM[method](input) });
    } catch (error) {
      return Response.json({ error: error.message });
    }
  },
};`;

/** The options of a command that select whose Platform API it calls. */
export const SELECTION = {
  remote: { type: "boolean", default: false },
  env: { type: "string" },
} as const;

/**
 * Opens the platform of the local server, or, with wrangler's credentials, of the deployed Worker.
 *
 * @param options.remote opens that of the deployed Worker.
 * @param options.env opens that of an environment of wrangler.toml.
 * @param options.timeoutMs how long it may take to find a local server.
 * @throws Error if no local server is running, or nobody is logged in.
 */
export function openPlatform({
  remote = false,
  env = undefined as string | undefined,
  timeoutMs = FIND_SERVER_MAX_MS,
} = {}): Promise<PlatformClient> {
  // wrangler's progress messages would be mixed with the output.
  Object.assign(process.env, WRANGLER_ENV, { WRANGLER_LOG: "error" });
  return remote || env !== undefined ? openRemote(env) : openLocal(timeoutMs);
}

async function openLocal(timeoutMs: number): Promise<PlatformClient> {
  const { convertV4MiniflareOptions, Miniflare } = await import("miniflare");
  makeWritable(WRANGLER_ENV.WRANGLER_REGISTRY_PATH);
  const token = randomUUID();
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      name: "platform-client",
      modules: true,
      script: RELAY,
      compatibilityDate: "2026-10-20",
      bindings: { TOKEN: token },
      serviceBindings: { PLATFORM: { name: "public-api", entrypoint: "Platform" } },
      unsafeDevRegistryPath: WRANGLER_ENV.WRANGLER_REGISTRY_PATH,
    }),
  );
  const url = await miniflare.ready;
  const relay = async (method: string, input: unknown, timeoutMs = CALL_TIMEOUT_MS) => {
    const body = JSON.stringify({ token, method, input });
    // A server that was stopped or is stuck still accepts connections.
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      const answer = await fetch(url, { method: "POST", body, signal });
      return (await answer.json()) as { answer: never; error?: string };
    } catch (error) {
      if (!signal.aborted) throw error;
      await miniflare.dispose();
      throw new Error(
        "The local server does not respond: stop it, and start it again with `npm start`.",
      );
    }
  };
  // A server that has just started is found a moment later. The probe is a known method: an unknown
  // one would leave an error in its log each time.
  const late = performance.now() + timeoutMs;
  while (NO_SERVER.test((await relay("listWorkspaces", {}, PROBE_TIMEOUT_MS)).error ?? "")) {
    if (performance.now() > late) {
      await miniflare.dispose();
      throw noServer();
    }
    await setTimeout(100);
  }
  return {
    call: async (method, input) => {
      const { answer, error } = await relay(method, input);
      if (error === undefined) return answer;
      throw NO_SERVER.test(error) ? noServer() : new Error(error);
    },
    [Symbol.asyncDispose]: () => miniflare.dispose(),
  };
}

function noServer(): Error {
  return new Error("The local server is not running: start it with `npm start`.");
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

async function openRemote(env: string | undefined): Promise<PlatformClient> {
  const config = await readConfig(join(ROOT, "wrangler.toml"), env);
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

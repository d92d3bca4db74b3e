import { join } from "node:path";
import type { PlatformInput, PlatformMethod } from "../src/contract/platform.ts";
import type { Platform } from "../src/platform.ts";
import { ROOT, WRANGLER_ENV } from "./checkout.ts";

/** The Platform door of the local server, or of the deployed Worker, opened from Node. */
export interface PlatformDoor extends AsyncDisposable {
  /** Calls a method. @throws Error that says what is wrong, or that no server runs. */
  call<M extends PlatformMethod>(
    method: M,
    input: PlatformInput<M>,
  ): Promise<Awaited<ReturnType<Platform[M]>>>;
}

/** How the runtime says that nobody answers at the other end: never registered, or gone. */
const NO_SERVER = /Make sure it is running locally|Network connection lost/;

/** How wrangler says that it has no credentials. */
const NO_CREDENTIALS = /CLOUDFLARE_API_TOKEN environment variable|not logged in/i;

/**
 * Opens the door; the local server is looked for at each call. `remote` opens that of the deployed
 * Worker, with the credentials of wrangler.
 */
export async function openPlatformDoor({ remote = false } = {}): Promise<PlatformDoor> {
  // What wrangler tells of its progress would stand among the answers.
  Object.assign(process.env, WRANGLER_ENV, { WRANGLER_LOG: "error" });
  const proxy = await openProxy(remote);
  return {
    call: async (method, input) => {
      try {
        // A proxy of the answer arrives; its JSON is the answer.
        return JSON.parse(JSON.stringify(await proxy.env.PLATFORM[method](input)));
      } catch (error) {
        if (remote || !(error instanceof Error && NO_SERVER.test(error.message))) throw error;
        throw new Error("The local server does not run: start it with `npm start`.");
      }
    },
    [Symbol.asyncDispose]: () => proxy.dispose(),
  };
}

async function openProxy(remote: boolean) {
  const { getPlatformProxy } = await import("wrangler");
  try {
    return await getPlatformProxy<{
      PLATFORM: Record<PlatformMethod, (input: unknown) => Promise<unknown>>;
    }>({
      configPath: join(ROOT, "scripts/platform-door.toml"),
      envFiles: [],
      persist: false,
      remoteBindings: remote,
      ...(remote ? { environment: "remote" } : {}),
    });
  } catch (error) {
    if (!(error instanceof Error && NO_CREDENTIALS.test(error.message))) throw error;
    throw new Error(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  }
}

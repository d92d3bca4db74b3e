import { join } from "node:path";
import type { PlatformInput, PlatformMethod } from "../src/contract/platform.ts";
import type { Platform } from "../src/platform.ts";
import { ROOT, WRANGLER_ENV } from "./checkout.ts";

/** The Platform door of the local server, opened from Node. */
export interface PlatformDoor extends AsyncDisposable {
  /** Calls a method. @throws Error that says what is wrong, or that no server runs. */
  call<M extends PlatformMethod>(
    method: M,
    input: PlatformInput<M>,
  ): Promise<Awaited<ReturnType<Platform[M]>>>;
}

/** How the runtime says that nobody answers at the other end: never registered, or gone. */
const NO_SERVER = /Make sure it is running locally|Network connection lost/;

/** Opens the door; the server is looked for at each call. */
export async function openPlatformDoor(): Promise<PlatformDoor> {
  Object.assign(process.env, WRANGLER_ENV);
  const { getPlatformProxy } = await import("wrangler");
  const proxy = await getPlatformProxy<{
    PLATFORM: Record<PlatformMethod, (input: unknown) => Promise<unknown>>;
  }>({
    configPath: join(ROOT, "scripts/platform-door.toml"),
    envFiles: [],
    persist: false,
    remoteBindings: false,
  });
  return {
    call: async (method, input) => {
      try {
        // A proxy of the answer arrives; its JSON is the answer.
        return JSON.parse(JSON.stringify(await proxy.env.PLATFORM[method](input)));
      } catch (error) {
        if (!(error instanceof Error && NO_SERVER.test(error.message))) throw error;
        throw new Error("The local server does not run: start it with `npm start`.");
      }
    },
    [Symbol.asyncDispose]: () => proxy.dispose(),
  };
}

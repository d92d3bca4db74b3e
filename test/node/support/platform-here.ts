import type { PlatformClient } from "../../../scripts/shared/platform-client.ts";
import type { Runtime } from "../../../scripts/shared/runtime.ts";

/** The Platform API of a runtime, as commands have it, without a server in between. */
export function platformOf({ env: { PLATFORM } }: Runtime): PlatformClient {
  const methods = PLATFORM as unknown as Record<string, (input: unknown) => Promise<unknown>>;
  return {
    // The output arrives as a proxy, whose JSON has the values.
    call: async (method, input) => JSON.parse(JSON.stringify(await methods[method]?.(input))),
    [Symbol.asyncDispose]: async () => {},
  };
}

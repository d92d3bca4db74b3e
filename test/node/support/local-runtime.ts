import { join } from "node:path";
import { writeServer } from "../../../scripts/shared/local-state.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { makeSecret } from "../../../scripts/shared/secrets.ts";

const PLATFORM_KEY = makeSecret("local");
let shared: Promise<Runtime> | undefined;

/**
 * Returns the runtime of all files of tests, in one of Vitest's workers, that need no settings of their own. Starting one
 * takes longer than many of these files. It ends with the worker.
 */
export function shareRuntime(): Promise<Runtime> {
  // Files that let a key be refused are not to refuse the keys of others.
  const vars = { AUTH_FAILURES: 1_000_000, PLATFORM_KEYS: PLATFORM_KEY };
  shared ??= startRuntime({ assets: true, vars });
  return shared;
}

/** The file in `folder` that names a server. Commands find the server if `LOCAL_SERVER_FILE` names the file. */
export const serverFileIn = (folder: string) => join(folder, "server.json");

/** Lets commands find the shared runtime, as they find that of `npm start`. */
export async function shareWithCommands(folder: string): Promise<Runtime> {
  const runtime = await shareRuntime();
  writeServer({ base: runtime.url.origin, platformKey: PLATFORM_KEY }, serverFileIn(folder));
  return runtime;
}

import { join } from "node:path";
import { writeServer } from "../../../scripts/shared/local-state.ts";
import {
  type Runtime,
  type RuntimeOptions,
  startRuntime,
} from "../../../scripts/shared/runtime.ts";
import { makeSecret } from "../../../scripts/shared/secrets.ts";

/** The file of a runtime's server in `folder`. Commands find the server if `LOCAL_SERVER_FILE` names it. */
export const serverFileIn = (folder: string) => join(folder, "server.json");

/** Starts a runtime that commands find, as they find that of `npm start`. */
export async function startLocalRuntime(
  folder: string,
  options: RuntimeOptions = {},
): Promise<Runtime> {
  const platformKey = makeSecret("local");
  const vars = { ...options.vars, PLATFORM_KEYS: platformKey };
  const runtime = await startRuntime({ ...options, vars });
  writeServer({ base: runtime.url.origin, platformKey }, serverFileIn(folder));
  return runtime;
}

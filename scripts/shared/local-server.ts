import { join } from "node:path";
import { ROOT } from "./checkout.ts";
import { findHolder } from "./folder-hold.ts";
import { readState } from "./local-state.ts";

/** The running local server, and the key of its sample workspace. */
export interface LocalServer {
  /** Its address, such as `http://localhost:8787`. */
  base: string;
  workspaceId: string;
  apiKey: string;
}

/** Finds the server started by `npm start`. @throws Error if none is running or it is not ready. */
export async function findLocalServer(): Promise<LocalServer> {
  const base = await findHolder(join(ROOT, ".wrangler"));
  if (base === null) throw new Error("The local server is not running: start it with `npm start`.");
  const state = readState();
  if (!state?.apiKey) throw new Error("The local server is not ready yet: try again in a moment.");
  return { base, workspaceId: state.workspaceId, apiKey: state.apiKey };
}

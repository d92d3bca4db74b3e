import { readState } from "./local-state.ts";
import { isTaken } from "./ports.ts";

/** The running local server, and the key of its sample workspace. */
export interface LocalServer {
  /** Its base URL, such as `http://localhost:8787`. */
  base: string;
  workspaceId: string;
  apiKey: string;
}

/** Finds the server started by `npm start`. @throws Error if none is running or it is not ready. */
export async function findLocalServer(): Promise<LocalServer> {
  const state = readState();
  if (state === null || !(await isTaken(Number(new URL(state.base).port))))
    throw new Error("The local server is not running: start it with `npm start`.");
  const { base, workspaceId, apiKey } = state;
  if (!apiKey) throw new Error("The local server is not ready yet: try again in a moment.");
  return { base, workspaceId, apiKey };
}

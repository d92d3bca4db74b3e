import { type LocalServer, readServer, readState } from "./local-state.ts";

/** How long the server may take to show that it responds. */
const HEALTH_TIMEOUT_MS = 10_000;

/** The sample workspace of the running local server, and its key. */
export interface SampleWorkspace {
  /** The base URL of the server, such as `http://localhost:8787`. */
  base: string;
  workspaceId: string;
  apiKey: string;
}

/** Finds the server that `npm start` runs. @throws Error in one sentence if it does not run or respond. */
export async function findServer(): Promise<LocalServer> {
  const server = readServer();
  if (server === null) throw notRunning();
  await request(`${server.base}/health`, {}, HEALTH_TIMEOUT_MS);
  return server;
}

/** Finds the sample workspace of the running server. @throws Error like `findServer`, or if it is not ready. */
export async function findSampleWorkspace(): Promise<SampleWorkspace> {
  const { base } = await findServer();
  const { workspaceId, apiKey = null } = readState() ?? {};
  if (!workspaceId || !apiKey)
    throw new Error("The local server is not ready yet: try again in a moment.");
  return { base, workspaceId, apiKey };
}

/**
 * Makes a request to the local server, and reads its response.
 *
 * @throws Error in one sentence if it does not run, or has not responded after `timeoutMs`.
 */
export async function request(
  url: string,
  init: RequestInit,
  timeoutMs: number,
): Promise<{ status: number; text: string }> {
  // A server that is stuck still accepts connections.
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const response = await fetch(url, { ...init, signal });
    return { status: response.status, text: await response.text() };
  } catch {
    if (!signal.aborted) throw notRunning();
    throw new Error(
      "The local server does not respond: stop it, and start it again with `npm start`.",
    );
  }
}

export function notRunning(): Error {
  return new Error("The local server is not running: start it with `npm start`.");
}

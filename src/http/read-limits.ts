import { createMiddleware } from "hono/factory";
import { PAGE_LIMIT, READ_MAX_MS } from "../contract/limits.ts";
import { sleep, withTimeout } from "../primitives/timing.ts";
import { DatabaseUnreachable } from "../workspaces/placement.ts";
import { confirmAccess } from "./authentication.ts";
import type { AppEnv } from "./context.ts";

/** The error of a read that took too long. */
export class SlowRead extends DatabaseUnreachable {}

/**
 * Responds to a read that takes too long with an error, after which its client may repeat it. The route goes on, but its
 * response is dropped. A write is not ended, because its client must learn whether it has happened.
 */
export const endSlowReads = createMiddleware<AppEnv>(async (c, next) => {
  if (c.req.method !== "GET" && c.req.method !== "HEAD") return next();
  await withTimeout(READ_MAX_MS, next(), () => {
    throw new SlowRead("the read took too long");
  });
});

/**
 * Maximum rows of lists that an isolate reads at once, for all its requests. An isolate has 128 MB, and a page of a
 * hundred of the largest leads takes up to 8 MB while it is decrypted, so six of them fit alongside everything else. A
 * page of 25 ordinary leads takes less than 1 MB.
 */
export const ROWS_IN_FLIGHT_MAX = 600;
/** Maximum rows of one workspace among them, so that its reads leave room for those of the others. */
export const WORKSPACE_ROWS_MAX = ROWS_IN_FLIGHT_MAX / 2;

/** How often a request checks whether its rows can be read. */
const POLL_MS = 5;

interface Reservation {
  workspaceId: string;
  rows: number;
  /** When it expires, in Unix milliseconds. */
  until: number;
}

const reservations = new Set<Reservation>();

/**
 * Bounds the memory that the lists of all requests take at once. The rows of a page are reserved before they are read,
 * and released when the response is made. A request whose rows do not fit waits.
 */
export const limitRowsInFlight = createMiddleware<AppEnv>(async (c, next) => {
  const limit = Number(c.req.query("limit") ?? PAGE_LIMIT.default);
  // It runs before the validation, which rejects any other limit.
  const rows = limit >= PAGE_LIMIT.min && limit <= PAGE_LIMIT.max ? limit : PAGE_LIMIT.default;
  // The authentication has set the workspace, even if the key's gate has not decided yet.
  const workspaceId = c.get("workspaceId");
  // It polls, because the runtime lets no request wait for the promise of another.
  let hasWaited = false;
  for (dropExpired(); !hasRoom(workspaceId, rows); dropExpired()) {
    hasWaited = true;
    await sleep(POLL_MS);
  }
  const reservation: Reservation = { workspaceId, rows, until: Date.now() + READ_MAX_MS };
  reservations.add(reservation);
  const handle = async () => {
    // Access may have ended during the wait.
    if (hasWaited) await confirmAccess(c);
    await next();
  };
  const handled = handle().finally(() => reservations.delete(reservation));
  // Without this, the runtime would stop here if the client hangs up, and the rows would stay reserved.
  c.executionCtx.waitUntil(handled.catch(() => {}));
  await handled;
});

/** Releases the rows of requests that have not released them in time. */
function dropExpired(): void {
  const now = Date.now();
  for (const reservation of reservations)
    if (now >= reservation.until) reservations.delete(reservation);
}

/** Whether a workspace may read so many rows now. */
function hasRoom(workspaceId: string, rows: number): boolean {
  let [all, own] = [rows, rows];
  for (const reservation of reservations) {
    all += reservation.rows;
    if (reservation.workspaceId === workspaceId) own += reservation.rows;
  }
  return all <= ROWS_IN_FLIGHT_MAX && own <= WORKSPACE_ROWS_MAX;
}

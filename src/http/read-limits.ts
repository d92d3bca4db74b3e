import { createMiddleware } from "hono/factory";
import { PAGE_LIMIT, READ_MAX_MS } from "../contract/limits.ts";
import { sleep, withTimeout } from "../primitives/timing.ts";
import { DatabaseUnreachable } from "../workspaces/placement.ts";
import { confirmAccess } from "./authentication.ts";
import type { AppEnv } from "./context.ts";

/**
 * Responds to a read that takes too long with an error, after which its client may repeat it. The route goes on, but its
 * response is dropped. A write is not ended, because its client must learn whether it has happened.
 */
export const endSlowReads = createMiddleware<AppEnv>(async (c, next) => {
  if (c.req.method !== "GET" && c.req.method !== "HEAD") return next();
  await withTimeout(READ_MAX_MS, next(), () => {
    throw new DatabaseUnreachable("the read took too long");
  });
});

/**
 * Maximum rows of lists that an isolate reads at once, for all its requests. An isolate has 128 MB, and a page of a
 * hundred of the largest leads takes up to 8 MB while it is decrypted, so six of them fit alongside everything else. A
 * page of 25 ordinary leads takes less than 1 MB.
 */
export const ROWS_IN_FLIGHT_MAX = 600;
/**
 * Maximum rows of one workspace among them, so that its reads leave room for those of the others. If more than two
 * workspaces read or wait, the maximum of each is an equal share, or one page if that is more.
 */
export const WORKSPACE_ROWS_MAX = ROWS_IN_FLIGHT_MAX / 2;

/**
 * The delay before a request checks again whether its rows can be read. It grows from `first` to `last`, because hundreds
 * of requests that check every few milliseconds would leave no time for anything else.
 */
const POLL_MS = { first: 5, last: 50 } as const;
/** How long a workspace counts as waiting after such a check. A busy isolate may make the next one late. */
const WAITING_MS = 1_000;

interface Reservation {
  workspaceId: string;
  rows: number;
  /** When it expires, in Unix milliseconds. */
  until: number;
}

const reservations = new Set<Reservation>();
/**
 * The workspaces with requests that wait, each with the time until which that counts, in Unix milliseconds. The requests
 * are not counted, because the runtime stops one without notice if its client hangs up.
 */
const waiting = new Map<string, number>();

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
  const { reservation, hasWaited } = await reserve(workspaceId, rows);
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

/**
 * Reserves the rows of a request, once there is room for them. It polls, because the runtime lets no request wait for the
 * promise of another.
 *
 * @throws DatabaseUnreachable once `endSlowReads` has responded to the client.
 */
async function reserve(workspaceId: string, rows: number) {
  const startedAt = Date.now();
  for (let hasWaited = false; ; hasWaited = true) {
    const now = Date.now();
    const waitedMs = now - startedAt;
    if (waitedMs > READ_MAX_MS) throw new DatabaseUnreachable("the read has waited for too long");
    dropExpired(now);
    if (hasRoom(workspaceId, rows)) {
      const reservation: Reservation = { workspaceId, rows, until: now + READ_MAX_MS };
      reservations.add(reservation);
      // Other requests of the workspace that wait set it again.
      waiting.delete(workspaceId);
      return { reservation, hasWaited };
    }
    waiting.set(workspaceId, now + WAITING_MS);
    await sleep(Math.min(POLL_MS.last, Math.max(POLL_MS.first, waitedMs / 10)));
  }
}

/** Releases the rows of requests that have not released them in time, and forgets workspaces that no longer wait. */
function dropExpired(now: number): void {
  for (const reservation of reservations)
    if (now >= reservation.until) reservations.delete(reservation);
  for (const [workspaceId, until] of waiting) if (now >= until) waiting.delete(workspaceId);
}

/** Whether a workspace may read so many rows now. */
function hasRoom(workspaceId: string, rows: number): boolean {
  let [all, own] = [rows, rows];
  const workspaces = new Set(waiting.keys()).add(workspaceId);
  for (const reservation of reservations) {
    all += reservation.rows;
    workspaces.add(reservation.workspaceId);
    if (reservation.workspaceId === workspaceId) own += reservation.rows;
  }
  const share = Math.min(WORKSPACE_ROWS_MAX, ROWS_IN_FLIGHT_MAX / workspaces.size);
  return all <= ROWS_IN_FLIGHT_MAX && (own <= share || own === rows);
}

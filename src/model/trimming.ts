import { sql } from "drizzle-orm";
import { eventIdAt } from "../contract/ids.ts";
import { CLEANUP_MAX, SIZE_SLACK_MS, TRIM_PENDING_MAX } from "../contract/limits.ts";
import { commit, type Database, inOrder, retrying, write } from "../db/client.ts";
import { events, workspaces } from "../db/schema.ts";
import { exhaustEvents } from "./deliveries.ts";
import { EVENT_BYTES, type Measured, measureNext } from "./event-size.ts";
import { expire, OF_EVENT } from "./retention.ts";
import { readPosition, writePosition } from "./sweep-positions.ts";

interface Workspace extends Measured {
  /** Up to this event, the last trim has found and left nothing but pending ones. */
  trimmedTo: string;
}

/** What a trim has come to. */
export interface Trimmed {
  /** Events. */
  deleted: number;
  /** Workspaces whose events still take too much, most of it pending, and how many bytes they take. */
  overBound: { workspaceId: string; bytes: number }[];
}

/** Workspaces that are found in one query. */
const WORKSPACES_AT_ONCE = 50;
const PART = "trimming";

/**
 * The most that the events of one workspace may take, in bytes, as the deployment sets it.
 *
 * @throws Error when the variable is not a number of megabytes.
 */
export function readEventsMaxBytes(env: Env): number {
  const megabytes = Number(env.WORKSPACE_EVENTS_MAX_MB);
  if (!(megabytes > 0)) throw new Error("WORKSPACE_EVENTS_MAX_MB is not a number of megabytes");
  return megabytes * 1_000_000;
}

/**
 * Measures new events, and deletes the oldest settled ones of each workspace whose events take more
 * than `maxBytes`, until there are no more or `mayGoOn` says no; the next call goes on from there.
 * What is pending counts, and stays until all of it takes twice as much: then the oldest is given up.
 */
export async function trimEvents(
  db: Database,
  maxBytes: number,
  now: number,
  mayGoOn: () => boolean,
): Promise<Trimmed> {
  const before = eventIdAt(now - SIZE_SLACK_MS);
  const trimmed: Trimmed = { deleted: 0, overBound: [] };
  let position = await readPosition(db, PART);
  while (mayGoOn()) {
    const found = await findWorkspaces(db, position, before, maxBytes);
    for (const workspace of found) {
      // One that takes all the time there is has it again when all others have had theirs.
      position = workspace.id;
      const { deleted, excess } = await trimWorkspace(
        db,
        workspace,
        before,
        maxBytes,
        now,
        mayGoOn,
      );
      trimmed.deleted += deleted;
      if (!mayGoOn()) break;
      if (excess > 0) trimmed.overBound.push({ workspaceId: position, bytes: maxBytes + excess });
    }
    if (found.length < WORKSPACES_AT_ONCE && mayGoOn()) {
      position = "";
      break;
    }
  }
  await writePosition(db, PART, position);
  return trimmed;
}

/** Workspaces behind `position` with events that have not been measured, or with too many. */
function findWorkspaces(db: Database, position: string, before: string, maxBytes: number) {
  return retrying(() =>
    db.all<Workspace>(sql`
    SELECT w.id AS id, w.sized_to AS sizedTo, w.sized_bytes AS sizedBytes, w.trimmed_to AS trimmedTo
    FROM ${workspaces} AS w
    WHERE w.id > ${position} AND (w.sized_bytes > ${maxBytes} OR EXISTS (SELECT 1 FROM ${events} AS e
      WHERE e.workspace_id = w.id AND e.id > w.sized_to AND e.id < ${before}))
    ORDER BY w.id LIMIT ${WORKSPACES_AT_ONCE}`),
  );
}

async function trimWorkspace(
  db: Database,
  { trimmedTo, ...workspace }: Workspace,
  before: string,
  maxBytes: number,
  now: number,
  mayGoOn: () => boolean,
): Promise<{ deleted: number; excess: number }> {
  let measured: Measured = workspace;
  while (mayGoOn()) {
    const next = await measureNext(db, measured, before);
    if (!next) break;
    measured = next;
  }
  let excess = measured.sizedBytes - maxBytes;
  let deleted = 0;
  let after = "";
  for (let passed = 0; excess > 0 && passed < TRIM_PENDING_MAX && mayGoOn(); ) {
    const oldest = await readOldest(db, measured, after);
    const isLast = oldest.length < CLEANUP_MAX;
    const settled = oldest.filter(({ isPending }) => isPending === 0);
    const going = takeUntil(settled, excess);
    after = (going.length < settled.length ? going : oldest).at(-1)?.id ?? after;
    // Past what was only pending when it was looked at last.
    if (going.length === 0 && trimmedTo > after) after = trimmedTo;
    const expired = going.map(({ id }) => ({ workspaceId: measured.id, id, expiresAt: now }));
    const mark = write(sql`UPDATE ${workspaces} SET trimmed_to = ${isLast ? "" : after}
      WHERE id = ${measured.id} AND trimmed_to <> ${isLast ? "" : after}`);
    deleted += await expire(db, expired, now, mark);
    excess -= going.reduce((sum, { bytes }) => sum + bytes, 0);
    passed += oldest.length - settled.length;
    if (isLast) break;
  }
  // As much again may be pending.
  if (excess > maxBytes) await giveUpOldest(db, measured, excess - maxBytes, now, mayGoOn);
  return { deleted, excess };
}

/** Ends what is pending of the oldest events that take `bytes`; the next trim finds them settled. */
async function giveUpOldest(
  db: Database,
  workspace: Measured,
  bytes: number,
  now: number,
  mayGoOn: () => boolean,
): Promise<void> {
  let left = bytes;
  for (let after = ""; left > 0 && mayGoOn(); ) {
    const oldest = await readOldest(db, workspace, after);
    const last = oldest.at(-1);
    if (!last) return;
    after = last.id;
    const ending = takeUntil(
      oldest.filter(({ isPending }) => isPending === 1),
      left,
    );
    left -= ending.reduce((sum, event) => sum + event.bytes, 0);
    const ids = ending.map(({ id }) => id);
    const again = write(sql`UPDATE ${workspaces} SET trimmed_to = ''
      WHERE id = ${workspace.id} AND changes() > 0`);
    if (ids.length > 0) await commit(db, inOrder([exhaustEvents(workspace.id, ids, now), again]));
  }
}

interface KeptEvent {
  id: string;
  bytes: number;
  isPending: 0 | 1;
}

/** The oldest events behind `after` that have been measured. */
function readOldest(db: Database, { id, sizedTo }: Measured, after: string) {
  return retrying(() =>
    db.all<KeptEvent>(sql`
    SELECT e.id AS id, ${EVENT_BYTES} AS bytes, EXISTS (
      SELECT 1 ${OF_EVENT} AND d.state = 'pending') AS isPending
    FROM ${events} AS e
    WHERE e.workspace_id = ${id} AND e.id > ${after} AND e.id <= ${sizedTo}
    ORDER BY e.id LIMIT ${CLEANUP_MAX}`),
  );
}

/** As many of the events, from the first on, as take `bytes`. */
function takeUntil(kept: KeptEvent[], bytes: number): KeptEvent[] {
  let sum = 0;
  const end = kept.findIndex((event) => {
    sum += event.bytes;
    return sum >= bytes;
  });
  return end === -1 ? kept : kept.slice(0, end + 1);
}

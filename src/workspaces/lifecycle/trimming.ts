import { and, eq, exists, gt, lt, lte, ne, or, sql } from "drizzle-orm";
import { eventIdAt } from "../../contract/ids.ts";
import { qb } from "../../db/builder.ts";
import { CLEANUP_MAX, commit, type Database, inOrder } from "../../db/client.ts";
import { deliveries, events, workspaces } from "../../db/schema.ts";
import { exhaustEvents } from "../../webhooks/endings.ts";
import { type Measured, measureNext, WHOLE_BYTES } from "../../webhooks/event-size.ts";
import { expire, OF_EVENT } from "./retention.ts";
import { roundRobin } from "./round-robin.ts";

/** Age at which an event is measured: by then all older ones are committed. */
export const SIZE_SLACK_MS = 120_000;
/** Maximum pending events per workspace that one sweep skips while looking for settled ones. */
export const TRIM_PENDING_MAX = 10_000;

/** A workspace, and the event up to which the last trim left only pending ones. */
type Workspace = Measured & Pick<typeof workspaces.$inferSelect, "trimmedTo">;

export interface Trimmed {
  deleted: number;
  /** Workspaces whose events, mostly pending, still exceed the limit, and their size in bytes. */
  overBound: { workspaceId: string; bytes: number }[];
}

/**
 * Parses the deployment's limit on the events of one workspace, in bytes.
 *
 * @throws Error if the variable is not a number of megabytes.
 */
export function parseEventsMaxBytes(env: Env): number {
  const megabytes = Number(env.WORKSPACE_EVENTS_MAX_MB);
  if (!(megabytes > 0)) throw new Error("WORKSPACE_EVENTS_MAX_MB is not a number of megabytes");
  return megabytes * 1_000_000;
}

/**
 * Measures new events, then deletes the oldest settled events of each workspace that exceeds
 * `maxBytes`, until none does or `hasTime` returns false; the next call continues. Pending events count
 * but are kept, until the total reaches twice the limit: then the oldest are given up.
 */
export async function trimEvents(
  db: Database,
  maxBytes: number,
  now: number,
  hasTime: () => boolean,
): Promise<Trimmed> {
  const before = eventIdAt(now - SIZE_SLACK_MS);
  const trimmed: Trimmed = { deleted: 0, overBound: [] };
  const { id, sizedTo, sizedBytes } = workspaces;
  const unmeasured = qb
    .select({ id: events.id })
    .from(events)
    .where(and(eq(events.workspaceId, id), gt(events.id, sizedTo), lt(events.id, before)));
  const trim = async (workspace: Workspace) => {
    const { deleted, excess } = await trimWorkspace(db, workspace, before, maxBytes, now, hasTime);
    trimmed.deleted += deleted;
    if (excess > 0 && hasTime())
      trimmed.overBound.push({ workspaceId: workspace.id, bytes: maxBytes + excess });
  };
  const needsIt = or(gt(sizedBytes, maxBytes), exists(unmeasured));
  await roundRobin(db, "trimming", needsIt, trim, hasTime);
  return trimmed;
}

async function trimWorkspace(
  db: Database,
  { trimmedTo, ...workspace }: Workspace,
  before: string,
  maxBytes: number,
  now: number,
  hasTime: () => boolean,
): Promise<{ deleted: number; excess: number }> {
  let measured: Measured = workspace;
  while (hasTime()) {
    const next = await measureNext(db, measured, before);
    if (!next) break;
    measured = next;
  }
  let excess = measured.sizedBytes - maxBytes;
  let deleted = 0;
  let after = "";
  for (let passed = 0; excess > 0 && passed < TRIM_PENDING_MAX && hasTime(); ) {
    const oldest = await listOldest(db, measured, after);
    const isLast = oldest.length < CLEANUP_MAX;
    const settled = oldest.filter(({ isPending }) => !isPending);
    const going = takeUntil(settled, excess);
    after = (going.length < settled.length ? going : oldest).at(-1)?.id ?? after;
    // Skip what was entirely pending the last time.
    if (going.length === 0 && trimmedTo > after) after = trimmedTo;
    const expired = going.map(({ id }) => ({ workspaceId: measured.id, id, expiresAt: now }));
    const reached = isLast ? "" : after;
    const mark = qb
      .update(workspaces)
      .set({ trimmedTo: reached })
      .where(and(eq(workspaces.id, measured.id), ne(workspaces.trimmedTo, reached)));
    deleted += await expire(db, expired, now, mark);
    excess -= going.reduce((sum, { bytes }) => sum + bytes, 0);
    passed += oldest.length - settled.length;
    if (isLast) break;
  }
  // Pending events may take as much again.
  if (excess > maxBytes) await giveUpOldest(db, measured, excess - maxBytes, now, hasTime);
  return { deleted, excess };
}

/** Exhausts pending deliveries of the oldest events, `bytes` in total: the next trim deletes them. */
async function giveUpOldest(
  db: Database,
  workspace: Measured,
  bytes: number,
  now: number,
  hasTime: () => boolean,
): Promise<void> {
  let left = bytes;
  for (let after = ""; left > 0 && hasTime(); ) {
    const oldest = await listOldest(db, workspace, after);
    const last = oldest.at(-1);
    if (!last) return;
    after = last.id;
    const ending = takeUntil(
      oldest.filter(({ isPending }) => isPending),
      left,
    );
    left -= ending.reduce((sum, event) => sum + event.bytes, 0);
    const ids = ending.map(({ id }) => id);
    const again = qb
      .update(workspaces)
      .set({ trimmedTo: "" })
      .where(and(eq(workspaces.id, workspace.id), sql`changes() > 0`));
    if (ids.length > 0) await commit(db, inOrder([exhaustEvents(workspace.id, ids, now), again]));
  }
}

interface MeasuredEvent {
  id: string;
  bytes: number;
  isPending: boolean;
}

/** The oldest measured events after `after`. */
async function listOldest(
  db: Database,
  { id, sizedTo }: Measured,
  after: string,
): Promise<MeasuredEvent[]> {
  return db
    .select({
      id: events.id,
      bytes: sql<number>`${WHOLE_BYTES}`,
      isPending: sql`EXISTS (SELECT 1 ${OF_EVENT} AND ${deliveries.state} = 'pending')`.mapWith(
        Boolean,
      ),
    })
    .from(events)
    .where(and(eq(events.workspaceId, id), gt(events.id, after), lte(events.id, sizedTo)))
    .orderBy(events.id)
    .limit(CLEANUP_MAX);
}

/** The first events that together take `bytes`. */
function takeUntil(kept: MeasuredEvent[], bytes: number): MeasuredEvent[] {
  let sum = 0;
  const end = kept.findIndex((event) => {
    sum += event.bytes;
    return sum >= bytes;
  });
  return end === -1 ? kept : kept.slice(0, end + 1);
}

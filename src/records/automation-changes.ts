import { type SQL, sql } from "drizzle-orm";
import type { AutomationStatus } from "../contract/enumerations.ts";
import { excluded, fromJson, insertFrom, mapColumns, qb } from "../db/builder.ts";
import { commit, type Database, inOrder, readAs, type Statements } from "../db/client.ts";
import { automations, runs } from "../db/schema.ts";
import { selectDue } from "../delivery/due.ts";
import type { WakeUp } from "../delivery/messages.ts";
import { announce, draftEvent } from "../events/outbox.ts";
import { LAST_MS } from "../primitives/text.ts";
import {
  type AutomationRow,
  findAutomation,
  shows,
  toAutomation,
  type Visibility,
} from "./automations.ts";

/*
 * How a stored automation changes. A client changes it with `controlAutomation`, the platform with its reports
 * (recording/automations.ts). Both use the same decision, `decideChange`, and the same transaction, `storeChanges`.
 */

/** The statuses between which a client may switch an automation. A change to one of them is an event. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];
type ControllableStatus = (typeof CONTROLLABLE)[number];

function isControllable(status: AutomationStatus): status is ControllableStatus {
  return status === "active" || status === "paused";
}

export type Control =
  | { result: "done"; row: AutomationRow; wakeUps: WakeUp[] }
  | { result: "not_found" }
  | { result: "not_controllable"; status: AutomationStatus };

/** Maximum tries. If 50 clients change the automation at once, one of them succeeds in each try. */
const TRIES = 50;

/**
 * Pauses or activates an automation and announces it, unless it already has that status (optimistic concurrency
 * control). If several clients change it at once, one succeeds and the others read the automation again. Each try
 * takes the time anew, so that times follow the order of the changes. After a lost reply, the next try finds the
 * change already made.
 */
export async function controlAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  id: string,
  status: ControllableStatus,
  clock: () => number,
): Promise<Control> {
  // These outlive a failed try. If its reply was lost, it has stored the change, and the next try finds nothing to do.
  let wakeUps: WakeUp[] = [];
  for (let tries = 0; tries < TRIES; tries++) {
    const row = await findAutomation(db, workspaceId, visibility, id);
    if (!row) return { result: "not_found" };
    if (!isControllable(row.status)) return { result: "not_controllable", status: row.status };
    const now = clock();
    // The change has no time of its own, so that it applies whatever the time of the stored automation.
    const change = decideChange(row, { ...row, status, updatedAt: null }, now);
    if (!change) return { result: "done", row, wakeUps };
    const written = await commit(db, {
      isStored: storeChanges(workspaceId, [change], visibility, now),
      wakeUps: selectDue(workspaceId, now),
    });
    wakeUps = written.wakeUps;
    if (written.isStored) return { result: "done", row: change.after, wakeUps };
  }
  throw new Error("other calls changed the automation during every try");
}

/** The fields of an automation that a change may set, besides its times. */
const CHANGEABLE = [
  "reference",
  "type",
  "provider",
  "agentId",
  "agentName",
  "name",
  "status",
] as const satisfies (keyof AutomationRow)[];

/** An automation as the platform reports it, or as a client wants it to be. */
export interface WantedAutomation extends Pick<AutomationRow, (typeof CHANGEABLE)[number]> {
  id: string;
  workspaceId: string;
  /** When the automation changed; null if that is not known. */
  updatedAt: number | null;
}

/** A change of an automation. */
export interface AutomationChange {
  /** The automation before the change, as it was read; null if there was none. */
  before: AutomationRow | null;
  after: AutomationRow;
  /** Whether it is new in the API: there was none, or it had been removed. */
  isNew: boolean;
}

/**
 * Decides what changes (the last write wins). A wanted automation that is older than the stored one changes nothing.
 * If two different ones have the same time, the one that arrives later wins. One without a time always applies. It is
 * dated later than the stored automation, so that no older report overrides it.
 *
 * @param now Unix milliseconds.
 * @returns null if nothing changes.
 */
export function decideChange(
  before: AutomationRow | null,
  { updatedAt, ...wanted }: WantedAutomation,
  now: number,
): AutomationChange | null {
  const later = before === null ? now : Math.min(Math.max(now, before.updatedAt + 1), LAST_MS);
  if (before === null || before.removedAt !== null) {
    const after = { ...wanted, updatedAt: updatedAt ?? later, createdAt: now, removedAt: null };
    return { before, after, isNew: true };
  }
  const isSame = CHANGEABLE.every((name) => before[name] === wanted[name]);
  if (updatedAt !== null && updatedAt < before.updatedAt) return null;
  if (isSame && (updatedAt === null || updatedAt === before.updatedAt)) return null;
  return { before, after: { ...before, ...wanted, updatedAt: updatedAt ?? later }, isNew: false };
}

/** Whether a change is an event: an automation that the API shows was activated or paused. */
function isAnnounced({ before, after, isNew }: AutomationChange, visibility: Visibility): boolean {
  return (
    !isNew &&
    before?.status !== after.status &&
    isControllable(after.status) &&
    shows(visibility, after.type)
  );
}

const STORED = [
  ...CHANGEABLE,
  "updatedAt",
  "createdAt",
  "removedAt",
] as const satisfies (keyof AutomationRow)[];

/**
 * Stores and announces either all changes or none. Reads false if one of the automations has changed since it was
 * read; nothing is written then.
 *
 * @param now Unix milliseconds.
 */
export function storeChanges(
  workspaceId: string,
  changes: AutomationChange[],
  visibility: Visibility,
  now: number,
): Statements<boolean> {
  const isUnchanged = areUnchanged(changes);
  const drafts = changes
    .filter((change) => isAnnounced(change, visibility))
    .map(({ after }) => draftEvent("automation.status_changed", toAutomation(after), now));
  const rows = JSON.stringify(changes.map(({ after }) => after));
  const statements = inOrder({
    found: qb.all<{ isUnchanged: number }>(sql`SELECT ${isUnchanged} AS isUnchanged`),
    // Announced before any row is written, while the condition still holds.
    events: announce(workspaceId, "automation.status_changed", drafts, isUnchanged, now),
    // One statement for all rows, because the condition no longer holds once a row is written. 100 reports fit into it.
    written: insertFrom(
      automations,
      mapColumns(automations, ["id", "workspaceId", ...STORED], fromJson("r")),
      sql`FROM json_each(${rows}) AS r WHERE ${isUnchanged}`,
    ).onConflictDoUpdate({
      target: automations.id,
      set: mapColumns(automations, STORED, excluded),
    }),
  });
  return readAs(statements, ({ found: [row] }) => row?.isUnchanged === 1);
}

/**
 * SQL condition: `stored` is a removed automation that still has runs. Its runs are deleted before it comes back
 * (recording/automations.ts), but a call at the same time may have recorded another one.
 */
const HAS_EARLIER_RUNS = sql`(stored.removed_at IS NOT NULL
  AND EXISTS (SELECT 1 FROM ${runs} WHERE ${runs.automationId} = stored.id))`;

/**
 * SQL condition: each automation is still stored as it was read, or is still not stored, and has no earlier runs. It
 * compares the columns from which one can tell that another call has written the row.
 */
function areUnchanged(changes: AutomationChange[]): SQL {
  const asRead = changes.map(({ before, after }) => ({
    id: after.id,
    status: before?.status,
    updatedAt: before?.updatedAt,
    createdAt: before?.createdAt,
    removedAt: before?.removedAt,
  }));
  return sql`NOT EXISTS (SELECT 1 FROM json_each(${JSON.stringify(asRead)}) AS read
    LEFT JOIN ${automations} AS stored ON stored.id = read.value->>'id'
    WHERE stored.status IS NOT read.value->>'status' OR stored.updated_at IS NOT read.value->>'updatedAt'
      OR stored.created_at IS NOT read.value->>'createdAt' OR stored.removed_at IS NOT read.value->>'removedAt'
      OR ${HAS_EARLIER_RUNS})`;
}

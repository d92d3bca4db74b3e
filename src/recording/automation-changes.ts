import { type SQL, sql } from "drizzle-orm";
import type { AutomationStatus } from "../contract/enumerations.ts";
import { ApiError } from "../contract/errors.ts";
import { newEventIds } from "../contract/ids.ts";
import {
  excluded,
  fromJson,
  insertFrom,
  mapColumns,
  omitColumns,
  unqualified,
} from "../db/builder.ts";
import { combine, commit, counted, type Database, readAs, type Statements } from "../db/client.ts";
import { TemporaryError } from "../db/errors.ts";
import { automations } from "../db/schema.ts";
import { selectWakeUps, type WakeUp } from "../delivery/wake.ts";
import { announce, draftEvent } from "../events/outbox.ts";
import { type AutomationRow, findAutomation, toAutomation } from "../records/automations.ts";

/*
 * How a stored automation changes. A client changes it with `controlAutomation`, the platform with its reports
 * (automation-recording.ts). Both use the same transaction, `storeChanges`.
 */

/** The statuses between which a client may switch an automation. A change to one of them is an event. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];
type ControllableStatus = (typeof CONTROLLABLE)[number];

export function isControllable(status: AutomationStatus): status is ControllableStatus {
  return CONTROLLABLE.some((each) => each === status);
}

/**
 * The result of a write that changed nothing, because another call has changed an automation since it was read
 * (optimistic concurrency control).
 */
export type Conflict = "conflict";

/**
 * Maximum tries of a change: enough for 50 calls that change one automation at once, of which each round of tries lets one
 * through.
 */
export const CONFLICT_TRIES = 50;

/**
 * Pauses or activates an automation and announces it, unless it already has that status. If several clients change it
 * at once, one succeeds, and the others read the automation again. Each try takes the time anew, so that the events follow
 * the order of the changes. If a reply is lost and another client changes the status back, the change is made once more.
 *
 * @throws ApiError `automation_not_found` or `automation_not_controllable`.
 */
export async function controlAutomation(
  db: Database,
  workspaceId: string,
  id: string,
  status: ControllableStatus,
  clock: () => number = Date.now,
): Promise<{ row: AutomationRow; wakeUps: WakeUp[] }> {
  for (let tries = 0; tries < CONFLICT_TRIES; tries++) {
    const before = await findAutomation(db, workspaceId, id);
    if (!before) throw new ApiError("automation_not_found");
    if (!isControllable(before.status))
      throw new ApiError("automation_not_controllable", { status: before.status });
    // If the reply of the last commit was lost, the database client has repeated it, and the repetition has read a conflict. The
    // change is stored then, and the scheduled job wakes the subscriptions.
    if (before.status === status) return { row: before, wakeUps: [] };
    const now = clock();
    const changedAt = timeAfter(before, now);
    // The change also counts as a report, so that an older report does not undo it.
    const after = { ...before, status, updatedAt: changedAt, reportedAt: changedAt };
    const { outcome, wakeUps } = await commit(db, {
      outcome: storeChanges(workspaceId, [{ before, after }], [after], now),
      // It follows, so that it sees the new deliveries.
      wakeUps: selectWakeUps(workspaceId, now),
    });
    if (outcome !== "conflict") return { row: after, wakeUps };
  }
  throw new TemporaryError("other calls changed the automation during every try");
}

/**
 * Returns the time of a change that is made now: later than all times of the stored automation, whatever clocks say. Its
 * `removedAt` is null unless a report brings a removed one back.
 */
export function timeAfter(
  { updatedAt, reportedAt, removedAt }: AutomationRow,
  now: number,
): number {
  return Math.max(now, updatedAt + 1, reportedAt + 1, (removedAt ?? 0) + 1);
}

/** A change of an automation. */
export interface AutomationChange {
  /** The automation as it was read; null if there was none. */
  before: AutomationRow | null;
  /** The automation as it is to be stored. */
  after: AutomationRow;
}

/** The columns of an automation that a change stores, besides its ids. */
const STORED = Object.keys(omitColumns(automations, "id", "workspaceId")) as Exclude<
  keyof AutomationRow,
  "id" | "workspaceId"
>[];

/**
 * Stores all changes and announces new statuses, or does neither. Reads a conflict if one of the automations has changed
 * since it was read; nothing is written then.
 *
 * @param changes at most one of each automation.
 * @param announced automations with a new status, in the order of their events.
 * @param now Unix milliseconds.
 */
export function storeChanges(
  workspaceId: string,
  changes: AutomationChange[],
  announced: AutomationRow[],
  now: number,
): Statements<"stored" | Conflict> {
  const isUnchanged = areUnchanged(changes);
  const eventIds = newEventIds(announced.length, now);
  const drafts = announced.map((row, i) =>
    draftEvent("automation.status_changed", toAutomation(row), now, eventIds[i]),
  );
  // One parameter has room for the 100 automations that a call of the platform reports.
  const rows = JSON.stringify(changes.map(({ after }) => after));
  // Both parts have the same condition, so either all changes are stored or none. Writing a row makes the condition
  // false, so the write comes last and is one statement.
  const statements = combine({
    events:
      drafts.length > 0
        ? announce(workspaceId, "automation.status_changed", drafts, () => isUnchanged, now)
        : undefined,
    written: counted(
      insertFrom(
        automations,
        mapColumns(automations, ["id", "workspaceId", ...STORED], fromJson("r")),
        sql`FROM json_each(${rows}) AS r WHERE ${isUnchanged}`,
      ).onConflictDoUpdate({
        target: automations.id,
        set: mapColumns(automations, STORED, excluded),
      }),
    ),
  });
  return readAs(statements, ({ written }) => (written === changes.length ? "stored" : "conflict"));
}

/**
 * SQL condition: each automation is still stored as it was read, or is still not stored. Every stored column is
 * compared, because the write replaces them all. Of an automation that was not stored, `read` has only the id, and the
 * join finds nothing, so all columns are null on both sides.
 */
function areUnchanged(changes: AutomationChange[]): SQL {
  const asRead = changes.map(({ before, after }) => ({ ...before, id: after.id }));
  const fromRead = fromJson("read");
  const differences = mapColumns(
    automations,
    STORED,
    (column, name) => sql`stored.${unqualified(column)} IS NOT ${fromRead(column, name)}`,
  );
  return sql`NOT EXISTS (SELECT 1 FROM json_each(${JSON.stringify(asRead)}) AS read
    LEFT JOIN ${automations} AS stored ON stored.id = read.value->>'id'
    WHERE ${sql.join(Object.values(differences), sql` OR `)})`;
}

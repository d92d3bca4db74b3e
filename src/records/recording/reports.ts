import { type SQL, sql } from "drizzle-orm";
import { excluded, fromJson, insertFrom, mapColumns, qb } from "../../db/builder.ts";
import { insertEach, readAs, type Statements, transaction } from "../../db/client.ts";
import { automations, runs } from "../../db/schema.ts";
import { announce, draftEvent } from "../../events/outbox.ts";
import { LAST_MS } from "../../primitives/text.ts";
import { type AutomationRow, shows, toAutomation, type Visibility } from "../automations.ts";

/** The fields of an automation that a report sets. */
const REPORTED = [
  "reference",
  "type",
  "provider",
  "agentId",
  "agentName",
  "name",
  "status",
] as const satisfies (keyof AutomationRow)[];

/** An automation as the platform reports it, or as a client wants it to be. */
export interface ReportedAutomation extends Pick<AutomationRow, (typeof REPORTED)[number]> {
  id: string;
  workspaceId: string;
  /** When the report says that the automation changed; null if it does not say. */
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
 * Decides what a report changes (the last write wins). A report that is older than the stored automation changes
 * nothing. If two different reports have the same time, the one that arrives later wins. A report without a time
 * always applies. It is dated later than the stored automation, so that no older report overrides it.
 *
 * @param now Unix milliseconds.
 * @returns null if the report changes nothing.
 */
export function applyReport(
  before: AutomationRow | null,
  { updatedAt, ...report }: ReportedAutomation,
  now: number,
): AutomationChange | null {
  const later = before === null ? now : Math.min(Math.max(now, before.updatedAt + 1), LAST_MS);
  if (before === null || before.removedAt !== null) {
    const after = { ...report, updatedAt: updatedAt ?? later, createdAt: now, removedAt: null };
    return { before, after, isNew: true };
  }
  const isSame = REPORTED.every((name) => before[name] === report[name]);
  if (updatedAt === null ? isSame : updatedAt < before.updatedAt) return null;
  if (isSame && updatedAt === before.updatedAt) return null;
  return { before, after: { ...before, ...report, updatedAt: updatedAt ?? later }, isNew: false };
}

/** Whether a change is an event: an automation that the API shows was activated or paused. */
function isAnnounced({ before, after, isNew }: AutomationChange, visibility: Visibility): boolean {
  return (
    !isNew &&
    before?.status !== after.status &&
    (after.status === "active" || after.status === "paused") &&
    shows(visibility, after.type)
  );
}

const STORED = [
  ...REPORTED,
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
  const isCurrent = areAs(changes.map(({ before, after }) => ({ id: after.id, row: before })));
  // A large call takes two statements, and the second one finds the rows that the first one has changed.
  const isCurrentOrStored = sql`(${isCurrent} OR ${areAs(changes.map(({ after }) => ({ id: after.id, row: after })))})`;
  const drafts = changes
    .filter((change) => isAnnounced(change, visibility))
    .map(({ after }) => draftEvent("automation.status_changed", toAutomation(after), now));
  const rows = changes.map(({ after }) => after);
  const statements = transaction({
    found: qb.all<{ isCurrent: number }>(sql`SELECT ${isCurrent} AS isCurrent`),
    events: announce(workspaceId, "automation.status_changed", drafts, isCurrent, now),
    written: insertEach(rows, (chunk) =>
      insertFrom(
        automations,
        mapColumns(automations, ["id", "workspaceId", ...STORED], fromJson("r")),
        sql`FROM json_each(${chunk}) AS r WHERE ${isCurrentOrStored}`,
      ).onConflictDoUpdate({
        target: automations.id,
        set: mapColumns(automations, STORED, excluded),
      }),
    ),
  });
  return readAs(statements, ({ found: [row] }) => row?.isCurrent === 1);
}

/** SQL condition: each automation is stored as its `row`, or is not stored if `row` is null. */
function areAs(expected: { id: string; row: AutomationRow | null }[]): SQL {
  const rows = expected.map(({ id, row }) => ({
    id,
    status: row?.status,
    updatedAt: row?.updatedAt,
    createdAt: row?.createdAt,
    removedAt: row?.removedAt,
  }));
  return sql`NOT EXISTS (SELECT 1 FROM json_each(${JSON.stringify(rows)}) AS e
    LEFT JOIN ${automations} AS stored ON stored.id = e.value->>'id'
    WHERE stored.status IS NOT e.value->>'status' OR stored.updated_at IS NOT e.value->>'updatedAt'
      OR stored.created_at IS NOT e.value->>'createdAt' OR stored.removed_at IS NOT e.value->>'removedAt'
      OR stored.removed_at IS NOT NULL AND EXISTS (SELECT 1 FROM ${runs} WHERE ${runs.automationId} = stored.id))`;
}

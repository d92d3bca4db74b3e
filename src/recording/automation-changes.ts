import { type SQL, sql } from "drizzle-orm";
import type { AutomationStatus } from "../contract/enumerations.ts";
import { newEventIds } from "../contract/ids.ts";
import { excluded, fromJson, insertFrom, mapColumns, qb, unqualified } from "../db/builder.ts";
import { combine, commit, type Database, query, readAs, type Statements } from "../db/client.ts";
import { automations } from "../db/schema.ts";
import { selectWakeUps, type WakeUp } from "../delivery/wake.ts";
import { announce, draftEvent } from "../events/outbox.ts";
import { type AutomationRow, findAutomation, toAutomation } from "../records/automations.ts";

/*
 * How a stored automation changes. A client changes it with `controlAutomation`, the platform with its reports
 * (recording/automation-recording.ts). Both use the same decision, `decideChange`, and the same transaction, `storeChanges`.
 */

/** The statuses between which a client may switch an automation. A change to one of them is an event. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];
type ControllableStatus = (typeof CONTROLLABLE)[number];

function isControllable(status: AutomationStatus): status is ControllableStatus {
  return CONTROLLABLE.some((each) => each === status);
}

export type Control =
  | { result: "done"; row: AutomationRow; wakeUps: WakeUp[] }
  | { result: "not_found" }
  | { result: "not_controllable"; status: AutomationStatus };

/**
 * The result of a write that changed nothing, because another call has changed an automation since it was read
 * (optimistic concurrency control).
 */
export type Conflict = "conflict";

/** Maximum tries of a change. If 50 calls change an automation at once, one of them succeeds in each try. */
export const CONFLICT_TRIES = 50;

/**
 * Pauses or activates an automation and announces it, unless it already has that status. If several clients change it
 * at once, one succeeds, and the others read the automation again. Each try takes the time anew, so that times follow
 * the order of the changes.
 */
export async function controlAutomation(
  db: Database,
  workspaceId: string,
  id: string,
  status: ControllableStatus,
  clock: () => number,
): Promise<Control> {
  for (let tries = 0; tries < CONFLICT_TRIES; tries++) {
    const row = await findAutomation(db, workspaceId, id);
    if (!row) return { result: "not_found" };
    if (!isControllable(row.status)) return { result: "not_controllable", status: row.status };
    const now = clock();
    const wanted = { ...changeableOf(row), id, workspaceId, status, reportedAt: "latest" as const };
    const change = decideChange(row, wanted, now);
    if (!change) {
      // The automation already has the status. After a conflict, this call itself may have set it: if the reply to a
      // commit is lost, the database client repeats the commit, and that finds the automation changed. The wake-up
      // messages of the first commit are still to be sent, so they are read here.
      const wakeUps = tries > 0 ? await query(db, selectWakeUps(workspaceId, now)) : [];
      return { result: "done", row, wakeUps };
    }
    const { outcome, wakeUps } = await commit(db, {
      outcome: storeChanges(workspaceId, [change], now),
      wakeUps: selectWakeUps(workspaceId, now),
    });
    if (outcome !== "conflict") return { result: "done", row: change.after, wakeUps };
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
type Changeable = Pick<AutomationRow, (typeof CHANGEABLE)[number]>;

function changeableOf(row: AutomationRow): Changeable {
  return Object.fromEntries(CHANGEABLE.map((name) => [name, row[name]])) as Changeable;
}

/** An automation as the platform reports it, or as a client wants it to be. */
export interface WantedAutomation extends Changeable {
  id: string;
  workspaceId: string;
  /**
   * When the automation changed, in Unix milliseconds. A change that is older than the last one does not apply. One with
   * `latest` applies in any case, and is dated later than the stored automation.
   */
  reportedAt: number | "latest";
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
 * Decides what changes (the last write wins). A wanted automation that is older than the last change changes nothing.
 * A removal counts as a change, so that a late report from before it brings no automation back.
 *
 * If two different reports have the same time, the one that arrives later wins. Its `updatedAt` is a millisecond later,
 * because clients keep the later one of two copies. One with `latest` is dated later than the stored automation, so
 * that no older report overrides it.
 *
 * A change by a client has `latest`, and its automation is stored and not removed. So it has two results only: the status
 * changes, or nothing does.
 *
 * @param now Unix milliseconds.
 * @returns null if nothing changes.
 */
export function decideChange(
  before: AutomationRow | null,
  { reportedAt: given, ...wanted }: WantedAutomation,
  now: number,
): AutomationChange | null {
  // The automation is new.
  if (before === null) {
    const at = given === "latest" ? now : given;
    return { before, after: toNew(wanted, at, at, now), isNew: true };
  }
  const { updatedAt, removedAt } = before;
  const lastAt = Math.max(before.reportedAt, removedAt ?? before.reportedAt);
  const reportedAt = given === "latest" ? Math.max(now, updatedAt + 1, lastAt + 1) : given;
  // The report is out of date.
  if (reportedAt < lastAt) return null;
  const laterAt = Math.max(reportedAt, updatedAt + 1);
  // The automation was removed, and is back.
  if (removedAt !== null)
    return { before, after: toNew(wanted, reportedAt, laterAt, now), isNew: true };
  // One of its fields changes.
  if (!isSame(before, wanted))
    return {
      before,
      after: { ...before, ...wanted, reportedAt, updatedAt: laterAt },
      isNew: false,
    };
  // Only the time of the report may be new.
  if (given === "latest" || reportedAt === before.reportedAt) return null;
  const after = { ...before, reportedAt, updatedAt: Math.max(reportedAt, updatedAt) };
  return { before, after, isNew: false };
}

function toNew(
  wanted: Omit<WantedAutomation, "reportedAt">,
  reportedAt: number,
  updatedAt: number,
  createdAt: number,
): AutomationRow {
  return { ...wanted, reportedAt, updatedAt, createdAt, removedAt: null };
}

/** Whether two reports say the same, apart from their times. */
export function isSame(a: Changeable, b: Changeable): boolean {
  return CHANGEABLE.every((name) => a[name] === b[name]);
}

/** Whether a change is an event: an automation that the API showed before was activated or paused. */
function isAnnounced({ before, after, isNew }: AutomationChange): boolean {
  return !isNew && before?.status !== after.status && isControllable(after.status);
}

const STORED = [
  ...CHANGEABLE,
  "updatedAt",
  "reportedAt",
  "createdAt",
  "removedAt",
] as const satisfies (keyof AutomationRow)[];

/**
 * Stores and announces either all changes or none. Reads a conflict if one of the automations has changed since it
 * was read; nothing is written then.
 *
 * @param changes in the order in which they are announced. Those of one automation follow from each other, so the first
 *   has the automation as it was read, and the last one is stored.
 * @param now Unix milliseconds.
 */
export function storeChanges(
  workspaceId: string,
  changes: AutomationChange[],
  now: number,
): Statements<"stored" | Conflict> {
  const byId = [...Map.groupBy(changes, ({ after }) => after.id).values()];
  const isUnchanged = areUnchanged(byId.flatMap((ofOne) => ofOne.at(0) ?? []));
  const announced = changes.filter(isAnnounced);
  const eventIds = newEventIds(announced.length, now);
  const drafts = announced.map(({ after }, i) =>
    draftEvent("automation.status_changed", toAutomation(after), now, eventIds[i]),
  );
  const rows = JSON.stringify(byId.map((ofOne) => ofOne.at(-1)?.after));
  // All three parts have one condition, so either all changes are stored or none. It no longer holds once a row is
  // written, so the write comes last, and is one statement, into which 100 reports fit.
  const statements = combine({
    found: qb.all<{ isUnchanged: number }>(sql`SELECT ${isUnchanged} AS isUnchanged`),
    events: announce(workspaceId, "automation.status_changed", drafts, () => isUnchanged, now),
    written: insertFrom(
      automations,
      mapColumns(automations, ["id", "workspaceId", ...STORED], fromJson("r")),
      sql`FROM json_each(${rows}) AS r WHERE ${isUnchanged}`,
    ).onConflictDoUpdate({
      target: automations.id,
      set: mapColumns(automations, STORED, excluded),
    }),
  });
  return readAs(statements, ({ found: [row] }) => (row?.isUnchanged === 1 ? "stored" : "conflict"));
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

import { z } from "@hono/zod-openapi";
import { AutomationStatus, AutomationType } from "../contract/enumerations.ts";
import { AutomationId, several, WorkspaceId } from "../contract/fields.ts";
import { derivedId } from "../contract/ids.ts";
import { InputError } from "../contract/input.ts";
import { isServed } from "../contract/served.ts";
import { type Database, query, readAs } from "../db/client.ts";
import { TemporaryError } from "../db/errors.ts";
import { Name, Reference } from "../primitives/text.ts";
import { timeBudget } from "../primitives/timing.ts";
import { type AutomationRow, selectStoredAutomations } from "../records/automations.ts";
import { deleteRemovedRuns, markAutomationsRemoved } from "../records/removals.ts";
import {
  type AutomationChange,
  type Conflict,
  isControllable,
  storeChanges,
  timeAfter,
} from "./automation-changes.ts";
import {
  Agent,
  AHEAD,
  type CallContext,
  type RecordingPlan,
  ReportedTime,
  reports,
} from "./record.ts";
import { findReferenced } from "./references.ts";

const AutomationReport = z
  .strictObject({
    reference: Reference.describe("your own id; reporting it again updates the automation"),
    type: AutomationType,
    provider: Name.describe("the connector, such as facebook"),
    agent: Agent,
    name: Name.nullish().describe("for crm_source only; social automations get a composed name"),
    status: AutomationStatus,
    updatedAt: ReportedTime.nullish().describe(`default: now. ${AHEAD}`),
  })
  .refine(({ type, name }) => type !== "crm_source" || name, {
    path: ["name"],
    message: "required for a crm_source automation",
  });
type AutomationReport = z.output<typeof AutomationReport>;

/** The input of `recordAutomations`. */
export const AutomationRecording = z.strictObject({
  workspaceId: WorkspaceId,
  automations: reports(AutomationReport),
});

/** The input of `removeAutomations`. */
export const AutomationRemoval = z.strictObject({
  workspaceId: WorkspaceId,
  ids: several(AutomationId).describe("aut_…"),
});

/** How long a call may delete the runs that automations had before they were removed. */
const DELETING_MS = 20_000;

const NOT_SERVED =
  "crm_source is not served: this deployment records no such automation unless SERVED_ROUTES lists automations.crm_source";

/**
 * Plans a call that inserts or updates automations, and announces activations and pauses. Its statements read a conflict
 * if another call changes one of the automations after this has read it. The call must be planned again then.
 */
export async function planAutomations(
  { workspaceId, automations }: z.output<typeof AutomationRecording>,
  { env, db, now }: CallContext,
): Promise<RecordingPlan<number | Conflict>> {
  const unserved = automations.findIndex(({ type }) => type === "crm_source");
  if (unserved >= 0 && !isServed(env.SERVED_ROUTES, "automations.crm_source"))
    throw new InputError(["automations", unserved, "type"], NOT_SERVED);
  const reported = await Promise.all(
    automations.map((automation) => toWanted(workspaceId, automation)),
  );
  const stored = await findWithoutRemovedRuns(
    db,
    workspaceId,
    reported.map(({ id }) => id),
  );
  const changes = decideChanges(stored, reported, now);
  const changed = changes.filter(({ isNew }) => isNew).length;
  return {
    ids: reported.map(({ id }) => id),
    statements: readAs(
      storeChanges(
        workspaceId,
        toLast(stored, changes),
        changes.filter(isAnnounced).map(({ after }) => after),
        now,
      ),
      (result) => (result === "stored" ? changed : result),
    ),
    // If another call changed an automation after a first try, a second try would change it back without an event.
    isIdempotent: false,
  };
}

/**
 * Reads the stored automations among these, by id. Deletes the runs of removed ones first, because an automation that
 * is recorded again must come back without its old runs.
 *
 * @throws TemporaryError if deleting takes too long. The platform repeats the call, which continues.
 */
async function findWithoutRemovedRuns(
  db: Database,
  workspaceId: string,
  ids: string[],
): Promise<Map<string, AutomationRow>> {
  const toMap = (rows: AutomationRow[]) => new Map(rows.map((row) => [row.id, row]));
  const found = await query(db, selectStoredAutomations(ids));
  const removed = found.filter(({ removedAt }) => removedAt !== null).map(({ id }) => id);
  if (removed.length === 0) return toMap(found);
  if (!(await deleteRemovedRuns(db, workspaceId, removed, timeBudget(DELETING_MS))))
    throw new TemporaryError("the runs of a removed automation are still being deleted: try again");
  return toMap(await query(db, selectStoredAutomations(ids)));
}

/** The beginning of a social automation's name, before the name of its agent. */
const KIND_LABELS: Record<Exclude<AutomationType, "crm_source">, string> = {
  social_comments: "Réponse aux commentaires",
  social_story: "Réponse aux stories",
  social_messages: "Réponse aux messages",
  lead_ads: "Réponse aux formulaires publicitaires",
};

/** The fields of an automation that a report may change, besides its times. */
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

/** An automation as the platform reports it. */
export interface WantedAutomation extends Changeable {
  id: string;
  workspaceId: string;
  /**
   * When the automation changed, in Unix milliseconds. A change that is older than the last one does not apply. One with
   * `latest` applies in any case, and is dated later than the stored automation.
   */
  reportedAt: number | "latest";
}

/** Makes the fields of a reported automation; the name of a social one is composed. */
async function toWanted(
  workspaceId: string,
  { agent, name, updatedAt, ...report }: AutomationReport,
): Promise<WantedAutomation> {
  return {
    ...report,
    workspaceId,
    id: await derivedId("automation", workspaceId, report.reference),
    agentId: await derivedId("agent", workspaceId, agent.reference),
    agentName: agent.name,
    name:
      report.type === "crm_source" ? (name ?? "") : `${KIND_LABELS[report.type]} – ${agent.name}`,
    reportedAt: updatedAt ?? "latest",
  };
}

/** A change by one report. Those of one automation follow from each other. */
interface ReportedChange extends AutomationChange {
  /** Whether it is new in the API: there was none, or it had been removed. */
  isNew: boolean;
}

/** Whether a change is an event: an automation that the API showed before was activated or paused. */
function isAnnounced({ before, after, isNew }: ReportedChange): boolean {
  return !isNew && before?.status !== after.status && isControllable(after.status);
}

/** Returns one change of each automation: from how it is stored to what its last report has made of it. */
function toLast(
  stored: ReadonlyMap<string, AutomationRow>,
  changes: ReportedChange[],
): AutomationChange[] {
  const last = new Map(changes.map(({ after }) => [after.id, after]));
  return [...last.values()].map((after) => ({ before: stored.get(after.id) ?? null, after }));
}

/**
 * Decides the changes of a call, report by report, as if each had come in a call of its own. They are sorted by time,
 * because a queue of the platform may hand over what it has in any order. Reports with the same time keep their order,
 * and those without a time come last.
 */
function decideChanges(
  stored: ReadonlyMap<string, AutomationRow>,
  reported: WantedAutomation[],
  now: number,
): ReportedChange[] {
  const current = new Map(stored);
  return reported
    .toSorted((a, b) => timeOf(a) - timeOf(b))
    .filter((report, _, sorted) => !isRepeated(stored.get(report.id), report, sorted))
    .flatMap((report) => {
      const change = decideChange(current.get(report.id) ?? null, report, now);
      if (change) current.set(report.id, change.after);
      return change ?? [];
    });
}

/**
 * Decides what changes (the last write wins). A wanted automation that is older than the last change changes nothing.
 * A removal counts as a change, so that a late report from before it brings no automation back.
 *
 * If two different reports have the same time, the one that arrives later wins. Its `updatedAt` is a millisecond later,
 * because clients keep the later one of two copies. One with `latest` is dated later than the stored automation, so
 * that no older report overrides it.
 *
 * @param now Unix milliseconds.
 * @returns null if nothing changes.
 */
export function decideChange(
  before: AutomationRow | null,
  { reportedAt: given, ...wanted }: WantedAutomation,
  now: number,
): ReportedChange | null {
  // The automation is new.
  if (before === null) {
    const at = given === "latest" ? now : given;
    return { before, after: toNew(wanted, at, at, now), isNew: true };
  }
  const { updatedAt, removedAt } = before;
  const lastAt = Math.max(before.reportedAt, removedAt ?? before.reportedAt);
  const reportedAt = given === "latest" ? timeAfter(before, now) : given;
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
function isSame(a: Changeable, b: Changeable): boolean {
  return CHANGEABLE.every((name) => a[name] === b[name]);
}

/** Returns the time of a report; one with `latest` is newer than all others. */
function timeOf({ reportedAt }: WantedAutomation): number {
  return reportedAt === "latest" ? Number.POSITIVE_INFINITY : reportedAt;
}

/**
 * Whether an earlier call has applied a report of several with the same time. The platform repeats a call whose reply
 * was lost, and only the last of these reports says what is stored. Each change of that call has made `updatedAt` a
 * millisecond later.
 */
function isRepeated(
  stored: AutomationRow | undefined,
  { id, reportedAt }: WantedAutomation,
  reported: WantedAutomation[],
): boolean {
  if (stored?.reportedAt !== reportedAt) return false;
  const together = reported.filter((each) => each.id === id && each.reportedAt === reportedAt);
  const changes = together.filter((each, i) => !isSame(each, together[i - 1] ?? each));
  const last = together.at(-1);
  return (
    last !== undefined && isSame(stored, last) && stored.updatedAt >= reportedAt + changes.length
  );
}

/** Plans a call that removes automations; their runs are deleted afterwards. Unknown ids are ignored. */
export async function planRemoval(
  { workspaceId, ids }: z.output<typeof AutomationRemoval>,
  { db, now }: CallContext,
): Promise<RecordingPlan> {
  // Only the workspace must exist.
  await findReferenced(db, workspaceId, []);
  return {
    ids,
    statements: markAutomationsRemoved(workspaceId, ids, now),
    // A second try could remove automations that were recorded again after the first.
    isIdempotent: false,
  };
}

import type { AutomationType } from "../../contract/enumerations.ts";
import { derivedId } from "../../contract/ids.ts";
import { InputError } from "../../contract/input-error.ts";
import { type Database, query, readAs } from "../../db/client.ts";
import { timeBudget } from "../../timing.ts";
import { type AutomationRow, findStored, visibilityOf } from "../automations.ts";
import { deleteRemovedRuns, removeAutomations } from "../removals.ts";
import { applyReport, type ReportedAutomation, storeChanges } from "../reports.ts";
import type { AutomationReport, RecordingInput } from "./inputs.ts";
import type { Context, Recording } from "./recording.ts";
import { findReferenced } from "./references.ts";

/** How long a call deletes the runs that automations had before they were removed. */
const DELETING_MS = 20_000;

/** A call that inserts or updates automations and announces activations and pauses. */
export async function toAutomationRecording(
  { workspaceId, automations }: RecordingInput<"recordAutomations">,
  { env, db, now }: Context,
): Promise<Recording> {
  const reported = await Promise.all(
    automations.map((automation) => toReportedAutomation(workspaceId, automation)),
  );
  const latest = latestOfEach(reported);
  const stored = await findWithoutRemovedRuns(
    db,
    latest.map(({ id }) => id),
  );
  const changes = latest.flatMap(
    (report) => applyReport(stored.get(report.id) ?? null, report, now) ?? [],
  );
  const created = changes.filter(({ isNew }) => isNew).length;
  const visibility = visibilityOf(env.SERVED_ROUTES);
  return {
    ids: reported.map(({ id }) => id),
    statements: readAs(storeChanges(workspaceId, changes, visibility, now), (isStored) =>
      isStored ? created : null,
    ),
    // A second try, after others changed them, would change them back without an event of its own.
    isTriedOnce: true,
  };
}

/**
 * The stored automations among these, by id. The runs of those that are removed are deleted first: a removed
 * automation comes back without them.
 *
 * @throws InputError if that takes too long.
 */
async function findWithoutRemovedRuns(
  db: Database,
  ids: string[],
): Promise<Map<string, AutomationRow>> {
  const toMap = (rows: AutomationRow[]) => new Map(rows.map((row) => [row.id, row]));
  const found = await query(db, findStored(ids));
  const removed = found.filter(({ removedAt }) => removedAt !== null).map(({ id }) => id);
  if (removed.length === 0) return toMap(found);
  if (!(await deleteRemovedRuns(db, removed, timeBudget(DELETING_MS))))
    throw new InputError(
      "automations",
      "the runs of one that was removed are still being deleted: try again",
    );
  return toMap(await query(db, findStored(ids)));
}

/** How a social automation's name starts: the kind of reply, before the agent's name. */
const KIND_LABELS: Record<Exclude<AutomationType, "crm_source">, string> = {
  social_comments: "Réponse aux commentaires",
  social_story: "Réponse aux stories",
  social_messages: "Réponse aux messages",
  lead_ads: "Réponse aux formulaires publicitaires",
};

/** An automation as reported; the name of a social one is composed. */
async function toReportedAutomation(
  workspaceId: string,
  { agent, name, updatedAt, ...report }: AutomationReport,
): Promise<ReportedAutomation> {
  return {
    ...report,
    workspaceId,
    id: await derivedId("automation", workspaceId, report.reference),
    agentId: await derivedId("agent", workspaceId, agent.reference),
    agentName: agent.name,
    name:
      report.type === "crm_source" ? (name ?? "") : `${KIND_LABELS[report.type]} – ${agent.name}`,
    updatedAt: updatedAt ?? null,
  };
}

/** The newest report of each automation in a call; of those with the same time, the last. */
function latestOfEach(reported: ReportedAutomation[]): ReportedAutomation[] {
  const latest = new Map<string, ReportedAutomation>();
  for (const report of reported) {
    const known = latest.get(report.id);
    if (!known || timeOf(report) >= timeOf(known)) latest.set(report.id, report);
  }
  return [...latest.values()];
}

/** When a report is of; one without a time is the newest. */
function timeOf({ updatedAt }: ReportedAutomation): number {
  return updatedAt ?? Number.POSITIVE_INFINITY;
}

/** A call that removes automations and their runs; unknown ids are ignored. */
export async function toRemoval(
  { workspaceId, ids }: RecordingInput<"removeAutomations">,
  { db, now }: Context,
): Promise<Recording> {
  // Nothing but the workspace: unknown ids are ignored.
  await findReferenced(db, workspaceId, []);
  // In the meantime, they may have been recorded again.
  return { ids, statements: removeAutomations(workspaceId, ids, now), isTriedOnce: true };
}

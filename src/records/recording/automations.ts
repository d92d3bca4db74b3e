import type { AutomationType } from "../../contract/enumerations.ts";
import { derivedId } from "../../contract/ids.ts";
import { readAs, transaction } from "../../db/client.ts";
import { announce, draftEvent } from "../../events/outbox.ts";
import {
  changesStatus,
  DATED_BODY,
  type ReportedAutomation,
  shows,
  toAutomation,
  upsertAutomations,
  visibilityOf,
} from "../automations.ts";
import { removeAutomations } from "../removals.ts";
import type { AutomationReport, RecordingInput } from "./inputs.ts";
import type { Context, Recording } from "./recording.ts";
import { findReferenced } from "./references.ts";

/** A call that inserts or updates automations and announces activations and pauses. */
export async function toAutomationRecording(
  { workspaceId, automations }: RecordingInput<"recordAutomations">,
  { env, now }: Context,
): Promise<Recording> {
  const visibility = visibilityOf(env.SERVED_ROUTES);
  const reported = await Promise.all(
    automations.map((automation) => toReportedAutomation(workspaceId, automation, now)),
  );
  const latest = latestOfEach(reported);
  const drafts = latest
    .filter(({ status }) => status === "active" || status === "paused")
    .filter(({ type }) => shows(visibility, type))
    .map((report) => ({
      ...draftEvent("automation.status_changed", toAutomation(report), now),
      undatedAt: report.asOf === null ? report.updatedAt : null,
    }));
  const isAnnounced = changesStatus(latest);
  const statements = transaction({
    events: announce(
      workspaceId,
      "automation.status_changed",
      drafts,
      isAnnounced,
      now,
      DATED_BODY,
    ),
    created: upsertAutomations(workspaceId, latest, now),
  });
  return {
    ids: reported.map(({ id }) => id),
    statements: readAs(statements, ({ created }) => created),
    // A second try, after others changed them, would change them back without an event of its own.
    isTriedOnce: true,
  };
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
  now: number,
): Promise<ReportedAutomation> {
  return {
    ...report,
    id: await derivedId("automation", workspaceId, report.reference),
    agentId: await derivedId("agent", workspaceId, agent.reference),
    agentName: agent.name,
    name:
      report.type === "crm_source" ? (name ?? "") : `${KIND_LABELS[report.type]} – ${agent.name}`,
    updatedAt: updatedAt ?? now,
    asOf: updatedAt ?? null,
  };
}

/** The newest report of each automation in a call; of those with the same time, the last. */
function latestOfEach(reported: ReportedAutomation[]): ReportedAutomation[] {
  const asOf = (report: ReportedAutomation) => report.asOf ?? Number.POSITIVE_INFINITY;
  const inTime = reported.toSorted((a, b) => (asOf(a) < asOf(b) ? -1 : Number(asOf(a) > asOf(b))));
  return [...new Map(inTime.map((report) => [report.id, report])).values()];
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

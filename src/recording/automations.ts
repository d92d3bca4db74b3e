import { type Moment, readInput } from "../contract/platform.ts";
import { inOrder, readAs } from "../db/client.ts";
import {
  isMoveOf,
  type ReportedAutomation,
  readAutomation,
  recordAutomations,
  shows,
  toAutomation,
  type Visibility,
} from "../model/automations.ts";
import { announce, draftEvent } from "../model/events.ts";
import { removeAutomations } from "../model/removals.ts";
import type { Recording } from "./recording.ts";
import { inWorkspace, unknownWorkspace } from "./references.ts";

/** Reads a call that inserts automations or updates them, and announces activations and pauses. */
export async function readAutomations(
  input: unknown,
  moment: Moment,
  visibility: Visibility,
): Promise<Recording> {
  const { workspaceId, automations } = readInput("recordAutomations", input);
  const reported = await Promise.all(
    automations.map((automation) => readAutomation(workspaceId, automation, moment)),
  );
  const latest = latestOfEach(reported);
  const drafts = latest
    .filter(({ status }) => status === "active" || status === "paused")
    .filter(({ type }) => shows(visibility, type))
    .map((report) => draftEvent("automation.status_changed", toAutomation(report), moment.now));
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    automationIds: [],
    leadIds: [],
    once: true,
    missing: unknownWorkspace(),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      for (const { id, type } of latest) {
        const key = inWorkspace(workspaceId, id);
        const generation = known.automations.get(key)?.generation ?? null;
        known.automations.set(key, { type, generation });
      }
      const statements = inOrder([
        announce(workspaceId, "automation.status_changed", drafts, isMoveOf(latest), moment.now),
        recordAutomations(workspaceId, latest, moment.sentAt ?? moment.now),
      ]);
      return readAs(statements, ([, created]) => created);
    },
  };
}

/** Of several reports of one automation in a call, the newest; of those of one time, the last. */
function latestOfEach(reported: ReportedAutomation[]): ReportedAutomation[] {
  const asOf = (report: ReportedAutomation) => report.asOf ?? Number.POSITIVE_INFINITY;
  const inTime = reported.toSorted((a, b) => (asOf(a) < asOf(b) ? -1 : Number(asOf(a) > asOf(b))));
  return [...new Map(inTime.map((report) => [report.id, report])).values()];
}

/** Reads a call that removes automations and their runs; unknown ids are no error. */
export async function readRemoval(input: unknown, moment: Moment): Promise<Recording> {
  const { workspaceId, ids } = readInput("removeAutomations", input);
  return {
    workspaceId,
    ids,
    automationIds: ids,
    leadIds: [],
    once: true,
    missing: unknownWorkspace(),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      for (const id of ids) known.automations.delete(inWorkspace(workspaceId, id));
      return removeAutomations(workspaceId, ids, moment);
    },
  };
}

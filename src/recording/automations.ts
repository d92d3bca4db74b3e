import { readInput } from "../contract/platform.ts";
import { inOrder } from "../db/client.ts";
import {
  type ReportedAutomation,
  readAutomation,
  recordAutomations,
  removeAutomations,
  shows,
  toAutomation,
  type Visibility,
} from "../model/automations.ts";
import { announce, draftEvent, isMove } from "../model/events.ts";
import type { Recording } from "./recording.ts";
import { inWorkspace, unknownWorkspace } from "./references.ts";

/** Reads a call that inserts automations or updates them, and announces activations and pauses. */
export async function readAutomations(
  input: unknown,
  now: number,
  visibility: Visibility,
): Promise<Recording> {
  const { workspaceId, automations } = readInput("recordAutomations", input);
  const reported = await Promise.all(
    automations.map((automation) => readAutomation(workspaceId, automation)),
  );
  // Of several reports of one automation in a call, the last one counts.
  const latest: ReportedAutomation[] = [
    ...new Map(reported.map((report) => [report.id, report])).values(),
  ];
  const drafts = latest
    .filter(({ status }) => status === "active" || status === "paused")
    .filter(({ type }) => shows(visibility, type))
    .map((report) => {
      const automation = toAutomation({ ...report, updatedAt: report.updatedAt ?? now });
      return draftEvent("automation.status_changed", automation, now);
    });
  return {
    workspaceId,
    ids: reported.map(({ id }) => id),
    names: { automation: [], lead: [] },
    missing: unknownWorkspace(),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      for (const { id, type } of latest) known.automations.set(inWorkspace(workspaceId, id), type);
      return inOrder([
        announce(workspaceId, "automation.status_changed", drafts, isMove, now),
        recordAutomations(workspaceId, latest, now),
      ]);
    },
  };
}

/** Reads a call that removes automations and their runs; unknown ids are no error. */
export async function readRemoval(input: unknown): Promise<Recording> {
  const { workspaceId, ids } = readInput("removeAutomations", input);
  return {
    workspaceId,
    ids,
    names: { automation: ids, lead: [] },
    missing: unknownWorkspace(),
    prepare(known) {
      if (!known.workspaces.has(workspaceId)) throw unknownWorkspace();
      for (const id of ids) known.automations.delete(inWorkspace(workspaceId, id));
      return removeAutomations(workspaceId, ids);
    },
  };
}

import type { AutomationStatus } from "../../contract/enumerations.ts";
import { commit, type Database } from "../../db/client.ts";
import type { WakeUp } from "../../delivery/messages.ts";
import { listDue } from "../../delivery/schedule.ts";
import { type AutomationRow, findAutomation, type Visibility } from "../automations.ts";
import { applyReport, storeChanges } from "./reports.ts";

/** The statuses between which a client may switch an automation. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];

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
  status: (typeof CONTROLLABLE)[number],
  clock: () => number,
): Promise<Control> {
  let wakeUps: WakeUp[] = [];
  for (let tries = 0; tries < TRIES; tries++) {
    const row = await findAutomation(db, workspaceId, visibility, id);
    if (!row) return { result: "not_found" };
    if (row.status === "draft" || row.status === "error")
      return { result: "not_controllable", status: row.status };
    const now = clock();
    const change = applyReport(row, { ...row, status, updatedAt: null }, now);
    if (!change) return { result: "done", row, wakeUps };
    const written = await commit(db, {
      isStored: storeChanges(workspaceId, [change], visibility, now),
      wakeUps: listDue(workspaceId, now),
    });
    wakeUps = written.wakeUps;
    if (written.isStored) return { result: "done", row: change.after, wakeUps };
  }
  throw new Error("the automation was changed by others during every try");
}

import { sql } from "drizzle-orm";
import type { AutomationStatus } from "../contract/enumerations.ts";
import { LAST_MS } from "../contract/text.ts";
import { commit, type Database } from "../db/client.ts";
import { automations } from "../db/schema.ts";
import type { WakeUp } from "../delivery/messages.ts";
import { listDue } from "../delivery/schedule.ts";
import { announce, draftEvent } from "../events/outbox.ts";
import {
  type AutomationRow,
  findAutomation,
  isUnchanged,
  toAutomation,
  updateStatus,
  type Visibility,
} from "./automations.ts";

/** The statuses that a client may switch an automation between. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];

export type Control =
  | { result: "done"; row: AutomationRow; wakeUps: WakeUp[] }
  | { result: "not_found" }
  | { result: "not_controllable"; status: AutomationStatus };

const ROUNDS = 50;

/**
 * Pauses or activates an automation and announces it, unless it already has that status. If several
 * clients race, one wins each round and the others read the automation again. Each round takes the time
 * anew, so that times follow the order of the changes.
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
  for (let round = 0; round < ROUNDS; round++) {
    const row = await findAutomation(db, workspaceId, visibility, id);
    if (!row) return { result: "not_found" };
    if (row.status === status) return { result: "done", row, wakeUps };
    if (row.status === "draft" || row.status === "error")
      return { result: "not_controllable", status: row.status };
    const change = await changeStatus(db, row, status, clock());
    if (change.row) return { result: "done", row: change.row, wakeUps: change.wakeUps };
    wakeUps = change.wakeUps;
  }
  throw new Error("the automation was changed by others during every try");
}

/**
 * Changes the status of an automation as `row` shows it. Safe to repeat: the second try finds it changed.
 *
 * @returns the automation, null if it has changed since, perhaps by a first try whose reply was lost; and the
 *   subscriptions to wake.
 */
async function changeStatus(
  db: Database,
  row: AutomationRow,
  status: AutomationStatus,
  now: number,
): Promise<{ row: AutomationRow | null; wakeUps: WakeUp[] }> {
  // Later than the stored time even if clocks disagree, so that no older report overrides it.
  const updatedAt = Math.min(Math.max(now, row.updatedAt + 1), LAST_MS);
  const changed = { ...row, status, updatedAt };
  const isUntouched = sql`EXISTS (SELECT 1 FROM ${automations} WHERE ${isUnchanged(row)})`;
  const announcement = announce(
    row.workspaceId,
    "automation.status_changed",
    [draftEvent("automation.status_changed", toAutomation(changed), now)],
    isUntouched,
    now,
  );
  const { changes, wakeUps } = await commit(db, {
    announced: announcement,
    changes: updateStatus(row, changed),
    wakeUps: listDue(row.workspaceId, now),
  });
  return { row: changes > 0 ? changed : null, wakeUps };
}

import { sql } from "drizzle-orm";
import type { AutomationStatus } from "../contract/resources.ts";
import { type Database, inOrder, readAs } from "../db/client.ts";
import { automations } from "../db/schema.ts";
import {
  type AutomationRow,
  findAutomation,
  isAtRevision,
  toAutomation,
  updateStatus,
  type Visibility,
} from "./automations.ts";
import type { Wake } from "./due.ts";
import { announce, commitAnnounced, draftEvent } from "./events.ts";

/** The states that a client may move an automation to, and from. */
export const CONTROLLABLE = ["active", "paused"] as const satisfies AutomationStatus[];

export type Control =
  | { result: "done"; row: AutomationRow; wakes: Wake[] }
  | { result: "not_found" }
  | { result: "not_controllable" };

const ROUNDS = 50;

/**
 * Pauses or activates an automation and announces it (contract, States and transitions). Where it is
 * there already, nothing is written. Of clients that race, one wins each round, and the others look
 * again at what it left; the time is taken then, so that times follow the order of the changes.
 */
export async function controlAutomation(
  db: Database,
  workspaceId: string,
  visibility: Visibility,
  id: string,
  status: (typeof CONTROLLABLE)[number],
  clock: () => number,
): Promise<Control> {
  for (let round = 0; round < ROUNDS; round++) {
    const row = await findAutomation(db, workspaceId, visibility, id);
    if (!row) return { result: "not_found" };
    if (row.status === status) return { result: "done", row, wakes: [] };
    if (row.status === "draft" || row.status === "error") return { result: "not_controllable" };
    const moved = await move(db, row, status, clock());
    if (moved) return moved;
  }
  throw new Error("an automation was changed by others in every round");
}

/** Moves an automation from the state that `row` shows; `null` when it has moved meanwhile. */
async function move(
  db: Database,
  row: AutomationRow,
  status: AutomationStatus,
  now: number,
): Promise<Control | null> {
  // Later than what is stored, whatever the clocks say, so that no older report wins over it.
  const updatedAt = Math.max(now, row.updatedAt + 1);
  const changed = { ...row, status, updatedAt, revision: row.revision + 1 };
  const isUntouched = sql`EXISTS (SELECT 1 FROM ${automations} WHERE ${isAtRevision(row)})`;
  const announcement = announce(
    row.workspaceId,
    "automation.status_changed",
    [draftEvent("automation.status_changed", toAutomation(changed), now)],
    isUntouched,
    now,
  );
  const change = readAs(
    inOrder([announcement, updateStatus(row, changed)]),
    ([, changes]) => changes > 0,
  );
  const { result, wakes } = await commitAnnounced(db, change, [row.workspaceId], now, isUntouched);
  const moved = result ?? true;
  return moved ? { result: "done", row: changed, wakes } : null;
}

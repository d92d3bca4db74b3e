import type { DeliveryState } from "../../src/contract/enumerations.ts";
import { newEventId } from "../../src/contract/ids.ts";
import { WORKSPACE_DB } from "./placement.ts";

/** Events written at once. */
const PIECE = 5_000;

/**
 * Stores events about leads, a millisecond apart, with deliveries to the subscription in one state,
 * tried once; or none, if it was owed none of them. Returns their ids, oldest first.
 */
export async function storeEvents(
  workspaceId: string,
  subscriptionId: string,
  count: number,
  startsAt: number,
  state: DeliveryState | "missed",
): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, i) => newEventId(startsAt + i));
  for (let i = 0; i < count; i += PIECE) {
    const piece = JSON.stringify(ids.slice(i, i + PIECE));
    const owed = state === "missed" ? "[]" : JSON.stringify([subscriptionId]);
    await WORKSPACE_DB.batch([
      WORKSPACE_DB.prepare(
        `INSERT INTO events (workspace_id, id, type, body, owed, created_at)
        SELECT ?1, value, 'lead.created', '{}', ?2, ?3 + ?4 + key FROM json_each(?5)`,
      ).bind(workspaceId, owed, startsAt, i, piece),
      WORKSPACE_DB.prepare(
        `INSERT INTO deliveries (subscription_id, event_id, workspace_id, type, state, attempts, attempts_made, due_at, settled_at)
        SELECT ?1, value, ?2, 'lead.created', ?3, 1, 1, ?4, ?4 FROM json_each(?5) WHERE ?3 <> 'missed'`,
      ).bind(subscriptionId, workspaceId, state, startsAt, piece),
    ]);
  }
  return ids;
}

import type { DeliveryState } from "../../src/contract/enumerations.ts";
import { newEventId } from "../../src/contract/ids.ts";
import { PRIORITY } from "../../src/db/schema.ts";
import { insertDeliveries, insertEvents } from "./rows.ts";

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
  const owed = state === "missed" ? [] : [subscriptionId];
  await insertEvents(ids.map((id, i) => ({ id, workspaceId, owed, createdAt: startsAt + i })));
  if (state === "missed") return ids;
  const priority = state === "pending" ? PRIORITY.retry : PRIORITY.untried;
  const tried = {
    state,
    priority,
    stepsUsed: 1,
    attemptsMade: 1,
    dueAt: startsAt,
    settledAt: startsAt,
  };
  await insertDeliveries(
    ids.map((eventId) => ({ subscriptionId, eventId, workspaceId, ...tried })),
  );
  return ids;
}

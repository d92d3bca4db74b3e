import type { DeliveryState } from "../../src/contract/enumerations.ts";
import { newEventId } from "../../src/contract/ids.ts";
import { PRIORITY } from "../../src/db/schema.ts";
import { insertDeliveries, insertEvents } from "./rows.ts";

/**
 * Stores events about leads, a millisecond apart, with deliveries to the subscription in one state, tried once; or none,
 * if it was owed none of them. Of several subscriptions, each gets so many events of its own. Returns their ids, the
 * oldest of each subscription first.
 */
export async function storeEvents(
  workspaceId: string,
  subscriptionIds: string | string[],
  count: number,
  startsAt: number,
  state: DeliveryState | "missed",
): Promise<string[]> {
  const stored = [subscriptionIds].flat().flatMap((subscriptionId) =>
    Array.from({ length: count }, (_, i) => {
      const createdAt = startsAt + i;
      return { subscriptionId, eventId: newEventId(createdAt), workspaceId, createdAt };
    }),
  );
  await insertEvents(
    stored.map(({ subscriptionId, eventId: id, createdAt }) => {
      const owed = state === "missed" ? [] : [subscriptionId];
      return { id, workspaceId, owed, createdAt };
    }),
  );
  const ids = stored.map(({ eventId }) => eventId);
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
    stored.map(({ createdAt: _, ...delivery }) => ({ ...delivery, ...tried })),
  );
  return ids;
}

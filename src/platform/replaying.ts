import { encodeCursor } from "../contract/cursor.ts";
import { sendWakeUps } from "../delivery/wake.ts";
import type { Redelivered } from "../history/views.ts";
import { continueReplay, inactiveWebhook, type Replayed } from "../replay/replay.ts";
import { findReplay } from "../replay/replays.ts";
import type { Placement } from "../workspaces/placement.ts";
import type { Call } from "./operation.ts";

/* The part of `redeliver` and `enableWebhook` that they share: each begins a replay, and continues it by its cursor. */

/** Examines the next part of the replay that a cursor names. @throws InputError if there is no such replay. */
export async function advanceReplay(
  call: Call,
  placement: Placement,
  webhookId: string,
  replayId: string,
  now: number,
): Promise<Redelivered> {
  const replay = await findReplay(placement.db, webhookId, replayId, "cursor");
  const replayed = await continueReplay(placement.db, replay, now);
  if (!replayed) throw inactiveWebhook();
  return showReplayed(call, placement, webhookId, replayed);
}

/** Wakes the subscription to which events were sent again. The cursor of the next call names the replay. */
export function showReplayed(
  { ctx, env }: Call,
  { database }: Placement,
  webhookId: string,
  { count, next, replayId, queue, notStored = [] }: Replayed,
): Redelivered {
  ctx.waitUntil(sendWakeUps(env, database, [{ subscriptionId: webhookId, queue }]));
  const nextCursor = next && replayId && encodeCursor("redelivery", { at: next.at, id: replayId });
  return { count, nextCursor, ...(notStored.length > 0 && { notStored }) };
}

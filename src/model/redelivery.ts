import { eventIdAt } from "../contract/ids.ts";
import { UnknownInput } from "../contract/input-error.ts";
import type { Lane } from "../contract/pace.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { commit, type Database, inOrder, readAs } from "../db/client.ts";
import { commitOnce } from "../db/once.ts";
import { unknownWebhook } from "./health.ts";
import {
  ALL_STATES,
  bringForward,
  endWait,
  findNamed,
  listOwable,
  oweAgain,
  type Range,
} from "./owing.ts";
import { enableSubscription, findSubscription } from "./subscriptions.ts";

const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * Owes a subscription what it has missed since `since`: every event of a kind it lists, created
 * after the subscription, that was never delivered to it. It may not have been owed (while
 * disabled), or its delivery was cancelled or exhausted. The oldest come first, at a limited rate,
 * with their original ids and bodies. Each step is one transaction; calling it again adds only what
 * is still missing.
 *
 * @param since Unix milliseconds.
 * @returns how many deliveries it made pending.
 */
export function redeliver(
  db: Database,
  subscriptionId: string,
  since: number,
  now: number,
): Promise<number> {
  return redeliverRange(db, subscriptionId, { since, until: null, states: UNDELIVERED }, now);
}

/**
 * Re-enables a disabled subscription. With `since` (Unix milliseconds), it is also owed what it has
 * missed since then.
 *
 * @returns how many deliveries that made pending.
 * @throws UnknownInput if there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<number> {
  if ((await enableSubscription(db, subscriptionId)) === 0) throw unknownWebhook();
  return since === null ? 0 : redeliver(db, subscriptionId, since, now);
}

/**
 * Owes a subscription events again, by id or by range, and ends its wait: the caller has presumably
 * repaired the receiver, and should not have to wait for hours.
 *
 * @returns how many deliveries that made pending or due, and the lane to wake it in; null if it is
 *   disabled or without access, so that nothing is owed to it.
 * @throws UnknownInput for a subscription that does not exist, or an event that it could not
 *   receive.
 */
export async function redeliverAgain(
  db: Database,
  subscriptionId: string,
  wanted: readonly string[] | Range,
  now: number,
): Promise<{ count: number; lane: Lane } | null> {
  const { isOwed, lane } = await findSubscription(db, subscriptionId, now);
  if (!isOwed) return null;
  const count =
    "since" in wanted
      ? await redeliverRange(db, subscriptionId, wanted, now)
      : await redeliverEvents(db, subscriptionId, wanted, now);
  await commit(db, endWait(subscriptionId, now));
  return { count, lane };
}

/**
 * Owes events again by id, whatever their state; those that are waiting are brought forward. They
 * go ahead of ranges, spaced out among themselves.
 *
 * @returns how many it made pending or brought forward.
 * @throws UnknownInput for an event of another workspace, or of a kind the subscription does not
 *   list.
 */
export async function redeliverEvents(
  db: Database,
  subscriptionId: string,
  eventIds: readonly string[],
  now: number,
): Promise<number> {
  const found = await findNamed(db, subscriptionId, eventIds, now);
  const known = new Set(found.map(({ id }) => id));
  const unknown = eventIds.findIndex((id) => !known.has(id));
  if (unknown >= 0)
    throw new UnknownInput(
      `eventIds[${unknown}]`,
      "no such event, or the subscription does not list its kind",
    );
  const wanted = found.filter(({ isOwable, isWaiting }) => isOwable || isWaiting).length;
  if (wanted === 0) return 0;
  // All of them, so that each keeps its time if they are named again.
  const ids = [...known];
  const counts = inOrder([
    oweAgain(subscriptionId, ids, ALL_STATES, true, now),
    bringForward(subscriptionId, ids, now),
  ]);
  const sent = readAs(counts, ([again, forward]) => again + forward);
  return (await commitOnce(db, sent, now)) ?? wanted;
}

/**
 * Owes the events of a range again, after the subscription's redeliveries that are already scheduled:
 * the rate is limited, however many calls there are. Adds nothing more once the subscription is no
 * longer active.
 *
 * @returns how many deliveries it made pending.
 */
export async function redeliverRange(
  db: Database,
  subscriptionId: string,
  range: Range,
  now: number,
): Promise<number> {
  let after = eventIdAt(range.since);
  let count = 0;
  for (;;) {
    const chunk = await listOwable(db, subscriptionId, range, after, now);
    const last = chunk.at(-1);
    if (!last) return count;
    after = last.id;
    const ids = chunk.map(({ id }) => id);
    const owed = oweAgain(subscriptionId, ids, range.states, false, now);
    // Unknown after a lost reply: probably all of them.
    count += (await commitOnce(db, owed, now)) ?? ids.length;
  }
}

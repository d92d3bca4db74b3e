import { UnknownInput } from "../contract/input-error.ts";
import { REDELIVERIES_PER_SECOND, REDELIVERY_CHUNK } from "../contract/limits.ts";
import type { Lane } from "../contract/pace.ts";
import type { RedeliveryState } from "../contract/platform.ts";
import { commit, type Database } from "../db/client.ts";
import { unknownWebhook } from "./health.ts";
import {
  ALL_STATES,
  endWait,
  findNamed,
  hasten,
  listOwable,
  oweAgain,
  type Range,
} from "./owing.ts";
import { enableSubscription, findSubscription } from "./subscriptions.ts";

const CHUNK_MS = (REDELIVERY_CHUNK * 1000) / REDELIVERIES_PER_SECOND;

const UNDELIVERED: readonly RedeliveryState[] = ["exhausted", "cancelled", "missed"];

/**
 * Owes a subscription again what it has missed since `since`: every event of a kind that it lists,
 * from its creation on, that was never delivered to it, whether nothing was owed (it was disabled)
 * or what was owed was cancelled or exhausted. Oldest first, spread over time by a bounded rate; ids
 * and bodies are those of the first time. Each step is one transaction, and calling it again adds
 * only what is still missing.
 *
 * @param since Unix milliseconds.
 * @returns how many deliveries are pending by it.
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
 * Makes a disabled subscription active again; with `since`, it is also owed what it has missed since
 * then, Unix milliseconds.
 *
 * @returns how many deliveries are pending by that.
 * @throws UnknownInput when there is no such subscription.
 */
export async function enableAgain(
  db: Database,
  subscriptionId: string,
  since: number | null,
  now: number,
): Promise<number> {
  const enabled = await enableSubscription(db, subscriptionId);
  if (enabled.length === 0) throw unknownWebhook();
  return since === null ? 0 : redeliver(db, subscriptionId, since, now);
}

/**
 * Owes a subscription again events by name, or those of a range, and tries it at once: whoever asks
 * for that has repaired it, and would otherwise wait for hours.
 *
 * @returns how many deliveries are pending by that, and the lane to wake it in; null when nothing is
 *   owed to it: it is disabled, or without access.
 * @throws UnknownInput for a subscription that is not there, or an event that it could not get.
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
 * The same of events by name, whatever has become of them; those that wait are due at once.
 *
 * @throws UnknownInput for one that is not of the subscription's workspace or of no kind that it lists.
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
      "no such event, or of no kind that the subscription lists",
    );
  const ended = found.flatMap(({ id, isOwable }) => (isOwable ? [id] : []));
  const waiting = found.flatMap(({ id, isWaiting }) => (isWaiting ? [id] : []));
  if (ended.length > 0) await commit(db, oweAgain(subscriptionId, ended, ALL_STATES, now, now));
  if (waiting.length > 0) await commit(db, hasten(subscriptionId, waiting, now));
  return ended.length + waiting.length;
}

/** The same of a range and of states; nothing is added once the subscription is not active. */
export async function redeliverRange(
  db: Database,
  subscriptionId: string,
  range: Range,
  now: number,
): Promise<number> {
  let after = "";
  let count = 0;
  for (let startsAt = now; ; startsAt += CHUNK_MS) {
    const chunk = await listOwable(db, subscriptionId, range, after, now);
    const last = chunk.at(-1);
    if (!last) return count;
    after = last.id;
    count += chunk.length;
    const ids = chunk.map(({ id }) => id);
    await commit(db, oweAgain(subscriptionId, ids, range.states, startsAt, now));
  }
}

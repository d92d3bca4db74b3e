import { POST_TIMEOUT_MS, RESPONSES_PER_DAY, STOPS_WITHIN_MS } from "../contract/limits.ts";
import { commit, type Database } from "../db/client.ts";
import { PRIORITY } from "../db/schema.ts";
import { endDeliveries } from "../delivery/ending.ts";
import {
  type AttemptOutcome,
  afterAttempt,
  chooseProbe,
  isOpen,
  mustDisable,
  type PendingDelivery,
  type SendingState,
  stateOf,
  statusOf,
} from "../delivery/policy.ts";
import type { PreparedDelivery, Sender } from "../delivery/send.ts";
import { nextWakeUp, type QueueName, type WakeUp } from "../delivery/wake.ts";
import { DNS_BEFORE_POST_MS } from "../endpoints/resolve.ts";
import { UnreadableEvent } from "../events/bodies.ts";
import { log } from "../log.ts";
import { timeBudget } from "../primitives/timing.ts";
import {
  type Claimant,
  claim,
  type Found,
  type OutcomeToRecord,
  type Settlement,
  settle,
} from "./claims.ts";

/**
 * No attempt starts later than this after its claim was requested, because the claim proves that the subscription is
 * active. A call that ends a subscription promises that no request starts `STOPS_WITHIN_MS` after its return.
 */
export const CLAIM_VALID_MS = 1_000;
if (CLAIM_VALID_MS + DNS_BEFORE_POST_MS >= STOPS_WITHIN_MS)
  throw new Error("a request could start more than STOPS_WITHIN_MS after its subscription ended");
/** The runtime ends background work after 30 s. The outcomes of the last requests are recorded, with retries, before. */
const LAST_REQUESTS_END_MS = 22_000;
/** A dispatch claims no more after this time, so that even requests that time out have ended by `LAST_REQUESTS_END_MS`. */
export const DISPATCH_MAX_MS =
  LAST_REQUESTS_END_MS - CLAIM_VALID_MS - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS;
if (DISPATCH_MAX_MS < 5_000)
  throw new Error("POST_TIMEOUT_MS is too long: a dispatch would have no time to send");
/** Maximum transactions of a dispatch. An invocation, with six dispatches, may execute 1,000 statements. */
export const DISPATCH_TRANSACTIONS_MAX = 15;

/** The ports of a dispatch: a clock, randomness, and a sender of requests. */
export interface DispatchPorts extends Sender {
  /** Unix milliseconds. */
  now(): number;
  /** Between 0 and 1. */
  random(): number;
}

/**
 * Sends the due deliveries of one subscription: claims, sends and settles until nothing may be sent, or its time is used
 * up.
 *
 * @param connections maximum requests in flight, whatever the concurrency of the subscription.
 * @returns the wake-up message to send next; null if none is needed.
 * @throws the database's error if it is unavailable; an Error if it responds so slowly that nothing could be sent.
 */
export async function deliver(
  db: Database,
  subscriptionId: string,
  queue: QueueName,
  ports: DispatchPorts,
  connections: number,
): Promise<WakeUp | null> {
  // Measured by the monotonic clock, which cannot be set back.
  const isInTime = timeBudget(DISPATCH_MAX_MS);
  const claimant: Claimant = { subscriptionId, queue };
  let transactions = 1;
  let hasSent = false;
  const mayGoOn = () => isInTime() && transactions < DISPATCH_TRANSACTIONS_MAX;

  let isValid = timeBudget(CLAIM_VALID_MS);
  let work = await claim(db, claimant, ports.now());
  while (work?.subscription.isLeased) {
    transactions++;
    if (work.subscription.hasToEnd) await endAll(work.subscription.token);
    const settlement = await sendClaimed(work, isValid, ports, connections);
    hasSent ||= settlement.outcomes.length > 0;
    const wasTooLate = work.due.length > 0 && !hasSent;
    isValid = timeBudget(CLAIM_VALID_MS);
    work = await settle(db, claimant, settlement, mayGoOn(), ports.now());
    // After an error, the consumer waits before the next message. Otherwise, dispatches would follow each other at once, and
    // send nothing.
    if (wasTooLate && !work?.subscription.isLeased)
      throw new Error(`the database took longer than ${CLAIM_VALID_MS} ms: nothing was sent`);
  }
  if (!work) return null;
  return nextWakeUp(work.subscription, ports.now());

  /** Ends deliveries without a request, in bounded pieces, while the dispatch has time. */
  async function endAll(token: string): Promise<void> {
    let exhausted = 0;
    for (let hasMore = true; hasMore && mayGoOn(); transactions++) {
      const piece = await commit(db, endDeliveries({ subscriptionId, token, now: ports.now() }));
      exhausted += piece.exhausted;
      hasMore = piece.hasMore;
    }
    if (exhausted > 0)
      log("pending_exhausted", { webhookId: subscriptionId, deliveries: exhausted });
  }
}

/** Whether the circuit of its event type holds a delivery, so that it may only be sent as a probe. */
function isHeld(state: SendingState, { type, priority }: PendingDelivery): boolean {
  return isOpen(state, type) && priority !== PRIORITY.resend;
}

/** Chooses a probe for each event type whose circuit is open. Returns the ids of their events. */
function chooseProbes(
  state: SendingState,
  due: readonly PendingDelivery[],
  random: () => number,
): ReadonlySet<string | undefined> {
  const held = due.filter((delivery) => isHeld(state, delivery));
  const ofTypes = [...Map.groupBy(held, ({ type }) => type).values()];
  return new Set(ofTypes.map((candidates) => chooseProbe(candidates, random())?.eventId));
}

/**
 * Sends the claimed deliveries, at the concurrency of the subscription, until the claim is no longer valid, and waits
 * for the outcomes. Once a circuit opens, nothing more of its event type starts.
 */
async function sendClaimed(
  { subscription, due }: NonNullable<Found>,
  isValid: () => boolean,
  ports: DispatchPorts,
  connections: number,
): Promise<Settlement> {
  const probes = chooseProbes(subscription, due, ports.random);
  const outcomes: OutcomeToRecord[] = [];
  const dueNow = new Set<string>();
  let state = stateOf(subscription);
  const mayStart = (delivery: PendingDelivery) =>
    probes.has(delivery.eventId) || !isHeld(state, delivery);
  const prepared = ports.prepare(due.filter(mayStart), subscription);
  let { storedResponses } = subscription;

  const inFlight = new Set<Promise<void>>();
  for (const delivery of prepared) {
    while (inFlight.size >= Math.min(state.concurrency, connections)) await Promise.race(inFlight);
    if (!isValid()) break;
    // The circuit of its type may have opened since.
    if (!mayStart(delivery)) continue;
    const sending = sendOne(delivery).finally(() => inFlight.delete(sending));
    inFlight.add(sending);
  }
  await Promise.all(inFlight);
  const { token, epoch } = subscription;
  const disable = mustDisable(subscription, state, ports.now());
  return { token, epoch, outcomes, state, dueNow: [...dueNow], disable };

  async function sendOne(delivery: PreparedDelivery): Promise<void> {
    const { eventId, type, priority, dueAt } = delivery;
    const startedClosed = !isOpen(state, type);
    const startedAt = ports.now();
    const { outcome, storedResponse } = await tryAttempt(delivery, startedAt);
    const endedAt = Math.max(startedAt, ports.now());
    const ended = { delivery, outcome, startedAt, endedAt, startedClosed };
    const decision = afterAttempt(state, ended, ports.random());
    state = decision.state;
    // An earlier success in this claim may have made this event, which was rejected before, due at once. Its own attempt,
    // made since, decides instead.
    dueNow.delete(eventId);
    for (const id of decision.dueNow) dueNow.add(id);
    const ofAttempt: OutcomeToRecord = {
      ...decision.delivery,
      eventId,
      type,
      claimed: { priority, dueAt },
      outcome: outcome?.kind ?? null,
      status: outcome && statusOf(outcome),
      startedAt,
      durationMs: endedAt - startedAt,
      response: null,
    };
    // In the order in which the attempts ended, like the state, although reading a response takes longer.
    outcomes.push(ofAttempt);
    const response = await storedResponse;
    if (response && storedResponses < RESPONSES_PER_DAY) {
      storedResponses++;
      ofAttempt.response = response;
    }
  }

  /** Makes an attempt. Returns a null `outcome` if an error of ours prevents it. */
  async function tryAttempt(
    delivery: PreparedDelivery,
    startedAt: number,
  ): Promise<{
    outcome: AttemptOutcome | null;
    storedResponse?: Promise<string | null> | undefined;
  }> {
    try {
      const { storedResponse, ...outcome } = await ports.attempt(delivery, subscription, startedAt);
      return { outcome, storedResponse };
    } catch (error) {
      return { outcome: error instanceof UnreadableEvent ? { kind: "unreadable" } : null };
    }
  }
}

import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import type { Database } from "../db/client.ts";
import { DNS_BEFORE_POST_MS } from "../endpoints/resolve.ts";
import { batchRequests } from "../primitives/batch-requests.ts";
import { timeBudget } from "../primitives/timing.ts";
import { CONNECTIONS_MAX, Connections } from "./connections.ts";
import { CLAIM_MAX } from "./due.ts";
import { chooseNext, isSpaced, type QueueName } from "./policy.ts";
import { LEASE_MS, makeRound, type RoundRequest } from "./round.ts";
import { DeliverySession, type DispatchPorts, type RoundResult } from "./session.ts";

/**
 * The time from the start of a dispatch until its last request must have ended, even if the request times out. The
 * runtime ends background work after 30 s; the rest of that time is for recording the outcome and waking the
 * subscription, with retries.
 */
const LAST_REQUEST_ENDS_MS = 22_400;
/** A dispatch starts no request later than this; the next one sends the rest. */
export const DISPATCH_MAX_MS = LAST_REQUEST_ENDS_MS - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS;
if (DISPATCH_MAX_MS < 5_000)
  throw new Error("POST_TIMEOUT_MS is too long: a dispatch would have no time to send");

/**
 * A dispatch that has executed this many statements leaves the rest to the next one: an invocation, with
 * up to three dispatches, may execute 1,000. Recording what is in flight then takes up to a hundred more.
 */
export const DISPATCH_STATEMENTS_MAX = 200;

/** Options of a dispatch. */
export interface DispatchOptions {
  /** Only subscriptions of this queue are sent to. */
  queue: QueueName;
  /** Maximum requests in flight. */
  connections?: number;
}

/**
 * Sends the due deliveries of the subscriptions. Runs a session for each subscription; the sessions run concurrently,
 * and share connections and rounds.
 *
 * @param arrived the subscriptions, each with the `wakeAt` of the message that has arrived for it; 0 if it had none.
 * @throws the database's error if it is unavailable; deliveries whose outcome could not be recorded
 *   are sent again.
 */
export async function dispatch(
  db: Database,
  arrived: ReadonlyMap<string, number>,
  ports: DispatchPorts,
  { queue, connections = CONNECTIONS_MAX }: DispatchOptions,
): Promise<void> {
  // Measured by the monotonic clock, which cannot be set back.
  const isInTime = timeBudget(DISPATCH_MAX_MS);
  const holder = crypto.randomUUID();
  let leasedUntil = 0;
  let statements = 0;
  const remaining = new Set(arrived.keys());
  // One round serves several sessions. It is made once every running session has requested one, or once a session has
  // waited for as long as its request allows (`withinMs`). A round that fails fails for all of them.
  const rounds = batchRequests(remaining.size, shareRound);
  // One connection stays free for queue messages. Without it, the wake-up message of a session that has ended
  // would wait for the requests of the others.
  const maxRequests = Math.max(1, remaining.size > 1 ? connections - 1 : connections);
  const pool = new Connections(maxRequests);
  const shared = {
    queue,
    ports,
    round: rounds.add,
    connections: pool,
    mayGoOn: () => isInTime() && statements < DISPATCH_STATEMENTS_MAX,
  };
  const sessions = [...arrived].map(async ([id, arrivedWakeAt]) => {
    try {
      await new DeliverySession(id, arrivedWakeAt, shared).run();
    } finally {
      remaining.delete(id);
      pool.unserve(id);
      rounds.unregister();
    }
  });
  for (const result of await Promise.allSettled(sessions))
    if (result.status === "rejected") throw result.reason;

  /** Makes one round for all sessions that request one at the same moment, and prepares what it has claimed. */
  async function shareRound(requests: RoundRequest[]): Promise<RoundResult[]> {
    const requestedAt = ports.now();
    // A clock that is set back must not shorten the leases.
    leasedUntil = Math.max(leasedUntil, requestedAt + LEASE_MS);
    const limit = Math.max(1, Math.floor(CLAIM_MAX / remaining.size));
    const until = leasedUntil;
    const terms = { holder, now: requestedAt, until, queue, limit };
    const round = await makeRound(db, requests, terms, (count) => {
      statements += count;
    });
    const { subscriptions, noted, due = [], heads = [] } = round;
    const found = new Map(subscriptions.map((row) => [row.subscriptionId, row]));
    // A subscription has rows in `heads` if its requests are spaced, and otherwise in `due`.
    const rowsOf = Map.groupBy([...due, ...heads], (row) => row.subscriptionId);
    const toSend = subscriptions.flatMap((subscription) => {
      const rows = rowsOf.get(subscription.subscriptionId) ?? [];
      if (!isSpaced(subscription)) return rows;
      return chooseNext(subscription, rows, requestedAt) ?? [];
    });
    const signed = ports.prepare(toSend, found, requestedAt);
    const claims = Map.groupBy(signed, (delivery) => delivery.subscriptionId);
    for (const id of claims.keys()) pool.serve(id, found.get(id)?.workspaceId ?? "");
    const notedFor = new Map(noted.map((wakeUp) => [wakeUp.subscriptionId, wakeUp.wakeAt]));
    return requests.map(({ subscriptionId: id }) => {
      const own = rowsOf.get(id) ?? [];
      const subscription = found.get(id) ?? null;
      return {
        subscription,
        prepared: claims.get(id) ?? [],
        mayHaveMore: subscription !== null && !isSpaced(subscription) && own.length >= limit,
        notedWakeAt: notedFor.get(id) ?? null,
        requestedAt,
      };
    });
  }
}

import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { commit, type Database } from "../db/client.ts";
import { DNS_BEFORE_POST_MS } from "../endpoints/resolve.ts";
import { batchRequests } from "../primitives/batch-requests.ts";
import { timeBudget } from "../primitives/timing.ts";
import { Connections } from "./connections.ts";
import { CONCURRENCY_MAX, type QueueName } from "./policy.ts";
import { buildRound, LEASE_MS, type RoundRequest } from "./round.ts";
import { DeliverySession, type DispatchPorts, type RoundAnswer } from "./session.ts";

/**
 * A dispatch starts no request later than this; the next one sends the rest. The runtime ends background
 * work after 30 s: until then, even a request that times out must have ended, its outcome must be recorded, and
 * its subscription woken, with retries.
 */
export const DISPATCH_MAX_MS = 22_400 - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS;
if (DISPATCH_MAX_MS < 5_000)
  throw new Error("POST_TIMEOUT_MS is too long: a dispatch would have no time to send");

/** Maximum deliveries that one round claims, over all subscriptions: with the largest events, 3 MB. */
export const CLAIM_MAX = 100;

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
  /** When delayed wake-up messages that have arrived were to arrive, by subscription. */
  arrivals?: ReadonlyMap<string, number>;
  /** Whether automations of type `crm_source` are served. */
  servesCrmSource?: boolean;
}

/**
 * Sends the subscriptions what is due to them. Runs a session for each of them; the sessions run concurrently, and
 * share connections and rounds.
 *
 * @throws the database's error if it is unavailable; deliveries whose outcome could not be recorded
 *   are sent again.
 */
export async function dispatch(
  db: Database,
  subscriptionIds: string[],
  ports: DispatchPorts,
  {
    queue,
    connections = CONCURRENCY_MAX,
    arrivals = new Map(),
    servesCrmSource = true,
  }: DispatchOptions,
): Promise<void> {
  // Measured by the monotonic clock, which cannot be set back.
  const isInTime = timeBudget(DISPATCH_MAX_MS);
  const holder = crypto.randomUUID();
  let leasedUntil = 0;
  let statements = 0;
  /** The workspace of each subscription that something was claimed for. */
  const workspaceOf = new Map<string, string>();
  const remaining = new Set(subscriptionIds);
  const rounds = batchRequests(remaining.size, makeRound);
  // One connection stays free for queue messages. Without it, the wake-up message of a session that has ended
  // would wait for the requests of the others.
  const maxRequests = Math.max(1, remaining.size > 1 ? connections - 1 : connections);
  const shared = {
    queue,
    ports,
    round: rounds.ask,
    connections: new Connections(maxRequests, workspaceOf),
    hasTime: () => isInTime() && statements < DISPATCH_STATEMENTS_MAX,
  };
  const sessions = subscriptionIds.map(async (id) => {
    try {
      await new DeliverySession(id, arrivals.get(id) ?? 0, shared).run();
    } finally {
      remaining.delete(id);
      workspaceOf.delete(id);
      rounds.unregister();
    }
  });
  for (const result of await Promise.allSettled(sessions))
    if (result.status === "rejected") throw result.reason;

  /** One transaction for all sessions that ask for a round at the same moment. */
  async function makeRound(requests: RoundRequest[]): Promise<RoundAnswer[]> {
    const askedAt = ports.now();
    // A clock that is set back must not shorten the leases.
    leasedUntil = Math.max(leasedUntil, askedAt + LEASE_MS);
    const limit = Math.max(1, Math.floor(CLAIM_MAX / remaining.size));
    const until = leasedUntil;
    const round = buildRound(requests, {
      holder,
      now: askedAt,
      until,
      queue,
      limit,
      servesCrmSource,
    });
    statements += round.queries.length;
    const { subscriptions, wakeUps, due = [], heads = [] } = await commit(db, round);
    const found = new Map(subscriptions.map((row) => [row.subscriptionId, row]));
    const rows = [...due, ...heads];
    const toSend = rows.filter(({ isWithdrawn }) => !isWithdrawn);
    const claims = Map.groupBy(ports.prepare(toSend, found, askedAt), (one) => one.subscriptionId);
    for (const id of claims.keys()) workspaceOf.set(id, found.get(id)?.workspaceId ?? "");
    const wakeAt = new Map(wakeUps.map((wakeUp) => [wakeUp.subscriptionId, wakeUp.wakeAt]));
    return requests.map(({ subscriptionId: id }) => ({
      subscription: found.get(id) ?? null,
      due: claims.get(id) ?? [],
      withdrawn: rows.filter((row) => row.isWithdrawn && row.subscriptionId === id),
      limit,
      wakeAt: wakeAt.get(id) ?? null,
      askedAt,
    }));
  }
}

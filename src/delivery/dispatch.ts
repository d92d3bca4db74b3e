import { batchRequests } from "../batch-requests.ts";
import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { commit, type Database } from "../db/client.ts";
import { DNS_BEFORE_POST_MS } from "../subscriptions/resolve.ts";
import { timeBudget } from "../timing.ts";
import { Connections } from "./connections.ts";
import { LEASE_MS } from "./lease.ts";
import { type Lane, POSTS_AT_ONCE } from "./policy.ts";
import { serve } from "./serve.ts";
import { type Asked, settleAndClaim } from "./settle-and-claim.ts";
import type { DispatchTools } from "./tools.ts";
import type { Answered } from "./turn.ts";

/**
 * A dispatch starts no post later than this; the rest is left for the next one. The runtime ends background
 * work after 30 s: until then, even a post that times out must have ended and been recorded, and its
 * subscription woken, with retries.
 */
export const DISPATCH_MAX_MS = 22_400 - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS;
if (DISPATCH_MAX_MS < 5_000)
  throw new Error("POST_TIMEOUT_MS is too long: a dispatch would have no time to post");

/** Maximum deliveries one exchange claims, over all subscriptions: of the largest events, 3 MB. */
export const CLAIM_MAX = 100;

/**
 * A dispatch that has executed this many statements leaves the rest to the next one: an invocation, with
 * up to three dispatches, may execute 1,000. Recording what is in flight then takes up to a hundred more.
 */
export const STATEMENTS_MAX = 200;

/**
 * Delivers what is due to the subscriptions: serves each of them, concurrently.
 *
 * @param lane subscriptions of the other lane are left alone.
 * @param connections how many requests it may have in flight.
 * @throws the database's error if it is unavailable; deliveries whose outcome could not be recorded
 *   are posted again.
 */
export async function dispatch(
  db: Database,
  subscriptionIds: string[],
  lane: Lane,
  tools: DispatchTools,
  connections: number = POSTS_AT_ONCE,
): Promise<void> {
  // By the monotonic clock, which nobody can set back.
  const isInTime = timeBudget(DISPATCH_MAX_MS);
  const holder = crypto.randomUUID();
  let leasedUntil = 0;
  let statements = 0;
  /** The workspace of each subscription that something was claimed for. */
  const served = new Map<string, string>();
  const open = new Set(subscriptionIds);
  const exchanges = batchRequests(open.size, exchangeAll);
  // One connection is kept free for wakes, which others would wait for.
  const posts = Math.max(1, open.size > 1 ? connections - 1 : connections);
  const shared = {
    ...{ lane, tools, exchange: exchanges.ask },
    connections: new Connections(posts, served),
    hasTime: () => isInTime() && statements < STATEMENTS_MAX,
  };
  const ends = subscriptionIds.map(async (id) => {
    try {
      const finished = await serve(id, shared);
      if (finished) tools.finished(finished);
    } finally {
      open.delete(id);
      served.delete(id);
      exchanges.leave();
    }
  });
  const results = await Promise.allSettled(ends);
  for (const result of results) if (result.status === "rejected") throw result.reason;

  /** One transaction for all that ask for an exchange at the same moment. */
  async function exchangeAll(batch: Asked[]): Promise<Answered[]> {
    const askedAt = tools.now();
    // Not earlier than before if the clock was set back.
    leasedUntil = Math.max(leasedUntil, askedAt + LEASE_MS);
    const limit = Math.max(1, Math.floor(CLAIM_MAX / open.size));
    const terms = { holder, until: leasedUntil, lane, limit, now: askedAt };
    const transaction = settleAndClaim(batch, terms);
    statements += transaction.queries.length;
    const { found, claimed = [] } = await commit(db, transaction);
    const snapshots = new Map(found.map((row) => [row.subscriptionId, row]));
    const ready = tools.prepare(claimed, snapshots, askedAt);
    const claims = Map.groupBy(ready, ({ subscriptionId }) => subscriptionId);
    for (const id of claims.keys()) served.set(id, snapshots.get(id)?.workspaceId ?? "");
    return batch.map(({ request: { subscriptionId: id } }) => {
      const answer = { found: snapshots.get(id) ?? null, claimed: claims.get(id) ?? [] };
      return { ...answer, limit, askedAt };
    });
  }
}

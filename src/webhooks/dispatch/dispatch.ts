import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { commit, type Database } from "../../db/client.ts";
import { mergeRequests } from "../../merge.ts";
import { timeBudget, withTimeout } from "../../timing.ts";
import { DNS_BEFORE_POST_MS } from "../resolve.ts";
import { Connections } from "./connections.ts";
import { LEASE_MS } from "./lease.ts";
import { type Lane, POSTS_AT_ONCE } from "./policy.ts";
import { serve } from "./serve.ts";
import { settleAndClaim } from "./settle-and-claim.ts";
import type { DispatchTools } from "./tools.ts";
import type { Answered, Asked } from "./turn.ts";

/**
 * When the last post of a dispatch has ended. One that takes even longer is considered lost. The runtime
 * ends background work after 30 s: until then, there must be time to record the post and to wake its
 * subscription, with retries.
 */
const LAST_END_MS = 24_400;
/**
 * A dispatch starts no post later than this, so that even one that times out, a little late, ends by
 * `LAST_END_MS`. The rest is left for the next dispatch.
 */
export const DISPATCH_MAX_MS = LAST_END_MS - DNS_BEFORE_POST_MS - POST_TIMEOUT_MS - 2_000;
if (DISPATCH_MAX_MS < 5_000)
  throw new Error("POST_TIMEOUT_MS is too long: a dispatch would have no time to post");

/**
 * Maximum deliveries one exchange claims, over all subscriptions. Each exchange costs a few
 * milliseconds, however few it claims.
 */
const CLAIM_MAX = 400;
/**
 * About how many bytes of bodies one exchange claims at most, and a dispatch keeps twice: while the last
 * posts of one claim are in flight, it claims more.
 */
export const CLAIM_MAX_BYTES = 2_000_000;
/** Maximum it claims per subscription in the slow lane, where each may take ten seconds. */
const CLAIM_SLOW_MAX = 6;

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
  const startedAt = tools.now();
  const hasSteadyTime = timeBudget(DISPATCH_MAX_MS);
  const holder = crypto.randomUUID();
  let leasedUntil = 0;
  let statements = 0;
  let answers = 0;
  let isEnded = false;
  /** The workspace of each subscription that something was claimed for. */
  const served = new Map<string, string>();
  const open = new Set(subscriptionIds);
  const exchanges = mergeRequests(open.size, exchangeAll);
  // One connection is kept free for wakes, which others would wait for.
  const posts = Math.max(1, open.size > 1 ? connections - 1 : connections);
  const shared = {
    lane,
    tools: { ...tools, attempt },
    connections: new Connections(posts, served),
    exchange: exchanges.ask,
    hasTime,
    endInvocation,
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
  // What has not ended by then has been suspended for longer than its own timeouts: it will never end.
  const results = await withTimeout(LAST_END_MS, Promise.allSettled(ends), () => []);
  for (const result of results) if (result.status === "rejected") throw result.reason;

  /** One transaction for all that ask for an exchange at the same moment. */
  async function exchangeAll(batch: Asked[]): Promise<Answered[]> {
    const askedAt = tools.now();
    // Not earlier than before if the clock was set back.
    leasedUntil = Math.max(leasedUntil, askedAt + LEASE_MS);
    const share = Math.max(1, Math.floor(CLAIM_MAX / open.size));
    const limit = lane === "fast" ? share : Math.min(share, CLAIM_SLOW_MAX);
    const transaction = settleAndClaim(
      {
        lease: { holder, until: leasedUntil },
        lane,
        changes: batch.flatMap(({ change }) => change ?? []),
        settlements: batch.flatMap(({ settlements }) => settlements),
        requests: batch.map(({ request }) => request),
        limit,
        maxBytes: Math.floor(CLAIM_MAX_BYTES / open.size),
        cancel: batch.some(({ cancel }) => cancel),
      },
      askedAt,
    );
    statements += transaction.queries.length;
    const { found, claimed } = await commit(db, transaction);
    const snapshots = new Map(found.map((row) => [row.subscriptionId, row]));
    const claims = Map.groupBy(claimed, ({ subscriptionId }) => subscriptionId);
    for (const id of claims.keys()) served.set(id, snapshots.get(id)?.workspaceId ?? "");
    return batch.map(({ request: { subscriptionId: id } }) => {
      const answer = { found: snapshots.get(id) ?? null, claimed: claims.get(id) ?? [] };
      return { ...answer, limit, leasedUntil, askedAt };
    });
  }

  /**
   * Whether posts may still start: by the wall clock, which leases are written in, by the monotonic
   * clock, which nobody can set, and by the limits of the invocation.
   */
  function hasTime(now: number): boolean {
    const elapsedMs = now - startedAt;
    const isInTime = elapsedMs >= 0 && elapsedMs < DISPATCH_MAX_MS && hasSteadyTime();
    return isInTime && statements < STATEMENTS_MAX && !isEnded;
  }

  function attempt(...post: Parameters<DispatchTools["attempt"]>) {
    const attempted = tools.attempt(...post);
    attempted.then(
      () => answers++,
      () => {},
    );
    return attempted;
  }

  /** If the limit was hit before any post, another invocation would hit it, too. */
  function endInvocation(): boolean {
    isEnded ||= answers > 0;
    return isEnded;
  }
}

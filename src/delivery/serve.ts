import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { UnreadableEvent } from "../events/bodies.ts";
import { DNS_BEFORE_POST_MS } from "../subscriptions/resolve.ts";
import { type Connections, type Place, STUCK_MS } from "./connections.ts";
import { InvocationLimit } from "./outcome.ts";
import { adjustPace, type Lane } from "./policy.ts";
import type { Claimed } from "./sender.ts";
import type { Asked, Snapshot } from "./settle-and-claim.ts";
import type { DispatchTools } from "./tools.ts";
import { type Answered, ask, isIdle, proceed, setPace, settle, startTurn, stop } from "./turn.ts";

/** Maximum time before an outcome is recorded. */
const SETTLE_AFTER_MS = 1_000;
/** How long an exchange may wait for those of other subscriptions, so that all are one transaction... */
const MOMENT_MS = 10;
/** ...or if it has ended all that it knows to be due. */
const LAST_MOMENT_MS = 100;
/**
 * No post starts later than 2 s after a call that ended its subscription has returned. So it starts at
 * most this long after an exchange was asked for, which has found the subscription active in the primary
 * database. The connection comes first and this is checked last, so that nothing delays the post.
 */
const CONFIRMED_MS = 1_500;
/** Wait of a subscription that could not be posted to through no fault of its own. */
const UNTRIED_WAIT_MS = 300_000;

/** What the subscriptions of a dispatch share. */
export interface Dispatch {
  lane: Lane;
  tools: DispatchTools;
  connections: Connections;
  /** Makes an exchange with the database, with those of others that ask within `withinMs`. */
  exchange(asked: Asked, withinMs: number): Promise<Answered>;
  /** Whether posts may still start. */
  hasTime(): boolean;
}

/**
 * Serves one subscription: exchanges with the database (records outcomes, claims what is due, keeps the
 * lease or gives it back) and posts what was claimed, in turns, until nothing is due, its pace says wait,
 * or time is up.
 *
 * If the process dies, or an exchange fails, outcomes that were not recorded are lost: those deliveries are
 * posted again once the lease has ended.
 *
 * @returns the subscription as it was left; null if it does not exist.
 * @throws the database's error if an exchange failed.
 */
export async function serve(
  subscriptionId: string,
  { lane, tools, connections, exchange, hasTime }: Dispatch,
): Promise<Snapshot | null> {
  const turn = startTurn(subscriptionId, lane);
  let place: Place | null = null;
  let look = () => {};

  try {
    do {
      await exchangeOnce();
      await postUntilExchange();
    } while (!isOver());
  } finally {
    leaveQueue();
  }
  return turn.subscription;

  async function exchangeOnce(): Promise<void> {
    const asked = ask(turn, hasTime(), tools.now());
    const isLast = isIdle(turn) && !turn.moreIsDue;
    proceed(turn, asked, await exchange(asked, isLast ? LAST_MOMENT_MS : MOMENT_MS));
  }

  /** Posts what is waiting, at its pace, until another exchange is due. */
  async function postUntilExchange(): Promise<void> {
    for (;;) {
      const now = tools.now();
      if (!hasTime() || (turn.waiting.length > 0 && !isLeasedForPost(now))) stop(turn);
      if (isExchangeDue(now)) return;
      if (!turn.subscription || !mayPost()) {
        leaveQueue();
        await somethingHappens(untilOutcomesAreDue(now));
        continue;
      }
      if (!place) place = connections.queueUp(turn.subscription.workspaceId, () => look());
      else if (place.isConnected) start(turn.subscription, place);
      // Another invocation has connections of its own.
      else if (connections.areStuck && turn.inFlight.size === 0) stop(turn);
      else await somethingHappens(STUCK_MS);
    }
  }

  function isExchangeDue(now: number): boolean {
    // All that was claimed has ended.
    if (isIdle(turn)) return true;
    // More can be claimed, to be posted while the last posts are in flight.
    if (turn.waiting.length === 0 && turn.moreIsDue) return true;
    // The next post may have been withdrawn.
    if (mayPost() && place?.isConnected && !isConfirmed(now)) return true;
    return untilOutcomesAreDue(now) === 0;
  }

  /** If not, a post is in flight, or none is waiting. */
  function mayPost(): boolean {
    const { waiting, inFlight, pace } = turn;
    return waiting.length > 0 && inFlight.size < pace.postsAtOnce;
  }

  function isConfirmed(now: number): boolean {
    return now >= turn.askedAt && now - turn.askedAt < CONFIRMED_MS;
  }

  /** Whether a post that starts now ends before the lease does. */
  function isLeasedForPost(now: number): boolean {
    const { leasedUntil = 0 } = turn.subscription ?? {};
    return now + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS < leasedUntil;
  }

  /** Undefined if there are none. */
  function untilOutcomesAreDue(now: number): number | undefined {
    const [oldest] = turn.settlements;
    return oldest && Math.max(0, oldest.startedAt + oldest.durationMs + SETTLE_AFTER_MS - now);
  }

  /** Resolves when a post ends, when it has got a connection, or after `ms`. */
  function somethingHappens(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? null : setTimeout(resolve, ms);
      look = () => {
        if (timer !== null) clearTimeout(timer);
        resolve();
      };
    });
  }

  function leaveQueue(): void {
    if (place) connections.leave(place);
    place = null;
  }

  function start(target: Snapshot, connection: Place): void {
    const [delivery] = turn.waiting.splice(0, 1) as [Claimed];
    turn.inFlight.add(delivery);
    place = null;
    post(delivery, target).finally(() => {
      turn.inFlight.delete(delivery);
      connections.leave(connection);
      look();
    });
  }

  async function post(delivery: Claimed, target: Snapshot): Promise<void> {
    const { now, random, attempt } = tools;
    const startedAt = now();
    try {
      const outcome = await attempt(delivery, target);
      const ended = { delivery, outcome, startedAt, endedAt: now() };
      settle(turn, ended, random(), await outcome.kept);
      // Another URL has earned no wait by what this one does.
      if (turn.subscription?.url === target.url)
        setPace(turn, adjustPace(turn.pace, ended, random()));
    } catch (error) {
      if (error instanceof InvocationLimit) return stop(turn);
      if (error instanceof UnreadableEvent) {
        const ended = { delivery, outcome: { kind: "unreadable" } as const, startedAt };
        return settle(turn, { ...ended, endedAt: now() }, random());
      }
      setPace(turn, { ...turn.pace, nextAt: Math.max(turn.pace.nextAt, now() + UNTRIED_WAIT_MS) });
    }
  }

  function isOver(): boolean {
    const { subscription, settlements } = turn;
    if (!isIdle(turn) || settlements.length > 0) return false;
    if (!subscription) return true;
    const { leasedUntil, leasedElsewhereUntil, cancelling } = subscription;
    const mayCancel = cancelling && leasedElsewhereUntil === null && hasTime();
    return leasedUntil === 0 && !mayCancel;
  }
}

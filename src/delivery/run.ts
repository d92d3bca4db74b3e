import pLimit from "p-limit";
import {
  POSTS_AT_ONCE,
  POSTS_PER_SUBSCRIPTION,
  RUN_MAX_MS,
  UNTRIED_WAIT_MS,
} from "../contract/limits.ts";
import { commit, type Database, inOrder } from "../db/client.ts";
import {
  type Claimed,
  claimDue,
  type Health,
  type NextDue,
  newLease,
  type Settlement,
  settle,
} from "../model/deliveries.ts";
import { keysOfSubscribers } from "../model/workspaces.ts";
import { judge, type Outcome, succeeded } from "./policy.ts";

/** What a run needs from outside: time, chance, the keys' gates, and the post itself. */
export interface RunTools {
  /** Unix milliseconds. */
  now(): number;
  /** From 0 to 1. */
  random(): number;
  /** Sees to it that reads with these keys find what was claimed. */
  beforePosts(keyHashes: string[]): Promise<void>;
  /** One attempt; an exception means that it could not be tried, through no fault of the subscriber. */
  attempt(delivery: Claimed): Promise<Outcome>;
}

/** A delivery and how its attempt ended: `null` when none was made, `at` when that was known. */
interface Result {
  delivery: Claimed;
  outcome: Outcome | "untried" | null;
  at: number;
}

/**
 * One turn of deliveries for the subscriptions: claims what is due, at most `quota` for each, posts
 * it and records the outcomes. Two round trips to the database, however many deliveries.
 *
 * @returns when each of them has something due next.
 */
export async function runDeliveries(
  db: Database,
  subscriptionIds: string[],
  quota: number,
  tools: RunTools,
): Promise<NextDue[]> {
  const startedAt = tools.now();
  const lease = newLease(startedAt);
  const [keys, claimed] = await commit(
    db,
    inOrder([
      keysOfSubscribers(subscriptionIds),
      claimDue(subscriptionIds, quota, lease, startedAt),
    ]),
  );
  if (claimed.length === 0) return [];
  await tools.beforePosts(keys.map(({ keyHash }) => keyHash));
  const turns = Map.groupBy(claimed, ({ subscriptionId }) => subscriptionId);
  const slots = pLimit(POSTS_AT_ONCE);
  const mayStart = limitedTime(startedAt, tools);
  const results = await Promise.all(
    [...turns.values()].map((turn) => takeTurn(turn, slots, mayStart, tools)),
  );
  const settlements = results.flat().map((result) => toSettlement(result, tools.random()));
  const health = results.map(toHealth);
  return commit(db, settle(lease, settlements, health, tools.now()));
}

/**
 * Whether a run may still start a post: within `RUN_MAX_MS`, by the clock that its lease is written
 * in and by one that nobody sets.
 */
function limitedTime(startedAt: number, tools: RunTools): () => boolean {
  const steadyStart = performance.now();
  return () => {
    const elapsedMs = tools.now() - startedAt;
    const steadyMs = performance.now() - steadyStart;
    return elapsedMs >= 0 && elapsedMs < RUN_MAX_MS && steadyMs < RUN_MAX_MS;
  };
}

/**
 * Posts a subscription's deliveries, a few at once, until one fails: what is left is given back, so
 * that a slow subscriber holds the others up once and not for each of its deliveries.
 */
async function takeTurn(
  turn: Claimed[],
  slots: ReturnType<typeof pLimit>,
  mayStart: () => boolean,
  tools: RunTools,
): Promise<Result[]> {
  const waiting = [...turn];
  const results: Result[] = [];
  let stopped = false;
  const next = async () => {
    if (stopped || !mayStart()) return;
    const delivery = waiting.shift();
    if (!delivery) return;
    const outcome = await tools.attempt(delivery).catch(() => "untried" as const);
    if (outcome === "untried" || !succeeded(outcome)) stopped = true;
    results.push({ delivery, outcome, at: tools.now() });
  };
  const lane = async () => {
    while (waiting.length > 0 && !stopped && mayStart()) await slots(next);
  };
  await Promise.all(Array.from({ length: POSTS_PER_SUBSCRIPTION }, lane));
  const left = waiting.map((delivery) => ({ delivery, outcome: null, at: tools.now() }));
  return [...results, ...left];
}

function toSettlement({ delivery, outcome, at }: Result, random: number): Settlement {
  const { eventId, subscriptionId, attempts } = delivery;
  const base = { eventId, subscriptionId, outcome: null, status: null, settledAt: null };
  if (outcome === null || outcome === "untried") {
    const dueAt = outcome === null ? at : at + UNTRIED_WAIT_MS;
    return { ...base, state: "pending", counted: 0, dueAt };
  }
  const verdict = judge(outcome, attempts + 1, random);
  const pending = verdict.state === "pending";
  return {
    ...base,
    state: verdict.state,
    counted: 1,
    dueAt: pending ? at + verdict.waitMs : at,
    outcome: outcome.kind,
    status: statusOf(outcome),
    settledAt: pending ? null : at,
  };
}

/** What a turn says of its subscription: whether it succeeded, and the failures since. */
function toHealth(results: Result[]): Health {
  const tried = results.filter(
    (result): result is Result & { outcome: Outcome } =>
      result.outcome !== null && result.outcome !== "untried",
  );
  const lastSuccess = tried.findLastIndex(({ outcome }) => succeeded(outcome));
  const failures = tried.slice(lastSuccess + 1);
  const last = failures.at(-1)?.outcome;
  const [first] = results;
  if (!first) throw new Error("a turn has at least one delivery");
  return {
    subscriptionId: first.delivery.subscriptionId,
    host: new URL(first.delivery.url).host,
    succeeded: lastSuccess >= 0,
    failures: failures.length,
    failingSince: failures[0]?.at ?? null,
    outcome: last?.kind ?? null,
    status: last ? statusOf(last) : null,
  };
}

function statusOf(outcome: Outcome): number | null {
  return outcome.kind === "answered" ? outcome.status : null;
}

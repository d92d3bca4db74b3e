import {
  BUSY_HAND_OFF_MS,
  DISPATCHES_AT_ONCE,
  EARLY_WAKE_MS,
  HAND_OFF_MS,
  HOLD_MS,
} from "../contract/limits.ts";
import { type Lane, laneOf } from "../contract/pace.ts";
import { openDatabase, query } from "../db/client.ts";
import { bindingOf, DIRECTORY, hasOneDatabase, openDirectory } from "../db/databases.ts";
import { createAttempt } from "../delivery/attempt.ts";
import { type DispatchTools, dispatch, type EndedTurn } from "../delivery/dispatch.ts";
import { type WakeMessage, wake } from "../delivery/wake.ts";
import { callObject } from "../gate/call.ts";
import { log, logError } from "../log.ts";
import { findKeysOfWorkspaces } from "../model/workspaces.ts";
import { succeeded } from "../webhooks/outcome.ts";

const RETRY_DELAY_SECONDS = 10;

/** The dispatches that an isolate has under way, by the database. */
export type Load = Map<string, number>;
const THIS_ISOLATE: Load = new Map();

/**
 * The queue door of deliveries: dispatches what is due to the subscriptions that the messages name.
 * A dispatch that waits for its subscribers goes on by itself, so that the queue does not wait with
 * it: the database holds all that is to be done, and the messages are hints.
 *
 * @param attempt makes one attempt; another one stands in for the network in the simulation, where
 *   isolates have their `load` apart, too.
 */
export async function consume(
  messages: readonly Message<WakeMessage>[],
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  attempt: DispatchTools["attempt"] = createAttempt(env),
  load: Load = THIS_ISOLATE,
): Promise<void> {
  const lanes = Map.groupBy(
    messages,
    ({ body: { database = DIRECTORY, lane } }) => `${lane} ${database}`,
  );
  await Promise.all(
    [...lanes.values()].map((hints) => consumeLane(hints, env, ctx, attempt, load)),
  );
}

/** Takes messages of one lane and one database. */
async function consumeLane(
  messages: Message<WakeMessage>[],
  env: Env,
  ctx: Pick<ExecutionContext, "waitUntil">,
  attempt: DispatchTools["attempt"],
  load: Load,
): Promise<void> {
  const [
    {
      body: { lane, database = DIRECTORY },
    },
  ] = messages as [Message<WakeMessage>];
  const subscriptionIds = [...new Set(messages.map(({ body }) => body.subscriptionId))];
  // Its first consumer may have died, and what it held is to be looked at when that hold ends.
  const again = new Set(
    messages.filter(({ attempts }) => attempts > 1).map(({ body }) => body.subscriptionId),
  );
  const underWay = load.get(database) ?? 0;
  const handsOff = underWay < DISPATCHES_AT_ONCE;
  load.set(database, underWay + 1);
  const work = dispatchAndWake(database, subscriptionIds, again, lane, env, attempt)
    .catch((error: unknown) => {
      logError("dispatch_failed", error, { database, subscriptions: subscriptionIds.length });
      return "failed" as const;
    })
    .finally(() => {
      load.set(database, (load.get(database) ?? 0) - 1);
    });
  const handedOff = new Promise<"handed_off">((resolve) => {
    if (handsOff) setTimeout(() => resolve("handed_off"), HAND_OFF_MS);
    else if (!hasOneDatabase(env)) setTimeout(() => resolve("handed_off"), BUSY_HAND_OFF_MS);
  });
  const result = await Promise.race([work, handedOff]);
  if (result === "failed") {
    for (const message of messages) message.retry({ delaySeconds: RETRY_DELAY_SECONDS });
    return;
  }
  for (const message of messages) message.ack();
  if (result !== "handed_off") return;
  const rest = work.then(async (outcome) => {
    if (outcome !== "failed") return;
    const lost = subscriptionIds.map((subscriptionId) => ({ subscriptionId, lane }));
    await wake(env, database, lost, HOLD_MS / 1000);
  });
  ctx.waitUntil(rest);
}

/** Dispatches, and sees to it that each subscription is woken when it has something due next. */
async function dispatchAndWake(
  database: string,
  subscriptionIds: string[],
  again: Set<string>,
  lane: Lane,
  env: Env,
  attempt: DispatchTools["attempt"],
): Promise<void> {
  const session = bindingOf(env, database).withSession("first-primary");
  const startedAt = Date.now();
  const count = { delivered: 0, failed: 0 };
  const ended: EndedTurn[] = [];
  const waking: Promise<void>[] = [];
  const tools: DispatchTools = {
    now: Date.now,
    random: Math.random,
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    async tellGates(keyHashes, workspaceIds) {
      const bookmark = session.getBookmark();
      // Keys are in the directory; its own dispatches have read them with what they claimed.
      const hashes =
        database === DIRECTORY ? keyHashes : await findUsedKeys(env, workspaceIds, Date.now());
      if (bookmark !== null) await advanceGates(env, hashes, database, bookmark);
    },
    async attempt(...post) {
      const outcome = await attempt(...post);
      count[succeeded(outcome) ? "delivered" : "failed"]++;
      return outcome;
    },
    ended(turn) {
      // Those that end together are woken together.
      if (ended.push(turn) > 1) return;
      waking.push(Promise.resolve().then(() => wakeAll(env, database, ended.splice(0), again)));
    },
  };
  try {
    await dispatch(openDatabase(session), subscriptionIds, lane, tools);
  } finally {
    const durationMs = Date.now() - startedAt;
    const subscriptions = subscriptionIds.length;
    if (count.delivered + count.failed > 0)
      log("dispatched", { lane, subscriptions, ...count, durationMs });
    await Promise.all(waking);
  }
}

async function wakeAll(
  env: Env,
  database: string,
  ended: EndedTurn[],
  again: Set<string>,
): Promise<void> {
  const now = Date.now();
  const wakes = ended.flatMap((turn) => {
    const { subscriptionId } = turn.found;
    const delayMs = nextWakeMs(turn, again.has(subscriptionId), now);
    if (delayMs === null) return [];
    const delaySeconds = Math.ceil(delayMs / 1000);
    return { subscriptionId, lane: laneOf(turn.found), delaySeconds };
  });
  const byDelay = Map.groupBy(wakes, ({ delaySeconds }) => delaySeconds);
  await Promise.all(
    [...byDelay].map(([delaySeconds, group]) => wake(env, database, group, delaySeconds)),
  );
}

/**
 * When a subscription is to be woken next, in milliseconds from now; null when somebody else sees to
 * that, or nobody needs to.
 *
 * @param again whether the hint that woke it has come before, its first consumer having died.
 */
export function nextWakeMs({ found, held }: EndedTurn, again: boolean, now: number): number | null {
  const { dueAt, nextAt, heldUntil } = found;
  // Whoever holds it looks for more before letting go.
  if (heldUntil !== null) return again ? Math.max(0, heldUntil - now) : null;
  if (found.cancelling) return 0;
  if (dueAt === null || !found.owed) return null;
  const waitMs = Math.max(0, Math.max(dueAt, nextAt) - now);
  // Of a later time, whoever set it has sent a hint.
  return held || waitMs <= EARLY_WAKE_MS ? waitMs : null;
}

/** The keys in use of the workspaces; none when the directory is away, which holds no delivery up. */
async function findUsedKeys(env: Env, workspaceIds: string[], now: number): Promise<string[]> {
  try {
    const keys = await query(openDirectory(env), findKeysOfWorkspaces(workspaceIds, now));
    return keys.map(({ keyHash }) => keyHash);
  } catch (error) {
    logError("bookmark_lost", error, { workspaces: workspaceIds.length });
    return [];
  }
}

/**
 * Tells the keys' gates how new a read must be to find what is about to be posted: a subscriber may
 * ask for it at once, and be served by a replica. A gate that fails holds no delivery up.
 */
async function advanceGates(env: Env, keyHashes: string[], database: string, bookmark: string) {
  const told = await Promise.allSettled(
    keyHashes.map((hash) =>
      callObject(env.KEY_GATE, hash, (gate) => gate.advance(bookmark, database)),
    ),
  );
  const failures = told.filter((result) => result.status === "rejected");
  if (failures[0]) logError("bookmark_lost", failures[0].reason, { keys: failures.length });
}

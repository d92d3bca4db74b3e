import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { log, logError } from "../log.ts";
import { withTimeout } from "../timing.ts";
import { createAttempt } from "./attempt.ts";
import { dispatch } from "./dispatch.ts";
import { LEASE_MS } from "./lease.ts";
import { succeeded } from "./outcome.ts";
import { type Lane, laneOf, POSTS_AT_ONCE } from "./policy.ts";
import { prepare } from "./sender.ts";
import type { Snapshot } from "./settle-and-claim.ts";
import type { DispatchTools } from "./tools.ts";
import { type WakeMessage, wake } from "./wake.ts";

/** Maximum dispatches per invocation, which share its connections: one per lane and database. */
const DISPATCHES_PER_INVOCATION = 3;
/** After this long, a dispatch continues in the background, so that the queue goes on... */
const BACKGROUND_AFTER_MS = 100;
/** ...unless the isolate has this many of them: 25 MB, if each keeps `CLAIM_MAX` of the largest events... */
export const BACKGROUND_DISPATCHES_MAX = 8;
/** ...but no later than this, or the slow answers of one subscriber would hold up the queue of all. */
const BACKGROUND_AFTER_MAX_MS = 2_000;
/** Wait before a dispatch that failed is made again: its lease has ended by then. */
const RETRY_DELAY_SECONDS = LEASE_MS / 1000;

/** How many dispatches an isolate has in progress, by database. */
export type Load = Map<string, number>;
const THIS_ISOLATE: Load = new Map();

/**
 * The queue consumer for deliveries: dispatches what is due to the subscriptions that the messages name.
 * A dispatch that takes long continues in the background, so that the queue does not wait for its
 * subscribers. Nothing is lost: the work is in the database, and the messages are only hints.
 *
 * @param attempt makes one attempt. The simulation replaces it, and gives each isolate its own `load`.
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
  const groups = [...lanes.values()];
  // Another invocation has connections of its own.
  for (const message of groups.splice(DISPATCHES_PER_INVOCATION).flat()) message.retry();
  const connections = Math.floor(POSTS_AT_ONCE / Math.max(1, groups.length));
  await Promise.all(
    groups.map((group) => consumeLane(group, connections, env, ctx, attempt, load)),
  );
}

/** Consumes the messages of one lane and one database. */
async function consumeLane(
  messages: Message<WakeMessage>[],
  connections: number,
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
  const inProgress = load.get(database) ?? 0;
  load.set(database, inProgress + 1);
  const work = dispatchAndWake(database, subscriptionIds, lane, connections, env, attempt)
    .catch(async (error: unknown) => {
      logError("dispatch_failed", error, { database, subscriptions: subscriptionIds.length });
      const lost = subscriptionIds.map((subscriptionId) => ({ subscriptionId, lane }));
      await wake(env, database, lost, RETRY_DELAY_SECONDS);
    })
    .finally(() => {
      load.set(database, (load.get(database) ?? 0) - 1);
    });
  const isBusy = inProgress >= BACKGROUND_DISPATCHES_MAX;
  await withTimeout(isBusy ? BACKGROUND_AFTER_MAX_MS : BACKGROUND_AFTER_MS, work, () => {});
  for (const message of messages) message.ack();
  ctx.waitUntil(work);
}

/** Dispatches, then wakes each subscription again for when its next delivery is due. */
async function dispatchAndWake(
  database: string,
  subscriptionIds: string[],
  lane: Lane,
  connections: number,
  env: Env,
  attempt: DispatchTools["attempt"],
): Promise<void> {
  // Without a session, every query goes to the primary, as the two-second rule needs it.
  const db = openDatabase(bindingOf(env, database));
  const startedAt = Date.now();
  const count = { delivered: 0, failed: 0 };
  const waking: Promise<boolean>[] = [];
  const tools: DispatchTools = {
    now: Date.now,
    random: Math.random,
    prepare: (...claim) => prepare(env, ...claim),
    async attempt(...post) {
      const outcome = await attempt(...post);
      count[succeeded(outcome) ? "delivered" : "failed"]++;
      return outcome;
    },
    finished(subscription) {
      const delayMs = nextWakeMs(subscription, Date.now());
      if (delayMs === null) return;
      const { subscriptionId } = subscription;
      const hint = { subscriptionId, lane: laneOf(subscription) };
      waking.push(wake(env, database, [hint], Math.ceil(delayMs / 1000)));
    },
  };
  try {
    await dispatch(db, subscriptionIds, lane, tools, connections);
  } finally {
    const durationMs = Date.now() - startedAt;
    const subscriptions = subscriptionIds.length;
    if (count.delivered + count.failed > 0)
      log("dispatched", { lane, subscriptions, ...count, durationMs });
    await Promise.all(waking);
  }
}

/**
 * When to wake a subscription next, in milliseconds from now; null if another consumer does that, or
 * nothing is due.
 */
export function nextWakeMs(
  { readyAt, leasedElsewhereUntil, cancelling, mayPost }: Snapshot,
  now: number,
): number | null {
  // The dispatch that leases it looks for more before it releases it. If it has died, the sweep does.
  if (leasedElsewhereUntil !== null) return null;
  if (cancelling) return 0;
  return readyAt === null || !mayPost ? null : Math.max(0, readyAt - now);
}

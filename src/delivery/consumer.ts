import { CLAIM_FAILING_MAX, CLAIM_MAX } from "../contract/limits.ts";
import { openDatabase } from "../db/client.ts";
import { callObject } from "../gate/call.ts";
import { log, logError } from "../log.ts";
import { type Claimed, readBody, toWake } from "../model/deliveries.ts";
import type { Outcome } from "./policy.ts";
import { post } from "./post.ts";
import { type RunTools, runDeliveries } from "./run.ts";
import { open, readKeyRing } from "./seal.ts";
import { signatureHeaders } from "./signature.ts";
import { targetFault } from "./target.ts";
import { type WakeMessage, wake } from "./wake.ts";

const RETRY_DELAY_SECONDS = 10;

/**
 * The queue door: delivers what is due to the subscriptions that the batch names. A message is
 * acknowledged once the outcomes stand in the database, however they are; until then it comes back.
 *
 * @param attempt makes one attempt; another one stands in for the network in the simulation.
 */
export async function consume(
  batch: MessageBatch<unknown>,
  env: Env,
  attempt: RunTools["attempt"] = (delivery) => attemptDelivery(env, delivery),
): Promise<void> {
  const subscriptionIds = [...new Set(batch.messages.map(readMessage))].filter((id) => id !== null);
  const share = Math.max(1, Math.floor(CLAIM_MAX / Math.max(1, subscriptionIds.length)));
  const failingLane = batch.queue.endsWith("redeliveries");
  const quota = failingLane ? Math.min(share, CLAIM_FAILING_MAX) : share;
  try {
    const session = env.DB.withSession("first-primary");
    const beforePosts = (keyHashes: string[]) =>
      advanceGates(env, keyHashes, session.getBookmark());
    const tools: RunTools = { now: Date.now, random: Math.random, beforePosts, attempt };
    const next = await runDeliveries(openDatabase(session), subscriptionIds, quota, tools);
    await wakeNext(env, next);
  } catch (error) {
    logError("deliveries_failed", error, { subscriptions: subscriptionIds.length });
    batch.retryAll({ delaySeconds: RETRY_DELAY_SECONDS });
    return;
  }
  batch.ackAll();
}

function readMessage({ body, id }: Message<unknown>): string | null {
  const subscriptionId = (body as Partial<WakeMessage> | null)?.subscriptionId;
  if (typeof subscriptionId === "string") return subscriptionId;
  log("message_unreadable", { message: id });
  return null;
}

/**
 * Tells the keys' gates how new a read must be to find what is about to be posted: a subscriber may
 * ask for it at once, and be served by a replica. A gate that fails holds no delivery up.
 */
async function advanceGates(env: Env, keyHashes: string[], bookmark: string | null) {
  if (bookmark === null) return;
  const told = await Promise.allSettled(
    keyHashes.map((hash) => callObject(env.KEY_GATE, hash, (gate) => gate.advance(bookmark))),
  );
  const failures = told.filter((result) => result.status === "rejected");
  if (failures[0]) logError("bookmark_lost", failures[0].reason, { keys: failures.length });
}

/** Sees to it that each subscription is woken when it has something due next. */
async function wakeNext(env: Env, next: Awaited<ReturnType<typeof runDeliveries>>) {
  const now = Date.now();
  const waiting = next.flatMap((row) =>
    row.dueAt === null
      ? []
      : { ...toWake(row), delaySeconds: Math.max(0, Math.ceil((row.dueAt - now) / 1000)) },
  );
  const byDelay = Map.groupBy(waiting, ({ delaySeconds }) => delaySeconds);
  await Promise.all([...byDelay].map(([delaySeconds, wakes]) => wake(env, wakes, delaySeconds)));
}

/** One attempt, signed afresh and logged. */
async function attemptDelivery(env: Env, delivery: Claimed): Promise<Outcome> {
  const startedAt = Date.now();
  const about = {
    delivery: delivery.eventId,
    subscription: delivery.subscriptionId,
    host: new URL(delivery.url).host,
    attempt: delivery.attempts + 1,
  };
  try {
    const outcome = await send(env, delivery, startedAt);
    const status = outcome.kind === "answered" ? outcome.status : null;
    const durationMs = Date.now() - startedAt;
    log("attempt", { ...about, outcome: outcome.kind, status, durationMs });
    return outcome;
  } catch (error) {
    logError("attempt_impossible", error, about);
    throw error;
  }
}

async function send(env: Env, delivery: Claimed, now: number): Promise<Outcome> {
  const { url, eventId, subscriptionId, sealedSecret } = delivery;
  if (targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true") !== null) return { kind: "refused" };
  const ring = readKeyRing(env.WEBHOOK_ENCRYPTION_KEYS);
  const secret = await open(ring, subscriptionId, sealedSecret);
  const body = delivery.body ?? (await readBody(openDatabase(env.DB), eventId));
  return post(url, body, await signatureHeaders(secret, eventId, body, now), now);
}

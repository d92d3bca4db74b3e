import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { openDataKey } from "../../encryption/personal-data.ts";
import { log, logError } from "../../log.ts";
import { Recent } from "../../recent.ts";
import { abortAfter } from "../../timing.ts";
import { makeBody } from "../bodies.ts";
import { keep, RESPONSE_READ_MS, readResponse } from "../exchange.ts";
import { openHeaders } from "../headers.ts";
import { statusOf, succeeded } from "../outcome.ts";
import { post, WEBHOOK_HEADER } from "../post.ts";
import { createGuard } from "../resolve.ts";
import { openSigner } from "../secrets.ts";
import type { Signer } from "../signature.ts";
import type { Claimed } from "./settle-and-claim.ts";
import { type Attempted, type DispatchTools, EventErased, type Target } from "./tools.ts";

/** A subscription's receiver, prepared once for several posts. */
interface Receiver {
  /** Rejects if a secret cannot be decrypted. */
  signer: Promise<Signer>;
  /** The body of one of its responses was late: those of successes are not waited for any more. */
  isBodyLate: boolean;
}

/** How many bodies a dispatch keeps: its subscriptions get the same events at about the same time. */
const BODIES_KEPT = 20;

/**
 * Creates the function that posts deliveries, each signed afresh; it throws like
 * `DispatchTools["attempt"]`.
 *
 * @param more headers besides those of `post`.
 */
export function createSender(env: Env, more: Record<string, string> = {}) {
  const receivers = new Map<string, Receiver>();
  const isRefused = createGuard(env);
  const bodies = new Recent<ReturnType<typeof makeBody>>(BODIES_KEPT);
  const bodyOf = ({ eventId, event }: Claimed, target: Target) => {
    const made = bodies.get(eventId) ?? makeBody(env.ENCRYPTION_KEYS, target, event);
    bodies.set(eventId, made);
    return made;
  };
  const receiverOf = (subscriptionId: string, target: Target): Receiver => {
    // The secrets may change during the dispatch.
    const key = [subscriptionId, target.sealedSecret, ...target.earlierSecrets].join();
    const known = receivers.get(key);
    if (known) return known;
    const signer = openSigner(env, subscriptionId, target);
    // Handled when it is awaited.
    signer.catch(() => {});
    const receiver = { signer, isBodyLate: false };
    receivers.set(key, receiver);
    return receiver;
  };
  /** What the receiver said. Ends before the post would have timed out. */
  const read = async (response: Response, receiver: Receiver, startedAt: number) => {
    const isUnread = !response.body || (response.ok && receiver.isBodyLate);
    if (isUnread || Date.now() - startedAt > POST_TIMEOUT_MS - RESPONSE_READ_MS) {
      await response.body?.cancel();
      return null;
    }
    return abortAfter(RESPONSE_READ_MS, (signal) => {
      signal.addEventListener("abort", () => {
        receiver.isBodyLate = true;
      });
      return readResponse(response, signal);
    });
  };
  return async (delivery: Claimed, target: Target, now: number): Promise<Attempted> => {
    const { url, workspaceId, dataKey, sealedHeaders } = target;
    const { subscriptionId } = delivery;
    const receiver = receiverOf(delivery.subscriptionId, target);
    if (await isRefused(url)) return { kind: "refused" };
    const sign = await receiver.signer;
    const body = await bodyOf(delivery, target);
    if (body === null) throw new EventErased();
    const owner = { subscriptionId, workspaceId, dataKey };
    const headers = {
      ...(await openHeaders(env, owner, sealedHeaders)),
      [WEBHOOK_HEADER]: subscriptionId,
      ...(await sign(delivery.eventId, body, now)),
      ...more,
    };
    const { outcome, response, clue } = await post(url, body, headers, now);
    const said = response ? read(response, receiver, now) : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, dataKey);
    return { ...outcome, kept: keep(delivery, headers, said, clue, openKey) };
  };
}

/** Creates the function that makes a dispatch's attempts, and logs those that fail. */
export function createAttempt(env: Env): DispatchTools["attempt"] {
  const send = createSender(env);
  return async (delivery, target) => {
    const startedAt = Date.now();
    const { subscriptionId, eventId, attempts } = delivery;
    const { host } = new URL(target.url);
    const about = { eventId, webhookId: subscriptionId, host, attempt: attempts + 1 };
    try {
      const outcome = await send(delivery, target, startedAt);
      // Successes are counted in the dispatch's log line: a line for each would cost more than
      // signing.
      if (succeeded(outcome)) return outcome;
      const durationMs = Date.now() - startedAt;
      const failed = { outcome: outcome.kind, status: statusOf(outcome), durationMs };
      log("attempt_failed", { ...about, ...failed });
      return outcome;
    } catch (error) {
      if (!(error instanceof EventErased)) logError("attempt_impossible", error, about);
      throw error;
    }
  };
}

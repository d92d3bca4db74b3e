import { openDataKey } from "../encryption/personal-data.ts";
import { openHeaders } from "../endpoints/headers.ts";
import { createGuard } from "../endpoints/resolve.ts";
import { openSigner } from "../endpoints/secrets.ts";
import type { Signer } from "../endpoints/signature.ts";
import { makeBody, UnreadableEvent } from "../events/bodies.ts";
import { log, logError } from "../log.ts";
import { abortAfter } from "../primitives/timing.ts";
import { type Outcome, statusOf, succeeded } from "./outcome.ts";
import type { PendingDelivery } from "./policy.ts";
import { post, TEST_HEADER, WEBHOOK_HEADER } from "./post.ts";
import { RESPONSE_READ_MS, readResponse, sealResponse } from "./response.ts";
import type { DueDelivery, RoundSubscription } from "./round.ts";

/** The body of a request, with the headers that sign it. */
interface Signed {
  body: string;
  signature: Record<string, string>;
  /** Unix milliseconds. */
  signedAt: number;
}

/** A delivery that a session may send, with its signed body. */
export interface PreparedDelivery extends PendingDelivery {
  subscriptionId: string;
  /** Rejects if the body or the signature cannot be made; the error surfaces when it is sent. */
  signed: Promise<Signed>;
}

/** The part of a subscription that its requests need. */
export type Target = Pick<
  RoundSubscription,
  "workspaceId" | "sealedDataKey" | "url" | "sealedSecret" | "sealedHeaders" | "earlierSecrets"
>;

/** The outcome of a request, with the part of its response to store. */
export type OutcomeWithResponse = Outcome & { storedResponse?: Promise<string | null> };

/**
 * Creates a sender, which makes, signs and sends requests.
 *
 * @param isTest whether requests are marked as tests, and even successful responses are stored.
 */
export function createSender(env: Env, isTest = false) {
  const isForbidden = createGuard(env);

  /**
   * Begins to make and sign the bodies of deliveries, as `DispatchPorts` says. The whole claim is begun at once, so that
   * most requests need not wait for Web Crypto.
   */
  function prepare(
    rows: readonly DueDelivery[],
    targets: ReadonlyMap<string, Target>,
    now: number,
  ): PreparedDelivery[] {
    // Deliveries of one event share its body, and those of one subscription its signer.
    const bodies = new Map<string, Promise<string>>();
    const signers = new Map<string, Promise<Signer>>();
    return rows.map((row) => {
      const { subscriptionId, eventId } = row;
      const target = targets.get(subscriptionId) as Target;
      const body = bodies.get(eventId) ?? makeBody(env.ENCRYPTION_KEYS, target, row);
      // Decrypts the subscription's secrets. Each signs the event's id, the second and the body (signature.ts).
      const signer = signers.get(subscriptionId) ?? openSigner(env, subscriptionId, target);
      bodies.set(eventId, body);
      signers.set(subscriptionId, signer);
      const signed = sign(eventId, body, signer, now);
      // A rejection is handled when the delivery is sent.
      signed.catch(() => {});
      return {
        subscriptionId,
        eventId,
        type: row.type,
        priority: row.priority,
        attempts: row.attempts,
        attemptsMade: row.attemptsMade,
        dueAt: row.dueAt,
        scheduledAt: row.scheduledAt,
        lastAt: row.lastAt,
        signed,
      };
    });
  }

  /**
   * Sends a delivery.
   *
   * @param now when the attempt starts, in Unix milliseconds.
   * @throws InvocationLimit if this invocation may not make more requests; UnreadableEvent if the body of this event
   *   cannot be made; anything else if, for example, a secret cannot be decrypted.
   */
  async function send(
    delivery: PreparedDelivery,
    target: Target,
    now: number,
  ): Promise<OutcomeWithResponse> {
    const { url, workspaceId, sealedDataKey, sealedHeaders } = target;
    const { subscriptionId, eventId } = delivery;
    if (await isForbidden(url)) return { kind: "refused" };
    const { body, signature, signedAt } = await delivery.signed;
    // An attempt is signed for the second in which it starts, from which history/delivery.ts recomputes its signature.
    // The signature of the claim is used if it was made for that second.
    const isCurrent = Math.floor(now / 1000) === Math.floor(signedAt / 1000);
    const headers = {
      ...(await openHeaders(env, { subscriptionId, workspaceId, sealedDataKey }, sealedHeaders)),
      [WEBHOOK_HEADER]: subscriptionId,
      ...(isCurrent
        ? signature
        : await (await openSigner(env, subscriptionId, target))(eventId, body, now)),
      ...(isTest ? TEST_HEADER : {}),
    };
    const { outcome, response, clue } = await post(url, body, headers, now);
    if (succeeded(outcome) && !isTest) {
      response?.body?.cancel().catch(() => {});
      return outcome;
    }
    const received = response
      ? abortAfter(RESPONSE_READ_MS, (signal) => readResponse(response, signal))
      : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, sealedDataKey);
    const storedResponse = sealResponse(delivery, received, clue, openKey, headers);
    return { ...outcome, storedResponse };
  }

  /**
   * Sends a delivery, and logs an attempt that fails or cannot be made.
   *
   * @param startedAt Unix milliseconds.
   */
  async function attempt(
    delivery: PreparedDelivery,
    target: Target,
    startedAt: number,
  ): Promise<OutcomeWithResponse> {
    const about = () => ({
      eventId: delivery.eventId,
      webhookId: delivery.subscriptionId,
      host: new URL(target.url).host,
      // Of its retry schedule. After an early attempt, the next one has the same number.
      attempt: delivery.attempts + 1,
    });
    try {
      const outcome = await send(delivery, target, startedAt);
      // Successes are only counted by the dispatch, because logging each would cost more than signing it.
      if (succeeded(outcome)) return outcome;
      const durationMs = Date.now() - startedAt;
      const status = statusOf(outcome);
      log("attempt_failed", { ...about(), outcome: outcome.kind, status, durationMs });
      return outcome;
    } catch (error) {
      // An event that cannot be read counts as attempted. If it cannot be decrypted, that was logged where it was read.
      if (!(error instanceof UnreadableEvent)) logError("delivery_not_attempted", error, about());
      throw error;
    }
  }

  return { prepare, send, attempt };
}

async function sign(
  eventId: string,
  body: Promise<string>,
  signer: Promise<Signer>,
  now: number,
): Promise<Signed> {
  // A missing secret takes precedence over an unreadable lead: only the latter counts as an attempt.
  await Promise.allSettled([signer, body]);
  const signWith = await signer;
  const text = await body;
  return { body: text, signature: await signWith(eventId, text, now), signedAt: now };
}

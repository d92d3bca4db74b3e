import { openHeaders } from "../endpoints/headers.ts";
import { createGuard } from "../endpoints/resolve.ts";
import { openSigner } from "../endpoints/secrets.ts";
import type { Signer } from "../endpoints/signature.ts";
import { type BodyRow, makeBody, UnreadableEvent } from "../events/bodies.ts";
import { log, logError } from "../log.ts";
import { abortAfter } from "../primitives/timing.ts";
import { openDataKey, type WorkspaceKey } from "../workspaces/data-keys.ts";
import { type Outcome, type PendingDelivery, statusOf, succeeded } from "./policy.ts";
import { post, TEST_HEADER, WEBHOOK_HEADER } from "./post.ts";
import { RESPONSE_READ_MS, readResponse, sealResponse } from "./response.ts";

/** The part of a subscription that its requests need. */
export interface Destination extends WorkspaceKey {
  subscriptionId: string;
  url: string;
  sealedSecret: string;
  sealedHeaders: string | null;
  /** Previous secrets, sealed, that still sign during their grace period. */
  earlierSecrets: string[];
}

/** A delivery that is due, with the row that its body is made from. */
export interface DueDelivery extends PendingDelivery, BodyRow {}

/** A delivery that may be sent, with its body and its signer. If one cannot be made, sending the delivery throws the error. */
export interface PreparedDelivery extends PendingDelivery {
  body: Promise<string>;
  signer: Promise<Signer>;
}

/** The outcome of a request, with the part of its response to store, which never rejects. */
type OutcomeWithResponse = Outcome & { storedResponse?: Promise<string | null> };

/** Makes, signs and sends requests; tests replace it. */
export type Sender = Pick<ReturnType<typeof createSender>, "prepare" | "attempt">;

/**
 * Creates a sender, which makes, signs and sends requests.
 *
 * @param isTest whether requests are marked as tests, and even successful responses are stored.
 */
export function createSender(env: Env, isTest = false) {
  const isForbidden = createGuard(env);

  /**
   * Begins to make the bodies of deliveries. Those of a whole claim are begun at once, so that most requests need not wait
   * for their decryption.
   */
  function prepare(rows: readonly DueDelivery[], target: Destination): PreparedDelivery[] {
    if (rows.length === 0) return [];
    const signer = openSigner(env, target.subscriptionId, target);
    const prepared = rows.map((row) => ({
      ...row,
      body: makeBody(env.ENCRYPTION_KEYS, target, row),
      signer,
    }));
    // A rejection is handled when the delivery is sent.
    for (const { body } of prepared) body.catch(() => {});
    signer.catch(() => {});
    return prepared;
  }

  /**
   * Sends a delivery.
   *
   * @param now when the attempt starts, in Unix milliseconds.
   * @throws UnreadableEvent if the body of this event cannot be made; anything else if no request can be made, for
   *   example because a secret cannot be decrypted, or the runtime lets this invocation make no more.
   */
  async function send(
    { eventId, body, signer }: PreparedDelivery,
    target: Destination,
    now: number,
  ): Promise<OutcomeWithResponse> {
    const { subscriptionId, url, workspaceId, sealedDataKey, sealedHeaders } = target;
    if (await isForbidden(url)) return { kind: "refused" };
    // A missing secret takes precedence over an unreadable lead: only the latter counts as an attempt.
    const sign = await signer;
    const text = await body;
    const headers = {
      ...(await openHeaders(env, { subscriptionId, workspaceId, sealedDataKey }, sealedHeaders)),
      [WEBHOOK_HEADER]: subscriptionId,
      ...(await sign(eventId, text, now)),
      ...(isTest ? TEST_HEADER : {}),
    };
    const { outcome, response, clue } = await post(url, text, headers, now);
    if (succeeded(outcome) && !isTest) {
      response?.body?.cancel().catch(() => {});
      return outcome;
    }
    const received = response
      ? abortAfter(RESPONSE_READ_MS, (signal) => readResponse(response, signal))
      : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, sealedDataKey);
    const key = { subscriptionId, eventId };
    return { ...outcome, storedResponse: sealResponse(key, received, clue, openKey, headers) };
  }

  /**
   * Sends a delivery, and logs an attempt that fails or cannot be made. Throws like `send`.
   *
   * @param startedAt Unix milliseconds.
   */
  async function attempt(
    delivery: PreparedDelivery,
    target: Destination,
    startedAt: number,
  ): Promise<OutcomeWithResponse> {
    const about = () => ({
      eventId: delivery.eventId,
      webhookId: target.subscriptionId,
      host: new URL(target.url).host,
      attempt: delivery.attemptsMade + 1,
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

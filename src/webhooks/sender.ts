import { openDataKey } from "../encryption/personal-data.ts";
import { Recent } from "../recent.ts";
import { abortAfter } from "../timing.ts";
import { makeBody } from "./bodies.ts";
import type { Claimed } from "./dispatch/settle-and-claim.ts";
import { type Attempted, EventErased, type Target } from "./dispatch/tools.ts";
import { openHeaders } from "./headers.ts";
import { succeeded } from "./outcome.ts";
import { post, TEST_HEADER, WEBHOOK_HEADER } from "./post.ts";
import { createGuard } from "./resolve.ts";
import { keep, RESPONSE_READ_MS, readResponse } from "./response.ts";
import { openSigner } from "./secrets.ts";
import type { Signer } from "./signature.ts";

/** How many bodies a dispatch keeps: its subscriptions get the same events at about the same time. */
const BODIES_KEPT = 20;

/**
 * Creates the function that posts deliveries, each signed afresh; it throws like
 * `DispatchTools["attempt"]`.
 *
 * @param isTest whether they are marked as tests, and their answers kept whatever they say.
 */
export function createSender(env: Env, isTest = false) {
  const signers = new Map<string, Promise<Signer>>();
  const isRefused = createGuard(env);
  const bodies = new Recent<ReturnType<typeof makeBody>>(BODIES_KEPT);
  const bodyOf = (delivery: Claimed, target: Target) => {
    const made = bodies.get(delivery.eventId) ?? makeBody(env.ENCRYPTION_KEYS, target, delivery);
    bodies.set(delivery.eventId, made);
    return made;
  };
  /** Rejects if a secret cannot be decrypted. */
  const signerOf = (subscriptionId: string, target: Target): Promise<Signer> => {
    // The secrets may change during the dispatch.
    const key = [subscriptionId, target.sealedSecret, ...target.earlierSecrets].join();
    const signer = signers.get(key) ?? openSigner(env, subscriptionId, target);
    signers.set(key, signer);
    // Handled when it is awaited.
    signer.catch(() => {});
    return signer;
  };
  const read = (response: Response) =>
    abortAfter(RESPONSE_READ_MS, (signal) => readResponse(response, signal));
  return async (delivery: Claimed, target: Target, now: number): Promise<Attempted> => {
    const { url, workspaceId, dataKey, sealedHeaders } = target;
    const { subscriptionId } = delivery;
    const signer = signerOf(subscriptionId, target);
    if (await isRefused(url)) return { kind: "refused" };
    const sign = await signer;
    const body = await bodyOf(delivery, target);
    if (body === null) throw new EventErased();
    const owner = { subscriptionId, workspaceId, dataKey };
    const headers = {
      ...(await openHeaders(env, owner, sealedHeaders)),
      [WEBHOOK_HEADER]: subscriptionId,
      ...(await sign(delivery.eventId, body, now)),
      ...(isTest ? TEST_HEADER : {}),
    };
    const { outcome, response, clue } = await post(url, body, headers, now);
    if (succeeded(outcome) && !isTest) {
      response?.body?.cancel().catch(() => {});
      return outcome;
    }
    const said = response ? read(response) : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, dataKey);
    return { ...outcome, kept: keep(delivery, said, clue, openKey) };
  };
}

import { openDataKey } from "../encryption/personal-data.ts";
import { makeBody } from "../events/bodies.ts";
import { openHeaders } from "../subscriptions/headers.ts";
import { createGuard } from "../subscriptions/resolve.ts";
import { openSigner } from "../subscriptions/secrets.ts";
import { abortAfter } from "../timing.ts";
import { type Outcome, succeeded } from "./outcome.ts";
import type { Post } from "./policy.ts";
import { post, TEST_HEADER, WEBHOOK_HEADER } from "./post.ts";
import { keep, RESPONSE_READ_MS, readResponse } from "./response.ts";
import type { ClaimedRow, Snapshot } from "./settle-and-claim.ts";
import type { Signer } from "./signature.ts";

/** The body of a post, and the headers that sign it. */
interface Ready {
  body: string;
  signature: Record<string, string>;
  /** Unix milliseconds. */
  signedAt: number;
}

/** A delivery that a dispatch may post. */
export interface Claimed extends Post {
  subscriptionId: string;
  /** What it throws, posting does. */
  ready: Promise<Ready>;
}

/** Where and how to post a delivery. */
export type Target = Pick<
  Snapshot,
  "workspaceId" | "dataKey" | "url" | "sealedSecret" | "sealedHeaders" | "earlierSecrets"
>;

/** How an attempt ended, and what is kept of its answer. */
export type Attempted = Outcome & { kept?: Promise<string | null> };

/**
 * Makes the bodies of deliveries and signs them: all at once, because one by one, between posts, each would
 * take several times as long. Deliveries of the same event share its body.
 *
 * @param targets those of their subscriptions, by id.
 * @param now Unix milliseconds: the targets were read then, or later.
 */
export function prepare(
  env: Env,
  rows: ClaimedRow[],
  targets: ReadonlyMap<string, Target>,
  now: number,
): Claimed[] {
  const bodies = new Map<string, Promise<string>>();
  const signers = new Map<string, Promise<Signer>>();
  return rows.map((row) => {
    const { createdAt, storedBody, leadId, lead, ...post } = row;
    const { subscriptionId, eventId } = post;
    const target = targets.get(subscriptionId) as Target;
    const body = bodies.get(eventId) ?? makeBody(env.ENCRYPTION_KEYS, target, row);
    const signer = signers.get(subscriptionId) ?? openSigner(env, subscriptionId, target);
    bodies.set(eventId, body);
    signers.set(subscriptionId, signer);
    const ready = sign(eventId, body, signer, now);
    // Handled when it is posted.
    ready.catch(() => {});
    return { ...post, ready };
  });
}

async function sign(
  eventId: string,
  body: Promise<string>,
  signer: Promise<Signer>,
  now: number,
): Promise<Ready> {
  // Whatever the lead, nothing is attempted without the secret.
  await Promise.allSettled([signer, body]);
  const [signWith, text] = [await signer, await body];
  return { body: text, signature: await signWith(eventId, text, now), signedAt: now };
}

/**
 * Creates the function that posts deliveries; it throws like `DispatchTools["attempt"]`.
 *
 * @param isTest whether they are marked as tests, and their answers kept whatever they say.
 */
export function createSender(env: Env, isTest = false) {
  const isRefused = createGuard(env);
  const read = (response: Response) =>
    abortAfter(RESPONSE_READ_MS, (signal) => readResponse(response, signal));
  return async (delivery: Claimed, target: Target, now: number): Promise<Attempted> => {
    const { url, workspaceId, dataKey, sealedHeaders } = target;
    const { subscriptionId, eventId } = delivery;
    if (await isRefused(url)) return { kind: "refused" };
    const { body, signature, signedAt } = await delivery.ready;
    // It names the second of its attempt, from which the history of the delivery makes it once more.
    const isFresh = Math.floor(now / 1000) === Math.floor(signedAt / 1000);
    const signAgain = async () =>
      (await openSigner(env, subscriptionId, target))(eventId, body, now);
    const owner = { subscriptionId, workspaceId, dataKey };
    const headers = {
      ...(await openHeaders(env, owner, sealedHeaders)),
      [WEBHOOK_HEADER]: subscriptionId,
      ...(isFresh ? signature : await signAgain()),
      ...(isTest ? TEST_HEADER : {}),
    };
    const { outcome, response, clue } = await post(url, body, headers, now);
    if (succeeded(outcome) && !isTest) {
      response?.body?.cancel().catch(() => {});
      return outcome;
    }
    const said = response ? read(response) : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, dataKey);
    return { ...outcome, kept: keep(delivery, said, clue, openKey, headers) };
  };
}

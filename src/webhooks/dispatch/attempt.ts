import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { openDataKey } from "../../encryption/personal-data.ts";
import { log, logError } from "../../log.ts";
import { Recent } from "../../recent.ts";
import { makeBody } from "../bodies.ts";
import { createDeadlines } from "../deadlines.ts";
import { keep, RESPONSE_READ_MS, readResponse } from "../exchange.ts";
import { succeeded } from "../outcome.ts";
import { post } from "../post.ts";
import { createGuard } from "../resolve.ts";
import { openSigner } from "../secrets.ts";
import type { Signer } from "../signature.ts";
import type { Target } from "./pipeline.ts";
import type { Claimed } from "./settle-and-claim.ts";
import { type Attempted, type DispatchTools, EventErased } from "./tools.ts";

/** What is needed to post to a subscription, prepared once per dispatch. */
interface Prepared {
  host: string;
  /** Rejects if a secret cannot be decrypted. */
  signer: Promise<Signer>;
  /** The body of one of its responses was late: those of successes are not waited for any more. */
  isBodyLate: boolean;
}

/** How many bodies a dispatch keeps: its subscriptions get the same events at about the same time. */
const BODIES_KEPT = 20;

/** Creates the function that makes attempts. It signs each one afresh and logs those that fail. */
export function createAttempt(env: Env): DispatchTools["attempt"] {
  const prepared = new Map<string, Prepared>();
  const withinDeadline = createDeadlines(POST_TIMEOUT_MS);
  const withinReadTime = createDeadlines(RESPONSE_READ_MS);
  const isRefused = createGuard(env);
  const bodies = new Recent<ReturnType<typeof makeBody>>(BODIES_KEPT);
  const bodyOf = ({ eventId, event }: Claimed, target: Target) => {
    const made = bodies.get(eventId) ?? makeBody(env.ENCRYPTION_KEYS, target, event);
    bodies.set(eventId, made);
    return made;
  };
  const prepare = (subscriptionId: string, target: Target): Prepared => {
    // The secrets may change during the dispatch.
    const key = [subscriptionId, target.sealedSecret, ...target.earlierSecrets].join();
    const known = prepared.get(key);
    if (known) return known;
    const signer = openSigner(env, subscriptionId, target);
    // Handled when it is awaited.
    signer.catch(() => {});
    const made = { host: new URL(target.url).host, signer, isBodyLate: false };
    prepared.set(key, made);
    return made;
  };
  /** What the receiver said. Ends before the post would have timed out. */
  const read = async (response: Response, ready: Prepared, startedAt: number) => {
    const isUnread = !response.body || (response.ok && ready.isBodyLate);
    if (isUnread || Date.now() - startedAt > POST_TIMEOUT_MS - RESPONSE_READ_MS) {
      await response.body?.cancel();
      return null;
    }
    return withinReadTime((signal) => {
      signal.addEventListener("abort", () => {
        ready.isBodyLate = true;
      });
      return readResponse(response, signal);
    });
  };
  const send = async (
    delivery: Claimed,
    target: Target,
    ready: Prepared,
    now: number,
  ): Promise<Attempted> => {
    const { url, workspaceId, dataKey } = target;
    if (await isRefused(url)) return { kind: "refused" };
    const sign = await ready.signer;
    const body = await bodyOf(delivery, target);
    if (body === null) throw new EventErased();
    const headers = await sign(delivery.eventId, body, now);
    const { outcome, response } = await withinDeadline((signal) =>
      post(url, body, headers, now, signal),
    );
    const said = response ? read(response, ready, now) : Promise.resolve(null);
    const openKey = () => openDataKey(env.ENCRYPTION_KEYS, workspaceId, dataKey);
    return { ...outcome, kept: keep(delivery, headers, said, openKey) };
  };
  return async (delivery, target) => {
    const startedAt = Date.now();
    const { subscriptionId, eventId, attempts } = delivery;
    const ready = prepare(subscriptionId, target);
    const about = { eventId, webhookId: subscriptionId, host: ready.host };
    try {
      const outcome = await send(delivery, target, ready, startedAt);
      // Successes are counted in the dispatch's log line: a line for each would cost more than
      // signing.
      if (succeeded(outcome)) return outcome;
      const status = outcome.kind === "answered" ? outcome.status : null;
      const durationMs = Date.now() - startedAt;
      const failed = { ...about, attempt: attempts + 1, outcome: outcome.kind, status, durationMs };
      log("attempt_failed", failed);
      return outcome;
    } catch (error) {
      if (!(error instanceof EventErased))
        logError("attempt_impossible", error, { ...about, attempt: attempts + 1 });
      throw error;
    }
  };
}

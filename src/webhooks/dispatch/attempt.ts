import { POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { log, logError } from "../../log.ts";
import { makeBody } from "../bodies.ts";
import { createDeadlines, type WithinDeadline } from "../deadlines.ts";
import { type Outcome, succeeded } from "../outcome.ts";
import { post } from "../post.ts";
import { createRecheck, type Recheck } from "../recheck.ts";
import { mustCheckNames } from "../resolve.ts";
import type { Signer } from "../signature.ts";
import { openSigner } from "../signer.ts";
import { targetFault } from "../target.ts";
import type { Claimed } from "./settle-and-claim.ts";
import { type DispatchTools, EventErased } from "./tools.ts";
import type { Target } from "./turn.ts";

/** What is needed to post to a subscription, prepared once per dispatch. */
interface Prepared {
  host: string;
  isRefused: boolean;
  /** Rejects if a secret cannot be decrypted. */
  signer: Promise<Signer>;
}

/** What attempts need besides the database. */
interface Means {
  /** `ENCRYPTION_KEYS`. */
  keys: string;
  recheck: Recheck | null;
  withinDeadline: WithinDeadline;
}

/** Creates the function that makes attempts. It signs each one afresh and logs those that fail. */
export function createAttempt(env: Env): DispatchTools["attempt"] {
  const targets = new Map<string, Prepared>();
  const withinDeadline = createDeadlines(POST_TIMEOUT_MS);
  const recheck = mustCheckNames(env) ? createRecheck(env.DNS_OVER_HTTPS_URL) : null;
  return async (delivery, target) => {
    const startedAt = Date.now();
    const { subscriptionId, eventId, attempts } = delivery;
    // The secrets may change during the dispatch.
    const key = [subscriptionId, target.sealedSecret, ...target.earlierSecrets].join();
    let prepared = targets.get(key);
    if (!prepared) {
      prepared = prepare(env, subscriptionId, target);
      targets.set(key, prepared);
    }
    const { host } = prepared;
    const about = () => ({
      delivery: eventId,
      subscription: subscriptionId,
      host,
      attempt: attempts + 1,
    });
    try {
      const outcome = await send(prepared, delivery, target, startedAt, {
        keys: env.ENCRYPTION_KEYS,
        recheck,
        withinDeadline,
      });
      // Successes are counted in the dispatch's log line: a line for each would cost more than
      // signing.
      if (succeeded(outcome)) return outcome;
      const status = outcome.kind === "answered" ? outcome.status : null;
      const durationMs = Date.now() - startedAt;
      log("attempt_failed", { ...about(), outcome: outcome.kind, status, durationMs });
      return outcome;
    } catch (error) {
      if (error instanceof EventErased) throw error;
      logError("attempt_impossible", error, about());
      throw error;
    }
  };
}

function prepare(env: Env, subscriptionId: string, target: Target): Prepared {
  const { url } = target;
  const signer = openSigner(env, subscriptionId, target);
  // Handled when it is awaited.
  signer.catch(() => {});
  const isRefused = targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true") !== null;
  return { host: new URL(url).host, isRefused, signer };
}

async function send(
  { isRefused, signer }: Prepared,
  { eventId, event }: Claimed,
  target: Target,
  now: number,
  { keys, recheck, withinDeadline }: Means,
): Promise<Outcome> {
  const { url } = target;
  if (isRefused || (await recheck?.(url)) === "private") return { kind: "refused" };
  const sign = await signer;
  const body = await makeBody(keys, target, event);
  if (body === null) throw new EventErased();
  const headers = await sign(eventId, body, now);
  return withinDeadline((signal) => post(url, body, headers, now, signal));
}

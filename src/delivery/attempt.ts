import { openDatabase } from "../db/client.ts";
import { log, logError } from "../log.ts";
import { type Claimed, readBody } from "../model/deliveries.ts";
import type { DispatchTools } from "./dispatch.ts";
import type { Outcome } from "./policy.ts";
import { post } from "./post.ts";
import { open, readKeyRing } from "./seal.ts";
import { createSigner, type Signer } from "./signature.ts";
import { targetFault } from "./target.ts";
import type { Target } from "./turn.ts";

/** Makes attempts, each signed afresh and logged; a subscription's secret is opened once. */
export function createAttempt(env: Env): DispatchTools["attempt"] {
  const signers = new Map<string, Promise<Signer>>();
  return async (delivery, target) => {
    const startedAt = Date.now();
    const about = {
      delivery: delivery.eventId,
      subscription: delivery.subscriptionId,
      host: new URL(target.url).host,
      attempt: delivery.attempts + 1,
    };
    try {
      const outcome = await send(env, signers, delivery, target, startedAt);
      const status = outcome.kind === "answered" ? outcome.status : null;
      const durationMs = Date.now() - startedAt;
      log("attempt", { ...about, outcome: outcome.kind, status, durationMs });
      return outcome;
    } catch (error) {
      logError("attempt_impossible", error, about);
      throw error;
    }
  };
}

async function send(
  env: Env,
  signers: Map<string, Promise<Signer>>,
  { eventId, subscriptionId, body: inline }: Claimed,
  { workspaceId, url, sealedSecret }: Target,
  now: number,
): Promise<Outcome> {
  if (targetFault(url, env.ALLOW_LOCAL_WEBHOOKS === "true") !== null) return { kind: "refused" };
  let signer = signers.get(sealedSecret);
  if (!signer) {
    const ring = readKeyRing(env.WEBHOOK_ENCRYPTION_KEYS);
    signer = open(ring, subscriptionId, sealedSecret).then(createSigner);
    signers.set(sealedSecret, signer);
  }
  const sign = await signer;
  const body = inline ?? (await readBody(openDatabase(env.DB), workspaceId, eventId));
  return post(url, body, await sign(eventId, body, now), now);
}

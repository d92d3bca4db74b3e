import { log, logError } from "../log.ts";
import { statusOf, succeeded } from "./outcome.ts";
import { createSender } from "./sender.ts";
import type { DispatchTools } from "./tools.ts";

/** Creates the function that makes a dispatch's attempts, and logs those that fail. */
export function createAttempt(env: Env): DispatchTools["attempt"] {
  const send = createSender(env);
  return async (delivery, target) => {
    const startedAt = Date.now();
    const { subscriptionId, eventId, attempts } = delivery;
    const about = () => {
      const { host } = new URL(target.url);
      return { eventId, webhookId: subscriptionId, host, attempt: attempts + 1 };
    };
    try {
      const outcome = await send(delivery, target, startedAt);
      // The dispatch counts successes: a line for each would cost more than signing.
      if (succeeded(outcome)) return outcome;
      const durationMs = Date.now() - startedAt;
      const failed = { outcome: outcome.kind, status: statusOf(outcome), durationMs };
      log("attempt_failed", { ...about(), ...failed });
      return outcome;
    } catch (error) {
      logError("attempt_impossible", error, about());
      throw error;
    }
  };
}

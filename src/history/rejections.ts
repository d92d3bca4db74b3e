import type { WebhookEvent } from "../contract/enumerations.ts";
import { TELL_AFTER_MS } from "../contract/limits.ts";
import type { Rejection, Rejections } from "../db/schema.ts";

/** An event type that a subscription rejects although it accepts others. */
export interface RejectedKind extends Rejection {
  type: WebhookEvent;
}

/** What `rejectedTypes` needs of a subscription. */
interface Rejecting {
  rejections: Rejections;
  failingSince: number | null;
  events: WebhookEvent[];
}

/**
 * The event types that a subscription lists and has not accepted since one failed, although it has accepted
 * others since. If it accepts nothing, it is failing instead, and this is empty.
 */
export function rejectedTypes({ rejections, failingSince, events }: Rejecting): RejectedKind[] {
  return events.flatMap((type) => {
    const rejection = rejections[type];
    if (!rejection) return [];
    const acceptsOthers = failingSince === null || failingSince > rejection.since;
    return acceptsOthers ? [{ type, ...rejection }] : [];
  });
}

/**
 * Those that it has rejected for at least `TELL_AFTER_MS`, so that its administrators are told.
 *
 * @param now Unix milliseconds.
 */
export function rejectedKinds(subscription: Rejecting, now: number): RejectedKind[] {
  return rejectedTypes(subscription).filter(({ since }) => now - since >= TELL_AFTER_MS);
}

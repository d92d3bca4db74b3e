import type { WebhookEvent } from "../contract/enumerations.ts";
import { TELL_AFTER_MS } from "../contract/limits.ts";
import type { Circuit, Circuits } from "../db/schema.ts";

/** An event type that a subscription rejects although it accepts others. */
export interface RejectedType extends Pick<Circuit, "since" | "status"> {
  type: WebhookEvent;
  /** The outcome of the last failed attempt. */
  outcome: string;
}

/** The part of a subscription that `rejectedTypes` needs. */
interface Rejecting {
  circuits: Circuits;
  failingSince: number | null;
  events: WebhookEvent[];
}

/**
 * Returns the listed event types that an endpoint rejects while it accepts others. Returns none if it accepts
 * nothing, because the subscription is failing then.
 */
export function rejectedTypes({ circuits, failingSince, events }: Rejecting): RejectedType[] {
  return events.flatMap((type) => {
    const circuit = circuits[type];
    // Without an outcome, no attempt could be made, through no fault of the endpoint.
    if (!circuit?.outcome) return [];
    const { since, outcome, status } = circuit;
    const acceptsOthers = failingSince === null || failingSince > since;
    return acceptsOthers ? [{ type, since, outcome, status }] : [];
  });
}

/**
 * Returns the event types that an endpoint has rejected for at least `TELL_AFTER_MS`, after which its administrators
 * are notified.
 *
 * @param now Unix milliseconds.
 */
export function typesToReport(subscription: Rejecting, now: number): RejectedType[] {
  return rejectedTypes(subscription).filter(({ since }) => now - since >= TELL_AFTER_MS);
}

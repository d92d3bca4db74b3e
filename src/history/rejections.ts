import type { WebhookEvent } from "../contract/enumerations.ts";
import { TELL_AFTER_MS } from "../contract/limits.ts";
import type { Rejection } from "../db/schema.ts";
import type { Pace } from "../delivery/policy.ts";

/** A kind of events that a subscription has rejected for a day although it accepts others. */
export interface RejectedKind extends Rejection {
  type: WebhookEvent;
}

/**
 * The kinds that a subscription lists and has rejected for at least `TELL_AFTER_MS`, although it has
 * accepted others since. If it accepts nothing, it is failing instead, and this is empty.
 *
 * @param now Unix milliseconds.
 */
export function rejectedKinds(
  {
    rejections,
    failingSince,
    events,
  }: Pick<Pace, "rejections" | "failingSince"> & {
    events: WebhookEvent[];
  },
  now: number,
): RejectedKind[] {
  return events.flatMap((type) => {
    const rejection = rejections[type];
    if (!rejection || now - rejection.since < TELL_AFTER_MS) return [];
    return failingSince === null || failingSince > rejection.since ? [{ type, ...rejection }] : [];
  });
}

import type { DayFigures } from "../../../model/days.ts";
import type { AttemptView, WebhookView } from "../../../model/health.ts";
import type { DeliveryView } from "../../../model/history.ts";

// What the portal shows, in the spelling of HTTP.

/** A subscription with its health. */
export function toWebhook(view: WebhookView) {
  const { webhookId: id, url, events, state, failures, pending } = view;
  return {
    ...{ id, url, events },
    created_at: view.createdAt,
    state,
    failing_since: view.failingSince,
    ...{ failures, pending },
    next_attempt_at: view.nextAttemptAt,
    disabled_at: view.disabledAt,
    last_attempt: view.lastAttempt && toAttempt(view.lastAttempt),
  };
}

/** The figures of a day. */
export function toDay({ startsAt, exhausted: failed, ...figures }: DayFigures) {
  const { delivered, cancelled, pending, attempts, truncated } = figures;
  const date = new Date(startsAt).toISOString().slice(0, 10);
  return { date, delivered, failed, cancelled, pending, attempts, truncated };
}

/** A delivery. */
export function toDelivery(view: DeliveryView) {
  const { eventId: event_id, type, state, attempts } = view;
  return {
    ...{ event_id, type },
    created_at: view.createdAt,
    ...{ state, attempts },
    due_at: view.dueAt,
    settled_at: view.settledAt,
    last_attempt: view.lastAttempt && toAttempt(view.lastAttempt),
  };
}

/** How an attempt ended. */
export function toAttempt({ at, outcome, status, durationMs: duration_ms }: AttemptView) {
  return { at, outcome, status, duration_ms };
}

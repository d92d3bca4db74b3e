import type { DayFigures } from "../../../model/days.ts";
import type { AttemptView, WebhookView } from "../../../model/health.ts";
import type { DeliveryView } from "../../../model/history.ts";

// The portal API's shapes, with HTTP names.

/** A subscription and its health. */
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

/** One day's figures. */
export function toDay({ startsAt, exhausted: failed, ...figures }: DayFigures) {
  const { delivered, cancelled, pending, attempts, truncated } = figures;
  const date = new Date(startsAt).toISOString().slice(0, 10);
  return { date, delivered, failed, cancelled, pending, attempts, truncated };
}

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

import { z } from "@hono/zod-openapi";
import { PLATFORM_INPUTS } from "./platform.ts";

/*
 * The request bodies of the portal, other than those it shares with `/v1`. Each field has the
 * schema of the Platform door's method, under its HTTP name.
 */

const { enableWebhook, redeliver, rotateWebhookSecret, sendTestEvent } = PLATFORM_INPUTS;

/** The body of `POST /portal/api/webhooks/{id}/enable`. */
export const WebhookEnabling = z.strictObject({
  redeliver_since: enableWebhook.shape.redeliverSince,
});

/** The body of `POST /portal/api/webhooks/{id}/secret`. */
export const SecretRotation = z.strictObject({
  overlap_seconds: rotateWebhookSecret.shape.overlapSeconds,
});

/** The body of `POST /portal/api/webhooks/{id}/test`. */
export const TestRequest = z.strictObject({ type: sendTestEvent.shape.type });

/** The body of `POST /portal/api/webhooks/{id}/redeliver`: events by id, or a range. */
export const RedeliveryRequest = z
  .strictObject({
    event_ids: redeliver.shape.eventIds,
    since: redeliver.shape.since,
    until: redeliver.shape.until,
    states: redeliver.shape.states,
  })
  .superRefine(({ event_ids, since, until, states }, context) => {
    const fault = (parameter: string, reason: "required" | "unknown_property") =>
      context.addIssue({ code: "custom", path: [parameter], params: { reason } });
    if (event_ids == null && since == null) return fault("event_ids", "required");
    if (event_ids == null) return;
    if (since != null) fault("since", "unknown_property");
    if (until != null) fault("until", "unknown_property");
    if (states != null) fault("states", "unknown_property");
  });

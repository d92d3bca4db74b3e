import { WEBHOOK_EVENTS } from "./enumerations.ts";
import * as z from "./zod.ts";

/** The body of `PATCH /v1/automations/{id}`. */
export const AutomationControl = z.strictObject({ status: z.enum(["active", "paused"]) });

/** The body of `POST /v1/webhooks`; the URL is checked separately. */
export const WebhookCreation = z.strictObject({
  url: z.string(),
  events: z.array(z.enum(WEBHOOK_EVENTS)).check(z.minLength(1)),
});

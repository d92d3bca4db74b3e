import * as z from "zod";
import { WebhookEvent } from "./enumerations.ts";
import { URL_MAX_LENGTH } from "./limits.ts";

/** The body of `PATCH /v1/automations/{id}`. */
export const AutomationControl = z
  .strictObject({
    status: z.enum(["active", "paused"]).meta({
      description: "`active` starts the automation, `paused` stops it until it is started again.",
      example: "paused",
    }),
  })
  .meta({ id: "AutomationControl", description: "The state that an automation should be in." });

/** The body of `POST /v1/webhooks`; whether its URL may be posted to is judged apart. */
export const WebhookCreation = z
  .strictObject({
    url: z.string().meta({
      format: "uri",
      maxLength: URL_MAX_LENGTH,
      description:
        "Where events are posted: an HTTPS address that is reachable from the internet, without a user name or password in it.",
      example: "https://hooks.example.com/automations",
    }),
    events: z
      .array(WebhookEvent)
      .min(1)
      .meta({
        description: "The kinds of events to receive, at least one. Repeating one changes nothing.",
        example: ["lead.created"],
      }),
  })
  .meta({ id: "WebhookCreation", description: "The subscription to create." });

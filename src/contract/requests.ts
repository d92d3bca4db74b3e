import * as z from "zod";
import { WebhookEvent } from "./enumerations.ts";
import { URL_MAX_LENGTH } from "./limits.ts";

/** The body of `PATCH /v1/automations/{id}`. */
export const AutomationControl = z
  .strictObject({
    status: z.enum(["active", "paused"]).meta({
      description: "`active` starts the automation; `paused` stops it until it is started again.",
      example: "paused",
    }),
  })
  .meta({ id: "AutomationControl", description: "The desired status of an automation." });

/** The body of `POST /v1/webhooks`; the URL is checked separately. */
export const WebhookCreation = z
  .strictObject({
    url: z.string().meta({
      format: "uri",
      maxLength: URL_MAX_LENGTH,
      description:
        "Where to post events: an HTTPS URL on the public internet, without a user name or password.",
      example: "https://hooks.example.com/automations",
    }),
    events: z
      .array(WebhookEvent)
      .min(1)
      .meta({
        description: "The kinds of events to receive, at least one. Duplicates are ignored.",
        example: ["lead.created"],
      }),
  })
  .meta({ id: "WebhookCreation", description: "The subscription to create." });

import * as z from "zod";
import { URL_MAX_LENGTH } from "../contract/limits.ts";
import { AutomationControl, WebhookCreation } from "../contract/requests.ts";

/*
 * The words of the bodies that requests have. Their schemas are of zod's small form, as the Worker
 * reads with them: it holds no words, and the generator does not know it.
 */
const words = z.registry<{
  id?: string;
  description?: string;
  example?: unknown;
  format?: string;
  maxLength?: number;
}>();

words.add(AutomationControl, {
  id: "AutomationControl",
  description: "The desired status of an automation.",
});
words.add(AutomationControl.shape.status, {
  description: "`active` starts the automation; `paused` stops it until it is started again.",
  example: "paused",
});

const { url, events } = WebhookCreation.shape;
words.add(WebhookCreation, {
  id: "WebhookCreation",
  description: "The subscription to create.",
});
words.add(url, {
  format: "uri",
  maxLength: URL_MAX_LENGTH,
  description:
    "Where to post events: an HTTPS URL on the public internet, without a user name or password.",
  example: "https://hooks.example.com/automations",
});
words.add(events, {
  description: "The kinds of events to receive, at least one. Duplicates are ignored.",
  example: ["lead.created"],
});
words.add(events.def.element, { id: "WebhookEvent" });

/** The JSON Schemas of those bodies, by their names. */
export function requestBodies(): Record<string, object> {
  const { schemas } = z.toJSONSchema(words, {
    metadata: words,
    uri: (id) => `#/components/schemas/${id}`,
  });
  return Object.fromEntries(
    Object.entries(schemas).map(([name, { $schema, $id, ...schema }]) => [name, schema]),
  );
}

/** Subscribes this machine to all events and prints them as they arrive; Ctrl-C unsubscribes. */
import { receive } from "./receive.js";
import { run } from "./run.js";
import type { WebhookDelivery } from "./webhooks.js";

await run((client) =>
  receive(client, (event) => console.log(event.type, event.id, describe(event))),
);

function describe({ type, data }: WebhookDelivery): string {
  switch (type) {
    case "lead.created":
      return `${data.name} (${data.source})`;
    case "run.completed":
      return `${data.trigger_type}: ${data.status}`;
    case "automation.status_changed":
      return `${data.name} is ${data.status}`;
    default:
      return "unknown to this version of the client";
  }
}

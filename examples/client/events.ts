/** Subscribes this machine to all events and prints them as they arrive; Ctrl-C unsubscribes. */
import { once } from "node:events";
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { run } from "./run.js";
import { SignatureError, verifyDelivery, type WebhookDelivery } from "./webhooks.js";

const { PORT = "8080" } = process.env;
/** The URL at which the service reaches this machine; for a deployed one, the HTTPS URL of a tunnel. */
const { RECEIVER_URL = `http://127.0.0.1:${PORT}` } = process.env;

await run(async (client) => {
  const server = createServer().listen(Number(PORT), "127.0.0.1");
  await once(server, "listening");
  const { id, secret } = await client.createSubscription({
    url: RECEIVER_URL,
    events: ["lead.created", "run.completed", "automation.status_changed"],
  });

  server.on("request", async (request, response) => {
    try {
      const body = await buffer(request);
      const event = verifyDelivery(body, request.headers["x-service-signature"], secret);
      console.log(event.type, event.id, describe(event));
      response.writeHead(204).end();
    } catch (error) {
      console.error(String(error));
      response.writeHead(error instanceof SignatureError ? 401 : 500).end();
    }
  });
  console.log(`Listening for events at ${RECEIVER_URL}. Ctrl-C unsubscribes.`);

  // Not `once`: npm also passes on the Ctrl-C that the terminal has already sent to this process.
  await new Promise((resolve) => process.on("SIGINT", resolve));
  await client.deleteSubscription(id);
  server.close();
  server.closeAllConnections();
});

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

/** Subscribes this machine to every event and prints what comes; Ctrl-C ends the subscription. */
import { once } from "node:events";
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { Client } from "./client.js";
import { SignatureError, verifyDelivery, type WebhookDelivery } from "./webhooks.js";

const { API_URL, API_KEY, PORT = "8080" } = process.env;
if (!API_URL || !API_KEY) throw new Error("set API_URL and API_KEY");
/** Where the service reaches this machine. A deployed one needs HTTPS and a public host: a tunnel. */
const { RECEIVER_URL = `http://127.0.0.1:${PORT}` } = process.env;

const server = createServer().listen(Number(PORT), "127.0.0.1");
await once(server, "listening");

const client = new Client({ url: API_URL, apiKey: API_KEY });
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
    console.error(error);
    response.writeHead(error instanceof SignatureError ? 401 : 500).end();
  }
});
console.log(`Events arrive at ${RECEIVER_URL}. Ctrl-C ends the subscription.`);

// Not once: npm passes on a Ctrl-C that this process has had from the terminal already.
await new Promise((resolve) => process.on("SIGINT", resolve));
await client.deleteSubscription(id);
server.close();
server.closeAllConnections();

function describe({ type, data }: WebhookDelivery): string {
  switch (type) {
    case "lead.created":
      return `${data.name} came by ${data.source}`;
    case "run.completed":
      return `${data.trigger_type}: ${data.status}`;
    case "automation.status_changed":
      return `${data.name} is ${data.status}`;
    default:
      return "is of a kind that came after this client";
  }
}

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { Client } from "./client.js";
import { SignatureError, verifyDelivery, type WebhookDelivery } from "./webhooks.js";

const { PORT = "8080" } = process.env;
/** The URL at which the service reaches this machine; for a deployed one, the HTTPS URL of a tunnel. */
const { RECEIVER_URL = `http://127.0.0.1:${PORT}` } = process.env;

/** Larger than any delivery, in bytes. */
const BODY_MAX = 2_000_000;

/** The body of a request; null if it is too large. */
async function readBody(request: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > BODY_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/**
 * Subscribes this machine to all events until Ctrl-C. Two deliveries of one event may arrive at once.
 *
 * @param onEvent called with each verified event, except test events; if it throws, the event is sent again later.
 * @param work begins once events are received; its signal is aborted at the end.
 */
export async function receive(
  client: Client,
  onEvent: (event: WebhookDelivery) => void | Promise<void>,
  work: (signal: AbortSignal) => Promise<void> = async () => {},
): Promise<void> {
  let secret: string | null = null;
  const server = createServer(async (request, response) => {
    try {
      const body = await readBody(request);
      if (body === null) {
        response.writeHead(413, { Connection: "close" }).end();
        return;
      }
      if (secret === null) {
        // An event may arrive before the response with the secret. It is sent again later.
        response.writeHead(503).end();
        return;
      }
      const event = verifyDelivery(body, request.headers["x-service-signature"], secret);
      if (request.headers["x-service-test"] === undefined) await onEvent(event);
      else console.log(`A test event has arrived: ${event.type} ${event.id}`);
      response.writeHead(204).end();
    } catch (error) {
      console.error(String(error));
      response.writeHead(error instanceof SignatureError ? 401 : 500).end();
    }
  });
  server.listen(Number(PORT), "127.0.0.1");
  await once(server, "listening");

  const ending = new AbortController();
  const ended = new Promise((resolve) => {
    // Not `once`: npm also passes on the Ctrl-C that the terminal has already sent to this process.
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, resolve);
  });
  void ended.then(() => ending.abort());

  const subscription = await client.createSubscription({
    url: RECEIVER_URL,
    events: ["lead.created", "run.completed", "automation.status_changed"],
  });
  secret = subscription.secret;
  console.log(`Listening for events at ${RECEIVER_URL}. Ctrl-C unsubscribes.`);
  try {
    await Promise.all([work(ending.signal), ended]);
  } finally {
    await client.deleteSubscription(subscription.id);
    server.close();
    server.closeAllConnections();
  }
}

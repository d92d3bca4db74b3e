/** Receives webhooks, verified with the Standard Webhooks library: npm install standardwebhooks */
import { createServer, type IncomingHttpHeaders } from "node:http";
import { Webhook } from "standardwebhooks";

const { PORT = "8080", WEBHOOK_SECRET = "" } = process.env;
if (WEBHOOK_SECRET === "") throw new Error("WEBHOOK_SECRET is not set");
const webhook = new Webhook(WEBHOOK_SECRET);

/**
 * The ids of processed events. Two deliveries of one event may arrive at once: keep yours in your database, and
 * insert the id under a unique key, in the transaction of the work.
 */
const done = new Set<string>();

/** Larger than any delivery, in bytes: a sender of more is cut off. */
const BODY_MAX = 2_000_000;

/** Time limit for a sender's headers and body. */
const limits = { requestTimeout: 10_000, connectionsCheckingInterval: 2_000 };

createServer(limits, async (request, response) => {
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of request) {
      size += chunk.length;
      if (size > BODY_MAX) {
        response.writeHead(413, { Connection: "close" }).end();
        return;
      }
      chunks.push(chunk);
    }
    const body = Buffer.concat(chunks);
    if (!isGenuine(request.headers, body)) {
      response.writeHead(401).end();
      return;
    }
    const event = JSON.parse(body.toString());
    const isTest = request.headers["x-service-test"] !== undefined; // Its record is invented.
    if (!isTest && !done.has(event.id)) {
      await work(event);
      done.add(event.id); // After the work: a crash in between repeats it instead of losing it.
    }
    response.writeHead(204).end();
  } catch (error) {
    console.error(error);
    response.writeHead(500).end(); // The event is sent again later.
  }
}).listen(Number(PORT), "127.0.0.1");

/** Whether the headers sign exactly these bytes, with a timestamp within 5 minutes of now. */
function isGenuine(headers: IncomingHttpHeaders, body: Buffer): boolean {
  try {
    webhook.verify(body, headers as Record<string, string>);
    return true;
  } catch (error) {
    // It names a timestamp that is too old or too new: is this server's clock right?
    console.error(`rejected: ${error}`);
    return false;
  }
}

async function work(event: { id: string; type: string; data: unknown }): Promise<void> {
  console.log(event.type, event.id);
}

import { createHmac, timingSafeEqual } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import { buffer } from "node:stream/consumers";
import type { WebhookDelivery } from "../../src/events/bodies.ts";

const TOLERANCE_SECONDS = 300;

/** The result of a post to the receiver. */
export type Receipt =
  | { verdict: "accepted" | "repeated"; delivery: WebhookDelivery }
  | { verdict: "rejected"; reason: string };

/** Where a receiver on `port` listens. */
export function receiverUrl(port: number): string {
  return `http://127.0.0.1:${port}/webhooks`;
}

/**
 * Starts a subscriber that does what site/guides/processing.md requires: it rejects what is not signed with its
 * secret or not recent, and recognises what it has received before.
 *
 * @param secret the current signing secret; null before there is a subscription.
 * @param onGet responds to requests of a browser.
 * @returns the server, for the caller to close.
 * @throws Error if the port is taken.
 */
export async function startReceiver(
  port: number,
  secret: () => string | null,
  onReceipt: (receipt: Receipt) => void,
  onGet: RequestListener = (_, response) => response.writeHead(404).end(),
): Promise<Server> {
  const received = new Set<string>();
  const answer = async (request: IncomingMessage): Promise<Receipt> => {
    const body = await buffer(request);
    const reason = signatureFault(
      secret(),
      request.headers["x-service-signature"],
      body,
      Date.now(),
    );
    if (reason !== null) return { verdict: "rejected", reason };
    const delivery = JSON.parse(body.toString()) as WebhookDelivery;
    const verdict = received.has(delivery.id) ? "repeated" : "accepted";
    received.add(delivery.id);
    return { verdict, delivery };
  };
  const server = createServer(async (request, response) => {
    if (request.method === "GET") return onGet(request, response);
    try {
      const receipt = await answer(request);
      response.writeHead(receipt.verdict === "rejected" ? 401 : 204).end();
      onReceipt(receipt);
    } catch {
      // The sender is gone, or sent something that is not a delivery.
      response.writeHead(400).end();
    }
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/**
 * Why a delivery's signature is rejected; `null` if it is accepted.
 *
 * @param header `X-Service-Signature`: `t=<unix seconds>,v1=<hex>`, with several `v1` while the secret is being rotated.
 * @param body the exact bytes received: the signature covers them, not what they mean.
 * @param now Unix milliseconds.
 */
export function signatureFault(
  secret: string | null,
  header: string | string[] | undefined,
  body: Buffer,
  now: number,
): string | null {
  if (secret === null) return "no webhook yet";
  const [, time, digests] = /^t=(\d+)((?:,v1=[0-9a-f]{64})+)$/.exec(String(header)) ?? [];
  if (!time || !digests) return "no signature";
  if (Math.abs(now / 1000 - Number(time)) > TOLERANCE_SECONDS) return "more than 5 minutes away";
  const expected = createHmac("sha256", secret).update(`${time}.`).update(body).digest();
  const given = digests.split(",v1=").slice(1);
  const isValid = given.some((digest) => timingSafeEqual(expected, Buffer.from(digest, "hex")));
  return isValid ? null : "signature does not match";
}

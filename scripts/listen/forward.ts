import { type IncomingMessage, type OutgoingHttpHeaders, request as post } from "node:http";
import { request as postSecurely } from "node:https";
import { POST_TIMEOUT_MS } from "../../src/contract/limits.ts";

/** The response to return to the service. */
export interface Answer {
  status: number;
  headers: OutgoingHttpHeaders;
  /** Why the target did not respond; the status is then 502. */
  failure: string | null;
}

/** Headers that belong to a connection rather than to the message. */
const HOP_HEADERS = new Set([
  "host",
  "connection",
  "keep-alive",
  "transfer-encoding",
  "content-length",
]);

/** Sends a delivery to `target` with the same bytes and headers. @returns the target's response. */
export function forward(target: URL, delivery: IncomingMessage, body: Buffer): Promise<Answer> {
  const headers = ["Host", target.host, "Content-Length", String(body.length)];
  for (let i = 0; i < delivery.rawHeaders.length; i += 2) {
    const [name = "", value = ""] = delivery.rawHeaders.slice(i, i + 2);
    if (!HOP_HEADERS.has(name.toLowerCase())) headers.push(name, value);
  }
  const signal = AbortSignal.timeout(POST_TIMEOUT_MS);
  return new Promise((resolve) => {
    const send = target.protocol === "https:" ? postSecurely : post;
    const request = send(target, { method: "POST", headers, signal }, (response) => {
      response.resume();
      const retryAfter = response.headers["retry-after"];
      resolve({
        status: response.statusCode ?? 502,
        headers: retryAfter === undefined ? {} : { "Retry-After": retryAfter },
        failure: null,
      });
    });
    request.on("error", (error: NodeJS.ErrnoException) => {
      const failure = signal.aborted ? "no response in time" : (error.code ?? error.message);
      resolve({ status: 502, headers: {}, failure });
    });
    request.end(body);
  });
}

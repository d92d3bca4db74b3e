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

/** Where deliveries are forwarded to, and how. */
export interface Target {
  url: URL;
  /** Headers that each delivery gets in addition, by name. They replace those of the same names. */
  headers: Record<string, string>;
  /** Whether to accept a certificate that cannot be verified. */
  isInsecure: boolean;
}

/** Sends a delivery to its target with the same bytes and headers. @returns the target's response. */
export function forward(
  { url, headers: added, isInsecure }: Target,
  delivery: IncomingMessage,
  body: Buffer,
): Promise<Answer> {
  const headers = ["Host", url.host, "Content-Length", String(body.length)];
  headers.push(...Object.entries(added).flat());
  const left = new Set([...HOP_HEADERS, ...Object.keys(added).map((name) => name.toLowerCase())]);
  for (let i = 0; i < delivery.rawHeaders.length; i += 2) {
    const [name = "", value = ""] = delivery.rawHeaders.slice(i, i + 2);
    if (!left.has(name.toLowerCase())) headers.push(name, value);
  }
  const signal = AbortSignal.timeout(POST_TIMEOUT_MS);
  return new Promise((resolve) => {
    const send = url.protocol === "https:" ? postSecurely : post;
    const options = { method: "POST", headers, signal, rejectUnauthorized: !isInsecure };
    const request = send(url, options, (response) => {
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

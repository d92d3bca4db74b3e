import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { resolveLocation } from "../endpoints/target.ts";
import { abortAfter } from "../primitives/timing.ts";
import type { Outcome } from "./policy.ts";
import { readResponse, type StoredResponse } from "./response.ts";

/** The headers of every request, besides its signature. */
export const HEADERS = {
  "Content-Type": "application/json; charset=utf-8",
  "User-Agent": "PublicAPI-Webhooks/1.0",
};

/**
 * The header that names the subscription, because several subscriptions, each with its own secret, may share a URL.
 * The signature does not cover it.
 */
export const WEBHOOK_HEADER = "X-Service-Webhook";

/** The additional header of a test event. */
export const TEST_HEADER = { "X-Service-Test": "true" };

interface Posted {
  outcome: Outcome;
  /** The response, if any. The caller must read or cancel its body. */
  response: Response | null;
  /** The target of a redirect, or the runtime's message about a failed connection; null if there is neither. */
  clue: Pick<StoredResponse, "location" | "error"> | null;
}

/**
 * Sends `body` to an endpoint as a POST request. This is the only request of the service to a URL that a client
 * chose. It follows no redirect, and is aborted after `POST_TIMEOUT_MS`.
 *
 * @param now Unix milliseconds, for a `Retry-After` that is a date.
 */
export function post(
  url: string,
  body: string,
  headers: Record<string, string>,
  now: number,
): Promise<Posted> {
  return abortAfter(POST_TIMEOUT_MS, async (signal) => {
    try {
      const response = await fetch(url, {
        method: "POST",
        redirect: "manual",
        signal,
        headers: { ...HEADERS, ...headers },
        body,
      });
      const { status } = response;
      if ((status >= 520 && status <= 530) || (await isCloudflareError(response)))
        return { outcome: { kind: "unreachable", status }, response, clue: null };
      const retryAfterSeconds = parseRetryAfter(response.headers.get("Retry-After"), now);
      const clue = redirectOf(response, url);
      return { outcome: { kind: "answered", status, retryAfterSeconds }, response, clue };
    } catch (error) {
      // The runtime lets this invocation make no more requests, which says nothing about the endpoint.
      if (error instanceof Error && /too many subrequests/i.test(error.message)) throw error;
      if (signal.aborted) return { outcome: { kind: "timed_out" }, response: null, clue: null };
      const clue = error instanceof Error ? { error: error.message.slice(0, ERROR_MAX) } : null;
      return { outcome: { kind: "unreachable", status: null }, response: null, clue };
    }
  });
}

/** Statuses with which Cloudflare reports in plain text that it did not forward a request. */
const CLOUDFLARE_ERROR_STATUSES = [403, 404, 409];
/** How long to wait for that text, which comes with the headers. */
export const CLOUDFLARE_ERROR_READ_MS = 250;

/**
 * Whether Cloudflare responded in the endpoint's place with a status other than 520 to 530. For example, it
 * forwards no request to an IP address, and responds with 403 and the text `error code: 1003`
 * (https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-1xxx-errors/).
 */
async function isCloudflareError(response: Response): Promise<boolean> {
  if (!CLOUDFLARE_ERROR_STATUSES.includes(response.status) || !response.body) return false;
  const copy = response.clone();
  const { body } = await abortAfter(CLOUDFLARE_ERROR_READ_MS, (signal) =>
    readResponse(copy, signal),
  );
  return /^\s*error code: 1\d{3}\s*$/.test(body);
}

/** Maximum stored length of the runtime's message. */
const ERROR_MAX = 200;

/** The URL that a 3xx leads to, if a subscription could have it. */
function redirectOf({ status, headers }: Response, from: string): { location: string } | null {
  const named = status >= 300 && status < 400 ? headers.get("Location") : null;
  const location = named && resolveLocation(named, from);
  return location ? { location } : null;
}

/** Maximum length of a date, which is measured before it is parsed. */
const DATE_MAX_LENGTH = 100;

/**
 * Parses `Retry-After`, which has seconds or a date (RFC 9110, 10.2.3), to seconds; null if absent or invalid.
 */
function parseRetryAfter(value: string | null, now: number): number | null {
  if (value === null) return null;
  if (/^\d+$/.test(value)) return Number(value);
  if (value.length > DATE_MAX_LENGTH) return null;
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
}

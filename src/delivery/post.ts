import { POST_TIMEOUT_MS, URL_MAX_LENGTH } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import type { AttemptResponse } from "../history/views.ts";
import { abortAfter } from "../timing.ts";
import { InvocationLimit, type Outcome } from "./outcome.ts";
import { readResponse } from "./response.ts";

/** The headers of every post, beside those of its signature. */
export const HEADERS = {
  "Content-Type": "application/json; charset=utf-8",
  "User-Agent": "PublicAPI-Webhooks/1.0",
};

/** Names the subscription, because several may have one URL, each with its own secret. Not signed. */
export const WEBHOOK_HEADER = "X-Service-Webhook";

/** The additional header of a test event. */
export const TEST_HEADER = { "X-Service-Test": "true" };

/** More than any wait that we grant. */
const LONGEST_WAIT_SECONDS = (365 * DAY_MS) / 1000;

export interface Posted {
  outcome: Outcome;
  /** The response, if any. The caller must read or cancel its body. */
  response: Response | null;
  /** Where a redirect leads, or what the runtime says about a failed connection; null if there is neither. */
  clue: Pick<AttemptResponse, "location" | "error"> | null;
}

/**
 * Posts `body` to a subscriber. This is the only request the service makes to an address a client
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
      const { ok, status } = response;
      if ((status >= 520 && status <= 530) || (await isCloudflareError(response)))
        return { outcome: { kind: "unreachable", status }, response, clue: null };
      const retryAfter = ok ? null : response.headers.get("Retry-After");
      const retryAfterSeconds = parseRetryAfter(retryAfter, now);
      const clue = redirectOf(response, url);
      return { outcome: { kind: "answered", status, retryAfterSeconds }, response, clue };
    } catch (error) {
      if (error instanceof Error && /too many subrequests/i.test(error.message))
        throw new InvocationLimit(error.message);
      if (signal.aborted) return { outcome: { kind: "timed_out" }, response: null, clue: null };
      const clue = error instanceof Error ? { error: error.message.slice(0, ERROR_MAX) } : null;
      return { outcome: { kind: "unreachable", status: null }, response: null, clue };
    }
  });
}

/** The statuses with which Cloudflare says in plain text that it sends nothing on. */
const CLOUDFLARE_ERROR_STATUSES = [403, 404, 409];
/** How long to wait for the text, which comes with the headers. */
const CLOUDFLARE_ERROR_READ_MS = 250;

/**
 * Whether Cloudflare answered in the endpoint's place, without 520 to 530. It does not send to an IP address,
 * for instance: the response is 403 with the text `error code: 1003`
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

/** Maximum length of what is kept of the runtime's message. */
const ERROR_MAX = 200;

/** The URL that a 3xx names (RFC 9110, 10.2.2), if it is one that could be subscribed. */
function redirectOf({ status, headers }: Response, from: string): { location: string } | null {
  const named = status >= 300 && status < 400 ? headers.get("Location") : null;
  if (named === null || !URL.canParse(named, from)) return null;
  const { protocol, href } = new URL(named, from);
  return /^https?:$/.test(protocol) && href.length <= URL_MAX_LENGTH ? { location: href } : null;
}

/**
 * `Retry-After` in seconds, from seconds or a date (RFC 9110, 10.2.3); null if absent or invalid. One that
 * no clock could hold is a long wait all the same, and capped like any other.
 */
function parseRetryAfter(value: string | null, now: number): number | null {
  if (value === null) return null;
  if (/^\d+$/.test(value)) return Math.min(Number(value), LONGEST_WAIT_SECONDS);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
}

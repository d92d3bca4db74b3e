import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { abortAfter } from "../timing.ts";
import { InvocationLimit, type Outcome } from "./outcome.ts";

/** The headers of every post, beside those of its signature. */
export const HEADERS = {
  "Content-Type": "application/json",
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
      if (status >= 520 && status <= 530)
        return { outcome: { kind: "unreachable", status }, response };
      const retryAfter = ok ? null : response.headers.get("Retry-After");
      const retryAfterSeconds = parseRetryAfter(retryAfter, now);
      return { outcome: { kind: "answered", status, retryAfterSeconds }, response };
    } catch (error) {
      if (error instanceof Error && /too many subrequests/i.test(error.message))
        throw new InvocationLimit(error.message);
      const outcome: Outcome = signal.aborted
        ? { kind: "timed_out" }
        : { kind: "unreachable", status: null };
      return { outcome, response: null };
    }
  });
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

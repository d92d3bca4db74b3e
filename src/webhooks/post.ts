import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { abortAfter } from "../timing.ts";
import { InvocationLimit, type Outcome } from "./outcome.ts";

/** The headers of every post, beside those of its signature. */
export const HEADERS = {
  "Content-Type": "application/json",
  "User-Agent": "PublicAPI-Webhooks/1.0",
};

/** The additional header of a test event. */
export const TEST_HEADER = { "X-Service-Test": "true" };

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
      const retryAfter = ok ? null : response.headers.get("Retry-After");
      const retryAfterSeconds = parseRetryAfter(retryAfter, now);
      return { outcome: { kind: "answered", status, retryAfterSeconds }, response };
    } catch (error) {
      if (error instanceof Error && /too many subrequests/i.test(error.message))
        throw new InvocationLimit(error.message);
      return { outcome: { kind: signal.aborted ? "timed_out" : "unreachable" }, response: null };
    }
  });
}

/** `Retry-After` in seconds, from seconds or a date (RFC 9110, 10.2.3); null if absent or invalid. */
function parseRetryAfter(value: string | null, now: number): number | null {
  if (value === null) return null;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
}

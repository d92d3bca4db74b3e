import { POST_TIMEOUT_MS } from "../contract/limits.ts";
import { InvocationLimit, type Outcome } from "./outcome.ts";

/**
 * Posts `body` to a subscriber: the only request that this service makes to an address that a client
 * chose. Redirects are not followed, the answer's body is not read.
 *
 * @param now Unix milliseconds, for a `Retry-After` that is a date.
 * @param signal aborts it when it has taken too long.
 */
export async function post(
  url: string,
  body: string,
  headers: Record<string, string>,
  now: number,
  signal = AbortSignal.timeout(POST_TIMEOUT_MS),
): Promise<Outcome> {
  try {
    const answer = await fetch(url, {
      method: "POST",
      redirect: "manual",
      signal,
      headers: {
        "Content-Type": "application/json",
        "User-Agent": "PublicAPI-Webhooks/1.0",
        ...headers,
      },
      body,
    });
    // Nobody waits for what is not read.
    answer.body?.cancel().catch(() => {});
    const { ok, status, headers: given } = answer;
    const retryAfterSeconds = ok ? null : readRetryAfter(given.get("Retry-After"), now);
    return { kind: "answered", status, retryAfterSeconds };
  } catch (error) {
    if (error instanceof Error && /too many subrequests/i.test(error.message))
      throw new InvocationLimit(error.message);
    return { kind: signal.aborted ? "timed_out" : "unreachable" };
  }
}

/** `Retry-After` in seconds (RFC 9110, 10.2.3: seconds or a date); `null` when absent or unreadable. */
function readRetryAfter(value: string | null, now: number): number | null {
  if (value === null) return null;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - now) / 1000));
}

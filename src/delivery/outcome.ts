/** The outcome of a request to an endpoint. */
export type Outcome =
  | { kind: "answered"; status: number; retryAfterSeconds: number | null }
  /** No response headers in time. */
  | { kind: "timed_out" }
  /**
   * No connection: a DNS or TLS failure, or a connection that was refused or reset. `status` is set if Cloudflare
   * responded in the endpoint's place, with 520 to 530, or with the text `error code: 1…` and another status.
   */
  | { kind: "unreachable"; status: number | null }
  /** The URL is forbidden, because it leads to a private address. Nothing was sent. */
  | { kind: "refused" };

/** The outcome of an attempt: the outcome of its request, or `unreadable` if the event's lead cannot be decrypted. */
export type AttemptOutcome = Outcome | { kind: "unreadable" };

/** Thrown when the runtime lets this invocation make no more requests. */
export class InvocationLimit extends Error {}

/** The HTTP status of an attempt; null if there was no response. */
export function statusOf(outcome: AttemptOutcome): number | null {
  return "status" in outcome ? outcome.status : null;
}

/** Whether the endpoint acknowledged the event with a 2xx. */
export function succeeded(outcome: AttemptOutcome): boolean {
  return outcome.kind === "answered" && outcome.status >= 200 && outcome.status < 300;
}

export type Outcome =
  | { kind: "answered"; status: number; retryAfterSeconds: number | null }
  /** No complete answer in time. */
  | { kind: "timed_out" }
  /**
   * No connection: DNS or TLS failure, refused, or reset. With a status if Cloudflare answered in the
   * endpoint's place: 520 to 530, or another with the text `error code: 1…`.
   */
  | { kind: "unreachable"; status: number | null }
  /** Not sent: we refuse to post to this URL. */
  | { kind: "refused" };

/** How an attempt ended: also not sent if the lead that its event announces cannot be decrypted. */
export type AttemptOutcome = Outcome | { kind: "unreadable" };

/** The runtime lets this invocation make no more requests. */
export class InvocationLimit extends Error {}

/** The HTTP status of an attempt; null if there was no answer. */
export function statusOf(outcome: AttemptOutcome): number | null {
  return "status" in outcome ? outcome.status : null;
}

/** Whether the subscriber acknowledged: any 2xx. */
export function succeeded(outcome: AttemptOutcome): boolean {
  return outcome.kind === "answered" && outcome.status >= 200 && outcome.status < 300;
}

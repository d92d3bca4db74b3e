export type Outcome =
  | { kind: "answered"; status: number; retryAfterSeconds: number | null }
  /** No complete answer in time. */
  | { kind: "timed_out" }
  /** No connection: DNS or TLS failure, refused, or reset. */
  | { kind: "unreachable" }
  /** Not sent: we refuse to post to this URL. */
  | { kind: "refused" };

/** How an attempt ended: also not sent if the lead that its event announces cannot be decrypted. */
export type AttemptOutcome = Outcome | { kind: "unreadable" };

/** The runtime lets this invocation make no more requests. */
export class InvocationLimit extends Error {}

/** Whether the subscriber acknowledged: any 2xx (docs/webhooks.md). */
export function succeeded(outcome: AttemptOutcome): boolean {
  return outcome.kind === "answered" && outcome.status >= 200 && outcome.status < 300;
}

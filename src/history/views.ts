import { z } from "@hono/zod-openapi";
import { ShownDeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { EventId } from "../contract/fields.ts";
import { PENDING_COUNTED_MAX, PENDING_MAX, RESPONSES_PER_DAY } from "../contract/limits.ts";

/* The shapes in which operations show subscriptions and deliveries. The portal's page uses the same shapes. */

const Time = z.string();
const HttpStatus = z.int().nullable().describe("the HTTP status; null if there was no response");

export const AttemptView = z.object({
  at: Time.describe("when it began"),
  outcome: z
    .string()
    .describe(
      "`answered`, `timed_out`, `unreachable` (with a status from 520 to 530, or 403, 404 or 409, if Cloudflare responded in place of the endpoint), `refused` (not sent: the URL does not lead to a public address), `unreadable` (not sent: the lead is damaged) or `overflow` (failed for good, because too many were pending)",
    ),
  status: HttpStatus,
  durationMs: z.number().nullable(),
});
export type AttemptView = z.infer<typeof AttemptView>;

/** The request of an attempt. */
const AttemptRequest = z.object({
  headers: z
    .record(z.string(), z.string())
    .describe(
      "without the signatures if the secret has been rotated since, or if an overlap had just ended",
    ),
});

/** The stored part of a response, besides its status. */
const AttemptResponse = z.object({
  headers: z.record(z.string(), z.string()).describe("cut if they are long"),
  body: z.string().describe("its beginning, as UTF-8; empty if there was none"),
  truncated: z.boolean().describe("there was more"),
  location: z.string().optional().describe("where a redirect leads"),
  error: z.string().optional().describe("the runtime's message about a failed connection"),
});

/** An attempt in the log of its delivery. */
const LoggedAttempt = AttemptView.extend({
  request: AttemptRequest.nullable().describe("null if nothing was sent"),
  response: AttemptResponse.nullable().describe(
    `null if there was none, for a success that is not a test, and beyond ${RESPONSES_PER_DAY} responses of the webhook in a day`,
  ),
});

const Outcomes = z.object({
  delivered: z.int(),
  failed: z.int().describe("attempts that failed and are followed by another"),
  exhausted: z.int().describe("last attempts that failed"),
});

const DayTotals = Outcomes.extend({
  date: z.string().describe("the UTC day on which the attempts ended, such as 2026-11-21"),
});

export const WebhookView = z.object({
  webhookId: z.string(),
  url: z.string(),
  events: z.array(WebhookEvent),
  description: z.string().nullable(),
  headers: z.array(z.string()).describe("the names of its custom headers"),
  keyId: z.string().nullable().describe("the API key that created it; null if none did"),
  createdAt: Time,
  disabledAt: Time.nullable(),
  state: z
    .enum(["healthy", "backlog", "slow", "rejecting", "failing", "disabled"])
    .describe(
      "backlog: healthy, but deliveries are late; rejecting: some event types fail, others are accepted; failing: nothing has been accepted since failingSince",
    ),
  rejected: z
    .array(
      z.object({
        type: WebhookEvent,
        since: Time,
        outcome: z.string().describe("that of the last attempt"),
        status: HttpStatus,
      }),
    )
    .describe("event types that the endpoint rejects while it accepts others"),
  failingSince: Time.nullable().describe("first failure since the last success"),
  failures: z.int().describe("failed attempts since the last success"),
  pendingExhaustedAt: Time.nullable().describe(
    `when its oldest pending deliveries first failed for good, because more than ${PENDING_MAX} waited; null if none did, or once a delivery succeeds an hour or more later`,
  ),
  responseLimitReached: z
    .boolean()
    .describe(
      `whether ${RESPONSES_PER_DAY} responses to its failed attempts and test events were stored today, in UTC, so that no more are`,
    ),
  successRate: z
    .number()
    .nullable()
    .describe("share of the attempts in `days` that succeeded, from 0 to 1; null if none was made"),
  days: z.array(DayTotals).describe("the attempts of the last seven days, oldest first"),
  nextAttemptAt: Time.nullable().describe(
    "when the next attempt may start, which is past if it is due; null if none is scheduled",
  ),
  lastAttempt: AttemptView.nullable(),
  lastFailure: AttemptView.extend({
    eventId: z.string(),
    type: WebhookEvent,
    response: AttemptResponse.nullable().describe("null if none was stored"),
  })
    .nullable()
    .describe(
      "the last attempt of the newest delivery that is retried or exhausted, whichever failed last; null if there is none",
    ),
  overlapEndsAt: Time.nullable().describe(
    "when the last earlier secret stops signing; null if none signs",
  ),
});
export type WebhookView = z.infer<typeof WebhookView>;

/** The delivery attempts of one day, without test events. */
export const DayView = DayTotals.extend({
  types: z
    .array(Outcomes.extend({ type: WebhookEvent }))
    .describe("the same by event type, without those that had no attempt"),
  medianMs: z
    .int()
    .nullable()
    .describe("half of the responses took at most this long; null if there were none"),
  p95Ms: z.int().nullable().describe("95 of 100 responses took at most this long"),
});
export type DayView = z.infer<typeof DayView>;

/** A subscription with its last days, oldest first. */
export const WebhookDetails = WebhookView.extend({
  keyLabel: z.string().nullable().describe("the name and the last characters of that key"),
  days: z.array(DayView),
  pending: z
    .int()
    .describe(
      `deliveries that wait for an attempt and have not failed; up to ${PENDING_COUNTED_MAX} are counted`,
    ),
  retrying: z
    .int()
    .describe(
      `deliveries that have failed and will be retried; up to ${PENDING_COUNTED_MAX} are counted`,
    ),
  undeliveredSince: Time.nullable().describe(
    "recording time of the oldest event that it has not received and that can be resent; if it is disabled, events count from the start of its failures, or from a minute before it was disabled; if it is active, missed events (see `redeliver`) do not count",
  ),
});
export type WebhookDetails = z.infer<typeof WebhookDetails>;

export const DeliveryView = z.object({
  eventId: z.string(),
  type: WebhookEvent,
  subject: z
    .string()
    .nullable()
    .describe("the name of the lead or the automation that it is about; null if it has none"),
  createdAt: Time,
  state: ShownDeliveryState.describe(
    "pending: not attempted yet; retrying: failing, will be retried; delivered; exhausted: failed for good; cancelled; test",
  ),
  attempts: z.int().describe("all of them, including those before it was resent"),
  dueAt: Time.nullable().describe(
    "when its next attempt may start; null unless pending or retrying",
  ),
  settledAt: Time.nullable(),
  lastAttempt: AttemptView.nullable(),
});
export type DeliveryView = z.infer<typeof DeliveryView>;

/** A delivery that is retried or exhausted. */
export const FailureView = DeliveryView.extend({ webhookId: z.string() });
export type FailureView = z.infer<typeof FailureView>;

/** The failed deliveries of a subscription. */
export const FailureCount = z.object({
  webhookId: z.string(),
  retrying: z.int(),
  exhausted: z.int(),
  hasMore: z.boolean().describe("whether there may be more than were counted"),
});
export type FailureCount = z.infer<typeof FailureCount>;

/** A delivery with everything that is stored about it. */
export const DeliveryDetails = DeliveryView.extend({
  url: z.string().describe("the current URL of the webhook"),
  isDisabled: z.boolean().describe("whether the webhook is disabled; then nothing is sent"),
  attemptLog: z
    .array(LoggedAttempt)
    .describe("oldest first; if there are very many, the first ones and the last"),
  body: z.string().describe("the exact bytes that are signed and sent, as text"),
});
export type DeliveryDetails = z.infer<typeof DeliveryDetails>;

export const TestResult = z.object({
  eventId: EventId,
  outcome: z
    .enum(["answered", "timed_out", "unreachable", "refused"])
    .describe("refused: not sent, because the URL does not lead to a public address"),
  status: HttpStatus,
  durationMs: z.number(),
});
export type TestResult = z.infer<typeof TestResult>;

export const Redelivered = z.object({
  count: z.int().describe("number of events that are scheduled"),
  nextCursor: z.string().nullable().describe("for the next call; null once all have been examined"),
  notStored: z
    .array(WebhookEvent)
    .optional()
    .describe(
      "event types of which the range has no stored event, if one call has examined all of it: none was recorded, or no webhook of the workspace listed the type then, so they cannot be sent",
    ),
});
export type Redelivered = z.infer<typeof Redelivered>;

export const NewSecret = z.object({
  secret: z.string(),
  overlapEndsAt: Time.nullable().describe("null if the old secret no longer signs"),
});
export type NewSecret = z.infer<typeof NewSecret>;

import { DAY_MS, HOUR_MS } from "./time.ts";

/**
 * What clients, subscribers and administrators notice, and an operator might want to change. Quotas and
 * retention are variables in wrangler.toml; a number that only tunes an algorithm stands beside it.
 */

export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;

/** About how many bytes the items of a page take at most, whatever its `limit`. */
export const PAGE_MAX_BYTES = 512 * 1024;

/** Maximum size of a request body, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;

/** How long a request body may take to arrive. */
export const BODY_MAX_MS = 10_000;

/** How long a read may take, a stalled database included. */
export const READ_MAX_MS = 10_000;

/** Maximum subscriptions of a workspace, disabled ones included, unless agreed otherwise... */
export const SUBSCRIPTIONS_MAX = 20;
/**
 * ...and the most that may be agreed. Each event is written with a delivery per subscription: 100
 * leads for 100 subscriptions make 10,000 deliveries in one transaction, which occupies the
 * database's only writer for half a second; 500 subscriptions would take 2.5 s. Queues also accept
 * at most 100 messages at once.
 */
export const AGREED_SUBSCRIPTIONS_MAX = 100;

/** Maximum length of a webhook URL, in characters. */
export const URL_MAX_LENGTH = 2048;

/** Maximum length of a subscription's description, in characters. */
export const DESCRIPTION_MAX_LENGTH = 200;

/** Maximum headers of a subscriber's own, and length of their values, in characters. */
export const HEADERS_MAX = 5;
export const HEADER_VALUE_MAX_LENGTH = 1_000;

/** Maximum length of an API key's name, in characters. */
export const KEY_NAME_MAX_LENGTH = 100;

/** Maximum items per call of the Platform API. */
export const RECORDS_MAX = 100;

/** Maximum size of a recorded automation, lead or run, in bytes of JSON. */
export const RECORD_MAX_BYTES = 16 * 1024;
/** Maximum nesting of a lead's custom fields, counting the outer object. */
export const NESTING_MAX = 32;

/** Maximum time, in seconds, that a rolled API key may still be used. */
export const KEY_OVERLAP_MAX_SECONDS = (7 * DAY_MS) / 1000;

/** How long a rotated webhook secret signs alongside the new one, in seconds. */
export const SECRET_OVERLAP_SECONDS = {
  default: DAY_MS / 1000,
  max: (7 * DAY_MS) / 1000,
} as const;

/** How long the session of a portal link lasts, in minutes from the link's creation. */
export const PORTAL_LINK_MINUTES = { default: 60, max: 1_440 } as const;
/**
 * How long a portal link can be opened: enough for a redirect and a slow phone. After that, what a
 * browser's history or a chat still contains is worthless.
 */
export const PORTAL_LINK_OPENS_MS = 120_000;

/** Maximum test events of a workspace in a minute, whatever number of subscriptions and people it has. */
export const TEST_EVENTS_PER_MINUTE = 30;

/** Maximum length of the address that a portal link leads back to, in characters. */
export const RETURN_URL_MAX_LENGTH = 1_000;
/** Changes of its subscriptions, newest first, that the audit trail keeps for a workspace's portal. */
export const PORTAL_CHANGES_KEPT = 2_000;

/** Maximum pending deliveries of a subscription that are counted. */
export const DELIVERIES_COUNTED_MAX = 1_000;

/** How long an endpoint may take to respond. */
export const POST_TIMEOUT_MS = 10_000;

/** A request may start this long after its subscription was deleted or disabled, and none later. */
export const STOPS_WITHIN_MS = 2_000;

/** Wait after the n-th failed attempt, in seconds. There is one attempt more than waits. */
export const RETRY_WAITS_SECONDS: readonly number[] = [
  10, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400,
];

/** The waits of a delivery's retry schedule are lengthened by up to this share, so that retries spread out. */
export const RETRY_JITTER = 0.2;

/** From this many different events that failed in a row on, requests to an endpoint are spaced. */
export const TOLERATED_FAILURES = 5;

/** The time between two requests to an endpoint that rejects, in seconds: the n-th after n more events failed. */
export const FAILING_SPACING_SECONDS: readonly number[] = [
  1, 1, 1, 2, 2, 2, 5, 5, 5, 10, 10, 20, 30, 60,
];

/**
 * The same, from the first failure on, for an endpoint that is busy (429, 503) or unavailable (no connection, no
 * response in time, or an error that Cloudflare returns in its place).
 */
export const OUTAGE_SPACING_SECONDS: Readonly<Record<"busy" | "unavailable", readonly number[]>> = {
  busy: [1, 2, 5, 10, 30, 60],
  unavailable: [1, 2, 5, 10, 30, 60, 120, 300, 600],
};

/** The longest wait that a busy endpoint can ask for with `Retry-After`, in seconds. */
export const RETRY_AFTER_MAX_SECONDS = 1_800;

/** While requests are spaced, a delivery that failed is tried at least this often, to notice the end of an outage. */
export const PROBE_INTERVAL_MS = 300_000;

/**
 * Maximum pending deliveries of a subscription. Beyond it the oldest are exhausted, so that no workspace fills
 * the database of all: they can be resent while their events are stored.
 */
export const PENDING_MAX = 50_000;

/** Maximum responses to failed attempts that are stored for a subscription each day. */
export const RESPONSES_PER_DAY = 500;

/** A subscription is disabled once it has failed for this long without a success... */
export const DISABLE_AFTER_MS = 72 * HOUR_MS;
/** ...and at least this many times, at two different events or more. */
export const DISABLE_AFTER_FAILURES = 10;

/** Administrators are told once a subscription has failed for this long without a success. */
export const TELL_AFTER_MS = DAY_MS;

// The retries of a single event must last long enough for the e-mail, and then for disabling.
const waitsMs = RETRY_WAITS_SECONDS.reduce((sum, seconds) => sum + seconds * 1000, 0);
if (!(TELL_AFTER_MS < DISABLE_AFTER_MS && DISABLE_AFTER_MS < waitsMs))
  throw new Error(
    "RETRY_WAITS_SECONDS must outlast DISABLE_AFTER_MS, which must exceed TELL_AFTER_MS",
  );
if (RETRY_WAITS_SECONDS.length < DISABLE_AFTER_FAILURES)
  throw new Error("RETRY_WAITS_SECONDS must have at least DISABLE_AFTER_FAILURES waits");
if (RETRY_WAITS_SECONDS.some((seconds, i) => seconds < (RETRY_WAITS_SECONDS[i - 1] ?? 0)))
  throw new Error("RETRY_WAITS_SECONDS must grow");

/** Waits between tries to send an e-mail, in seconds; after two days in all, it is given up. */
export const EMAIL_WAITS_SECONDS = [
  300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000,
] as const;

/** Maximum e-mails that the administrators of a workspace get in a day, together. */
export const WORKSPACE_EMAILS_PER_DAY = 200;
/** Minimum time between two e-mails of one kind about one host, so that its subscriptions share one. */
export const EMAIL_HOST_INTERVAL_MS = HOUR_MS;
/** Maximum reminders about a subscription that stays disabled, and the wait before each. */
export const REMINDERS_MAX = 4;
export const REMINDER_WAIT_MS = 7 * DAY_MS;

/** Maximum subscriptions that one sweep wakeUps. */
export const SWEEP_MAX = 1_000;
/** A delivery that has been overdue for this long, because its subscription fails, is exhausted. */
export const OVERDUE_MAX_MS = 7 * DAY_MS;

/** How long the daily counts of a subscription's delivery attempts are kept. */
export const DELIVERY_COUNTS_KEPT_DAYS = 30;
/** How long the audit trail is kept. */
export const AUDIT_KEPT_DAYS = 365;
/**
 * How long an erased lead cannot be recorded again: longer than a queue of the platform may hold it.
 */
export const ERASED_LEADS_KEPT_DAYS = 15;

/** Older events cannot be redelivered. */
export const REDELIVERY_MAX_AGE_MS = 30 * DAY_MS;
/** Rate at which a subscription's redelivered events become due. */
export const REDELIVERIES_PER_SECOND = 10;

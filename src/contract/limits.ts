import { DAY_MS, HOUR_MS, MINUTE_MS } from "./time.ts";

/*
 * Limits that clients and administrators notice, and that an operator might want to change. Rate limits and retention
 * are variables in wrangler.toml. A number that only tunes an algorithm stands beside it.
 *
 * To change one: its line here, then `npm run openapi` and `npm run reference`. `documentation.test.ts` and
 * `security.test.ts` in `test/node/` name the pages that state the old figure. Also search the changelog and
 * `docs/performance.md` for it. Append a step to the retry schedule rather than insert one: a pending delivery stores
 * how many steps it has used up, so one in the middle would shift its next retry. Raise `TRIED_FOR_MAX_MS` so that it cuts
 * off no attempt.
 */

export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;

/** Maximum size of the items of a page in bytes, approximately, whatever its `limit`. */
export const PAGE_MAX_BYTES = 512 * 1024;

/** Maximum size of a request body, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;

/** Maximum nesting of the JSON in a request body. The deepest valid one has the custom fields of a lead. */
export const BODY_NESTING_MAX = 64;

/** Maximum commas in the JSON of a client's request body: each may separate two values, which are checked one by one. */
export const BODY_COMMAS_MAX = 1_000;

/** How long a request body may take to arrive. */
export const BODY_MAX_MS = 10_000;

/** How long a read may take, even if the database stalls. */
export const READ_MAX_MS = 10_000;

/** Maximum subscriptions of a workspace, including disabled ones, unless another number is agreed. */
export const SUBSCRIPTIONS_MAX = 20;
/**
 * Maximum number that can be agreed. Each event is written with one delivery per subscription, so 100 leads for 100
 * subscriptions make 10,000 deliveries in one transaction. That occupies the database's only writer for half a
 * second; with 500 subscriptions, it would take 2.5 s. Queues also accept at most 100 messages at once.
 */
export const AGREED_SUBSCRIPTIONS_MAX = 100;

/** Maximum length of a webhook URL, in characters. */
export const URL_MAX_LENGTH = 2048;

/** Maximum length of a subscription's description, in characters. */
export const DESCRIPTION_MAX_LENGTH = 200;

/** Maximum length of a text that finds leads, and of the beginning of a name in which it is sought, in characters. */
export const LEAD_SEARCH_MAX_LENGTH = 200;

/** Maximum custom headers of a subscription. */
export const HEADERS_MAX = 5;
/** Maximum length of the value of a custom header, in characters. */
export const HEADER_VALUE_MAX_LENGTH = 1_000;

/**
 * Maximum live API keys of a workspace. A change of its access or database tells the gates of all of them in one call,
 * and the calls that an invocation can make are limited.
 */
export const API_KEYS_MAX = 500;
/** Maximum length of an API key's name, in characters. */
export const KEY_NAME_MAX_LENGTH = 100;

/** Maximum items per call of the Platform API. */
export const RECORDS_MAX = 100;

/** Maximum size of a recorded automation, lead or run, in bytes of JSON. */
export const RECORD_MAX_BYTES = 16 * 1024;
/** Maximum nesting of a lead's custom fields, counting the outer object. */
export const NESTING_MAX = 32;

/** How far ahead of our clock the time of a recorded automation, lead or run may be. */
export const REPORTED_AHEAD_MAX_MS = 5 * MINUTE_MS;

/** Maximum grace period in which a rotated API key may still be used, in seconds. */
export const KEY_OVERLAP_MAX_SECONDS = (7 * DAY_MS) / 1000;

/** Grace period in which a rotated webhook secret signs alongside the new one, in seconds. */
export const SECRET_OVERLAP_SECONDS = {
  default: DAY_MS / 1000,
  max: (7 * DAY_MS) / 1000,
} as const;

/** How long the session of a portal link lasts, in minutes from the creation of the link. */
export const PORTAL_LINK_MINUTES = { default: 60, max: 1_440 } as const;
/**
 * How long a portal link can be opened: long enough for a redirect and a slow phone. Afterwards, a link in a
 * browser's history or in a chat is worthless.
 */
export const PORTAL_LINK_OPENS_MS = 120_000;

/** Maximum test events of a workspace in a minute, for all its subscriptions and users together. */
export const TEST_EVENTS_PER_MINUTE = 30;

/** Maximum length of the URL that a portal link leads back to, in characters. */
export const RETURN_URL_MAX_LENGTH = 1_000;
/**
 * Maximum changes of URLs, secrets and headers in a workspace's portal in a day. The audit trail stores each of them for
 * `AUDIT_KEPT_DAYS`, so that none is pushed out by later ones.
 */
export const PORTAL_LASTING_CHANGES_PER_DAY = 300;
/**
 * The same maximum for deletions. A person who has stolen a session and used up the other one cannot reach it, so the
 * workspace can still delete what that person has created.
 */
export const PORTAL_LASTING_CHANGES_WITH_DELETIONS_PER_DAY = 600;
/** Maximum other changes that the audit trail stores for a workspace's portal; the newest stay. */
export const PORTAL_CHANGES_KEPT = 2_000;
/**
 * Maximum changes with one API key that the audit trail stores of a day, each for `AUDIT_KEPT_DAYS`. They are not
 * refused beyond it, because a client that is being developed may create webhooks all day. One entry says that there
 * were more.
 */
export const KEY_CHANGES_PER_DAY = 100;

/** How long an endpoint may take to respond. */
export const POST_TIMEOUT_MS = 10_000;

/** No request starts later than this after its subscription was deleted or disabled. */
export const STOPS_WITHIN_MS = 2_000;

/** The retry schedule: the delay after the n-th failed attempt, in seconds. There is one attempt more than delays. */
export const RETRY_WAITS_SECONDS: readonly number[] = [
  10, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400,
];

/** The time from the first attempt of a delivery to the last, without jitter. */
const RETRY_SCHEDULE_MS = RETRY_WAITS_SECONDS.reduce((sum, seconds) => sum + seconds * 1000, 0);

/** Jitter: each delay of the retry schedule is lengthened by up to this share, so that retries spread out. */
export const RETRY_JITTER = 0.2;

/** How long a delivery is retried, in whole days: without jitter, and with all of it. */
export const RETRIED_DAYS = {
  min: Math.floor(RETRY_SCHEDULE_MS / DAY_MS),
  max: Math.ceil((RETRY_SCHEDULE_MS * (1 + RETRY_JITTER)) / DAY_MS),
} as const;

/** A delivery that has been tried for this long is exhausted by its next failure, whatever its retry schedule. */
export const TRIED_FOR_MAX_MS = 84 * HOUR_MS;

/** Events of a type that must be rejected at their first attempt, since the last success, before its circuit opens. */
export const CIRCUIT_OPENS_AFTER_EVENTS = 5;

/** The wait before the next probe of an open circuit, after a rejection, in seconds: after the first failure, and so on. */
export const CIRCUIT_REJECTED_SECONDS: readonly number[] = [
  1, 1, 1, 2, 2, 2, 5, 5, 5, 10, 10, 20, 30, 60,
];

/**
 * Likewise after an outage: the endpoint is busy (429, 503) or unavailable (no connection, no response in time, or an
 * error that Cloudflare returns in its place).
 */
export const CIRCUIT_OUTAGE_SECONDS: readonly number[] = [1, 2, 5, 10, 30, 60, 120, 300];

/** The longest delay that a busy endpoint can request with `Retry-After`, in seconds. */
export const RETRY_AFTER_MAX_SECONDS = 1_800;

/**
 * Maximum pending deliveries of a subscription. The oldest ones beyond it are exhausted, so that no workspace fills
 * the database that it shares with others. They can be resent as long as their events are stored.
 */
export const PENDING_MAX = 50_000;

/** Maximum pending deliveries of a subscription that are counted: of those that have failed, and of the others. */
export const PENDING_COUNTED_MAX = 5_000;

/** Maximum responses to failed attempts and test events that are stored for a subscription each day. */
export const RESPONSES_PER_DAY = 500;

/** A subscription is disabled once nothing has succeeded for this long, after `DISABLE_AFTER_FAILURES` attempts. */
export const DISABLE_AFTER_MS = 72 * HOUR_MS;
/** Minimum failed attempts, of two different events or more, before a subscription is disabled. */
export const DISABLE_AFTER_FAILURES = 10;

/** Administrators are notified once a subscription has failed for this long without a success. */
export const TELL_AFTER_MS = DAY_MS;

// Even where few events are recorded, their retries must last long enough for the e-mail, and then for disabling.
if (!(TELL_AFTER_MS < DISABLE_AFTER_MS && DISABLE_AFTER_MS < RETRY_SCHEDULE_MS))
  throw new Error(
    "RETRY_WAITS_SECONDS must outlast DISABLE_AFTER_MS, which must exceed TELL_AFTER_MS",
  );
// The last attempt ends its delivery anyway, so only the failure before it must come in time.
const LAST_WAIT_MS = (RETRY_WAITS_SECONDS.at(-1) ?? 0) * 1000;
if ((RETRY_SCHEDULE_MS - LAST_WAIT_MS) * (1 + RETRY_JITTER) > TRIED_FOR_MAX_MS)
  throw new Error("TRIED_FOR_MAX_MS must outlast RETRY_WAITS_SECONDS but the last, with jitter");
if (RETRY_WAITS_SECONDS.length < DISABLE_AFTER_FAILURES)
  throw new Error("RETRY_WAITS_SECONDS must have at least DISABLE_AFTER_FAILURES delays");
if (RETRY_WAITS_SECONDS.some((seconds, i) => seconds < (RETRY_WAITS_SECONDS[i - 1] ?? 0)))
  throw new Error("the delays of RETRY_WAITS_SECONDS must not shrink");

/** Delays between tries to send an e-mail, in seconds. After two days in all, the e-mail is given up. */
export const EMAIL_WAITS_SECONDS = [
  300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000,
] as const;

/** Maximum e-mails that the administrators of a workspace get in a day, together. */
export const WORKSPACE_EMAILS_PER_DAY = 200;
/** Minimum time between two e-mails of one kind about one host, so that its subscriptions share one e-mail. */
export const EMAIL_HOST_INTERVAL_MS = HOUR_MS;
/** Maximum reminders about a subscription that stays disabled. */
export const REMINDERS_MAX = 4;
/** The time before each reminder. */
export const REMINDER_WAIT_MS = 7 * DAY_MS;

/** Maximum subscriptions that one run of the scheduled job wakes in each database. */
export const SWEEP_MAX = 1_000;
/** How long the audit trail is stored. */
export const AUDIT_KEPT_DAYS = 365;
/** How long an erased lead cannot be recorded again: longer than a queue of the platform may hold it. */
export const ERASED_LEADS_KEPT_DAYS = 15;
/** How long a removed automation is stored, so that no older report from such a queue brings it back. */
export const REMOVED_AUTOMATIONS_KEPT_DAYS = 15;

/**
 * Maximum events of a workspace that calls may send again in an hour, by id and by range together. Each one writes some
 * ten rows, with its attempt, or if it is cancelled instead. A call that begins below the maximum may exceed it by its
 * own events.
 */
export const REDELIVERIES_PER_HOUR = 20_000;
/** Maximum replays that are stored of a subscription. A new one replaces the oldest that has ended. */
export const REPLAYS_MAX = 50;
/** A replay is stopped after this time, because the events that it has not sent yet are not deleted until then. */
export const REPLAY_MAX_DAYS = 7;

/** The maximum age of an event that can be sent again. */
export const REDELIVERY_MAX_AGE_MS = 30 * DAY_MS;
/**
 * Maximum resends of a subscription that are pending. No circuit holds them, so they could keep an endpoint that hangs
 * from everything else.
 */
export const RESENDS_PENDING_MAX = 100;

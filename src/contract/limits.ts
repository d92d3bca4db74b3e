/**
 * What clients, subscribers and administrators notice, and an operator might want to change. Quotas and
 * retention are variables in wrangler.toml; a number that only tunes an algorithm stands beside it.
 */

/** Items per page. */
export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;

/** Maximum size of a request body, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;

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

/** Maximum items per call of the Platform API. */
export const RECORDS_MAX = 100;

/** Maximum size of a recorded automation, lead or run, in bytes of JSON. */
export const RECORD_MAX_BYTES = 64 * 1024;
/** Maximum nesting of a lead's custom fields, counting the outer object. */
export const NESTING_MAX = 32;

/** Maximum time, in seconds, that a rolled API key may still be used. */
export const KEY_OVERLAP_MAX_SECONDS = 604_800;

/** How long a rotated webhook secret signs alongside the new one, in seconds. */
export const SECRET_OVERLAP_SECONDS = { default: 86_400, max: 604_800 } as const;
/**
 * How long a rotation waits before it returns if a dispatch is posting to the subscription: after
 * that, every post that starts is signed with the new secret. `CONFIRMED_MS`, plus the longest time
 * between starting a post and sending it.
 */
export const ROTATION_MS = 2_000;
/** Maximum earlier secrets that sign concurrently for one subscription. */
export const EARLIER_SECRETS_MAX = 4;

/** How long the session of a portal link lasts, in minutes from the link's creation. */
export const PORTAL_LINK_MINUTES = { default: 60, max: 1_440 } as const;
/**
 * How long a portal link can be opened. Long enough for a redirect and a slow phone; after that, what a
 * browser's history or a chat still contains is worthless.
 */
export const PORTAL_LINK_OPENS_MS = 120_000;
/** Number of days for which the portal counts deliveries, including today... */
export const PORTAL_DAYS = 7;
/** ...and the maximum it counts per day; the newest ones. */
export const PORTAL_DAY_MAX = 1_000;

/** Maximum pending deliveries counted for a subscription's health. */
export const PENDING_COUNTED_MAX = 1_000;
/**
 * Maximum failed attempts stored per delivery, which can be sent again any number of times: the first
 * ones and the last.
 */
export const ATTEMPTS_KEPT = 100;

/** Maximum deliveries that one page of a filtered list examines. */
export const DELIVERIES_LOOKED_THROUGH = 2_000;

/** How long a subscriber may take to answer (docs/webhooks.md). */
export const POST_TIMEOUT_MS = 10_000;

/** Timeout of the DNS-over-HTTPS resolver; no answer does not count as a refusal. */
export const DNS_TIMEOUT_MS = 2_000;
/** How long a look-up may delay a post; a later answer is cached for the next one. */
export const DNS_BEFORE_POST_MS = 400;
/** How long an isolate caches a name's resolution: its TTL, within these bounds... */
export const DNS_REMEMBERED_MS = { min: 1_000, max: 300_000 } as const;
/** ...or this long if it was inconclusive. */
export const DNS_UNKNOWN_REMEMBERED_MS = 10_000;
/** Maximum names an isolate caches. */
export const DNS_NAMES_MAX = 1_000;

/** Wait after the n-th failed attempt, in seconds. There is one attempt more than waits. */
export const RETRY_WAITS_SECONDS = [
  10, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400,
] as const;

/**
 * Waits are lengthened by up to this share, so that failed deliveries do not all return at the same time.
 */
export const RETRY_JITTER = 0.2;

/** A subscriber's `Retry-After` can lengthen a wait to at most this multiple. */
export const RETRY_AFTER_MAX_MULTIPLE = 2;

/** A subscription is disabled once it has failed for this long without a success... */
export const DISABLE_AFTER_MS = 72 * 3_600_000;
/** ...and at least this many times. */
export const DISABLE_AFTER_FAILURES = 10;

/** Administrators are told once a subscription has failed for this long without a success. */
export const TELL_AFTER_MS = 24 * 3_600_000;
/** Waits between tries to send an e-mail, in seconds; after two days in all, it is given up. */
export const EMAIL_WAITS_SECONDS = [
  300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000,
] as const;
/**
 * Maximum e-mails per sweep: each takes a request and a statement, and the free plan has 50 of
 * each.
 */
export const EMAILS_MAX = 20;
/** How long the mail service may take to answer. */
export const EMAIL_TIMEOUT_MS = 10_000;
/** How long an e-mail taken by a sweep is reserved; a sweep ends well before that. */
export const EMAIL_TAKEN_MS = 300_000;
/** How long to send no e-mail after the mail service has reported its rate or daily limit. */
export const EMAIL_PAUSE_MS = { rate: 300_000, daily: 3_600_000 } as const;

/**
 * Maximum concurrent posts per subscription, and per invocation: the runtime lets six requests of an
 * invocation wait for their response; a seventh is queued, wakes included. A dispatch that serves
 * several subscriptions therefore keeps one connection free.
 */
export const POSTS_AT_ONCE = 6;
/** How many of these one workspace may use while others are waiting. */
export const POSTS_PER_WORKSPACE = 3;
/** Maximum dispatches per invocation, which share its connections: one per lane and database. */
export const DISPATCHES_PER_INVOCATION = 3;
/** An answer that takes this long counts as slow. */
export const SLOW_ANSWER_MS = 2_000;

/**
 * Maximum deliveries one transaction claims, over all subscriptions. Each round trip costs a few
 * milliseconds, however few it claims.
 */
export const CLAIM_MAX = 200;
/** Maximum it claims per subscription in the slow lane, where each may take ten seconds. */
export const CLAIM_SLOW_MAX = 6;
/** More is claimed when fewer than this are waiting: enough to post while a round trip is made. */
export const CLAIM_AHEAD = 60;

/** How long a dispatch that dies still holds its subscriptions. */
export const HOLD_MS = 20_000;
/** A post starts at most this long after the database was asked whether it is still owed. */
export const CONFIRMED_MS = 1_500;
/** Maximum time before outcomes are recorded. */
export const SETTLE_AFTER_MS = 1_000;
/** The same for a subscription with nothing left to post, because more may have become due. */
export const SETTLE_IDLE_AFTER_MS = 100;
/**
 * A dispatch starts no post later than this; the rest is left for the next one. The runtime ends
 * background work after 30 s: after a last post that times out, there must be time to record it and
 * to wake its subscription, with retries.
 */
export const DISPATCH_MAX_MS = 12_000;
/** How long after its last possible timeout a post is considered lost. */
export const POST_LOST_MS = 2_000;
/** If no post of a dispatch ends for this long, it releases subscriptions with none in progress. */
export const STUCK_MS = 500;
/** After this long, the queue goes on without waiting for the dispatch... */
export const HAND_OFF_MS = 100;
/** ...unless the isolate has this many of them... */
export const DISPATCHES_AT_ONCE = 8;
/** ...but where several databases are bound, no longer than this: one that hangs holds no others' queue. */
export const BUSY_HAND_OFF_MS = 2_000;
/**
 * What an invocation may do on the free plan: 50 posts and 50 statements. A round trip takes up to ten
 * statements, and up to six once it claims no more; three of these are left over for posts that are
 * still in progress. An invocation that was able to post more makes more round trips.
 */
export const FREE_PLAN = { posts: 50, roundTrips: 4 } as const;
/**
 * When a dispatch that has used up its round trips releases the subscriptions it has finished with:
 * this long after its last post began, once each. Fast ones have answered by then; a last round trip
 * does the rest.
 */
export const SPENT_RELEASES_MS = [STUCK_MS, SLOW_ANSWER_MS] as const;

/** How long the key gates may delay a dispatch. */
export const GATES_TIMEOUT_MS = 1_000;

/**
 * Maximum length in characters of what a claim reads to make an event's body: the stored body, or the
 * lead as JSON, whose encrypted part is in hexadecimal and so twice as long. Anything longer is read
 * separately. This bounds what a dispatch keeps in memory to `CLAIM_MAX` times as much.
 */
export const INLINE_BODY_MAX = 16_384;

/** A wake up to this much too early is sent again; for a longer wait, another was sent already. */
export const EARLY_WAKE_MS = 5_000;

/** The sweep wakes subscriptions with deliveries overdue by more than this. */
export const SWEEP_GRACE_MS = 60_000;
/** Maximum subscriptions that one sweep wakes. */
export const SWEEP_MAX = 1_000;
/** The ledger counts a delivery as overdue after this. */
export const OVERDUE_AFTER_MS = 300_000;
/** A delivery that has been overdue for this long, because its subscription fails, is exhausted. */
export const OVERDUE_MAX_MS = 7 * 86_400_000;
/** Wait of a subscription that could not be posted to through no fault of its own. */
export const UNTRIED_WAIT_MS = 300_000;

/** Older events cannot be redelivered. */
export const REDELIVERY_MAX_AGE_MS = 30 * 86_400_000;
/** Rate at which a subscription's redelivered events become due. */
export const REDELIVERIES_PER_SECOND = 10;
/** Maximum ranges of one subscription that are being redelivered; further ones are refused. */
export const REDELIVERY_RANGES_MAX = 10;
/** How far ahead the events of a range are scheduled: until the next sweep. */
export const REDELIVERY_AHEAD_MS = 60_000;
/** Maximum events, or failed deliveries, that one step of a range examines. */
export const REDELIVERY_EXAMINED_MAX = 1_000;
/** How long a sweep pauses after each step of a range, so that others can use the database. */
export const REDELIVERY_PAUSE_MS = 100;

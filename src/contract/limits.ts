/**
 * Every number that an operator might want to change. The quotas are deployment variables in
 * wrangler.toml.
 */

/** Items per page. */
export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;
/**
 * A page ends before the leads or runs on it are larger than this in total, as the database returns
 * them: leads in hexadecimal, so that a response has half as much. It has at least one. Other items are
 * small: a hundred of the largest automations are 1.8 MB of JSON.
 */
export const PAGE_MAX_BYTES = 2_000_000;

/** Maximum size of a request body, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;
/**
 * How much of an unneeded request body to read, and for how long, to keep the connection usable.
 */
export const UNREAD_BODY_MAX = { bytes: 1024 * 1024, ms: 1_000 } as const;

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

/** An export page is full at this many items or bytes of JSON; the last rows read may exceed it. */
export const EXPORT_PAGE_MAX_ITEMS = 1_000;
export const EXPORT_PAGE_MAX_BYTES = 1_000_000;

/** Maximum items per call of the Platform API. */
export const RECORDS_MAX = 100;

/** Maximum size of a recorded automation, lead or run, in bytes of JSON. */
export const RECORD_MAX_BYTES = 64 * 1024;
/** Maximum nesting of a lead's custom fields, counting the outer object. */
export const NESTING_MAX = 32;

/** Maximum size of a queue message in bytes, minus the queue's own overhead. */
export const MESSAGE_MAX_BYTES = 127_000;
/** Maximum size of the messages the ingest queue records in one transaction, in bytes of JSON. */
export const INGEST_TRANSACTION_MAX_BYTES = 1_000_000;
/**
 * Maximum records in one such transaction: with the maximum number of subscriptions, 100,000
 * deliveries, which take 5 of the 30 seconds that D1 allows.
 */
export const INGEST_TRANSACTION_MAX_RECORDS = 1_000;
/** How long after it was sent a run waits for its automation or lead; then it is set aside. */
export const UNORDERED_MAX_SECONDS = 900;
/** A run's first wait; each further wait doubles its age. */
export const UNORDERED_FIRST_WAIT_SECONDS = 5;
/**
 * The only wait of a run that is already older when it first arrives: the record it refers to may
 * be right behind it.
 */
export const UNORDERED_LAST_WAIT_SECONDS = 60;
/** Wait before retrying a message that could not be recorded; doubles each time. */
export const INGEST_WAIT_SECONDS = { first: 10, max: 3_600 } as const;
/** With several databases, the maximum time that the others wait for one that does not answer... */
export const INGEST_DATABASE_MAX_MS = 10_000;
/** ...and how long they then go on without it. */
export const INGEST_AWAY_MS = 60_000;

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

/** Keys on one page of the portal; to show the usage of one takes a call of its gate. */
export const PORTAL_KEYS = 20;
/** Number of hours of usage that a key's gate keeps, including the current one. */
export const USAGE_HOURS = 24;
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
/** Maximum key gates that one dispatch notifies; a Worker may make 1,000 calls per invocation. */
export const GATES_TOLD_MAX = 500;

/**
 * Maximum length in characters of what a claim reads to make an event's body: the stored body, or the
 * lead as JSON, whose encrypted part is in hexadecimal and so twice as long. Anything longer is read
 * separately. This bounds what a dispatch keeps in memory to `CLAIM_MAX` times as much.
 */
export const INLINE_BODY_MAX = 16_384;

/** A wake up to this much too early is sent again; for a longer wait, another was sent already. */
export const EARLY_WAKE_MS = 5_000;
/** Maximum rows that one transaction cancels, exhausts or deletes. */
export const CLEANUP_MAX = 1_000;

/** Maximum duration of one call that erases a workspace. */
export const ERASURE_MAX_MS = 10_000;

/** The sweep wakes subscriptions with deliveries overdue by more than this. */
export const SWEEP_GRACE_MS = 60_000;
/** Maximum subscriptions that one sweep wakes. */
export const SWEEP_MAX = 1_000;
/** How long a sweep may spend on deleting. */
export const SWEEP_MAX_MS = 40_000;
/** The ledger counts a delivery as overdue after this. */
export const OVERDUE_AFTER_MS = 300_000;
/** A delivery that has been overdue for this long, because its subscription fails, is exhausted. */
export const OVERDUE_MAX_MS = 7 * 86_400_000;
/** Wait of a subscription that could not be posted to through no fault of its own. */
export const UNTRIED_WAIT_MS = 300_000;

/** An event that is settled later than this after its creation gets an expiry of its own. */
export const EXPIRY_SLACK_MS = 3_600_000;

/** Age at which an event is measured: by then all older ones are committed. */
export const SIZE_SLACK_MS = 120_000;
/** Maximum pending events per workspace that one sweep skips while looking for settled ones. */
export const TRIM_PENDING_MAX = 10_000;

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

/**
 * Maximum age of a key's standing in its gate; reading it again also notes that the key is used.
 */
export const STANDING_MAX_AGE_MS = 3_600_000;

/** Maximum runs of removed automations that one transaction deletes, */
export const REMOVED_RUNS_AT_ONCE = 5_000;
/** maximum such transactions per sweep, */
export const REMOVED_RUNS_PIECES = 20;
/** and the time after which a sweep starts no more of them. */
export const REMOVED_RUNS_MAX_MS = 20_000;

/** Maximum rows of a workspace that are copied to another database in one step, and maximum bytes. */
export const COPIED_AT_ONCE = 1_000;
export const COPIED_BYTES_AT_ONCE = 1_000_000;
/** Maximum changes, noted since copying began, that are copied in one step; the same bytes apply. */
export const CHANGES_AT_ONCE = 1_000;
/** Maximum moves that one sweep continues, of the workspaces leaving one database. */
export const MOVES_AT_ONCE = 100;
/** How long a process that moves a workspace owns the move, unless it renews that. */
export const MOVER_MS = 15_000;
/** How long a database may take to answer a mover; less than `MOVER_MS`. */
export const MOVER_PATIENCE_MS = 10_000;
/** How many key gates a mover tells at once... */
export const MOVE_GATES_AT_ONCE = 50;
/** ...and how long each may take to answer. */
export const MOVE_GATE_PATIENCE_MS = 5_000;
/**
 * How long writes wait for a switch before the workspace is opened again where it was. Less than
 * `MOVING_WAIT_MS`, so that they succeed there.
 */
export const SWITCH_MAX_MS = 2_000;
/** How long to wait after a failed switch before the sweep tries again; doubles each time. */
export const SWITCH_WAIT_MS = { first: 60_000, max: 3_600_000 } as const;
/** How long one call, or one sweep, works on moving a workspace. */
export const MOVE_MAX_MS = 20_000;
/** How long to wait, once no subscription is held, for the last outcomes of dispatches. */
export const DRAINED_MS = 300;
/** How long after a move what the workspace left behind is deleted: reads in progress have ended. */
export const LEFT_BEHIND_MS = 60_000;
/** How long a write waits for a workspace that is being switched to another database. */
export const MOVING_WAIT_MS = 5_000;

/** Maximum size of a D1 database (https://developers.cloudflare.com/d1/platform/limits/). */
export const DATABASE_MAX_BYTES = 10_000_000_000;
/** Days for which a database's daily sizes are kept. */
export const SIZES_KEPT_DAYS = 30;
/** How long a database may take to answer before the others are used without it. */
export const DATABASE_PATIENCE_MS = 5_000;

/** How long a transaction's token is kept: longer than any retry can take. */
export const COMMITS_KEPT_MS = 3_600_000;
/** Maximum tokens that one sweep deletes. */
export const COMMITS_FORGOTTEN_MAX = 20_000;
/** Minimum time between two writes of a key's window; a reset loses the counts of that time. */
export const WINDOW_WRITTEN_EVERY_MS = 500;
/**
 * How many times the failed authentications of a /64 its IPv6 /48 may have: one customer may hold all
 * of its 65,536 /64s.
 */
export const NETWORK_FAILURES_MULTIPLE = 16;

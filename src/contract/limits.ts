/**
 * Every number of the service that an operator might want to change, in one place; the quotas are
 * variables of the deployment and stand in wrangler.toml.
 */

/** Items on a page (contract, Limits: page size). */
export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;

/** Largest request body that the API reads, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;
/** How much of a body is read that no handler needs, and for how long: its connection is then kept. */
export const UNREAD_BODY_MAX = { bytes: 1024 * 1024, ms: 1_000 } as const;

/** Subscriptions that one workspace may have, disabled ones included, unless agreed otherwise... */
export const SUBSCRIPTIONS_MAX = 20;
/**
 * ...and what may be agreed. An event is written with a delivery for each: 100 leads for 100
 * subscriptions are 10,000 deliveries in one transaction, which keeps the database's one writer busy
 * for half a second; 500 would be two and a half. A queue, too, takes 100 messages at once.
 */
export const AGREED_SUBSCRIPTIONS_MAX = 100;

/** Longest webhook URL, in characters. */
export const URL_MAX_LENGTH = 2048;

/** A page of an export is full with so many items, or bytes of JSON; the last rows read may exceed it. */
export const EXPORT_PAGE_MAX_ITEMS = 1_000;
export const EXPORT_PAGE_MAX_BYTES = 1_000_000;

/** Items that one call of the Platform door may carry. */
export const RECORDS_MAX = 100;

/** Largest automation, lead or run that is recorded, in bytes of JSON: a page holds 100 of them. */
export const RECORD_MAX_BYTES = 64 * 1024;
/** Levels of objects and arrays in a lead's custom fields, themselves included. */
export const NESTING_MAX = 32;

/** Largest message that a queue takes, in bytes, less what it adds itself. */
export const MESSAGE_MAX_BYTES = 127_000;
/** Messages that the ingest queue records in one transaction, in bytes of JSON together. */
export const INGEST_TRANSACTION_MAX_BYTES = 1_000_000;
/**
 * Records that it writes in one: with the most subscriptions, 100,000 deliveries, which take five of
 * the 30 seconds that D1 allows.
 */
export const INGEST_TRANSACTION_MAX_RECORDS = 1_000;
/** How long after it was sent a run waits for its automation or lead; then it is set aside. */
export const UNORDERED_MAX_SECONDS = 900;
/** Its first wait; each one doubles its age. */
export const UNORDERED_FIRST_WAIT_SECONDS = 5;
/** The wait of one that is older than that when it first comes: what it waits for may be right behind. */
export const UNORDERED_LAST_WAIT_SECONDS = 60;
/** Wait of a message whose recording failed; doubled each time. */
export const INGEST_WAIT_SECONDS = { first: 10, max: 3_600 } as const;
/** Where several databases are bound, the others wait no longer than this for one of them... */
export const INGEST_DATABASE_MAX_MS = 10_000;
/** ...and then do without it for this long. */
export const INGEST_AWAY_MS = 60_000;

/** How long an API key that was rolled may still be used, in seconds. */
export const KEY_OVERLAP_MAX_SECONDS = 604_800;

/** How long a webhook secret that was replaced signs beside the new one, in seconds. */
export const SECRET_OVERLAP_SECONDS = { default: 86_400, max: 604_800 } as const;
/** Secrets of one subscription that may sign beside its own at once. */
export const EARLIER_SECRETS_MAX = 4;

/** How long a link to the portal is good, in minutes. */
export const PORTAL_LINK_MINUTES = { default: 60, max: 1_440 } as const;
/** Days whose deliveries the portal counts, today included... */
export const PORTAL_DAYS = 7;
/** ...and deliveries of one of them that it counts at the most, the newest ones. */
export const PORTAL_DAY_MAX = 10_000;

/** Deliveries that wait for one subscription, of which its health counts so many at the most. */
export const PENDING_COUNTED_MAX = 10_000;

/** Hours of which a gate keeps the usage of its key, the current one included. */
export const USAGE_HOURS = 24;
/** Deliveries that a page of a list that is narrowed looks through at the most. */
export const DELIVERIES_LOOKED_THROUGH = 2_000;

/** How long a subscriber has to answer (contract, Limits: webhook acknowledgement). */
export const POST_TIMEOUT_MS = 10_000;

/** How long a DNS-over-HTTPS resolver has to answer; silence is not a refusal. */
export const DNS_TIMEOUT_MS = 2_000;
/** How long it may hold up a post; an answer that comes later counts for the next one. */
export const DNS_BEFORE_POST_MS = 400;
/** For how long an isolate remembers what a name stands for: its TTL, within these bounds... */
export const DNS_REMEMBERED_MS = { min: 1_000, max: 300_000 } as const;
/** ...or this long, when nothing could be said. */
export const DNS_UNKNOWN_REMEMBERED_MS = 10_000;
/** Names that an isolate remembers. */
export const DNS_NAMES_MAX = 1_000;

/** Wait after the n-th failed attempt, in seconds; one attempt more than there are waits. */
export const RETRY_WAITS_SECONDS = [
  10, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400,
] as const;

/** A wait is lengthened by up to this share, so that failures do not return as one wave. */
export const RETRY_JITTER = 0.2;

/** A subscriber's `Retry-After` lengthens a wait up to this multiple of it. */
export const RETRY_AFTER_MAX_MULTIPLE = 2;

/** A subscription is disabled when it has failed without a success for this long... */
export const DISABLE_AFTER_MS = 72 * 3_600_000;
/** ...and at least this many times. */
export const DISABLE_AFTER_FAILURES = 10;

/** Administrators are told of a subscription that has failed without a success for this long. */
export const TELL_AFTER_MS = 24 * 3_600_000;
/** Waits between the tries to send an e-mail, in seconds, two days in all; then it is given up. */
export const EMAIL_WAITS_SECONDS = [
  300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 72_000,
] as const;
/** E-mails that one sweep sends: each is a request and a statement, of which the free plan has 50. */
export const EMAILS_MAX = 20;
/** How long the mail service has to answer. */
export const EMAIL_TIMEOUT_MS = 10_000;
/** An e-mail that a sweep has taken is nobody else's for this long; a sweep ends well before. */
export const EMAIL_TAKEN_MS = 300_000;
/** How long no e-mail is sent after the mail service has said that it takes no more for now, or today. */
export const EMAIL_PAUSE_MS = { rate: 300_000, daily: 3_600_000 } as const;

/** Posts under way at once, in one invocation and so to one subscription; the platform lets six wait. */
export const POSTS_AT_ONCE = 6;
/** Of these, one workspace may use so many where others wait. */
export const POSTS_PER_WORKSPACE = 3;
/** An answer that takes this long is slow. */
export const SLOW_ANSWER_MS = 2_000;

/** Deliveries that one transaction claims, over all its subscriptions. */
export const CLAIM_MAX = 100;
/** Deliveries of one subscription that it claims in the slow lane, where each may take ten seconds. */
export const CLAIM_SLOW_MAX = 6;
/** More is claimed when fewer than this are left to post. */
export const CLAIM_AHEAD = 24;

/** How long a dispatch holds what it has claimed from, should it die. */
export const HOLD_MS = 20_000;
/** No post starts later than this after the database was asked whether it is still owed. */
export const CONFIRMED_MS = 1_500;
/** Outcomes are recorded after this long, if not before. */
export const SETTLE_AFTER_MS = 1_000;
/** The same for a subscription that has nothing more to be posted, for which more may have come. */
export const SETTLE_IDLE_AFTER_MS = 100;
/** A dispatch starts no post later than this: the rest is for the next one. */
export const DISPATCH_MAX_MS = 20_000;
/** A dispatch in which no post ends for this long gives back what it has not begun. */
export const STUCK_MS = 500;
/** After this long, its queue goes on without it... */
export const HAND_OFF_MS = 100;
/** ...unless an isolate has this many of them... */
export const DISPATCHES_AT_ONCE = 8;
/** ...but where several databases are bound, no longer than this: one that hangs holds no others' queue. */
export const BUSY_HAND_OFF_MS = 2_000;
/**
 * What an invocation on the free plan may do: 50 requests to subscribers, and 50 statements, of which
 * one round trip has eight, and one more if it disables somebody: two are left for what then is under
 * way. More round trips are made by one that has been let post more.
 */
export const FREE_PLAN = { posts: 50, roundTrips: 4 } as const;

/** How long keys' gates may hold up a dispatch. */
export const GATES_TIMEOUT_MS = 1_000;
/** Key gates that one dispatch tells of the bookmark; a Worker may make 1,000 calls in one invocation. */
export const GATES_TOLD_MAX = 500;

/** Longest event body, in characters, that a claim reads along; a longer one is read by itself. */
export const INLINE_BODY_MAX = 32_768;

/** A wake that comes this much too early is sent again; an earlier one is not the one that counts. */
export const EARLY_WAKE_MS = 5_000;
/** Rows that one transaction cancels, exhausts or deletes. */
export const CLEANUP_MAX = 1_000;

/** How long one call that erases a workspace goes on. */
export const ERASURE_MAX_MS = 10_000;

/** The sweep looks for deliveries that are overdue by more than this. */
export const SWEEP_GRACE_MS = 60_000;
/** Subscriptions that one sweep wakes. */
export const SWEEP_MAX = 1_000;
/** A sweep deletes for this long. */
export const SWEEP_MAX_MS = 40_000;
/** The ledger calls a delivery overdue after this. */
export const OVERDUE_AFTER_MS = 300_000;
/** A delivery whose turn has not come for this long, because its subscription fails, is exhausted. */
export const OVERDUE_MAX_MS = 7 * 86_400_000;
/** A subscription that could not be posted to, through no fault of its own, waits this long. */
export const UNTRIED_WAIT_MS = 300_000;

/** An event that is not settled this long after it was created is dated by its settlement. */
export const EXPIRY_SLACK_MS = 3_600_000;

/** An event is measured once it is this old: by then all that is older is committed. */
export const SIZE_SLACK_MS = 120_000;
/** Pending events of one workspace that one sweep passes over, looking for settled ones behind them. */
export const TRIM_PENDING_MAX = 10_000;

/** Events that are older are not delivered again. */
export const REDELIVERY_MAX_AGE_MS = 30 * 86_400_000;
/** What is delivered again to a subscription that was enabled is spread by this rate. */
export const REDELIVERIES_PER_SECOND = 10;
/** Events that one transaction looks through for such a redelivery. */
export const REDELIVERY_CHUNK = 1_000;

/** A gate reads a key's standing anew, and notes that it is used, after this long at the most. */
export const STANDING_MAX_AGE_MS = 3_600_000;

/** Runs of removed automations that one transaction deletes, */
export const REMOVED_RUNS_AT_ONCE = 5_000;
/** and such transactions in one sweep, */
export const REMOVED_RUNS_PIECES = 20;
/** none of which starts later than this into it. */
export const REMOVED_RUNS_MAX_MS = 20_000;

/** Rows of a workspace that are copied to another database at once, and how much text at the most. */
export const COPIED_AT_ONCE = 1_000;
export const COPIED_CHARACTERS_AT_ONCE = 1_000_000;
/** Rows written meanwhile that are copied after it at once. */
export const CHANGES_AT_ONCE = 300;
/** Workspaces that one sweep goes on with, of those that leave one database. */
export const MOVES_AT_ONCE = 100;
/** Whoever moves a workspace has it for so long, and goes on. */
export const MOVER_MS = 15_000;
/** How long one call, or one sweep, goes on moving a workspace. */
export const MOVE_MAX_MS = 20_000;
/** Once nobody holds a subscription, what a dispatch may still have to say has this long. */
export const DRAINED_MS = 300;
/** What a workspace leaves behind is deleted so long after it has gone: reads under way have ended. */
export const LEFT_BEHIND_MS = 60_000;
/** How long a write waits for a workspace that is changing its database. */
export const MOVING_WAIT_MS = 5_000;

/** What one D1 database may hold (developers.cloudflare.com/d1/platform/limits). */
export const DATABASE_MAX_BYTES = 10_000_000_000;
/** Days for which the daily sizes of a database are kept. */
export const SIZES_KEPT_DAYS = 30;
/** A question that is put to several databases is answered without the one that takes longer. */
export const DATABASE_PATIENCE_MS = 5_000;

/** The token of a transaction is kept this long: longer than any try of it can be under way. */
export const COMMITS_KEPT_MS = 3_600_000;
/** Tokens that one sweep forgets at the most. */
export const COMMITS_FORGOTTEN_MAX = 20_000;
/** A gate writes the window of its key once in this time; an object that is reset forgets as much. */
export const WINDOW_WRITTEN_EVERY_MS = 500;

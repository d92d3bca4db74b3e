/**
 * Every number of the service that an operator might want to change, in one place; the quotas are
 * variables of the deployment and stand in wrangler.toml.
 */

/** Items on a page (contract, Limits: page size). */
export const PAGE_LIMIT = { min: 1, max: 100, default: 25 } as const;

/** Largest request body that the API reads, in bytes. */
export const BODY_MAX_BYTES = 16 * 1024;

/** Subscriptions that one workspace may have, disabled ones included. */
export const SUBSCRIPTIONS_MAX = 20;

/** Longest webhook URL, in characters. */
export const URL_MAX_LENGTH = 2048;

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
/** How long after it was sent a run waits for its automation or lead; then it is set aside. */
export const UNORDERED_MAX_SECONDS = 900;
/** Its first wait; each one doubles its age. */
export const UNORDERED_FIRST_WAIT_SECONDS = 5;
/** The wait of one that is older than that when it first comes: what it waits for may be right behind. */
export const UNORDERED_LAST_WAIT_SECONDS = 60;
/** Wait of a message whose recording failed; doubled each time. */
export const INGEST_WAIT_SECONDS = { first: 10, max: 3_600 } as const;

/** How long a subscriber has to answer (contract, Limits: webhook acknowledgement). */
export const POST_TIMEOUT_MS = 10_000;

/** How long a DNS-over-HTTPS resolver has to answer; silence is not a refusal. */
export const DNS_TIMEOUT_MS = 2_000;

/** Wait after the n-th failed attempt, in seconds; one attempt more than there are waits. */
export const RETRY_WAITS_SECONDS = [
  10, 60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400,
] as const;

/** A wait is spread by up to this share, up and down, so that failures do not return as one wave. */
export const RETRY_JITTER = 0.2;

/** A subscriber's `Retry-After` lengthens a wait up to this multiple of it. */
export const RETRY_AFTER_MAX_MULTIPLE = 2;

/** A subscription is disabled when it has failed without a success for this long... */
export const DISABLE_AFTER_MS = 72 * 3_600_000;
/** ...and at least this many times. */
export const DISABLE_AFTER_FAILURES = 10;

/** Deliveries that one consumer run claims, over all the subscriptions of its batch. */
export const CLAIM_MAX = 100;
/** Deliveries that a failing subscription gets in one run: one wave of posts. */
export const CLAIM_FAILING_MAX = 6;
/** Posts under way at once in one run; the platform lets six wait for headers. */
export const POSTS_AT_ONCE = 6;

/** Key gates that one run tells of the bookmark; a Worker may make 1,000 calls in one invocation. */
export const GATES_TOLD_MAX = 500;

/** Posts under way at once to one subscription. */
export const POSTS_PER_SUBSCRIPTION = 3;

/** Longest event body, in characters, that a claim reads along; a longer one is read by itself. */
export const INLINE_BODY_MAX = 32_768;

/** A claim is a lease: a delivery not settled by then is due again. */
export const LEASE_MS = 60_000;
/** No post starts later than this into a run, so that none outlives its lease. */
export const RUN_MAX_MS = 30_000;

/** The sweep looks at deliveries that are overdue by more than this. */
export const SWEEP_GRACE_MS = 60_000;
/** The ledger calls a delivery overdue after this. */
export const OVERDUE_AFTER_MS = 300_000;
/** A delivery that could not be tried, through no fault of its subscriber, waits this long. */
export const UNTRIED_WAIT_MS = 300_000;

/** Subscriptions that one sweep wakes, and events that it deletes, at the most. */
export const SWEEP_MAX = 1_000;
/** Settled deliveries and their events are kept this long. */
export const RETENTION_MS = 30 * 86_400_000;

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

/** The token of a transaction is kept this long: longer than any try of it can be under way. */
export const COMMITS_KEPT_MS = 3_600_000;
/** Tokens that one sweep forgets at the most. */
export const COMMITS_FORGOTTEN_MAX = 20_000;
/** A gate writes the window of its key once in this time; an object that is reset forgets as much. */
export const WINDOW_WRITTEN_EVERY_MS = 500;

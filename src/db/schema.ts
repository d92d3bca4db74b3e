import { sql } from "drizzle-orm";
import {
  customType,
  index,
  integer,
  primaryKey,
  sqliteTable,
  text,
  uniqueIndex,
} from "drizzle-orm/sqlite-core";
import type {
  AutomationStatus,
  AutomationType,
  DeliveryState,
  LeadSource,
  RedeliveryState,
  RunStatus,
  StatusClass,
  TriggerType,
  WebhookEvent,
} from "../contract/enumerations.ts";
import { HISTORY_METHODS } from "../contract/history.ts";
import { fromHex, type Hex } from "../primitives/bytes.ts";

/*
 * To add a field that is not personal: the column here, the public shape and `toX` in the noun's file in `src/records/`, the
 * input and its mapping in `src/recording/`. Then its example in `src/events/samples.ts` and `src/http/routes/examples.ts`,
 * its line in `test/contract/support.ts`, and `npm run openapi`, `npm run reference` and `npm run migrations`. For a lead,
 * `test/worker/records/person.test.ts` lists the fields that say nothing about the person.
 */

/*
 * Times are Unix milliseconds. Every table with data of workspaces has the workspace's id, except `attempts`, whose rows
 * belong to deliveries. Every list has an index in its order that starts with what it is a list of, such as a workspace.
 * So a page reads few rows that it does not show (`preparePage`).
 *
 * Every table is WITHOUT ROWID, because D1 bills rows written. The primary key of such a table is not a separate
 * index, which would be one more row to write. Drizzle cannot express that, so the migrations add it.
 */

/**
 * A column of bytes. In TypeScript, they are hexadecimal, because rows are inserted and moved as JSON, which has no bytes
 * (`fromJson` and `toJsonValue` in builder.ts).
 */
const bytes = customType<{ data: Hex; driverData: Uint8Array }>({
  dataType: () => "blob",
  toDriver: fromHex,
});

/** An administrator of a workspace: an e-mail address, and the language of the e-mails to it, by default French. */
export type Administrator = string | { email: string; language: Language };
export type Language = "fr" | "en";

/**
 * Why a workspace is write-locked in a database. `isWritable` excludes all three.
 *
 * - `draining`: it is about to leave this database, so no delivery starts.
 * - `locked`: triggers reject all writes (moving/triggers.ts), because it is leaving, has just arrived, or lives
 *   elsewhere.
 * - `arriving`: it is being copied to this database.
 */
type WriteLock = "draining" | "locked" | "arriving";

export const workspaces = sqliteTable(
  "workspaces",
  {
    id: text().primaryKey(),
    /**
     * The name of the database that it lives in; null for this one. A row that names another database is an entry of
     * the workspace directory. The workspace's fields and data are there, and its data cannot be written here.
     */
    database: text(),
    /** Why its rows are write-locked here; null while it lives here and does not move. */
    writeLock: text("write_lock").$type<WriteLock>(),
    /** The move that has locked its rows; null for a directory entry of a workspace that does not move. */
    moveId: text("move_id"),
    /** Whether it is being erased; also set in its directory entry, so that no key is created for it. */
    erasing: integer({ mode: "boolean" }).notNull().default(false),
    name: text().notNull(),
    adminEmails: text("admin_emails", { mode: "json" }).$type<Administrator[]>().notNull(),
    accessGranted: integer("access_granted", { mode: "boolean" }).notNull().default(true),
    /**
     * Its data encryption key, encrypted (`createDataKey`). The key itself never changes. Null in a database that the
     * workspace has never lived in, or that a move has cleaned up.
     */
    sealedDataKey: text("sealed_data_key"),
    /** The number of test events in the minute that began at `testEventsSince`. */
    testEvents: integer("test_events").notNull().default(0),
    testEventsSince: integer("test_events_since").notNull().default(0),
    /** The number of events that were sent again in the hour that began at `redeliveredSince`. */
    redelivered: integer().notNull().default(0),
    redeliveredSince: integer("redelivered_since").notNull().default(0),
    /** Portal links and sessions that were issued up to this time are invalid: see `PortalGrant`. */
    sessionsNotBefore: integer("sessions_not_before").notNull().default(0),
    /** The API keys that were revoked in the last hour, by id, with the time: see `guardWrites`. */
    revokedKeys: text("revoked_keys", { mode: "json" })
      .$type<Record<string, number>>()
      .notNull()
      .default({}),
    /** Maximum number of subscriptions; null for `SUBSCRIPTIONS_MAX`. */
    webhooksMax: integer("webhooks_max"),
    createdAt: integer("created_at").notNull(),
  },
  (table) => [
    index("workspaces_newest").on(table.createdAt, table.id),
    index("workspaces_locked").on(table.moveId).where(sql`move_id IS NOT NULL`),
  ],
);

export const apiKeys = sqliteTable(
  "api_keys",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id")
      .notNull()
      .references(() => workspaces.id),
    /** SHA-256 of the key, in hexadecimal; the key itself is stored nowhere. */
    keyHash: text("key_hash").notNull().unique(),
    /** Its name, by which its owner recognizes it together with its last four characters. */
    name: text(),
    lastFour: text("last_four").notNull(),
    requestsPerWindow: integer("requests_per_window"),
    createdAt: integer("created_at").notNull(),
    revokedAt: integer("revoked_at"),
    /** When a rotated key expires; null if it does not expire. */
    expiresAt: integer("expires_at"),
    /** When the gate of the key last read this row, at least once an hour while the key is used; null if never. */
    lastUsedAt: integer("last_used_at"),
  },
  (table) => [index("api_keys_newest").on(table.workspaceId, table.createdAt, table.id)],
);

export const automations = sqliteTable(
  "automations",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id")
      .notNull()
      .references(() => workspaces.id),
    reference: text().notNull(),
    type: text().$type<AutomationType>().notNull(),
    provider: text().notNull(),
    agentId: text("agent_id").notNull(),
    agentName: text("agent_name").notNull(),
    name: text().notNull(),
    status: text().$type<AutomationStatus>().notNull(),
    /** When it last changed. It grows with each change, even if two reports have the same time. */
    updatedAt: integer("updated_at").notNull(),
    /**
     * The time that orders changes: the time of the last report, as the platform gave it, or of a later change by a
     * client.
     */
    reportedAt: integer("reported_at").notNull(),
    createdAt: integer("created_at").notNull(),
    /**
     * When it was removed: it is not found from then on, and gets no run. The row stays for a while, so that no older
     * report brings it back.
     */
    removedAt: integer("removed_at"),
  },
  (table) => [
    index("automations_newest")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`removed_at IS NULL`),
    index("automations_removed")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`removed_at IS NOT NULL`),
  ],
);

export const leads = sqliteTable(
  "leads",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id")
      .notNull()
      .references(() => workspaces.id),
    reference: text().notNull(),
    source: text().$type<LeadSource>().notNull(),
    agentId: text("agent_id").notNull(),
    /** Its personal data (the fields of records/person.ts), encrypted. */
    sealed: bytes().notNull(),
    createdAt: integer("created_at").notNull(),
    /** Its only event, which is erased along with it. Erasing a lead finds no other. */
    eventId: text("event_id").notNull(),
  },
  (table) => [index("leads_newest").on(table.workspaceId, table.createdAt, table.id)],
);

/**
 * Erased leads, by the hash of their reference. A lead that is still in a queue of the platform is not recorded any
 * more. A lead may be erased before it was ever recorded.
 */
export const erasedLeads = sqliteTable(
  "erased_leads",
  {
    workspaceId: text("workspace_id").notNull(),
    /** The id that the lead has, or would get. */
    id: text().notNull(),
    erasedAt: integer("erased_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.id] }),
    index("erased_leads_oldest").on(table.erasedAt),
  ],
);

export const runs = sqliteTable(
  "runs",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id")
      .notNull()
      .references(() => workspaces.id),
    reference: text().notNull(),
    automationId: text("automation_id")
      .notNull()
      .references(() => automations.id, { onDelete: "cascade" }),
    status: text().$type<RunStatus>().notNull(),
    triggerType: text("trigger_type").$type<TriggerType>().notNull(),
    occurredAt: integer("occurred_at").notNull(),
    actions: text({ mode: "json" }).$type<{ type?: string; status?: string }[]>().notNull(),
    leadId: text("lead_id").references(() => leads.id),
  },
  (table) => [
    index("runs_newest").on(table.workspaceId, table.occurredAt, table.id),
    index("runs_newest_of_automation").on(table.automationId, table.occurredAt, table.id),
    // Erasing a lead looks up its runs, and so does the foreign key check when the lead is deleted.
    index("runs_of_lead").on(table.leadId).where(sql`lead_id IS NOT NULL`),
  ],
);

/**
 * SQL condition: administrators may have to be notified of the state of the subscription. SQLite uses its index only for
 * queries that contain this text.
 */
export const IS_NOTABLE = sql.raw(
  "failing_since IS NOT NULL OR circuits <> '{}' OR disabled_by_failures OR pending_exhausted_at IS NOT NULL OR announced ->> '$.failing' IS NOT NULL",
);

export const subscriptions = sqliteTable(
  "subscriptions",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id")
      .notNull()
      .references(() => workspaces.id),
    url: text().notNull(),
    events: text({ mode: "json" }).$type<WebhookEvent[]>().notNull(),
    description: text(),
    /** The API key that created it; null if it was created in the portal. */
    keyId: text("key_id"),
    /** The names of its custom headers (endpoints/headers.ts). */
    headerNames: text("header_names", { mode: "json" }).$type<string[]>().notNull().default([]),
    /** Its custom headers, encrypted; null if there are none. */
    sealedHeaders: text("sealed_headers"),
    sealedSecret: text("sealed_secret").notNull(),
    /** Previous secrets, which may still sign during their grace period; null if there are none. */
    earlierSecrets: text("earlier_secrets", { mode: "json" }).$type<EarlierSecret[]>(),
    /** When its secret was last rotated; null if it never was. */
    rotatedAt: integer("rotated_at"),
    createdAt: integer("created_at").notNull(),
    /**
     * The `Idempotency-Key` of the request that created it, behind the id of its API key, so that no other API key can
     * repeat the request: see `isRepeatable` in subscriptions/creation.ts.
     */
    idempotencyKey: text("idempotency_key"),
    /** The fields of that request; those of the subscription may have changed since. */
    requested: text({ mode: "json" }).$type<{
      url: string;
      events: WebhookEvent[];
      description?: string;
      headerNames?: string[];
    }>(),
    disabledAt: integer("disabled_at"),
    /** Whether it was disabled because it had failed for too long, rather than by an administrator. */
    disabledByFailures: integer("disabled_by_failures", { mode: "boolean" })
      .notNull()
      .default(false),
    /**
     * When it was first found to have more than `PENDING_MAX` pending deliveries, an overflow; null if it was not. It is
     * cleared once the last attempt of a claim has started an hour later and succeeded.
     */
    pendingExhaustedAt: integer("pending_exhausted_at"),
    /** The last e-mail of each kind that administrators were sent. A recovery removes the failure. */
    announced: text({ mode: "json" }).$type<Announced>().notNull().default({}),
    /** When it was deleted. The row stays until no delivery is pending, and no e-mail about it is less than a day old. */
    deletedAt: integer("deleted_at"),
    /** How it may be sent to, in the columns from here to `failures`: see `SendingState` in delivery/policy.ts. */
    concurrency: integer().notNull().default(1),
    slow: integer({ mode: "boolean" }).notNull().default(false),
    circuits: text({ mode: "json" }).$type<Circuits>().notNull().default({}),
    failingSince: integer("failing_since"),
    failures: integer().notNull().default(0),
    /** A fencing token, which each claim and each settlement replaces: see dispatch/claims.ts. */
    leasedBy: text("leased_by"),
    /** When the lease ends unless its dispatch extends it; 0 once it was released. */
    leasedUntil: integer("leased_until").notNull().default(0),
    /**
     * It is incremented when pending deliveries are cancelled, and when the sending state is set to its initial one. The
     * outcome of a request that was claimed before then does not change this state.
     */
    epoch: integer("epoch").notNull().default(0),
    /** The epoch, for each event type, before which pending deliveries are cancelled. */
    cancelledBefore: text("cancelled_before", { mode: "json" })
      .$type<Partial<Record<WebhookEvent, number>>>()
      .notNull()
      .default({}),
    /**
     * Whether deliveries are to be ended without a request: rows of cancelled ones may still say `pending`, or more than
     * `PENDING_MAX` are pending. See delivery/ending.ts.
     */
    hasToEnd: integer("has_to_end", { mode: "boolean" }).notNull().default(false),
    /** Its attempts of the last seven days (delivery/attempts.ts). Test events are not counted, but their responses are. */
    dailyCounts: text("daily_counts", { mode: "json" }).$type<DailyCounts>().notNull().default({}),
    /** Its last attempt. */
    lastAttempt: text("last_attempt", { mode: "json" }).$type<LastAttempt>(),
    /** When its next delayed wake-up message arrives; past if none is underway. See delivery/wake.ts. */
    nextMessageAt: integer("next_message_at").notNull().default(0),
  },
  (table) => [
    uniqueIndex("subscriptions_idempotent")
      .on(table.workspaceId, table.idempotencyKey)
      .where(sql`idempotency_key IS NOT NULL`),
    index("subscriptions_notable").on(table.id).where(IS_NOTABLE),
    index("subscriptions_newest")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`deleted_at IS NULL`),
    index("subscriptions_deleted")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`deleted_at IS NOT NULL`),
  ],
);

/** The circuits of the event types that have failed since their last success. */
export type Circuits = Partial<Record<WebhookEvent, Circuit>>;

/** The circuit of an event type; times are Unix milliseconds. */
export interface Circuit {
  /** The events whose first attempt was rejected since the last success of the type, before the circuit opened. */
  rejected: readonly string[];
  /**
   * How many failures in a row have lengthened the wait for the next probe, from the one that opened the circuit on; 0
   * while it is closed, or if only an error of ours opened it.
   */
  step: number;
  /**
   * When the next probe may be sent, while it is open; 0 while it is closed. A success closes it, and so does a rejection if
   * only an error of ours opened it, unless it is the fifth (`CIRCUIT_OPENS_AFTER_EVENTS`). A new URL also closes it.
   */
  probeAt: number;
  /** The start of the first attempt that has failed since the last success. */
  since: number;
  /** The outcome of the last failure, and its status if there was a response. Null if only an error of ours opened it. */
  outcome: string | null;
  status: number | null;
}

/** Counts by name, by UTC day, such as `2026-11-28`. */
export type DailyCounts = Record<string, Record<string, number>>;

export interface LastAttempt {
  at: number;
  /** One of `answered`, `timed_out`, `unreachable` and `refused`. */
  outcome: string;
  status: number | null;
  durationMs: number | null;
}

/** The kinds of notification e-mails to administrators. */
export const EMAIL_KINDS = [
  /** The subscription has failed for a day. */
  "failing",
  /** The subscription works again, after an e-mail that it was failing. */
  "recovered",
  /** The subscription was disabled because it had failed for too long. */
  "disabled",
  /** The subscription has rejected an event type for a day, and accepts others. */
  "rejecting",
  /** The subscription had too many pending deliveries, so the oldest were exhausted. */
  "overflow",
] as const;
export type EmailKind = (typeof EMAIL_KINDS)[number];

/** The last e-mail of each kind about a subscription, whether or not it arrived. */
type Announced = Partial<Record<EmailKind, AnnouncedEmail>>;

/** An e-mail that was announced; times are Unix milliseconds. */
export interface AnnouncedEmail {
  /** The host of the subscription's URL. */
  host: string;
  /** When the reported state began. */
  since: number;
  /** When the e-mail was passed to the queue. */
  announcedAt: number;
  /** Number of reminders since the first e-mail. */
  reminders: number;
  /** Number of e-mails in the 24 hours before `announcedAt`, one for each administrator. */
  emails: number;
}

/** A previous secret, which signs alongside the current one until its grace period ends. */
export interface EarlierSecret {
  sealedSecret: string;
  until: number;
}

export const events = sqliteTable(
  "events",
  {
    workspaceId: text("workspace_id").notNull(),
    /** Its id, which sorts by time: see `newEventId`. */
    id: text().notNull(),
    type: text().$type<WebhookEvent>().notNull(),
    /** The exact body that is signed and sent; "" if it is made from its lead. */
    body: text().notNull(),
    /** The new lead that it announces, whose row never changes; null for other events. */
    leadId: text("lead_id"),
    /**
     * The subscriptions that get a delivery of it. The delivery reconciliation, retention and moves find its deliveries
     * through them, so a new delivery must be added here.
     */
    owed: text({ mode: "json" }).$type<string[]>().notNull(),
    createdAt: integer("created_at").notNull(),
    /** Whether it is a test event, which is sent once, to one subscription. */
    test: integer({ mode: "boolean" }).notNull().default(false),
  },
  (table) => [primaryKey({ columns: [table.workspaceId, table.id] })],
);

/**
 * The priorities of pending deliveries. Those of one event type that are due are sent in this order, and within a priority
 * in the order of their due times.
 */
export const PRIORITY = {
  /** A person has resent the event by its id. No circuit holds it. */
  resend: 0,
  /** Not tried yet; or a resend that could not be attempted. */
  untried: 1,
  /** Its last attempt has failed. */
  retry: 2,
  /** A replay of a range sends it again. */
  replay: 3,
} as const;

export type Priority = (typeof PRIORITY)[keyof typeof PRIORITY];

export const deliveries = sqliteTable(
  "deliveries",
  {
    subscriptionId: text("subscription_id").notNull(),
    eventId: text("event_id").notNull(),
    workspaceId: text("workspace_id").notNull(),
    /** The type of the event. */
    type: text().$type<WebhookEvent>().notNull(),
    /**
     * `pending` until an attempt delivers or exhausts it (delivery/policy.ts), or until it is cancelled or exhausted without
     * one (delivery/ending.ts).
     */
    state: text().$type<DeliveryState>().notNull(),
    priority: integer().$type<Priority>().notNull().default(PRIORITY.untried),
    /** Steps of its retry schedule that are used up. */
    stepsUsed: integer("steps_used").notNull().default(0),
    /** When a pending delivery is due; of a settled one, when it was last due. */
    dueAt: integer("due_at").notNull(),
    /** When its first attempt on this schedule started; null if it was not tried since it was recorded, resent or replayed. */
    firstAt: integer("first_at"),
    /** The `epoch` of its subscription when it was made pending. */
    pendingSinceEpoch: integer("pending_since_epoch").notNull().default(0),
    lastOutcome: text("last_outcome"),
    lastStatus: integer("last_status"),
    /** When the last attempt started, or when the delivery was exhausted because too many were pending. */
    lastAt: integer("last_at"),
    lastDurationMs: integer("last_duration_ms"),
    /** When it ended; null while it is pending. */
    settledAt: integer("settled_at"),
    /** All attempts, whether they moved its retry schedule or not, and those before it was last resent. */
    attemptsMade: integer("attempts_made").notNull().default(0),
    /** Whether one of the earlier attempts delivered it. */
    deliveredEarlier: integer("delivered_earlier", { mode: "boolean" }).notNull().default(false),
    /** The replay that sends it again, and counts its outcomes; null if none did, or if it was resent since. */
    replayId: text("replay_id"),
    /** The state in which the replay has found it, which a stop gives back; null if it had no delivery. */
    stateBefore: text("state_before").$type<DeliveryState>(),
  },
  (table) => [
    primaryKey({ columns: [table.subscriptionId, table.eventId] }),
    // The last column lets counts and cancellations read the index alone.
    index("deliveries_due_of_subscription")
      .on(
        table.subscriptionId,
        table.type,
        table.priority,
        table.dueAt,
        table.eventId,
        table.pendingSinceEpoch,
      )
      .where(sql`state = 'pending'`),
    // Few deliveries fail. This index finds those that failed or were cancelled without reading the others. A delivery
    // that succeeds at its first attempt writes no entry.
    index("deliveries_unsuccessful")
      .on(table.subscriptionId, table.state, table.eventId)
      .where(sql`state IN ('exhausted', 'cancelled') OR (state = 'pending' AND priority = 2)`),
  ],
);

/**
 * Attempts that failed, and attempts of test events. Any other success is stored in the row of its delivery, and here
 * only if the delivery is sent again.
 */
export const attempts = sqliteTable(
  "attempts",
  {
    subscriptionId: text("subscription_id").notNull(),
    eventId: text("event_id").notNull(),
    /** The number of the attempt, from 1 to `ATTEMPTS_KEPT`. The count continues when the delivery is resent. */
    attempt: integer().notNull(),
    at: integer().notNull(),
    outcome: text().notNull(),
    status: integer(),
    durationMs: integer("duration_ms").notNull(),
    /** The stored part of the response, encrypted (delivery/response.ts); null if none was stored. */
    response: bytes(),
  },
  (table) => [primaryKey({ columns: [table.subscriptionId, table.eventId, table.attempt] })],
);

/** The events of a replay: those of a time range in some states. Times are Unix milliseconds. */
export interface ReplayFilter {
  since: number;
  /** Exclusive. */
  until: number;
  states: readonly RedeliveryState[];
  type: WebhookEvent | null;
  /** The status of the last attempt, or its class. */
  status: number | StatusClass | null;
}

/** Why a replay examines and sends no more: all is sent, a person has stopped it, or its subscription was disabled. */
export type ReplayResult = "done" | "stopped" | "interrupted";

/**
 * The replays of a subscription (replay/replays.ts). The dispatch counts their deliveries (dispatch/claims.ts), and the
 * audit trail has the persons who began them.
 */
export const replays = sqliteTable(
  "replays",
  {
    workspaceId: text("workspace_id").notNull(),
    subscriptionId: text("subscription_id").notNull(),
    id: text().notNull(),
    filter: text({ mode: "json" }).$type<ReplayFilter>().notNull(),
    createdAt: integer("created_at").notNull(),
    /** The last event that it has examined; null once it examines no more. */
    cursor: text(),
    /** When it was last continued, by a call or by the scheduled job. */
    examinedAt: integer("examined_at").notNull(),
    /** The number of deliveries that it has made pending. */
    scheduled: integer().notNull().default(0),
    /**
     * The number of these that were delivered, and of these whose last attempt has failed. The others were not sent
     * yet.
     */
    delivered: integer().notNull().default(0),
    failed: integer().notNull().default(0),
    result: text().$type<ReplayResult>(),
    /** When it was done. A stopped replay is done once all its deliveries are as they were before. */
    endedAt: integer("ended_at"),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.subscriptionId, table.id] }),
    index("replays_unended").on(table.examinedAt).where(sql`ended_at IS NULL`),
  ],
);

/**
 * Where each resumable part of the scheduled job stopped. `npm run restore` also adds a row before a database goes back:
 * see `markPresent` in scripts/restore/restoration.ts.
 */
export const sweepPositions = sqliteTable("sweep_positions", {
  part: text().primaryKey(),
  position: text().notNull(),
});

/**
 * The stages of a move.
 *
 * - `draining`: no delivery starts in the source, and those in flight end. Then the source is locked.
 * - `copying`: the rows are copied. Until this stage ends, the move can be cancelled.
 * - `switching`: the directory names the target, which is about to be unlocked.
 * - `cleanup`: the workspace lives in the target. Its rows in the source are deleted once reads of them have
 *   ended.
 */
export type MoveStage = "draining" | "copying" | "switching" | "cleanup";

/** The workspaces that move between two databases; only the directory has rows. */
export const moves = sqliteTable("moves", {
  workspaceId: text("workspace_id").primaryKey(),
  id: text().notNull(),
  /** The name of the database that the workspace leaves. */
  from: text("source").notNull(),
  /** The name of the database that it moves to. */
  to: text("target").notNull(),
  stage: text().$type<MoveStage>().notNull(),
  /** Where copying continues; null before it begins. */
  position: text({ mode: "json" }).$type<MovePosition>(),
  /** The number of rows to copy. */
  rows: integer().notNull().default(0),
  /** The number of rows that have been copied. */
  copied: integer().notNull().default(0),
  /** When the workspace was created. */
  createdAt: integer("created_at").notNull(),
  /** When the last step was taken. */
  since: integer().notNull(),
});

/** The index of a table in the table registry, past the last one when all are copied, and the last copied row. */
interface MovePosition {
  kind: number;
  after: (string | number)[] | null;
}

/** Fields of a subscription before or after a change, without secrets and values of headers. */
export interface ChangedFields {
  url?: string;
  events?: WebhookEvent[];
  description?: string | null;
  /** The names of the custom headers. */
  headers?: string[];
  /** ISO 8601. */
  disabledAt?: string | null;
  rotatedAt?: string | null;
  /** The replay that the call has begun. */
  replayId?: string;
}

/**
 * SQL condition: an entry is a change of a subscription, or a call that the history of a workspace shows. A query has it
 * as it is, so that it uses the index.
 */
export const IN_HISTORY = sql.raw(
  `(webhook_id IS NOT NULL OR method IN (${HISTORY_METHODS.map((name) => `'${name}'`).join(", ")}))`,
);

/**
 * The audit trail of calls of the Platform API and of changes in the portal and through the API; only the directory has
 * rows. It has no personal data, except the actor, and any in the URL or description of a subscription.
 */
export const auditTrail = sqliteTable(
  "audit_trail",
  {
    at: integer().notNull(),
    id: text().notNull(),
    method: text().notNull(),
    /** The workspace that the call was about, which may no longer exist; null for none or several. */
    workspaceId: text("workspace_id"),
    /** The other ids that the call named or created. */
    ids: text({ mode: "json" }).$type<string[]>().notNull(),
    actor: text(),
    via: text().notNull(),
    result: text().notNull(),
    durationMs: integer("duration_ms").notNull(),
    /** The subscription that the call changed, with the changed fields before and after; null for no change. */
    webhookId: text("webhook_id"),
    before: text({ mode: "json" }).$type<ChangedFields>(),
    after: text({ mode: "json" }).$type<ChangedFields>(),
    /** Whether it is about a URL, a secret or a header, so that no number of later entries removes it. */
    lasting: integer({ mode: "boolean" }).notNull().default(false),
  },
  (table) => [
    primaryKey({ columns: [table.at, table.id] }),
    index("audit_trail_of_workspace")
      .on(table.workspaceId, table.at, table.id)
      .where(sql`workspace_id IS NOT NULL`),
    index("audit_trail_changes")
      .on(table.workspaceId, table.via, table.lasting, table.at, table.id)
      .where(sql`webhook_id IS NOT NULL`),
    index("audit_trail_history").on(table.workspaceId, table.at, table.id).where(IN_HISTORY),
    index("audit_trail_of_webhook")
      .on(table.webhookId, table.at, table.id)
      .where(sql`webhook_id IS NOT NULL`),
  ],
);

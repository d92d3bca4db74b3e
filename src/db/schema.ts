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
import { fromHex, type Hex } from "../contract/bytes.ts";
import type {
  AutomationStatus,
  AutomationType,
  DeliveryState,
  LeadSource,
  RunStatus,
  TriggerType,
  WebhookEvent,
} from "../contract/enumerations.ts";

/*
 * Times are Unix milliseconds. Every table that belongs to a workspace has its id, and every list
 * has an index that starts with it: a page reads the rows it shows plus one.
 */

/** Bytes in hexadecimal, because rows pass through JSON; a query that binds them binds the bytes. */
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
 * - `draining`: it lives here, and is about to leave, so that no request begins.
 * - `locked`: triggers refuse all writes (workspaces/moving/triggers.ts), because it is leaving, has just
 *   arrived, or lives elsewhere.
 * - `arriving`: it is being copied here.
 */
export type WriteLock = "draining" | "locked" | "arriving";

export const workspaces = sqliteTable(
  "workspaces",
  {
    id: text().primaryKey(),
    /**
     * The name of the database that it lives in; null for this one. A row that names another one is a
     * directory entry: the workspace's fields and data are there, and its data cannot be written here.
     */
    database: text(),
    /** Why its rows here are write-locked; null while it lives here and does not move. */
    writeLock: text("write_lock").$type<WriteLock>(),
    /** The move that locks them; null for an entry of a workspace that lives elsewhere. */
    moveId: text("move_id"),
    /** Whether it is being erased; in the directory's entry, too, so that it gets no keys. */
    erasing: integer({ mode: "boolean" }).notNull().default(false),
    name: text().notNull(),
    adminEmails: text("admin_emails", { mode: "json" }).$type<Administrator[]>().notNull(),
    accessGranted: integer("access_granted", { mode: "boolean" }).notNull().default(true),
    /**
     * The key that encrypts the personal data of its leads, itself encrypted, as `createDataKey` returns it.
     * The key never changes. Null in a database that the workspace does not live in.
     */
    dataKey: text("data_key"),
    /** The test events of the minute that began then. */
    testEvents: integer("test_events").notNull().default(0),
    testEventsSince: integer("test_events_since").notNull().default(0),
    /** Portal links and sessions that were issued up to then are not valid: see `PortalGrant`. */
    sessionsNotBefore: integer("sessions_not_before").notNull().default(0),
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
    /** What its owner recognises it by, with its last four characters. */
    name: text(),
    lastFour: text("last_four").notNull(),
    requestsPerWindow: integer("requests_per_window"),
    createdAt: integer("created_at").notNull(),
    revokedAt: integer("revoked_at"),
    /** When a key that was rolled stops working; null if it does not expire. */
    expiresAt: integer("expires_at"),
    /** Start of the last hour in which the key was used; null if its gate has never seen it. */
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
    updatedAt: integer("updated_at").notNull(),
    createdAt: integer("created_at").notNull(),
    /** When it was removed: it and its runs are hidden, and then deleted in chunks. */
    removedAt: integer("removed_at"),
  },
  (table) => [
    index("automations_newest").on(table.workspaceId, table.createdAt, table.id),
    // There are few, mostly none: whether a run is hidden reads no row.
    index("automations_removed").on(table.id).where(sql`removed_at IS NOT NULL`),
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
    /** Its personal data, encrypted: the fields of records/person.ts. */
    sealed: bytes().notNull(),
    createdAt: integer("created_at").notNull(),
    /** The event that announced it, erased along with it. */
    eventId: text("event_id").notNull(),
  },
  (table) => [index("leads_newest").on(table.workspaceId, table.createdAt, table.id)],
);

/**
 * Leads that were erased, or were to be erased before they had arrived, by the hash of their
 * reference, so that what a queue still holds of them is not recorded.
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
    /** Headers of its own (subscriptions/headers.ts): their names, and all of them, encrypted. */
    headerNames: text("header_names", { mode: "json" }).$type<string[]>().notNull().default([]),
    sealedHeaders: text("sealed_headers"),
    sealedSecret: text("sealed_secret").notNull(),
    /** Secrets that were rotated out and may still sign; null if there are none. */
    earlierSecrets: text("earlier_secrets", { mode: "json" }).$type<EarlierSecret[]>(),
    /** When its secret was last rotated; null if it never was. */
    rotatedAt: integer("rotated_at"),
    createdAt: integer("created_at").notNull(),
    /**
     * The `Idempotency-Key` of the request that created it, behind the id of its API key, so that no other key
     * can repeat it. Null once it was deleted, its secret was rotated, or the key was used for another one
     * a day later.
     */
    idempotencyKey: text("idempotency_key"),
    /** What that request asked for: its URL and events may have changed since. */
    requested: text({ mode: "json" }).$type<{ url: string; events: WebhookEvent[] }>(),
    disabledAt: integer("disabled_at"),
    /** Whether it was disabled because it had failed for too long. */
    disabledByFailures: integer("disabled_by_failures", { mode: "boolean" })
      .notNull()
      .default(false),
    /** When its bound of pending deliveries was reached; null if it was not since its last success. */
    pendingExhaustedAt: integer("pending_exhausted_at"),
    /** When its client deleted it; the row stays until none of its deliveries is pending. */
    deletedAt: integer("deleted_at"),
    /** How fast it may be sent to, from here to `retryFailedAt`: see `Pace` in delivery/policy.ts. */
    concurrency: integer().notNull().default(1),
    slow: integer({ mode: "boolean" }).notNull().default(false),
    streak: text({ mode: "json" }).$type<Streak>(),
    blockedUntil: integer("blocked_until").notNull().default(0),
    retryFailedAt: integer("retry_failed_at").notNull().default(0),
    /** When its streak of failures began, and how many attempts have failed in it: for queries. */
    failingSince: integer("failing_since"),
    failures: integer().notNull().default(0),
    /** What administrators are told about its event types: see `TypeRecord` in delivery/policy.ts. */
    rejections: text({ mode: "json" }).$type<Rejections>().notNull().default({}),
    acceptedTypes: text("accepted_types", { mode: "json" })
      .$type<WebhookEvent[]>()
      .notNull()
      .default([]),
    /** The dispatch that leases it. */
    leasedBy: text("leased_by"),
    /** When the lease ends, if its dispatch dies; 0 once it was released. */
    leasedUntil: integer("leased_until").notNull().default(0),
    /** A fencing counter: how often pending deliveries of it were cancelled. */
    cancelEpoch: integer("cancel_epoch").notNull().default(0),
    /** By event type: pending deliveries of an epoch before this one are cancelled. */
    cancelledBefore: text("cancelled_before", { mode: "json" })
      .$type<Partial<Record<WebhookEvent, number>>>()
      .notNull()
      .default({}),
    /** Whether rows of cancelled deliveries may still say `pending`. */
    cancelling: integer({ mode: "boolean" }).notNull().default(false),
    /** The last attempt, as of the last time that its pace changed or its lease was released. */
    lastAttempt: text("last_attempt", { mode: "json" }).$type<LastAttempt>(),
    /** When the delayed wake-up message arrives that is on its way; in the past if there is none. */
    wakeAt: integer("wake_at").notNull().default(0),
    /** No other redelivery is due before this time. */
    scheduledUntil: integer("scheduled_until").notNull().default(0),
  },
  (table) => [
    uniqueIndex("subscriptions_idempotent")
      .on(table.workspaceId, table.idempotencyKey)
      .where(sql`idempotency_key IS NOT NULL`),
    index("subscriptions_notable")
      .on(table.id)
      .where(
        sql`failing_since IS NOT NULL OR rejections <> '{}' OR disabled_by_failures OR pending_exhausted_at IS NOT NULL`,
      ),
    index("subscriptions_newest")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`deleted_at IS NULL`),
    index("subscriptions_deleted")
      .on(table.workspaceId, table.createdAt, table.id)
      .where(sql`deleted_at IS NOT NULL`),
  ],
);

/** The failures of a subscription since its last success. */
export interface Streak {
  /** When the first of its failed attempts started: Unix milliseconds. */
  startedAt: number;
  /** Different events that failed in it, and failed attempts. */
  events: number;
  attempts: number;
  /** Different events that failed since the endpoint was first found busy or unavailable; 0 if it was not. */
  outageStep: number;
  /** By event type: when it was last tried, and whether its last untried event was the newest one. */
  turns: Partial<Record<WebhookEvent, { at: number; triedNewest: boolean }>>;
}

/** The event types of which none has been accepted since one failed. */
export type Rejections = Partial<Record<WebhookEvent, Rejection>>;

export interface Rejection {
  /** When the first of them failed: Unix milliseconds. */
  since: number;
  /** How the last one failed: an outcome, and its status if it was answered. */
  outcome: string;
  status: number | null;
}

export interface LastAttempt {
  at: number;
  /** One of `answered`, `timed_out`, `unreachable` and `refused`. */
  outcome: string;
  status: number | null;
  durationMs: number | null;
}

/** A secret that was rotated out, and signs alongside the new one until a time. */
export interface EarlierSecret {
  sealedSecret: string;
  until: number;
}

export const events = sqliteTable(
  "events",
  {
    workspaceId: text("workspace_id").notNull(),
    /** Sorted by time: see `newEventId`. */
    id: text().notNull(),
    type: text().$type<WebhookEvent>().notNull(),
    /** The exact body that is signed and posted; "" if it is made from its lead. */
    body: text().notNull(),
    /** The new lead that it announces, whose row never changes; null for other events. */
    leadId: text("lead_id"),
    /** The subscriptions it is owed to, apart from the deliveries: the ledger compares both. */
    owed: text({ mode: "json" }).$type<string[]>().notNull(),
    createdAt: integer("created_at").notNull(),
    /** Whether it is a test event, which is sent to one subscription, once. */
    test: integer({ mode: "boolean" }).notNull().default(false),
  },
  (table) => [primaryKey({ columns: [table.workspaceId, table.id] })],
);

/**
 * The order in which a subscription's pending deliveries are sent.
 *
 * - 0: not tried yet.
 * - 1: sent by hand; it waits for nothing.
 * - 2: all its attempts failed within one streak of failures, at whose end it is due at once.
 * - 3: due by its own retry schedule, or by that of a replay.
 */
export type Priority = 0 | 1 | 2 | 3;

/**
 * A table without rowids, which Drizzle cannot express: migrations/0001_triggers.sql makes it. That saves a
 * write per row, and reads are as fast, because no column grows.
 */
export const deliveries = sqliteTable(
  "deliveries",
  {
    subscriptionId: text("subscription_id").notNull(),
    eventId: text("event_id").notNull(),
    workspaceId: text("workspace_id").notNull(),
    /** The event's. */
    type: text().$type<WebhookEvent>().notNull(),
    state: text().$type<DeliveryState>().notNull(),
    priority: integer().$type<Priority>().notNull().default(0),
    /** Attempts on its retry schedule; earlier ones, which do not count, leave it unchanged. */
    attempts: integer().notNull().default(0),
    /** When a pending delivery is due. */
    dueAt: integer("due_at").notNull(),
    /** If it was sent by hand before it was due: when its retry schedule makes it due. */
    scheduledAt: integer("scheduled_at"),
    /** The subscription's `cancelEpoch` when it was made pending. */
    cancelEpoch: integer("cancel_epoch").notNull().default(0),
    lastOutcome: text("last_outcome"),
    lastStatus: integer("last_status"),
    /** When the last attempt started, and how long it took. */
    lastAt: integer("last_at"),
    lastDurationMs: integer("last_duration_ms"),
    settledAt: integer("settled_at"),
    /** Number of attempts before it was last sent again, and whether one of them delivered it. */
    earlierAttempts: integer("earlier_attempts").notNull().default(0),
    deliveredEarlier: integer("delivered_earlier", { mode: "boolean" }).notNull().default(false),
  },
  (table) => [
    primaryKey({ columns: [table.subscriptionId, table.eventId] }),
    index("deliveries_due_of_subscription")
      .on(table.subscriptionId, table.type, table.priority, table.dueAt, table.eventId)
      .where(sql`state = 'pending'`),
    // Few deliveries fail. So those that failed, or were cancelled, are found without reading the others, and one
    // that is delivered at its first attempt writes no entry.
    index("deliveries_unsuccessful")
      .on(table.subscriptionId, table.state, table.eventId)
      .where(sql`state IN ('exhausted', 'cancelled') OR (state = 'pending' AND attempts > 0)`),
  ],
);

/**
 * Attempts that failed, and those of tests. Another success writes no row here: the delivery stores it, until
 * it is sent again and the success moves here.
 */
export const attempts = sqliteTable(
  "attempts",
  {
    subscriptionId: text("subscription_id").notNull(),
    eventId: text("event_id").notNull(),
    /** From 1; it keeps counting when the delivery is sent again, up to `ATTEMPTS_KEPT`. */
    attempt: integer().notNull(),
    at: integer().notNull(),
    outcome: text().notNull(),
    status: integer(),
    durationMs: integer("duration_ms").notNull(),
    /** The answer, encrypted: see delivery/response.ts. Null for a success, which is no test. */
    response: bytes(),
  },
  (table) => [primaryKey({ columns: [table.subscriptionId, table.eventId, table.attempt] })],
);

/**
 * How the delivery attempts of a subscription ended, one row for each UTC day: see history/counts.ts. Test events
 * are not counted.
 */
export const deliveryCounts = sqliteTable(
  "delivery_counts",
  {
    workspaceId: text("workspace_id").notNull(),
    subscriptionId: text("subscription_id").notNull(),
    /** When the day started. */
    day: integer().notNull(),
    counts: text({ mode: "json" }).$type<Record<string, number>>().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.workspaceId, table.subscriptionId, table.day] }),
    index("delivery_counts_oldest").on(table.day),
  ],
);

/** Where each resumable part of the sweep stopped. */
export const sweepPositions = sqliteTable("sweep_positions", {
  part: text().primaryKey(),
  position: text().notNull(),
});

/**
 * The stages of a move.
 *
 * - `leaving`: no post begins in the source, and those in progress end; then writes are refused.
 * - `copying`: its rows are copied. Until it ends, the move can be cancelled.
 * - `opening`: the directory names the target, where writes are accepted soon.
 * - `cleaning`: it lives in the target. What it left behind is deleted when reads there have ended.
 */
export type MoveStage = "leaving" | "copying" | "opening" | "cleaning";

/** Workspaces that move between two databases; in the directory only. */
export const moves = sqliteTable("moves", {
  workspaceId: text("workspace_id").primaryKey(),
  id: text().notNull(),
  /** The names of both databases. */
  from: text("source").notNull(),
  to: text("target").notNull(),
  stage: text().$type<MoveStage>().notNull(),
  /** Where copying continues; null before it begins. */
  position: text({ mode: "json" }).$type<MovePosition>(),
  /** How many rows there are to copy, and how many have been copied. */
  rows: integer().notNull().default(0),
  copied: integer().notNull().default(0),
  /** When the workspace was created. */
  createdAt: integer("created_at").notNull(),
  /** When the last step was taken. */
  since: integer().notNull(),
});

/** The number of a kind of rows, past the last when all are copied, and the position of the last copied row. */
export interface MovePosition {
  kind: number;
  after: (string | number)[] | null;
}

/** Fields of a subscription, before or after a change: never a secret or the value of a header. */
export interface ChangedFields {
  url?: string;
  events?: WebhookEvent[];
  description?: string | null;
  /** The names of the custom headers. */
  headers?: string[];
  /** ISO 8601. */
  disabledAt?: string | null;
  rotatedAt?: string | null;
}

/**
 * Calls of the Platform API and changes in the portal, in the directory: who did what. Nothing in it is
 * personal, except the actor, and what a subscription's URL or description may say.
 */
export const auditTrail = sqliteTable(
  "audit_trail",
  {
    at: integer().notNull(),
    id: text().notNull(),
    method: text().notNull(),
    /** The workspace that it was about, which may no longer exist; null for none, or several. */
    workspaceId: text("workspace_id"),
    /** The other ids that it named, or created. */
    ids: text({ mode: "json" }).$type<string[]>().notNull(),
    actor: text(),
    via: text().notNull(),
    result: text().notNull(),
    durationMs: integer("duration_ms").notNull(),
    /** The subscription that it changed, with the changed fields before and after; null for no change. */
    webhookId: text("webhook_id"),
    before: text({ mode: "json" }).$type<ChangedFields>(),
    after: text({ mode: "json" }).$type<ChangedFields>(),
  },
  (table) => [
    primaryKey({ columns: [table.at, table.id] }),
    index("audit_trail_of_workspace")
      .on(table.workspaceId, table.at, table.id)
      .where(sql`workspace_id IS NOT NULL`),
    index("audit_trail_changes")
      .on(table.workspaceId, table.at, table.id)
      .where(sql`webhook_id IS NOT NULL`),
    index("audit_trail_of_webhook")
      .on(table.webhookId, table.at, table.id)
      .where(sql`webhook_id IS NOT NULL`),
  ],
);

/** What administrators get an e-mail about. */
export const EMAIL_KINDS = [
  /** The subscription has failed for a day. */
  "failing",
  /** It works again, after an e-mail that said that it fails. */
  "recovered",
  /** It was disabled because it had failed for too long. */
  "disabled",
  /** It has rejected an event type for a day, and accepts others. */
  "rejecting",
  /** It had too many pending deliveries, so that the oldest were given up. */
  "overflow",
] as const;
export type EmailKind = (typeof EMAIL_KINDS)[number];

/** The last e-mail of each kind about a subscription. Nothing here says whether or when it arrived. */
export const announcements = sqliteTable(
  "announcements",
  {
    subscriptionId: text("subscription_id")
      .notNull()
      .references(() => subscriptions.id, { onDelete: "cascade" }),
    kind: text().$type<EmailKind>().notNull(),
    workspaceId: text("workspace_id").notNull(),
    /** The host of its URL. */
    host: text().notNull(),
    /** When what it is about began. */
    since: integer().notNull(),
    /** When it was passed to the queue. */
    announcedAt: integer("announced_at").notNull(),
    /** Number of reminders since the first e-mail. */
    reminders: integer().notNull().default(0),
    /** Number of e-mails in the 24 hours before `announcedAt`, one for each administrator. */
    emails: integer().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.subscriptionId, table.kind] }),
    index("announcements_of_workspace").on(table.workspaceId, table.subscriptionId, table.kind),
    index("announcements_failing").on(table.subscriptionId).where(sql`kind = 'failing'`),
  ],
);

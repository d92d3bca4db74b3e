import { z } from "@hono/zod-openapi";
import { and, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { type InputError, unknownInput } from "../contract/input.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { CLEANUP_MAX } from "../db/budget.ts";
import { mapColumns, qb } from "../db/builder.ts";
import {
  combine,
  type Database,
  type Part,
  query,
  type ResultOf,
  readAs,
  type Statements,
} from "../db/client.ts";
import { isOnPage, mapItems, type PageRequest, preparePage } from "../db/page.ts";
import { deliveries, PRIORITY, subscriptions, workspaces } from "../db/schema.ts";
import { isActive, PENDING } from "../db/states.ts";
import { cancelPending, endSubscriptions, wakeUpsToCancel } from "../delivery/ending.ts";
import { INITIAL_STATE, STATE_COLUMNS } from "../delivery/policy.ts";
import { queueOf, type WakeUp } from "../delivery/wake.ts";
import { earlierSecretsAt } from "../endpoints/secrets.ts";

/*
 * Subscriptions: their queries, changes and public shape. The other files of this folder:
 *
 * - creation.ts creates a subscription, once for each `Idempotency-Key`.
 * - fields.ts computes and compares the changes that people make, for forms and the audit trail.
 * - rotation.ts rotates the secret.
 * - test-event.ts sends a test event.
 */

type SubscriptionRow = typeof subscriptions.$inferSelect;

/** SQL condition: the subscription has this id and is not deleted. */
export function isSubscription(id: string): SQL | undefined {
  return and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt));
}

/** The fields of a subscription that people edit, and that the audit trail shows. */
export const SHOWN_COLUMNS = {
  url: subscriptions.url,
  events: subscriptions.events,
  description: subscriptions.description,
  headerNames: subscriptions.headerNames,
  disabledAt: subscriptions.disabledAt,
  rotatedAt: subscriptions.rotatedAt,
};
export type ShownFields = Pick<SubscriptionRow, keyof typeof SHOWN_COLUMNS>;

/** Makes the error for a subscription that does not exist. */
export function unknownWebhook(): InputError {
  return unknownInput("webhookId", "no such webhook");
}

/** The columns that the public shape of a subscription needs. */
const WEBHOOK_COLUMNS = {
  id: subscriptions.id,
  url: subscriptions.url,
  events: subscriptions.events,
  createdAt: subscriptions.createdAt,
  disabledAt: subscriptions.disabledAt,
};

const SUBSCRIPTION_ORDER = { at: subscriptions.createdAt, id: subscriptions.id };
const readPage = preparePage({
  order: SUBSCRIPTION_ORDER,
  select: qb
    .select(WEBHOOK_COLUMNS)
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        isOnPage(SUBSCRIPTION_ORDER),
      ),
    ),
});

/** Reads one page of the workspace's subscriptions, newest first. */
export async function listSubscriptions(db: Database, workspaceId: string, request: PageRequest) {
  return mapItems(await readPage(db, { workspaceId }, request), toWebhook);
}

/** Reads the workspace of a subscription, and when the subscription was deleted; undefined if there is none. */
export async function findOwner(db: Database, id: string) {
  const { workspaceId, deletedAt } = subscriptions;
  const owner = db.select({ workspaceId, deletedAt }).from(subscriptions);
  const [found] = await owner.where(eq(subscriptions.id, id));
  return found;
}

/** Lists the ids of the workspace's subscriptions that an API key created. */
export async function listCreatedBy(
  db: Database,
  workspaceId: string,
  keyId: string,
): Promise<string[]> {
  const found = await db
    .select({ id: subscriptions.id })
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, workspaceId),
        eq(subscriptions.keyId, keyId),
        isNull(subscriptions.deletedAt),
      ),
    );
  return found.map(({ id }) => id);
}

/**
 * Deletes a subscription, which cancels its pending deliveries. Reads what it was, if it existed, and the wake-up messages
 * to send.
 *
 * @param workspaceId the workspace that it must belong to; null for any.
 */
export function deleteSubscription(
  workspaceId: string | null,
  id: string,
  now: number,
): Statements<{ fields: ShownFields | undefined; wakeUps: WakeUp[] }> {
  const isOwn = workspaceId === null ? undefined : eq(subscriptions.workspaceId, workspaceId);
  const ended = endSubscriptions(and(eq(subscriptions.id, id), isOwn), {
    deletedAt: now,
    earlierSecrets: null,
  });
  const fields = qb.select(SHOWN_COLUMNS).from(subscriptions).where(isSubscription(id));
  return readAs(combine({ fields, ended }), ({ fields: [shown], ended: { count, wakeUps } }) => ({
    fields: count > 0 ? shown : undefined,
    wakeUps,
  }));
}

export type Changeable = "url" | "events" | "description" | "headerNames" | "sealedHeaders";

/**
 * Changes the given fields of a subscription. Reads whether it did, and the wake-up messages to send.
 *
 * Pending deliveries of event types that are no longer listed are cancelled, and the circuits of these types are forgotten.
 * Nothing is known yet about another URL. So all circuits are forgotten, and deliveries that failed at the previous URL
 * are due at once.
 *
 * @param seen the fields as they were read. If one of them has changed since, nothing is changed.
 */
export function updateSubscription(
  id: string,
  changed: Partial<Pick<SubscriptionRow, Changeable>>,
  now: number,
  seen?: Pick<SubscriptionRow, Changeable>,
): Statements<{ isChanged: boolean; wakeUps: WakeUp[] }> {
  const { url, events } = changed;
  const isElsewhere = url === undefined ? sql`0` : sql`${subscriptions.url} <> ${url}`;
  const isCancelling = events === undefined ? sql`0` : isUnlisting(events);
  const isSeen =
    seen &&
    sql`${subscriptions.url} = ${seen.url}
      AND ${subscriptions.events} = ${sql.param(seen.events, subscriptions.events)}
      AND ${subscriptions.description} IS ${seen.description}
      AND ${subscriptions.sealedHeaders} IS ${seen.sealedHeaders}`;
  const statements = combine({
    // Deliveries come first, because the condition compares the URL before it changes.
    retried:
      url === undefined
        ? undefined
        : retryFailedNow(id, now, sql`${isElsewhere} AND ${isSeen ?? sql`1`}`),
    updated: qb
      .update(subscriptions)
      .set({
        ...changed,
        ...(events && cancelUnlisted(events)),
        ...forget(isElsewhere, events),
        epoch: sql`${subscriptions.epoch} + (${isCancelling} OR ${isElsewhere})`,
      })
      .where(and(isSubscription(id), isSeen))
      .returning({ subscriptionId: subscriptions.id, hasToEnd: subscriptions.hasToEnd }),
  });
  return readAs(statements, ({ updated }) => ({
    isChanged: updated.length > 0,
    wakeUps: wakeUpsToCancel(updated),
  }));
}

/** SQL condition: the subscription lists an event type that is not in `events`. */
function isUnlisting(events: readonly WebhookEvent[]): SQL {
  return sql`EXISTS (SELECT 1 FROM json_each(${subscriptions.events}) AS listed
    WHERE listed.value NOT IN (SELECT value FROM json_each(${JSON.stringify(events)})))`;
}

/** Returns the values that cancel pending deliveries of the event types that are not in `events`, besides the epoch. */
function cancelUnlisted(events: readonly WebhookEvent[]) {
  const { cancelledBefore, hasToEnd } = cancelPending(events);
  return {
    cancelledBefore: sql`iif(${isUnlisting(events)}, ${cancelledBefore}, ${subscriptions.cancelledBefore})`,
    hasToEnd,
  };
}

/**
 * Returns the columns of the sending state: those of a new subscription if `isElsewhere`, and otherwise the present
 * ones, without the circuits of event types that are not in `events`.
 */
function forget(isElsewhere: SQL, events?: readonly WebhookEvent[]) {
  // A merge patch removes the members that are null in it (RFC 7396).
  const circuits = events
    ? sql`json_patch(${subscriptions.circuits}, (SELECT json_group_object(key, NULL) FROM json_each(${subscriptions.circuits})
        WHERE key NOT IN (SELECT value FROM json_each(${JSON.stringify(events)}))))`
    : sql`${subscriptions.circuits}`;
  // Without a circuit, no event type has failed since its last success.
  const isReset = sql`(${isElsewhere} OR ${circuits} = '{}' AND ${subscriptions.circuits} <> '{}')`;
  const initial: Record<string, unknown> = { ...INITIAL_STATE };
  return {
    ...mapColumns(
      subscriptions,
      STATE_COLUMNS,
      (column, name) => sql`iif(${isReset}, ${sql.param(initial[name], column)}, ${column})`,
    ),
    circuits: sql`iif(${isElsewhere}, '{}', ${circuits})`,
  };
}

/** Makes up to `CLEANUP_MAX` deliveries that wait for a retry due at once. */
function retryFailedNow(id: string, now: number, condition: SQL): Part {
  return qb
    .update(deliveries)
    .set({ dueAt: now })
    .where(
      sql`${deliveries.subscriptionId} = ${id} AND ${deliveries.eventId} IN (
        SELECT ${deliveries.eventId}
        FROM ${PENDING} CROSS JOIN ${subscriptions}
        WHERE ${subscriptions.id} = ${id} AND ${deliveries.subscriptionId} = ${subscriptions.id}
          AND ${deliveries.state} = 'pending' AND ${deliveries.priority} = ${PRIORITY.retry} AND ${deliveries.dueAt} > ${now} AND ${condition}
        LIMIT ${CLEANUP_MAX})`,
    );
}

/** Disables a subscription, which cancels its pending deliveries. Reads the wake-up messages to send. */
export function disableSubscription(id: string, now: number): Statements<WakeUp[]> {
  const isEnabled = and(eq(subscriptions.id, id), isNull(subscriptions.disabledAt));
  const ended = endSubscriptions(isEnabled, { disabledAt: now });
  return readAs(ended, ({ wakeUps }) => wakeUps);
}

/**
 * Cancels the pending deliveries of a workspace that loses access. The time without access says nothing about its endpoints,
 * so they begin anew. Reads the wake-up messages to send.
 */
export function cancelPendingOf(workspaceId: string): Statements<WakeUp[]> {
  const isOwn = eq(subscriptions.workspaceId, workspaceId);
  const statements = combine({
    // A disabled one keeps its state, because its failures show which events to send once it is enabled.
    reset: qb
      .update(subscriptions)
      .set(INITIAL_STATE)
      .where(and(isOwn, isNull(subscriptions.disabledAt))),
    ended: endSubscriptions(isOwn),
  });
  return readAs(statements, ({ ended }) => ended.wakeUps);
}

/** The fields of a subscription that the Platform API needs. */
export type KnownSubscription = ResultOf<ReturnType<typeof knownSubscription>>;

/** Reads the subscription with this id. @throws InputError if there is none, or it was deleted. */
export function findSubscription(
  db: Database,
  id: string,
  now: number,
): Promise<KnownSubscription> {
  return query(db, knownSubscription(id, now));
}

/** Reads the subscription with this id, as a part of a transaction. The read throws like `findSubscription`. */
export function knownSubscription(id: string, now: number) {
  const { workspaceId, url, events, createdAt, sealedSecret, sealedHeaders, slow } = subscriptions;
  const found = qb
    .select({
      workspaceId,
      url,
      events,
      createdAt,
      sealedSecret,
      sealedHeaders,
      earlierSecrets: earlierSecretsAt(now),
      sealedDataKey: workspaces.sealedDataKey,
      accessGranted: workspaces.accessGranted,
      isActive: isActive().mapWith(Boolean),
      slow,
    })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, workspaceId))
    .where(isSubscription(id));
  return readAs(found, ([row]) => {
    if (!row) throw unknownWebhook();
    const { slow: isSlow, ...known } = row;
    return { id, ...known, queue: queueOf({ slow: isSlow }) };
  });
}

/**
 * Enables a disabled subscription again and resets its health. An active subscription keeps its health. Otherwise, one
 * with a dead endpoint would never be disabled if it were enabled over and over.
 */
export function enableSubscription(id: string): Part {
  return qb
    .update(subscriptions)
    .set({
      disabledAt: null,
      disabledByFailures: false,
      ...INITIAL_STATE,
      epoch: sql`${subscriptions.epoch} + 1`,
    })
    .where(and(isSubscription(id), isNotNull(subscriptions.disabledAt)));
}

/** The public shape of a subscription. */
export const Webhook = z
  .object({
    id: idField("webhook", "Identifies the webhook."),
    url: z.url().openapi({
      description: "The URL that events are sent to, as a URI in ASCII.",
      example: "https://hooks.example.com/automations",
    }),
    events: z.array(WebhookEvent).openapi({
      description: "The event types that are sent.",
      example: ["lead.created"],
    }),
    created_at: timeField("When the webhook was created."),
    disabled_at: timeField(
      "Null while the webhook is active; otherwise, when it was disabled, after prolonged delivery failures, by an administrator or by support.",
    )
      .nullable()
      .openapi({ example: null }),
  })
  .openapi("Webhook", {
    description: "A webhook: a URL and the event types that are sent to it.",
  });

export type Webhook = z.infer<typeof Webhook>;

/** The public shape, without the secret. */
export function toWebhook(row: Pick<SubscriptionRow, keyof typeof WEBHOOK_COLUMNS>): Webhook {
  return {
    id: row.id,
    url: row.url,
    events: row.events,
    created_at: isoTime(row.createdAt),
    disabled_at: isoTimeOrNull(row.disabledAt),
  };
}

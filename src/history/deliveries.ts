import { z } from "@hono/zod-openapi";
import { and, desc, eq, gte, lt, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import type { ShownDeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { cutPage, type Page, type PageRequest } from "../db/page.ts";
import { deliveries, events, leads, subscriptions, workspaces } from "../db/schema.ts";
import { deliveryState } from "../db/states.ts";
import { nextAttemptAt } from "../delivery/due.ts";
import { openDataKey } from "../encryption/personal-data.ts";
import { isSubscription } from "../subscriptions/subscriptions.ts";
import { readSubject, SUBJECT } from "./subject.ts";
import type { DeliveryView, FailureView } from "./views.ts";

/*
 * The history: deliveries and the health of subscriptions, as operations and the portal show them. This file lists the
 * deliveries of a subscription, and the failed ones of a workspace. The other files of this folder:
 *
 * - delivery.ts shows one delivery with its attempts.
 * - health.ts shows subscriptions with their state, counts.ts their days, and rejections.ts the rejected event types.
 * - failures.ts explains failures, in words.
 * - ledger.ts reconciles deliveries with events.
 * - views.ts has the shapes.
 */

/** Maximum deliveries that one page of a filtered list examines. */
export const DELIVERIES_EXAMINED_MAX = 2_000;

/** A filter for lists of deliveries. A field that is absent or null admits all of them. */
export interface DeliveryFilter {
  state?: ShownDeliveryState | null | undefined;
  type?: WebhookEvent | null | undefined;
  /** The HTTP status of the last attempt, its class, such as `5xx`, or `none` if there was no response. */
  status?: number | StatusClass | null | undefined;
  /** The time when the event was recorded, in Unix milliseconds; `until` is exclusive. */
  since?: number | null | undefined;
  until?: number | null | undefined;
  eventId?: string | null | undefined;
  /** The lead that the event announces. */
  leadId?: string | null | undefined;
}

export const StatusClass = z.enum(["1xx", "2xx", "3xx", "4xx", "5xx", "none"]);
export type StatusClass = z.infer<typeof StatusClass>;

/** SQL condition: the last attempt of the delivery had this status. */
function hasStatus(status: number | StatusClass): SQL {
  if (typeof status === "number") return eq(deliveries.lastStatus, status);
  if (status === "none") return sql`${deliveries.lastOutcome} <> 'answered'`;
  return sql`${deliveries.lastStatus} / 100 = ${Number(status[0])}`;
}

/** SQL expression: the state of the subscription's delivery, as operations show it. */
const SHOWN_STATE = sql<ShownDeliveryState>`iif(${deliveryState()} = 'pending' AND ${deliveries.attempts} > 0, 'retrying', ${deliveryState()})`;

/** The columns to select for `toView`, from a subscription, its delivery and the event. */
export const DELIVERY_COLUMNS = {
  eventId: deliveries.eventId,
  type: events.type,
  createdAt: events.createdAt,
  state: SHOWN_STATE.as("shown_state"),
  attempts: deliveries.attemptsMade,
  dueAt: nextAttemptAt().as("next_attempt_at"),
  settledAt: deliveries.settledAt,
  lastAt: deliveries.lastAt,
  lastOutcome: deliveries.lastOutcome,
  lastStatus: deliveries.lastStatus,
  lastDurationMs: deliveries.lastDurationMs,
  ...SUBJECT,
};

interface DeliveryRow
  extends Pick<
    typeof deliveries.$inferSelect,
    "eventId" | "settledAt" | "lastAt" | "lastOutcome" | "lastStatus" | "lastDurationMs"
  > {
  type: WebhookEvent;
  createdAt: number;
  state: ShownDeliveryState;
  attempts: number;
  dueAt: number;
  lead: string | null;
  recordName: string | null;
}

/** A table expression: deliveries through the index of those that failed or were cancelled. */
export const UNSUCCESSFUL = sql`${deliveries} INDEXED BY deliveries_unsuccessful`;
/** SQL condition: the index has the delivery. SQLite uses it only for queries that contain this condition. */
export const IS_UNSUCCESSFUL = sql`(${deliveries.state} IN ('exhausted', 'cancelled') OR (${deliveries.state} = 'pending' AND ${deliveries.attempts} > 0))`;

/**
 * Reads one page of a subscription's deliveries, newest first. Without a filter, it reads one row more than it
 * returns, each with its event. With a filter, it examines up to `DELIVERIES_EXAMINED_MAX` rows, so a page may be
 * short or empty and still have a next one. An index finds the failed deliveries.
 */
export async function listDeliveriesOf(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  webhookId: string,
  filter: DeliveryFilter,
  { limit, after }: PageRequest,
): Promise<Page<DeliveryView>> {
  const { state, type, status, since, until, leadId } = filter;
  // The index lacks cancelled deliveries whose rows still say `pending`, so only these two states use it.
  const storedState = state === "retrying" ? "pending" : state === "exhausted" ? state : null;
  // These conditions bound the rows that are read, because ids are sorted by time.
  const isOnPage = and(
    eq(deliveries.subscriptionId, webhookId),
    storedState ? and(eq(deliveries.state, storedState), IS_UNSUCCESSFUL) : undefined,
    after ? lt(deliveries.eventId, after.id) : undefined,
    since == null ? undefined : gte(deliveries.eventId, eventIdAt(since)),
    until == null ? undefined : lt(deliveries.eventId, eventIdAt(until)),
    filter.eventId ? eq(deliveries.eventId, filter.eventId) : undefined,
    leadId
      ? sql`${deliveries.eventId} = (SELECT ${leads.eventId} FROM ${leads} WHERE ${leads.id} = ${leadId})`
      : undefined,
  );
  const source = storedState ? UNSUCCESSFUL : sql`${deliveries}`;
  const examined = sql`SELECT ${deliveries.eventId} AS id FROM ${source} WHERE ${isOnPage} ORDER BY ${deliveries.eventId} DESC`;
  const last = sql`${examined} LIMIT 1 OFFSET ${DELIVERIES_EXAMINED_MAX - 1}`;
  const isFiltered = Boolean(state || type || status);
  const { owner, bound, found } = await query(db, {
    owner: ownerOf(isSubscription(webhookId)),
    bound: isFiltered ? qb.all<{ id: string }>(last) : undefined,
    found: qb
      .select(DELIVERY_COLUMNS)
      .from(subscriptions)
      .crossJoin(deliveries)
      // CROSS JOIN makes SQLite read the deliveries in order, whatever it estimates about events.
      .crossJoin(events)
      .where(
        and(
          eq(events.workspaceId, deliveries.workspaceId),
          eq(events.id, deliveries.eventId),
          isSubscription(webhookId),
          isOnPage,
          isFiltered ? gte(deliveries.eventId, sql`coalesce((${last}), '')`) : undefined,
          storedState
            ? sql`${deliveries.eventId} IN (${examined} LIMIT ${DELIVERIES_EXAMINED_MAX})`
            : undefined,
          state ? eq(SHOWN_STATE, state) : undefined,
          type ? eq(events.type, type) : undefined,
          status ? hasStatus(status) : undefined,
        ),
      )
      .orderBy(desc(deliveries.eventId))
      .limit(limit + 1),
  });
  const order = { at: events.createdAt, id: deliveries.eventId };
  const { items, next } = cutPage(found as DeliveryRow[], limit, order);
  // The next page starts after the last row that was examined.
  const [resumeAt] = bound ?? [];
  const dataKey = await openDataKeyOf(env, owner);
  return {
    items: await Promise.all(items.map((row) => toView(row, dataKey))),
    next: !next && resumeAt ? { at: 0, id: resumeAt.id } : next,
  };
}

/** The states that `listFailuresOf` finds. */
export const FailureState = z.enum(["retrying", "exhausted"]);
export type FailureState = z.infer<typeof FailureState>;

/**
 * Reads one page of the deliveries of a workspace that are retried or exhausted, newest event first. An index finds
 * up to two pages of each subscription.
 */
export async function listFailuresOf(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  workspaceId: string,
  state: FailureState | null,
  { limit, after }: PageRequest,
): Promise<Page<FailureView>> {
  const { eventId, subscriptionId } = parsePosition(after);
  const stored = FailureState.options
    .filter((one) => state === null || one === state)
    .map((one) => (one === "retrying" ? "pending" : one));
  const failing = sql`(
    SELECT ${deliveries.subscriptionId} AS subscription_id, ${deliveries.eventId} AS event_id
    FROM ${subscriptions}
      CROSS JOIN json_each(${JSON.stringify(stored)}) AS state
      CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
        SELECT ${deliveries.eventId} FROM ${UNSUCCESSFUL}
        WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = state.value AND ${IS_UNSUCCESSFUL}
          AND (${deliveries.eventId}, ${subscriptions.id}) < (${eventId}, ${subscriptionId})
        ORDER BY ${deliveries.eventId} DESC LIMIT ${limit + 1})
    WHERE ${subscriptions.workspaceId} = ${workspaceId} AND ${subscriptions.deletedAt} IS NULL
    ORDER BY event_id DESC, subscription_id DESC LIMIT ${limit + 1}) AS failing`;
  const { owner, found } = await query(db, {
    owner: qb
      .select({ workspaceId: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
    found: qb
      .select({ webhookId: deliveries.subscriptionId, ...DELIVERY_COLUMNS })
      .from(failing)
      .innerJoin(subscriptions, sql`${subscriptions.id} = failing.subscription_id`)
      .innerJoin(
        deliveries,
        sql`${deliveries.subscriptionId} = failing.subscription_id AND ${deliveries.eventId} = failing.event_id`,
      )
      .innerJoin(
        events,
        and(eq(events.workspaceId, deliveries.workspaceId), eq(events.id, deliveries.eventId)),
      )
      .orderBy(desc(deliveries.eventId), desc(deliveries.subscriptionId)),
  });
  const rows = found as (DeliveryRow & { webhookId: string })[];
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  const dataKey = await openDataKeyOf(env, owner);
  const items = page
    // The row of a cancelled delivery may still say `pending`.
    .filter(({ state }) => state !== "cancelled")
    .map(async (row) => ({ ...(await toView(row, dataKey)), webhookId: row.webhookId }));
  return {
    items: await Promise.all(items),
    next: last && rows.length > limit ? positionOf(last) : null,
  };
}

/** Makes a position of both ids, because an event may have failed at several subscriptions. */
function positionOf({ eventId, webhookId }: { eventId: string; webhookId: string }): Position {
  return { at: 0, id: `${eventId} ${webhookId}` };
}

/** @param position null for the first page; its ids then come after all others. */
function parsePosition(position: Position | null): { eventId: string; subscriptionId: string } {
  const [eventId = "", subscriptionId = ""] = position?.id.split(" ") ?? ["evt_~", ""];
  return { eventId, subscriptionId };
}

/** Selects the workspace of a subscription, with its data key. */
function ownerOf(which: SQL | undefined) {
  return qb
    .select({ workspaceId: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, subscriptions.workspaceId))
    .where(which);
}

async function openDataKeyOf(
  { ENCRYPTION_KEYS }: Pick<Env, "ENCRYPTION_KEYS">,
  [owner]: { workspaceId: string; sealedDataKey: string | null }[],
): Promise<CryptoKey | null> {
  return owner ? openDataKey(ENCRYPTION_KEYS, owner.workspaceId, owner.sealedDataKey) : null;
}

/** Returns a delivery in the shape that operations show. @param dataKey the data key of the workspace. */
export async function toView(row: DeliveryRow, dataKey: CryptoKey | null): Promise<DeliveryView> {
  const { state, lastAt, lastOutcome, lastStatus, lastDurationMs } = row;
  const isOpen = state === "pending" || state === "retrying";
  const wasAttempted = lastAt !== null && lastOutcome !== null;
  return {
    eventId: row.eventId,
    type: row.type,
    subject: await readSubject(dataKey, row),
    createdAt: isoTime(row.createdAt),
    state,
    attempts: row.attempts,
    dueAt: isOpen ? isoTime(row.dueAt) : null,
    settledAt: isoTimeOrNull(row.settledAt),
    lastAttempt: wasAttempted
      ? {
          at: isoTime(lastAt),
          outcome: lastOutcome,
          status: lastStatus,
          durationMs: lastDurationMs,
        }
      : null,
  };
}

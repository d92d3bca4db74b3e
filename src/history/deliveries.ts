import { and, desc, eq, gte, lt, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import type {
  DeliveryStateFilter,
  ShownDeliveryState,
  StatusClass,
  WebhookEvent,
} from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { inJson, qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import type { Page, PageRequest } from "../db/page.ts";
import { deliveries, events, leads, PRIORITY, subscriptions, workspaces } from "../db/schema.ts";
import { deliveryState, isUnsuccessful, UNSUCCESSFUL } from "../db/states.ts";
import { sendableAt } from "../delivery/due.ts";
import { findLeadIds } from "../records/finding.ts";
import { findOwner, isSubscription } from "../subscriptions/subscriptions.ts";
import { openDataKey } from "../workspaces/data-keys.ts";
import { readSubjects, SUBJECT } from "./subject.ts";
import type { DeliveryView } from "./views.ts";

/*
 * To add a filter of `listDeliveries`: its field in the `input` of the operation, and here either a bound of `isOnPage` or a
 * condition that counts as `isFiltered`. Then `npm run reference`.
 */

/*
 * The history: deliveries and the health of subscriptions, as operations and the portal show them. This file lists the
 * deliveries of a subscription. The other files of this folder:
 *
 * - failing.ts lists and counts the failed deliveries of a workspace.
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
  state?: DeliveryStateFilter | null | undefined;
  type?: WebhookEvent | null | undefined;
  /** The HTTP status of the last attempt, its class, such as `5xx`, or `none` if there was no response. */
  status?: number | StatusClass | null | undefined;
  /** The time when the event was recorded, in Unix milliseconds; `until` is exclusive. */
  since?: number | null | undefined;
  until?: number | null | undefined;
  eventId?: string | null | undefined;
  /** The lead that the event announces. */
  leadId?: string | null | undefined;
  /** A name, an e-mail address or a phone number of that lead: see `findLeadIds`. */
  lead?: string | null | undefined;
}

/** SQL condition: the last attempt of the delivery had this status. */
export function hasStatus(status: number | StatusClass): SQL {
  if (typeof status === "number") return eq(deliveries.lastStatus, status);
  if (status === "none") return sql`${deliveries.lastOutcome} <> 'answered'`;
  return sql`${deliveries.lastStatus} / 100 = ${Number(status[0])}`;
}

/** SQL expression: the state of the subscription's delivery, as operations show it. */
const SHOWN_STATE = sql<ShownDeliveryState>`iif(${deliveryState()} = 'pending' AND ${deliveries.priority} = ${PRIORITY.retry}, 'retrying', ${deliveryState()})`;

/** The columns to select for `toView`, from a subscription, its delivery and the event. */
export const DELIVERY_COLUMNS = {
  eventId: deliveries.eventId,
  type: events.type,
  createdAt: events.createdAt,
  state: SHOWN_STATE.as("shown_state"),
  attempts: deliveries.attemptsMade,
  dueAt: sendableAt().as("next_attempt_at"),
  settledAt: deliveries.settledAt,
  lastAt: deliveries.lastAt,
  lastOutcome: deliveries.lastOutcome,
  lastStatus: deliveries.lastStatus,
  lastDurationMs: deliveries.lastDurationMs,
  ...SUBJECT,
};

export interface DeliveryRow
  extends Pick<
    typeof deliveries.$inferSelect,
    "eventId" | "settledAt" | "lastAt" | "lastOutcome" | "lastStatus" | "lastDurationMs"
  > {
  type: WebhookEvent;
  createdAt: number;
  state: ShownDeliveryState;
  attempts: number;
  dueAt: number;
  leadId: string | null;
  recordName: string | null;
}

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
  request: PageRequest,
): Promise<Page<DeliveryView>> {
  const { limit } = request;
  const { state, type, status } = filter;
  // The index lacks cancelled deliveries whose rows still say `pending`, so only these two states use it.
  const storedState = state === "retrying" ? "pending" : state === "exhausted" ? state : null;
  const workspaceId = filter.lead ? await ownerIdOf(db, webhookId) : undefined;
  const search = await findLeadsOf(db, env, filter, workspaceId, request);
  const isOnPage = and(
    eq(deliveries.subscriptionId, webhookId),
    storedState ? and(eq(deliveries.state, storedState), isUnsuccessful()) : undefined,
    isWanted(filter, search, request.after),
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
          state === "waiting" ? sql`${SHOWN_STATE} IN ('pending', 'retrying')` : undefined,
          state && state !== "waiting" ? eq(SHOWN_STATE, state) : undefined,
          type ? eq(events.type, type) : undefined,
          status ? hasStatus(status) : undefined,
        ),
      )
      .orderBy(desc(deliveries.eventId))
      .limit(limit + 1),
  });
  const rows = found as DeliveryRow[];
  const items = rows.slice(0, limit);
  const end = items.at(-1);
  const next = end && rows.length > limit ? { at: end.createdAt, id: end.eventId } : null;
  // The next page starts after the last row that was examined.
  const [resumeAt] = bound ?? [];
  const dataKey = await openDataKeyOf(env, owner);
  const subjects = await readSubjects(db, dataKey, owner[0]?.workspaceId, items);
  return {
    items: items.map((row, i) => toView(row, subjects[i] ?? null)),
    next: search ? search.next : !next && resumeAt ? { at: 0, id: resumeAt.id } : next,
  };
}

/**
 * Finds one page of the leads that a filter describes. The pages of such a list are those of its leads.
 *
 * @returns null if the filter describes none.
 */
export async function findLeadsOf(
  db: Database,
  { ENCRYPTION_KEYS }: Pick<Env, "ENCRYPTION_KEYS">,
  { lead }: DeliveryFilter,
  workspaceId: string | undefined,
  request: PageRequest,
): Promise<Page<string> | null> {
  if (!lead || workspaceId === undefined) return null;
  return findLeadIds(db, ENCRYPTION_KEYS, workspaceId, lead, request);
}

async function ownerIdOf(db: Database, webhookId: string): Promise<string | undefined> {
  return (await findOwner(db, webhookId))?.workspaceId;
}

/**
 * SQL condition: the delivery's event is one that the filter names, and is on the page. These conditions bound the rows
 * that are read, because ids are sorted by time.
 *
 * @param search the leads that the filter describes, which are on the page.
 * @param after where the previous page ended, unless the pages are those of `search`.
 */
export function isWanted(
  { since, until, eventId, leadId }: DeliveryFilter,
  search: Page<string> | null,
  after: Position | null,
): SQL | undefined {
  const leadIds = search?.items ?? (leadId ? [leadId] : null);
  return and(
    after && !search ? lt(deliveries.eventId, after.id) : undefined,
    since == null ? undefined : gte(deliveries.eventId, eventIdAt(since)),
    until == null ? undefined : lt(deliveries.eventId, eventIdAt(until)),
    eventId ? eq(deliveries.eventId, eventId) : undefined,
    leadIds
      ? sql`${deliveries.eventId} IN (SELECT ${leads.eventId} FROM ${leads} WHERE ${inJson(leads.id, leadIds)})`
      : undefined,
  );
}

/** Selects the workspace of a subscription, with its data key. */
function ownerOf(which: SQL | undefined) {
  return qb
    .select({ workspaceId: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, subscriptions.workspaceId))
    .where(which);
}

export async function openDataKeyOf(
  { ENCRYPTION_KEYS }: Pick<Env, "ENCRYPTION_KEYS">,
  [owner]: { workspaceId: string; sealedDataKey: string | null }[],
): Promise<CryptoKey | null> {
  return owner ? openDataKey(ENCRYPTION_KEYS, owner.workspaceId, owner.sealedDataKey) : null;
}

/** Returns a delivery in the shape that operations show. @param subject the name of the record that it is about. */
export function toView(row: DeliveryRow, subject: string | null): DeliveryView {
  const { state, lastAt, lastOutcome, lastStatus, lastDurationMs } = row;
  const isOpen = state === "pending" || state === "retrying";
  const wasAttempted = lastAt !== null && lastOutcome !== null;
  return {
    eventId: row.eventId,
    type: row.type,
    subject,
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

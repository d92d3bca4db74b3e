import { type SQL, sql } from "drizzle-orm";
import { DELIVERIES_LIST, encodeCursor } from "../contract/cursor.ts";
import { UnknownInput } from "../contract/input-error.ts";
import { DELIVERIES_LOOKED_THROUGH } from "../contract/limits.ts";
import type { Page, WebhookEvent } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { commit, type Database, inOrder, rows } from "../db/client.ts";
import {
  attempts,
  type DeliveryState,
  deliveries,
  events,
  type LastAttempt,
  subscriptions,
} from "../db/schema.ts";
import { type AttemptView, isoTimeOrNull, unknownWebhook } from "./health.ts";
import { type PageRequest, toPage } from "./page.ts";

/** A delivery, as the Platform door tells it. */
export interface DeliveryView {
  eventId: string;
  type: WebhookEvent;
  createdAt: string;
  state: DeliveryState;
  /** Attempts since it was owed, or owed again. */
  attempts: number;
  /** When a pending one is due. */
  dueAt: string | null;
  settledAt: string | null;
  lastAttempt: AttemptView | null;
}

/** The same with all that is kept of it. */
export interface DeliveryDetails extends DeliveryView {
  /** Every attempt that failed, the first one first. */
  failedAttempts: AttemptView[];
  /** The exact text that is signed and posted. */
  body: string;
}

/** What narrows a list of deliveries. */
export interface DeliveryFilter {
  state?: DeliveryState | null | undefined;
  type?: WebhookEvent | null | undefined;
}

interface DeliveryRow {
  eventId: string;
  type: WebhookEvent;
  createdAt: number;
  state: DeliveryState;
  attempts: number;
  dueAt: number;
  settledAt: number | null;
  lastAt: number | null;
  lastOutcome: string | null;
  lastStatus: number | null;
  lastDurationMs: number | null;
}

const COLUMNS = sql`d.event_id AS eventId, e.type AS type, e.created_at AS createdAt,
  d.state AS state, d.attempts AS attempts, d.due_at AS dueAt, d.settled_at AS settledAt,
  d.last_at AS lastAt, d.last_outcome AS lastOutcome, d.last_status AS lastStatus,
  d.last_duration_ms AS lastDurationMs`;
// CROSS: in the order of the deliveries, whatever the planner thinks of the events.
const SOURCE = sql`${deliveries} AS d CROSS JOIN ${events} AS e
  ON e.workspace_id = d.workspace_id AND e.id = d.event_id`;

/**
 * One page of a subscription's deliveries, newest first. Unfiltered, it reads the rows that it shows
 * and one more, each with its event. A filter reads what it leaves out, too, up to a bound: a page may
 * then be short, or empty, and have a next one.
 *
 * @throws UnknownInput when there is no such subscription.
 */
export async function listDeliveries(
  db: Database,
  webhookId: string,
  { state, type }: DeliveryFilter,
  { limit, after }: PageRequest,
): Promise<Page<DeliveryView>> {
  const conditions: SQL[] = [sql`d.subscription_id = ${webhookId}`];
  if (after) conditions.push(sql`d.event_id < ${after.id}`);
  const last = sql`SELECT d.event_id AS id FROM ${deliveries} AS d
    WHERE ${sql.join(conditions, sql` AND `)}
    ORDER BY d.event_id DESC LIMIT 1 OFFSET ${DELIVERIES_LOOKED_THROUGH - 1}`;
  const isFiltered = Boolean(state || type);
  if (isFiltered) conditions.push(sql`d.event_id >= coalesce((${last}), '')`);
  if (state) conditions.push(sql`d.state = ${state}`);
  if (type) conditions.push(sql`e.type = ${type}`);
  const [known, [bound], found] = await commit(
    db,
    inOrder([
      isThere(webhookId),
      rows<{ id: string }>(isFiltered ? last : sql`SELECT '' AS id WHERE false`),
      rows<DeliveryRow>(sql`SELECT ${COLUMNS} FROM ${SOURCE}
        WHERE ${sql.join(conditions, sql` AND `)} ORDER BY d.event_id DESC LIMIT ${limit + 1}`),
    ]),
  );
  if (known.length === 0) throw unknownWebhook();
  const position = (row: DeliveryRow) => ({ at: row.createdAt, id: row.eventId });
  const page = toPage(DELIVERIES_LIST, found, limit, position, toView);
  if (page.has_more || !bound) return page;
  // Behind what was looked through.
  const next_cursor = encodeCursor(DELIVERIES_LIST, { at: 0, id: bound.id });
  return { ...page, has_more: true, next_cursor };
}

/** One delivery with all that is kept of it. @throws UnknownInput when there is none. */
export async function readDelivery(
  db: Database,
  webhookId: string,
  eventId: string,
): Promise<DeliveryDetails> {
  const [known, [row], failed] = await commit(
    db,
    inOrder([
      isThere(webhookId),
      rows<DeliveryRow & { body: string }>(sql`SELECT ${COLUMNS}, e.body AS body FROM ${SOURCE}
        WHERE d.subscription_id = ${webhookId} AND d.event_id = ${eventId}`),
      rows<LastAttempt>(sql`SELECT at, outcome, status, duration_ms AS durationMs FROM ${attempts}
        WHERE subscription_id = ${webhookId} AND event_id = ${eventId} ORDER BY attempt`),
    ]),
  );
  if (known.length === 0) throw unknownWebhook();
  if (!row) throw new UnknownInput("eventId", "no such delivery to this subscription");
  const failedAttempts = failed.map((attempt) => ({ ...attempt, at: isoTime(attempt.at) }));
  return { ...toView(row), failedAttempts, body: row.body };
}

function isThere(webhookId: string) {
  return rows<{ id: string }>(
    sql`SELECT id FROM ${subscriptions} WHERE id = ${webhookId} AND deleted_at IS NULL`,
  );
}

function toView(row: DeliveryRow): DeliveryView {
  const { eventId, type, state, lastOutcome } = row;
  return {
    ...{ eventId, type },
    createdAt: isoTime(row.createdAt),
    ...{ state, attempts: row.attempts },
    dueAt: state === "pending" ? isoTime(row.dueAt) : null,
    settledAt: isoTimeOrNull(row.settledAt),
    lastAttempt:
      lastOutcome === null
        ? null
        : {
            // What was settled before attempts were dated was settled by its last one.
            at: isoTimeOrNull(row.lastAt ?? row.settledAt),
            outcome: lastOutcome,
            status: row.lastStatus,
            durationMs: row.lastDurationMs,
          },
  };
}

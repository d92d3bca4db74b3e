import { type SQL, sql } from "drizzle-orm";
import { OVERDUE_AFTER_MS, SWEEP_GRACE_MS, SWEEP_MAX } from "../contract/limits.ts";
import { type Lane, laneOf } from "../contract/pace.ts";
import { type Database, readAs, retrying, rows, type Statements } from "../db/client.ts";
import { deliveries, events, subscriptions } from "../db/schema.ts";

/** A subscription that has deliveries to be sent, and the lane in which. */
export interface Wake {
  subscriptionId: string;
  lane: Lane;
}

interface WakeRow {
  subscriptionId: string;
  slow: 0 | 1;
  backoff: number;
}

function toWake({ subscriptionId, slow, backoff }: WakeRow): Wake {
  return { subscriptionId, lane: laneOf({ slow: slow === 1, backoff }) };
}

/** Subscriptions of a workspace that may be posted to and have something due now. */
export function dueInWorkspace(workspaceId: string, now: number): Statements<Wake[]> {
  const due = rows<WakeRow>(sql`
    SELECT s.id AS subscriptionId, s.slow AS slow, s.backoff AS backoff
    FROM ${subscriptions} AS s
    WHERE s.workspace_id = ${workspaceId} AND s.deleted_at IS NULL AND s.next_at <= ${now}
      AND EXISTS (SELECT 1 FROM ${deliveries} AS p
        WHERE p.subscription_id = s.id AND p.state = 'pending' AND p.due_at <= ${now})`);
  return readAs(due, (found) => found.map(toWake));
}

/** Walks from subscription to subscription in the index, however many deliveries each has pending. */
function subscriptionsWithPending(after: string): SQL {
  return sql`waiting (id) AS (
      SELECT min(d.subscription_id) FROM ${deliveries} AS d
        WHERE d.state = 'pending' AND d.subscription_id > ${after}
      UNION ALL
      SELECT (SELECT min(d.subscription_id) FROM ${deliveries} AS d
        WHERE d.state = 'pending' AND d.subscription_id > waiting.id)
      FROM waiting WHERE waiting.id IS NOT NULL)`;
}

/**
 * At most `SWEEP_MAX` subscriptions, of all workspaces, that nobody has come to: overdue, or withdrawn
 * and not cancelled.
 *
 * @param after where the last call stopped; "" to start.
 */
export async function overdueAnywhere(
  db: Database,
  after: string,
  now: number,
): Promise<{ wakes: Wake[]; after: string }> {
  const overdue = await retrying(() =>
    db.all<WakeRow>(sql`
    WITH RECURSIVE ${subscriptionsWithPending(after)}
    SELECT waiting.id AS subscriptionId, s.slow AS slow, s.backoff AS backoff
    FROM waiting JOIN ${subscriptions} AS s ON s.id = waiting.id
    WHERE s.held_until <= ${now} AND (s.cancelling OR max(s.next_at, (
      SELECT min(p.due_at) FROM ${deliveries} AS p
      WHERE p.subscription_id = s.id AND p.state = 'pending')) <= ${now - SWEEP_GRACE_MS})
    LIMIT ${SWEEP_MAX}`),
  );
  const last = overdue.length === SWEEP_MAX ? overdue.at(-1)?.subscriptionId : undefined;
  return { wakes: overdue.map(toWake), after: last ?? "" };
}

/** What waits to be delivered. */
export interface Backlog {
  pending: number;
  /** Of these, what could have been posted for more than five minutes. */
  overdue: number;
  /** Age of the oldest event that is pending somewhere, in seconds; null when none is. */
  oldestPendingSeconds: number | null;
}

/**
 * The backlog of one workspace, or of all: it reads what is pending there, and one row for each
 * subscription elsewhere that something is pending for.
 */
export async function readBacklog(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Backlog> {
  const within = workspaceId === undefined ? sql`true` : sql`s.workspace_id = ${workspaceId}`;
  const [row] = await retrying(() =>
    db.all<{ pending: number; overdue: number; oldestAt: number | null }>(sql`
    WITH RECURSIVE ${subscriptionsWithPending("")}
    SELECT count(*) AS pending,
      coalesce(sum(max(d.due_at, s.next_at) < ${now - OVERDUE_AFTER_MS}), 0) AS overdue,
      min(e.created_at) AS oldestAt
    FROM waiting CROSS JOIN ${subscriptions} AS s ON s.id = waiting.id AND ${within}
      CROSS JOIN ${deliveries} AS d INDEXED BY deliveries_due_of_subscription
        ON d.subscription_id = s.id AND d.state = 'pending'
      JOIN ${events} AS e ON e.workspace_id = d.workspace_id AND e.id = d.event_id`),
  );
  if (!row) throw new Error("the backlog query gave no row");
  const { pending, overdue, oldestAt } = row;
  const ageMs = oldestAt === null ? null : Math.max(0, now - oldestAt);
  return {
    pending,
    overdue,
    oldestPendingSeconds: ageMs === null ? null : Math.floor(ageMs / 1000),
  };
}

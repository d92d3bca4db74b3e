import { eq, type SQL, sql } from "drizzle-orm";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  INLINE_BODY_MAX,
  LEASE_MS,
  SWEEP_GRACE_MS,
  SWEEP_MAX,
} from "../contract/limits.ts";
import {
  type Database,
  inOrder,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { type DeliveryState, deliveries, events, notices, subscriptions } from "../db/schema.ts";

/** A subscription that has deliveries to be sent, and whether it has been failing. */
export interface Wake {
  subscriptionId: string;
  failing: boolean;
}

/** Subscriptions of a workspace with something due now. */
export function dueInWorkspace(workspaceId: string, now: number): Statements<Wake[]> {
  const due = rows<WakeRow>(sql`
    SELECT s.id AS subscriptionId, s.failing_since IS NOT NULL AS failing
    FROM ${subscriptions} AS s
    WHERE s.workspace_id = ${workspaceId} AND ${hasPending(sql`s.id`, now)}`);
  return readAs(due, (found) => found.map(toWake));
}

/** At most `SWEEP_MAX` subscriptions, of all workspaces, with something overdue. */
export async function overdueAnywhere(db: Database, now: number): Promise<Wake[]> {
  // Walks from subscription to subscription in the index, however many deliveries each has waiting.
  const overdue = await retrying(() =>
    db.all<WakeRow>(sql`
    WITH RECURSIVE waiting (id) AS (
      SELECT min(subscription_id) FROM ${deliveries} WHERE state = 'pending'
      UNION ALL
      SELECT (SELECT min(d.subscription_id) FROM ${deliveries} AS d
        WHERE d.state = 'pending' AND d.subscription_id > waiting.id)
      FROM waiting WHERE waiting.id IS NOT NULL
    )
    SELECT waiting.id AS subscriptionId, s.failing_since IS NOT NULL AS failing
    FROM waiting LEFT JOIN ${subscriptions} AS s ON s.id = waiting.id
    WHERE waiting.id IS NOT NULL AND ${hasPending(sql`waiting.id`, now - SWEEP_GRACE_MS)}
    LIMIT ${SWEEP_MAX}`),
  );
  return overdue.map(toWake);
}

function hasPending(subscriptionId: SQL, dueBy: number): SQL {
  return sql`EXISTS (SELECT 1 FROM ${deliveries} AS p
    WHERE p.subscription_id = ${subscriptionId} AND p.state = 'pending' AND p.due_at <= ${dueBy})`;
}

/** A wake as SQL gives it. */
export interface WakeRow {
  subscriptionId: string;
  failing: 0 | 1;
}

export function toWake(row: WakeRow): Wake {
  return { subscriptionId: row.subscriptionId, failing: row.failing === 1 };
}

/** The hold of one consumer run on what it claimed: nobody else touches it before `until`. */
export interface Lease {
  claim: string;
  /** Unix milliseconds. */
  until: number;
}

/** A delivery under lease, with all that posting it takes. */
export interface Claimed {
  eventId: string;
  subscriptionId: string;
  /** Attempts whose outcome is recorded. */
  attempts: number;
  url: string;
  sealedSecret: string;
  /** The exact text to post; null for a large one, which `readBody` reads when its turn comes. */
  body: string | null;
}

/** A lease that starts now. */
export function newLease(now: number): Lease {
  return { claim: crypto.randomUUID(), until: now + LEASE_MS };
}

/**
 * Leases up to `quota` due deliveries of each subscription, oldest first. What nobody is
 * owed any more is cancelled.
 */
export function claimDue(
  subscriptionIds: string[],
  quota: number,
  lease: Lease,
  now: number,
): Statements<Claimed[]> {
  const ids = JSON.stringify(subscriptionIds);
  const claimed = inOrder([
    cancelUnowed(subscriptionIds, now),
    write(sql`
      UPDATE ${deliveries} SET claim = ${lease.claim}, due_at = ${lease.until}
      WHERE rowid IN (
        SELECT d.rowid FROM json_each(${ids}) AS woken
        JOIN ${deliveries} AS d ON d.rowid IN (
          SELECT due.rowid FROM ${deliveries} AS due
          WHERE due.subscription_id = woken.value AND due.state = 'pending' AND due.due_at <= ${now}
          ORDER BY due.due_at LIMIT ${quota})
        -- Once: the reply to this statement may have been lost.
        WHERE NOT EXISTS (SELECT 1 FROM ${deliveries} AS held WHERE held.subscription_id = woken.value
          AND held.state = 'pending' AND held.due_at = ${lease.until} AND held.claim = ${lease.claim}))`),
    rows<Claimed>(sql`
      SELECT d.event_id AS eventId, d.subscription_id AS subscriptionId, d.attempts AS attempts,
        s.url AS url, s.sealed_secret AS sealedSecret,
        CASE WHEN length(e.body) <= ${INLINE_BODY_MAX} THEN e.body END AS body
      FROM json_each(${ids}) AS woken
        JOIN ${deliveries} AS d ON d.subscription_id = woken.value
          AND d.state = 'pending' AND d.due_at = ${lease.until} AND d.claim = ${lease.claim}
        JOIN ${subscriptions} AS s ON s.id = d.subscription_id
        JOIN ${events} AS e ON e.id = d.event_id
      ORDER BY e.created_at, e.rowid`),
  ]);
  return readAs(claimed, ([, , deliveries]) => deliveries);
}

/** The body of an event. @throws Error when there is no such event. */
export async function readBody(db: Database, eventId: string): Promise<string> {
  const [row] = await retrying(() =>
    db.select({ body: events.body }).from(events).where(eq(events.id, eventId)),
  );
  if (!row) throw new Error(`no event ${eventId}`);
  return row.body;
}

/** How an attempt ended, or `counted: 0` when none was made and the lease is given back. */
export interface Settlement {
  eventId: string;
  subscriptionId: string;
  state: DeliveryState;
  counted: 0 | 1;
  /** When it is due again, for a pending one. */
  dueAt: number;
  outcome: string | null;
  status: number | null;
  settledAt: number | null;
}

/** What a run learnt about a subscription. */
export interface Health {
  subscriptionId: string;
  host: string;
  /** Whether an attempt succeeded. */
  succeeded: boolean;
  /** Failed attempts, after the last success if there was one, and the first of them. */
  failures: number;
  failingSince: number | null;
  outcome: string | null;
  status: number | null;
}

/**
 * Records the outcomes of a run, all in one transaction: the health of the subscriptions, those that
 * are disabled by it with the e-mail owed for that, and each delivery that `lease` still holds. Gives
 * when each subscription has something due next.
 */
export function settle(
  lease: Lease,
  settlements: Settlement[],
  health: Health[],
  now: number,
): Statements<NextDue[]> {
  const learnt = JSON.stringify(health);
  const subscriptionIds = health.map(({ subscriptionId }) => subscriptionId);
  const ids = JSON.stringify(subscriptionIds);
  const stillHeld = sql`EXISTS (SELECT 1 FROM ${deliveries} AS d WHERE d.subscription_id = s.id
    AND d.state = 'pending' AND d.due_at = ${lease.until} AND d.claim = ${lease.claim})`;
  const toDisable = sql`s.disabled_at IS NULL AND s.failures >= ${DISABLE_AFTER_FAILURES}
    AND s.failing_since <= ${now - DISABLE_AFTER_MS} AND ${stillHeld}`;
  const settled = inOrder([
    write(sql`
      UPDATE ${subscriptions} AS s SET
        failures = h.value->>'failures' + CASE WHEN h.value->>'succeeded' THEN 0 ELSE failures END,
        failing_since = CASE WHEN h.value->>'succeeded' THEN h.value->>'failingSince'
          ELSE coalesce(failing_since, h.value->>'failingSince') END
      FROM json_each(${learnt}) AS h
      WHERE s.id = h.value->>'subscriptionId' AND ${stillHeld}
        AND (h.value->>'failures' > 0 OR h.value->>'succeeded' AND failing_since IS NOT NULL)`),
    write(sql`
      INSERT INTO ${notices} (workspace_id, subscription_id, host, events, failing_since, last_outcome, last_status, created_at, due_at)
      SELECT s.workspace_id, s.id, h.value->>'host', s.events, s.failing_since,
        h.value->>'outcome', h.value->>'status', ${now}, ${now}
      FROM json_each(${learnt}) AS h JOIN ${subscriptions} AS s ON s.id = h.value->>'subscriptionId'
      WHERE h.value->>'failures' > 0 AND ${toDisable}`),
    write(sql`
      UPDATE ${subscriptions} AS s SET disabled_at = ${now}
      FROM json_each(${learnt}) AS h
      WHERE s.id = h.value->>'subscriptionId' AND h.value->>'failures' > 0 AND ${toDisable}`),
    write(sql`
      UPDATE ${deliveries} SET
        state = o.value->>'state', attempts = attempts + (o.value->>'counted'), due_at = o.value->>'dueAt',
        claim = NULL, settled_at = o.value->>'settledAt',
        last_outcome = coalesce(o.value->>'outcome', last_outcome),
        last_status = CASE WHEN o.value->>'counted' THEN o.value->>'status' ELSE last_status END
      FROM json_each(${JSON.stringify(settlements)}) AS o
      WHERE event_id = o.value->>'eventId' AND subscription_id = o.value->>'subscriptionId'
        AND claim = ${lease.claim} AND ${deliveries.state} = 'pending'`),
    cancelUnowed(subscriptionIds, now),
    rows<NextDue>(sql`
      SELECT woken.value AS subscriptionId, s.failing_since IS NOT NULL AS failing,
        (SELECT min(d.due_at) FROM ${deliveries} AS d
          WHERE d.subscription_id = woken.value AND d.state = 'pending') AS dueAt
      FROM json_each(${ids}) AS woken JOIN ${subscriptions} AS s ON s.id = woken.value`),
  ]);
  return readAs(settled, (results) => results[5]);
}

/** When a subscription has something due next, as `settle` gives it. */
export interface NextDue extends WakeRow {
  dueAt: number | null;
}

/** Cancels what is pending for those of the subscriptions that are gone, disabled or without access. */
function cancelUnowed(subscriptionIds: string[], now: number): Statements<number> {
  return cancelPending(
    sql`SELECT value FROM json_each(${JSON.stringify(subscriptionIds)}) WHERE NOT EXISTS (
      SELECT 1 FROM ${subscriptions} AS s JOIN workspaces AS w ON w.id = s.workspace_id
      WHERE s.id = value AND s.disabled_at IS NULL AND w.access_granted)`,
    now,
  );
}

/**
 * Cancels what is pending for the subscriptions that `ids` selects. An attempt under way keeps its
 * delivery until it is settled: nothing is posted after it has been cancelled.
 */
export function cancelPending(ids: SQL, now: number): Statements<number> {
  return write(sql`
    UPDATE ${deliveries} SET state = 'cancelled', settled_at = ${now}, claim = NULL
    WHERE subscription_id IN (${ids}) AND state = 'pending' AND (claim IS NULL OR due_at <= ${now})`);
}

/** Cancels what is pending for a workspace. */
export function cancelWorkspace(workspaceId: string, now: number): Statements<number> {
  return cancelPending(
    sql`SELECT id FROM ${subscriptions} WHERE workspace_id = ${workspaceId}`,
    now,
  );
}

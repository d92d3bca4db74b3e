import { type SQL, sql } from "drizzle-orm";
import { OVERDUE_AFTER_MS } from "../contract/limits.ts";
import { type Database, retrying } from "../db/client.ts";
import { deliveries, events } from "../db/schema.ts";

/** Counts of deliveries; `created` is counted from the events, on its own. */
export interface Ledger {
  created: number;
  pending: number;
  delivered: number;
  exhausted: number;
  cancelled: number;
  /** Pending and due for more than five minutes. */
  overdue: number;
  /** Age of the oldest event that is pending somewhere, in seconds; null when none is. */
  oldestPendingSeconds: number | null;
  /** Whether created = pending + delivered + exhausted + cancelled. */
  addsUp: boolean;
}

/** The ledger of one workspace, or of all. */
export async function readLedger(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Ledger> {
  const within = (alias: SQL) =>
    workspaceId === undefined ? sql`true` : sql`${alias}.workspace_id = ${workspaceId}`;
  const [row] = await retrying(() =>
    db.all<Omit<Ledger, "addsUp"> & { oldestPendingAt: number | null }>(sql`
    SELECT
      (SELECT coalesce(sum(e.owed), 0) FROM ${events} AS e WHERE ${within(sql`e`)}) AS created,
      coalesce(sum(d.state = 'pending'), 0) AS pending,
      coalesce(sum(d.state = 'delivered'), 0) AS delivered,
      coalesce(sum(d.state = 'exhausted'), 0) AS exhausted,
      coalesce(sum(d.state = 'cancelled'), 0) AS cancelled,
      coalesce(sum(d.state = 'pending' AND d.due_at < ${now - OVERDUE_AFTER_MS}), 0) AS overdue,
      (SELECT min(e.created_at) FROM ${deliveries} AS p JOIN ${events} AS e ON e.id = p.event_id
        WHERE p.state = 'pending' AND ${within(sql`p`)}) AS oldestPendingAt
    FROM ${deliveries} AS d WHERE ${within(sql`d`)}`),
  );
  if (!row) throw new Error("the ledger query gave no row");
  const { oldestPendingAt, ...counts } = row;
  return {
    ...counts,
    oldestPendingSeconds:
      oldestPendingAt === null ? null : Math.max(0, Math.floor((now - oldestPendingAt) / 1000)),
    addsUp:
      counts.created === counts.pending + counts.delivered + counts.exhausted + counts.cancelled,
  };
}

import { sql } from "drizzle-orm";
import { type Database, retrying } from "../db/client.ts";
import { deliveries, events } from "../db/schema.ts";
import { type Backlog, readBacklog } from "./due.ts";

/** Counts of deliveries; `created` is counted from the events, on its own. */
export interface Ledger extends Backlog {
  created: number;
  delivered: number;
  exhausted: number;
  cancelled: number;
  /** Whether created = pending + delivered + exhausted + cancelled. */
  addsUp: boolean;
}

/** The ledger of one workspace, or of all: it reads every delivery that is kept. */
export async function readLedger(
  db: Database,
  workspaceId: string | undefined,
  now: number,
): Promise<Ledger> {
  const within = workspaceId === undefined ? sql`true` : sql`workspace_id = ${workspaceId}`;
  const [row] = await retrying(() =>
    db.all<Pick<Ledger, "created" | "pending" | "delivered" | "exhausted" | "cancelled">>(sql`
    SELECT
      (SELECT coalesce(sum(json_array_length(owed)), 0) FROM ${events} WHERE ${within}) AS created,
      coalesce(sum(state = 'pending'), 0) AS pending,
      coalesce(sum(state = 'delivered'), 0) AS delivered,
      coalesce(sum(state = 'exhausted'), 0) AS exhausted,
      coalesce(sum(state = 'cancelled'), 0) AS cancelled
    FROM ${deliveries} WHERE ${within}`),
  );
  if (!row) throw new Error("the ledger query gave no row");
  const { overdue, oldestPendingSeconds } = await readBacklog(db, workspaceId, now);
  const addsUp = row.created === row.pending + row.delivered + row.exhausted + row.cancelled;
  return { ...row, overdue, oldestPendingSeconds, addsUp };
}

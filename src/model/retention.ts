import { sql } from "drizzle-orm";
import { RETENTION_MS, SWEEP_MAX } from "../contract/limits.ts";
import { inOrder, type Statements, write } from "../db/client.ts";
import { deliveries, events } from "../db/schema.ts";

/** Deletes events, with their deliveries, that are older than the retention and long settled. */
export function deleteExpired(now: number): Statements<unknown> {
  const before = now - RETENTION_MS;
  const expired = sql`SELECT e.id FROM workspaces AS w
    JOIN ${events} AS e ON e.workspace_id = w.id AND e.created_at < ${before}
    WHERE NOT EXISTS (SELECT 1 FROM ${deliveries} AS d
      WHERE d.event_id = e.id AND (d.state = 'pending' OR d.settled_at >= ${before}))
    ORDER BY w.id, e.created_at LIMIT ${SWEEP_MAX}`;
  return inOrder([
    // The second selection is the first one again: deleting deliveries frees no other event.
    write(sql`DELETE FROM ${deliveries} WHERE event_id IN (${expired})`),
    write(sql`DELETE FROM ${events} WHERE id IN (${expired})`),
  ]);
}

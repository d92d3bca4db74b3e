import { type Column, type SQL, sql } from "drizzle-orm";
import { workspaces } from "../db/schema.ts";

/**
 * SQL condition: the workspace lives here and is not being moved. A statement that writes rows of several
 * workspaces must include it, because one locked workspace aborts the whole statement.
 */
export function isWritable(workspaceId: Column): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${workspaces} AS locked
    WHERE locked.id = ${workspaceId} AND locked.write_lock IS NOT NULL)`;
}

/**
 * SQL condition: the workspace is writable, or is draining before a move. Only the outcomes of requests in flight are still
 * recorded then, because the move waits for them.
 */
export function isWritableOrDraining(workspaceId: Column): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${workspaces} AS locked
    WHERE locked.id = ${workspaceId} AND locked.write_lock IN ('locked', 'arriving'))`;
}

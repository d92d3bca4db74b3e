import { type Column, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { workspaces } from "../db/schema.ts";

export function unknownWorkspace(): InputError {
  return new InputError("workspaceId", "no such workspace");
}

/** What refuses a call about a workspace under erasure. */
export function beingErased(): InputError {
  return new InputError("workspaceId", "this workspace is being erased");
}

/**
 * SQL condition: the workspace, of which this database has rows, lives here and is not about to leave.
 * What writes to several workspaces at once must check it: one that is closed would fail them all.
 */
export function isWritable(workspaceId: Column): SQL {
  return sql`NOT EXISTS (SELECT 1 FROM ${workspaces} AS held
    WHERE held.id = ${workspaceId} AND held.hold IS NOT NULL)`;
}

import { type Column, eq, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { qb } from "../db/builder.ts";
import { readAs, type Statements } from "../db/client.ts";
import { moves, workspaces } from "../db/schema.ts";

/** A move of a workspace from one database to another (moving/), as stored in the directory. */
export type Move = typeof moves.$inferSelect;

/** The move of a workspace; undefined if there is none. */
export function findMove(workspaceId: string): Statements<Move | undefined> {
  const found = qb.select().from(moves).where(eq(moves.workspaceId, workspaceId));
  return readAs(found, ([move]) => move);
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

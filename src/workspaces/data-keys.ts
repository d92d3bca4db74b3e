import { type Column, type Placeholder, type SQL, sql } from "drizzle-orm";
import { workspaces } from "../db/schema.ts";

/** SQL expression: the data key of a workspace, encrypted; null if it does not live here. */
export function dataKeyOf(workspaceId: Column | Placeholder): SQL<string | null> {
  return sql`(SELECT ${workspaces.dataKey} FROM ${workspaces} WHERE ${workspaces.id} = ${workspaceId})`;
}

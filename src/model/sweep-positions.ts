import { eq, sql } from "drizzle-orm";
import { insertFrom, select } from "../db/builder.ts";
import { commit, type Database, query } from "../db/client.ts";
import { sweepPositions } from "../db/schema.ts";

/** Where a part of the sweep stopped; "" if it reached the end or never started. */
export async function findPosition(db: Database, part: string): Promise<string> {
  const { position } = sweepPositions;
  const [row] = await query(
    db,
    select({ position }).from(sweepPositions).where(eq(sweepPositions.part, part)),
  );
  return row?.position ?? "";
}

/** Stores where a part of the sweep stops. */
export async function updatePosition(db: Database, part: string, position: string): Promise<void> {
  if ((await findPosition(db, part)) === position) return;
  const stored = { part, position };
  const replacing = sql`WHERE true ON CONFLICT (part) DO UPDATE SET position = excluded.position`;
  await commit(db, insertFrom(sweepPositions, stored, replacing));
}

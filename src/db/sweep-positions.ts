import { eq } from "drizzle-orm";
import { qb } from "./builder.ts";
import { commit, type Database } from "./client.ts";
import { sweepPositions } from "./schema.ts";

/** Reads where a part of the scheduled job stopped; "" if it reached the end or never started. */
export async function findPosition(db: Database, part: string): Promise<string> {
  const { position } = sweepPositions;
  const [row] = await db
    .select({ position })
    .from(sweepPositions)
    .where(eq(sweepPositions.part, part));
  return row?.position ?? "";
}

/** Stores where a part of the scheduled job stopped. */
export async function updatePosition(db: Database, part: string, position: string): Promise<void> {
  if ((await findPosition(db, part)) === position) return;
  await commit(
    db,
    qb
      .insert(sweepPositions)
      .values({ part, position })
      .onConflictDoUpdate({ target: sweepPositions.part, set: { position } }),
  );
}

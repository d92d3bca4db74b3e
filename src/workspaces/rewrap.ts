import { z } from "@hono/zod-openapi";
import { and, eq, gt, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { combine, commit, type Database } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { isWritable } from "../db/states.ts";
import type { KeyRing } from "../encryption/key-ring.ts";
import { open, seal, sealingKeyId } from "../encryption/seal.ts";
import { log } from "../log.ts";

export const Resealed = z.object({
  resealed: z.int(),
  remaining: z
    .int()
    .describe(
      "those still under other keys, except unreadable ones; while a workspace moves, its key remains, so call it again two minutes after the move",
    ),
  unreadable: z.int().describe("those that no key can decrypt; the log names their workspaces"),
});
export type Resealed = z.infer<typeof Resealed>;

/**
 * Re-encrypts (rewraps) up to `limit` data keys under the first key of the ring. Skips those that no key of the ring
 * can decrypt, and those of workspaces that are being moved.
 */
export async function rewrapDataKeys(
  db: Database,
  ring: KeyRing,
  limit: number,
): Promise<Resealed> {
  const { id, sealedDataKey } = workspaces;
  const keyId = sealingKeyId(ring);
  const isUnderOther = sql`substr(${sealedDataKey}, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
  const result = { resealed: 0, unreadable: 0 };
  for (let after: string | undefined = ""; after !== undefined && result.resealed < limit; ) {
    const found: { id: string; sealedDataKey: string }[] = await db
      .select({ id, sealedDataKey: sql<string>`${sealedDataKey}` })
      .from(workspaces)
      .where(and(isUnderOther, isWritable(id), gt(id, after)))
      .orderBy(id)
      .limit(limit - result.resealed);
    const keys = await Promise.all(found.map((workspace) => rewrap(ring, workspace)));
    const resealed = found.flatMap((old, i) => {
      const key = keys[i];
      // The workspace may have been erased with its key since it was read.
      const isSame = and(eq(id, old.id), eq(sealedDataKey, old.sealedDataKey));
      return key == null ? [] : qb.update(workspaces).set({ sealedDataKey: key }).where(isSame);
    });
    await commit(db, combine(resealed));
    const unreadable = found.filter((_, i) => keys[i] === null).map((each) => each.id);
    if (unreadable.length > 0) log("data_key_decrypt_failed", { ids: unreadable.join(" ") });
    result.resealed += resealed.length;
    result.unreadable += unreadable.length;
    after = found.at(-1)?.id;
  }
  // A locked data key counts, because a move copies it from here to another database, as it is.
  const left = await db.$count(workspaces, isUnderOther);
  return { ...result, remaining: left - result.unreadable };
}

/** Encrypts a data key under the first key of the ring; null if no key of the ring can decrypt it. */
async function rewrap(
  ring: KeyRing,
  { id, sealedDataKey }: { id: string; sealedDataKey: string },
): Promise<string | null> {
  const key = await open(ring, id, sealedDataKey).catch(() => null);
  return key === null ? null : seal(ring, id, key);
}

import { z } from "@hono/zod-openapi";
import { and, type Column, count, eq, type SQL, sql } from "drizzle-orm";
import { qb } from "../db/builder.ts";
import { commit, type Database, readAs, type Statements, transaction } from "../db/client.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import type { KeyRing } from "../encryption/key-ring.ts";
import { open, seal, sealingKeyId } from "../encryption/seal.ts";
import { log } from "../log.ts";
import { isWritable } from "../workspaces/moves.ts";

export const Resealed = z.object({
  resealed: z.int(),
  remaining: z.int().describe("still under other keys, not counting unreadable ones"),
  unreadable: z.int().describe("those that no key can decrypt; the log names them"),
});
export type Resealed = z.infer<typeof Resealed>;

/**
 * Reseals up to `limit` secrets under the ring's first key, skipping those that cannot be
 * decrypted. A secret that changes in the meantime is left alone.
 */
export async function resealUpTo(db: Database, ring: KeyRing, limit: number): Promise<Resealed> {
  const keyId = sealingKeyId(ring);
  const result = { resealed: 0, unreadable: 0 };
  for (let after: SealedSecret = { id: "", sealedSecret: "" }; ; ) {
    const wanted = limit - result.resealed;
    const secrets = await listUnderOtherKeys(db, keyId, after, wanted);
    const resealed = await Promise.all(secrets.map((secret) => reseal(ring, secret)));
    const unreadable = secrets.filter((_, i) => resealed[i] === null).map(({ id }) => id);
    if (unreadable.length > 0) log("secrets_unreadable", { ids: unreadable.join(" ") });
    const replacements = secrets.flatMap((secret, i) => {
      const sealed = resealed[i];
      return sealed == null ? [] : updateSecret(secret, sealed);
    });
    const { left } = await commit(db, {
      replaced: transaction(Object.fromEntries(replacements.entries())),
      left: countUnderOtherKeys(keyId),
    });
    result.resealed += replacements.length;
    result.unreadable += unreadable.length;
    after = secrets.at(-1) ?? after;
    if (secrets.length < wanted || result.resealed >= limit)
      return { ...result, remaining: left - result.unreadable };
  }
}

/** The same secret sealed under the ring's first key; null if none of its keys can decrypt it. */
async function reseal(ring: KeyRing, { id, sealedSecret }: SealedSecret): Promise<string | null> {
  let secret: string;
  try {
    secret = await open(ring, id, sealedSecret);
  } catch {
    return null;
  }
  return seal(ring, id, secret);
}

/** A subscription's secret or a workspace's data key, as stored. */
interface SealedSecret {
  /** The id of the subscription or the workspace. */
  id: string;
  sealedSecret: string;
}

/**
 * The next `limit` secrets after `after`, earlier ones included, that are sealed under a key other
 * than `keyId`.
 */
async function listUnderOtherKeys(
  db: Database,
  keyId: string,
  after: SealedSecret,
  limit: number,
): Promise<SealedSecret[]> {
  const under = underOthers(keyId);
  return db
    .select({ id: under.id, sealedSecret: under.sealedSecret })
    .from(under)
    .where(sql`(${under.id}, ${under.sealedSecret}) > (${after.id}, ${after.sealedSecret})`)
    .orderBy(under.id, under.sealedSecret)
    .limit(limit);
}

/** How many secrets are sealed under a key other than `keyId`. */
function countUnderOtherKeys(keyId: string): Statements<number> {
  const counts = qb.select({ count: count() }).from(underOthers(keyId));
  return readAs(counts, ([row]) => row?.count ?? 0);
}

const EARLIER = sql`earlier.value->>'sealedSecret'`;

function underOthers(keyId: string) {
  const isUnderOther = (sealedSecret: Column | SQL) =>
    sql`substr(${sealedSecret}, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
  // The secrets of a workspace that has moved are resealed where it lives now.
  const isHere = isWritable(subscriptions.workspaceId);
  return qb
    .select({ id: subscriptions.id, sealedSecret: subscriptions.sealedSecret })
    .from(subscriptions)
    .where(and(isUnderOther(subscriptions.sealedSecret), isHere))
    .unionAll(
      qb
        .select({ id: workspaces.id, sealedSecret: sql<string>`${workspaces.dataKey}` })
        .from(workspaces)
        .where(and(isUnderOther(workspaces.dataKey), isWritable(workspaces.id))),
    )
    .unionAll(
      qb
        .select({ id: subscriptions.id, sealedSecret: sql<string>`${EARLIER}` })
        .from(subscriptions)
        .innerJoin(sql`json_each(${subscriptions.earlierSecrets}) AS earlier`, sql`true`)
        .where(and(isUnderOther(EARLIER), isHere)),
    )
    .as("sealed");
}

/**
 * Replaces a sealed secret with `sealed`, even if a rotation has moved it in the meantime. A secret
 * that has been deleted does not come back.
 */
function updateSecret({ id, sealedSecret }: SealedSecret, sealed: string): Statements<unknown> {
  // A sealed text is long and random: wherever it stands, it is that secret.
  const replaced = (column: Column) => sql`replace(${column}, ${sealedSecret}, ${sealed})`;
  return transaction({
    secrets: qb
      .update(subscriptions)
      .set({
        sealedSecret: replaced(subscriptions.sealedSecret),
        earlierSecrets: replaced(subscriptions.earlierSecrets),
      })
      .where(eq(subscriptions.id, id)),
    dataKey: qb
      .update(workspaces)
      .set({ dataKey: sealed })
      .where(and(eq(workspaces.id, id), eq(workspaces.dataKey, sealedSecret))),
  });
}

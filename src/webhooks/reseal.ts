import { z } from "@hono/zod-openapi";
import { commit, type Database, inOrder } from "../db/client.ts";
import type { KeyRing } from "../encryption/key-ring.ts";
import { open, seal, sealingKeyId } from "../encryption/seal.ts";
import { log } from "../log.ts";
import {
  countUnderOtherKeys,
  listUnderOtherKeys,
  type SealedSecret,
  updateSecret,
} from "./secrets.ts";

/** The result of a reseal. */
export const Resealed = z.object({
  resealed: z.int(),
  remaining: z.int().describe("under other keys, without those found to be unreadable"),
  unreadable: z.int().describe("those that no key can decrypt; the log names them"),
});
export type Resealed = z.infer<typeof Resealed>;

/**
 * Reseals up to `limit` secrets under the ring's first key, skipping those that cannot be
 * decrypted. A secret that changes in the meantime is left alone.
 */
export async function resealSecrets(db: Database, ring: KeyRing, limit: number): Promise<Resealed> {
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
    const [, left] = await commit(db, inOrder([inOrder(replacements), countUnderOtherKeys(keyId)]));
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

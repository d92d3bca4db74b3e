import { and, inArray, isNotNull, lte, type Placeholder, type SQL, sql } from "drizzle-orm";
import { qb, toTexts } from "../db/builder.ts";
import type { Database, Executable } from "../db/client.ts";
import { earlierSecrets, subscriptions } from "../db/schema.ts";
import { open, parseEncryptionKeys } from "../encryption/seal.ts";
import { createSigner, type Signer } from "./signature.ts";

/** A subscription's sealed secrets that still sign: the current one and earlier ones. */
export interface SealedSecrets {
  sealedSecret: string;
  earlierSecrets: string[];
}

/**
 * Creates a signer with all of a subscription's valid secrets.
 *
 * @throws Error if one of them cannot be decrypted.
 */
export async function openSigner(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  subscriptionId: string,
  { sealedSecret, earlierSecrets }: SealedSecrets,
): Promise<Signer> {
  const ring = parseEncryptionKeys(env.ENCRYPTION_KEYS);
  const sealed = [...earlierSecrets, sealedSecret];
  return createSigner(...(await Promise.all(sealed.map((one) => open(ring, subscriptionId, one)))));
}

/** A subscription's earlier secrets that still sign, as a field of its row. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(${earlierSecrets.sealedSecret}) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptions.id} AND ${earlierSecrets.until} > ${now})`.mapWith(
    toTexts,
  );
}

/** Deletes the earlier secrets of the deleted subscriptions that match. */
export function deleteSecretsOfDeleted(condition: SQL | undefined): Executable {
  const { id, deletedAt } = subscriptions;
  const deleted = qb
    .select({ id })
    .from(subscriptions)
    .where(and(condition, isNotNull(deletedAt)));
  return qb.delete(earlierSecrets).where(inArray(earlierSecrets.subscriptionId, deleted));
}

export async function deleteEndedSecrets(db: Database, now: number) {
  return db.delete(earlierSecrets).where(lte(earlierSecrets.until, now));
}

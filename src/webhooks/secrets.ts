import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { toTexts } from "../db/builder.ts";
import { subscriptions } from "../db/schema.ts";
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

/** A subscription's earlier secrets that sign at a time, as a field of its row. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(earlier.value->>'sealedSecret')
    FROM json_each(${subscriptions.earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now})`.mapWith(
    toTexts,
  );
}

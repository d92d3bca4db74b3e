import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { toTexts } from "../db/builder.ts";
import { subscriptions } from "../db/schema.ts";
import { decryptJson, encryptJson } from "../encryption/seal.ts";
import { expectDataKey, type WorkspaceKey } from "../workspaces/data-keys.ts";
import { createSigner, type Signer } from "./signature.ts";

/** The encrypted secrets of a subscription that sign, with its workspace. */
interface SealedSecrets extends WorkspaceKey {
  sealedSecret: string;
  earlierSecrets: string[];
}

/** Encrypts a secret of a subscription under its workspace's data key. */
export function sealSecret(key: CryptoKey, subscriptionId: string, secret: string) {
  return encryptJson(key, subscriptionId, secret);
}

/** Decrypts a secret that `sealSecret` has encrypted. @throws Error if it cannot be decrypted. */
export function openSecret(key: CryptoKey, subscriptionId: string, sealed: string) {
  return decryptJson<string>(key, subscriptionId, sealed);
}

/**
 * Creates a signer with all secrets of a subscription that sign.
 *
 * @throws Error if one of them cannot be decrypted.
 */
export async function openSigner(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  subscriptionId: string,
  { sealedSecret, earlierSecrets, ...owner }: SealedSecrets,
): Promise<Signer> {
  const key = await expectDataKey(env.ENCRYPTION_KEYS, owner);
  const sealed = [...earlierSecrets, sealedSecret];
  const secrets = sealed.map((one) => openSecret(key, subscriptionId, one));
  return createSigner(...(await Promise.all(secrets)));
}

/** SQL expression: the earlier secrets of a subscription that still sign at this time. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(earlier.value->>'sealedSecret')
    FROM json_each(${subscriptions.earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now})`.mapWith(
    toTexts,
  );
}

import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { toTexts } from "../db/builder.ts";
import { subscriptions } from "../db/schema.ts";
import { createSigner, type Signer } from "../delivery/signature.ts";
import { expectDataKey, openUnder, sealUnder } from "../encryption/personal-data.ts";
import type { Owner } from "../events/bodies.ts";

/** A subscription's sealed secrets that still sign, the current one and earlier ones, and its workspace. */
interface SealedSecrets extends Owner {
  sealedSecret: string;
  earlierSecrets: string[];
}

/** Encrypts a secret of a subscription under its workspace's data key. */
export function sealSecret(key: CryptoKey, subscriptionId: string, secret: string) {
  return sealUnder(key, subscriptionId, secret);
}

/** Decrypts what `sealSecret` returned. @throws Error if it cannot. */
export function openSecret(key: CryptoKey, subscriptionId: string, sealed: string) {
  return openUnder<string>(key, subscriptionId, sealed);
}

/**
 * Creates a signer with all of a subscription's valid secrets.
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

/** A subscription's earlier secrets that sign at a time, as a field of its row. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(earlier.value->>'sealedSecret')
    FROM json_each(${subscriptions.earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now})`.mapWith(
    toTexts,
  );
}

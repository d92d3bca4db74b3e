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

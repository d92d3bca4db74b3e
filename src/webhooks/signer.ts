import { open, readKeyRing } from "./seal.ts";
import { createSigner, type Signer } from "./signature.ts";

/** The sealed secrets of a subscription that are valid: the newest, and those that it replaced. */
export interface SealedSecrets {
  sealedSecret: string;
  earlierSecrets: string[];
}

/**
 * The signer of a subscription, with all its secrets that are valid.
 *
 * @throws Error when one of them cannot be opened.
 */
export async function openSigner(
  env: Pick<Env, "WEBHOOK_ENCRYPTION_KEYS">,
  subscriptionId: string,
  { sealedSecret, earlierSecrets }: SealedSecrets,
): Promise<Signer> {
  const ring = readKeyRing(env.WEBHOOK_ENCRYPTION_KEYS);
  const sealed = [...earlierSecrets, sealedSecret];
  return createSigner(...(await Promise.all(sealed.map((one) => open(ring, subscriptionId, one)))));
}

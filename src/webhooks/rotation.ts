import { InputError } from "../contract/input-error.ts";
import { isoTime } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { commitOnce } from "../db/once.ts";
import { unknownWebhook } from "../model/health.ts";
import { isRotatable, rotate } from "../model/secrets.ts";
import { readKeyRing, seal } from "./seal.ts";
import { mintSecret } from "./signature.ts";

/** Too many earlier secrets of a subscription still sign: none can be added to them. */
export class TooManySecrets extends InputError {}

/**
 * Gives a subscription a new secret; the one before it signs beside it for as long as told. Calling it
 * again gives one more: what a receiver knows stays valid, even if an answer was lost.
 *
 * @param overlapSeconds 0 ends all earlier secrets at once.
 * @throws UnknownInput when there is no such subscription; TooManySecrets.
 */
export async function rotateSecret(
  db: Database,
  encryptionKeys: string,
  webhookId: string,
  overlapSeconds: number,
  now: number,
): Promise<{ secret: string; overlapEndsAt: string | null }> {
  const secret = mintSecret();
  const sealed = await seal(readKeyRing(encryptionKeys), webhookId, secret);
  const until = overlapSeconds === 0 ? null : now + overlapSeconds * 1000;
  const guard = isRotatable(webhookId, until, now);
  const rotated = await commitOnce(db, rotate(webhookId, sealed, until, now), now, guard);
  const rotation = rotated ?? "done";
  if (rotation === "unknown") throw unknownWebhook();
  if (rotation === "too_many")
    throw new TooManySecrets(
      "webhookId: too many of its secrets are still valid; overlapSeconds 0 ends the earlier ones",
    );
  return { secret, overlapEndsAt: until === null ? null : isoTime(until) };
}

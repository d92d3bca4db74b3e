import { InputError } from "../contract/input-error.ts";
import { isoTime } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import { commitOnce } from "../db/commit-once.ts";
import { parseEncryptionKeys, seal } from "../encryption/seal.ts";
import { sleep } from "../timing.ts";
import { unknownWebhook } from "./health.ts";
import { isRotatable, type Rotation, rotate } from "./secrets.ts";
import { mintSecret } from "./signature.ts";

/**
 * How long a rotation waits before it returns if a dispatch is posting to the subscription: after
 * that, every post that starts is signed with the new secret. `CONFIRMED_MS`, plus the longest time
 * between starting a post and sending it.
 */
const ROTATION_MS = 2_000;

/**
 * Gives a subscription a new secret. The previous one signs alongside it for the overlap. Another
 * call makes another secret and keeps the earlier ones valid, so a lost answer does no harm. When
 * this returns, every post is signed with the new secret, so the receiver may switch immediately.
 *
 * @param overlapSeconds 0 ends all earlier secrets immediately.
 * @throws InputError if there is no such subscription, or too many of its secrets still sign.
 */
export async function rotateSecret(
  db: Database,
  encryptionKeys: string,
  webhookId: string,
  overlapSeconds: number,
  now: number,
): Promise<{ secret: string; overlapEndsAt: string | null }> {
  const secret = mintSecret();
  const sealed = await seal(parseEncryptionKeys(encryptionKeys), webhookId, secret);
  const until = overlapSeconds === 0 ? null : now + overlapSeconds * 1000;
  const guard = isRotatable(webhookId, until, now);
  const rotated = await commitOnce(db, rotate(webhookId, sealed, until, now), now, guard);
  const { verdict, isLeased } = rotated ?? UNKNOWN_WHETHER_LEASED;
  if (verdict === "unknown") throw unknownWebhook();
  if (verdict === "too_many")
    throw new InputError(
      "webhookId",
      "too many of its secrets are still valid; overlapSeconds 0 ends the earlier ones",
      { reason: "out_of_range" },
    );
  if (isLeased) await sleep(ROTATION_MS);
  return { secret, overlapEndsAt: until === null ? null : isoTime(until) };
}

/** The assumed result of a rotation whose reply was lost. */
const UNKNOWN_WHETHER_LEASED: Rotation = { verdict: "done", isLeased: true };

import { and, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, counted, type Database, type Statements, withoutRetries } from "../db/client.ts";
import { subscriptions } from "../db/schema.ts";
import { expectDataKey } from "../encryption/personal-data.ts";
import { sealSecret } from "../endpoints/secrets.ts";
import { mintSecret } from "../endpoints/signature.ts";
import { findSubscription, isSubscription } from "./subscriptions.ts";

/** Requests that start later than this after a rotation are signed with the new secret. */
export const ROTATION_MS = 2_000;
/** Maximum earlier secrets of one subscription that sign at the same time. */
const EARLIER_SECRETS_MAX = 4;

/**
 * Rotates the secret of a subscription. Its earlier secrets go on signing alongside the new one for the grace
 * period. Requests of the next two seconds may still be signed without the new secret. If the endpoint rejects them,
 * they are retried.
 *
 * The rotation is tried once. A caller that loses the response calls again. The lost secret then also signs for the
 * grace period.
 *
 * @param overlapSeconds the grace period; 0 ends all earlier secrets immediately.
 * @throws InputError if there is no such subscription, or too many of its secrets still sign.
 */
export async function rotateSecret(
  db: Database,
  encryptionKeys: string,
  webhookId: string,
  overlapSeconds: number,
  now: number,
): Promise<{ secret: string; overlapEndsAt: string | null }> {
  const { sealedSecret, earlierSecrets } = subscriptions;
  const secret = mintSecret();
  const dataKey = await expectDataKey(encryptionKeys, await findSubscription(db, webhookId, now));
  const sealed = await sealSecret(dataKey, webhookId, secret);
  const until = overlapSeconds === 0 ? null : now + overlapSeconds * 1000;
  const signing = sql`FROM json_each(${earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now}`;
  const earlier = sql`json_insert((SELECT json_group_array(json(earlier.value)) ${signing}), '$[#]',
    json_object('sealedSecret', ${sealedSecret}, 'until', ${until}))`;
  const hasRoom = sql`(SELECT count(*) ${signing}) < ${EARLIER_SECRETS_MAX}`;
  const rotated = await commit(
    withoutRetries(db),
    counted(
      qb
        .update(subscriptions)
        .set({
          sealedSecret: sealed,
          earlierSecrets: until === null ? null : earlier,
          rotatedAt: now,
        })
        .where(and(isSubscription(webhookId), until === null ? undefined : hasRoom)),
    ),
  );
  if (rotated === 0)
    throw new InputError(
      "webhookId",
      "too many of its secrets are still valid; overlapSeconds 0 ends the earlier ones",
      { reason: "out_of_range" },
    );
  return { secret, overlapEndsAt: until === null ? null : isoTime(until) };
}

/**
 * Ends the grace period of earlier secrets: only the current secret signs from now on. They stay stored until the next
 * rotation, because the history recomputes the signatures that they made. Reads 0 if none of them still signed.
 */
export function endOverlap(subscriptionId: string, now: number): Statements<number> {
  const { earlierSecrets } = subscriptions;
  const ended = sql`(SELECT json_group_array(json_set(earlier.value, '$.until', min(earlier.value->>'until', ${now})))
    FROM json_each(${earlierSecrets}) AS earlier)`;
  const isSigning = sql`EXISTS (SELECT 1 FROM json_each(${earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now})`;
  return counted(
    qb
      .update(subscriptions)
      .set({ earlierSecrets: ended })
      .where(and(isSubscription(subscriptionId), isSigning)),
  );
}

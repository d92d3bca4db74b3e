import { and, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, counted, type Database, type Executable, withoutRetries } from "../db/client.ts";
import { subscriptions } from "../db/schema.ts";
import { mintSecret } from "../delivery/signature.ts";
import { expectDataKey } from "../encryption/personal-data.ts";
import { isSubscription } from "./conditions.ts";
import { sealSecret } from "./secrets.ts";
import { findSubscription } from "./subscriptions.ts";

/** Requests that start later than this after a rotation are signed with the new secret. */
export const ROTATION_MS = 2_000;
/** Maximum earlier secrets that sign concurrently for one subscription. */
const EARLIER_SECRETS_MAX = 4;

/**
 * Gives a subscription a new secret. The previous one signs alongside it for the overlap, and so do
 * those before it. Requests of the next two seconds may still be signed without the new one; if the endpoint
 * rejects them, they are retried.
 *
 * Tried once. If the response is lost, call it again: the overlap is then that of both rotations.
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
          // A repeated request to subscribe does not show the new secret.
          idempotencyKey: null,
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

/** Ends the overlap of a rotation: only the current secret signs from now on. */
export function endOverlap(subscriptionId: string): Executable {
  return qb
    .update(subscriptions)
    .set({ earlierSecrets: null })
    .where(isSubscription(subscriptionId));
}

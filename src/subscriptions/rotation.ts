import { and, eq, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input.ts";
import { isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, counted, type Database, withoutRetries } from "../db/client.ts";
import { subscriptions } from "../db/schema.ts";
import { sealSecret } from "../endpoints/secrets.ts";
import { mintSecret } from "../endpoints/signature.ts";
import { expectDataKey } from "../workspaces/data-keys.ts";
import { findSubscription, isSubscription } from "./subscriptions.ts";

/** Requests that start later than this after a rotation are signed with the new secret. */
export const ROTATION_MS = 2_000;
/** Maximum earlier secrets of one subscription that sign at the same time. */
export const EARLIER_SECRETS_MAX = 4;

/**
 * Rotates the secret of a subscription. Its earlier secrets go on signing alongside the new one for the grace
 * period. Requests of the next two seconds may still be signed without the new secret. If the endpoint rejects them,
 * they are retried.
 *
 * The rotation is tried once. A caller that loses the response calls again. The lost secret then also signs for the
 * grace period.
 *
 * If several rotations run at once, the first one succeeds. Otherwise, the secret of one caller might never sign.
 *
 * @param overlapSeconds the grace period; 0 ends all earlier secrets immediately.
 * @param seen the encrypted secret to replace, if the caller has read it. If it has changed since, nothing is changed.
 * @throws InputError if there is no such subscription, another call has rotated its secret meanwhile, or too many of its
 *   secrets still sign.
 */
export async function rotateSecret(
  db: Database,
  encryptionKeys: string,
  webhookId: string,
  overlapSeconds: number,
  now: number,
  seen?: string,
): Promise<{ secret: string; overlapEndsAt: string | null }> {
  const { sealedSecret, earlierSecrets } = subscriptions;
  const secret = mintSecret();
  const subscription = await findSubscription(db, webhookId, now);
  const dataKey = await expectDataKey(encryptionKeys, subscription);
  const isSeen = hasSecret(webhookId, seen ?? subscription.sealedSecret);
  const sealed = await sealSecret(dataKey, webhookId, secret);
  const until = overlapSeconds === 0 ? null : now + overlapSeconds * 1000;
  const signing = sql`FROM json_each(${earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now}`;
  const earlier = sql`json_insert((SELECT json_group_array(json(earlier.value)) ${signing}), '$[#]',
    json_object('sealedSecret', ${sealedSecret}, 'until', ${until}))`;
  const hasRoom = sql`(SELECT count(*) ${signing}) < ${EARLIER_SECRETS_MAX}`;
  const { rotated, found } = await commit(withoutRetries(db), {
    rotated: counted(
      qb
        .update(subscriptions)
        .set({
          sealedSecret: sealed,
          earlierSecrets: until === null ? null : earlier,
          rotatedAt: now,
        })
        .where(and(isSeen, until === null ? undefined : hasRoom)),
    ),
    found: qb.select({ id: subscriptions.id }).from(subscriptions).where(isSeen),
  });
  if (rotated === 0 && found.length === 0) throw changedMeanwhile();
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
 * rotation, because the history recomputes the signatures that they made.
 *
 * The end is tried once, because a second try could end the grace period of a rotation in between.
 *
 * @param seen the encrypted secret that the caller has read. If it has changed since, nothing is changed, because the
 *   caller knows nothing of that rotation.
 * @returns whether any of them still signed.
 * @throws InputError if another call has rotated the secret meanwhile.
 */
export async function endOverlap(
  db: Database,
  webhookId: string,
  seen: string,
  now: number,
): Promise<boolean> {
  const { earlierSecrets } = subscriptions;
  const isSeen = hasSecret(webhookId, seen);
  const until = sql`(SELECT json_group_array(json_set(earlier.value, '$.until', min(earlier.value->>'until', ${now})))
    FROM json_each(${earlierSecrets}) AS earlier)`;
  const isSigning = sql`EXISTS (SELECT 1 FROM json_each(${earlierSecrets}) AS earlier WHERE earlier.value->>'until' > ${now})`;
  const { ended, found } = await commit(withoutRetries(db), {
    ended: counted(
      qb.update(subscriptions).set({ earlierSecrets: until }).where(and(isSeen, isSigning)),
    ),
    found: qb.select({ id: subscriptions.id }).from(subscriptions).where(isSeen),
  });
  if (found.length === 0) throw changedMeanwhile();
  return ended > 0;
}

/** SQL condition: the subscription exists, and has this encrypted secret. */
function hasSecret(webhookId: string, sealedSecret: string): SQL | undefined {
  return and(isSubscription(webhookId), eq(subscriptions.sealedSecret, sealedSecret));
}

function changedMeanwhile(): InputError {
  return new InputError("webhookId", "another call has just rotated its secret, or deleted it", {
    reason: "changed_meanwhile",
  });
}

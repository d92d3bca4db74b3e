import { and, eq, lte, not, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { isoTime } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import {
  counted,
  type Database,
  inOrder,
  prepared,
  readAs,
  type Statements,
} from "../db/client.ts";
import { commitOnce } from "../db/commit-once.ts";
import { earlierSecrets, subscriptions } from "../db/schema.ts";
import { parseEncryptionKeys, seal } from "../encryption/seal.ts";
import { sleep } from "../timing.ts";
import { isThere, unknownWebhook } from "./conditions.ts";
import { IS_FREE, NOBODY } from "./dispatch/lease.ts";
import { mintSecret } from "./signature.ts";

/**
 * How long a rotation waits if a dispatch is posting to the subscription: from then on, every post that
 * starts is signed with the new secret. `CONFIRMED_MS`, plus the longest time between starting a post
 * and sending it.
 */
export const ROTATION_MS = 2_000;

/**
 * Gives a subscription a new secret. The previous one signs alongside it for the overlap, and so do
 * those before it, so another call after a lost answer does no harm. When this returns, every post is
 * signed with the new secret: the receiver may switch.
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
  // The receiver learns of the new secret when this returns: the overlap counts from then.
  const until = overlapSeconds === 0 ? null : now + ROTATION_MS + overlapSeconds * 1000;
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

/** Maximum earlier secrets that sign concurrently for one subscription. */
const EARLIER_SECRETS_MAX = 4;

interface Rotation {
  verdict: "done" | "unknown" | "too_many";
  /** Whether a dispatch leases the subscription, which may have read its secrets before. */
  isLeased: boolean;
}

const leased = prepared(
  qb
    .select({ id: subscriptions.id })
    .from(subscriptions)
    .where(and(eq(subscriptions.id, sql.placeholder("id")), not(IS_FREE))),
);

/** SQL condition: the subscription's secret may be rotated. This is the guard of `rotate`. */
function isRotatable(subscriptionId: string, until: number | null, now: number): SQL {
  const earlier = sql`(SELECT count(*) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptionId} AND ${earlierSecrets.until} > ${now})`;
  return sql`EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${isThere(subscriptionId)})
    AND ${until === null ? sql`true` : sql`${earlier} < ${EARLIER_SECRETS_MAX}`}`;
}

/**
 * Replaces a subscription's secret. The old one signs alongside it until `until`; null ends all
 * earlier secrets immediately. Applied a second time, it could undo a later rotation: see `commitOnce`.
 *
 * @param sealed the new secret; sealed texts are unique.
 * @param until Unix milliseconds.
 */
function rotate(
  subscriptionId: string,
  sealed: string,
  until: number | null,
  now: number,
): Statements<Rotation> {
  const { id, sealedSecret } = subscriptions;
  const isOwn = isThere(subscriptionId);
  const ofSubscription = eq(earlierSecrets.subscriptionId, subscriptionId);
  const isKept = and(ofSubscription, eq(earlierSecrets.sealedSecret, sealedSecret));
  const statements = inOrder([
    qb
      .delete(earlierSecrets)
      .where(and(ofSubscription, until === null ? undefined : lte(earlierSecrets.until, now))),
    until === null
      ? inOrder([])
      : insertFrom(
          earlierSecrets,
          { subscriptionId: id, sealedSecret, until },
          sql`FROM ${subscriptions} WHERE ${isOwn}
              AND (SELECT count(*) FROM ${earlierSecrets} WHERE ${ofSubscription}) < ${EARLIER_SECRETS_MAX}`,
        ),
    qb
      .update(subscriptions)
      // A repeated request to subscribe does not show the new secret.
      .set({ sealedSecret: sealed, idempotencyKey: null })
      .where(
        and(
          isOwn,
          until === null
            ? undefined
            : sql`EXISTS (SELECT 1 FROM ${earlierSecrets} WHERE ${isKept})`,
        ),
      ),
    qb.select({ sealedSecret }).from(subscriptions).where(isOwn),
    leased({ id: subscriptionId, now, ...NOBODY }),
  ]);
  return readAs(statements, ([, , , [row], found]) => {
    const isLeased = found.length > 0;
    if (!row) return { verdict: "unknown", isLeased };
    return { verdict: row.sealedSecret === sealed ? "done" : "too_many", isLeased };
  });
}

/**
 * Ends the overlap of a rotation: only the current secret signs from now on. Touches the subscription,
 * so that a move of its workspace notes it.
 *
 * @throws InputError if there is none.
 */
export function endOverlap(subscriptionId: string): Statements<unknown> {
  const { sealedSecret } = subscriptions;
  const statements = inOrder([
    qb.delete(earlierSecrets).where(eq(earlierSecrets.subscriptionId, subscriptionId)),
    counted(
      qb
        .update(subscriptions)
        .set({ sealedSecret: sql`${sealedSecret}` })
        .where(isThere(subscriptionId)),
    ),
  ]);
  return readAs(statements, ([, found]) => {
    if (found === 0) throw unknownWebhook();
  });
}

/** The assumed result of a rotation whose reply was lost. */
const UNKNOWN_WHETHER_LEASED: Rotation = { verdict: "done", isLeased: true };

import {
  and,
  type Column,
  count,
  eq,
  inArray,
  isNotNull,
  isNull,
  lte,
  type Placeholder,
  type SQL,
  sql,
} from "drizzle-orm";
import { EARLIER_SECRETS_MAX } from "../contract/limits.ts";
import { deleteFrom, insertFrom, select, toTexts, update } from "../db/builder.ts";
import {
  type Database,
  inOrder,
  query,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { earlierSecrets, subscriptions } from "../db/schema.ts";

/** What has become of a rotation. */
export type Rotation = "done" | "unknown" | "too_many";

/** True in SQL for a subscription that is there. */
function isThere(id: string): SQL | undefined {
  return and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt));
}

/** True in SQL where one more secret of a subscription may be replaced: the guard of `rotate`. */
export function isRotatable(subscriptionId: string, until: number | null, now: number): SQL {
  const earlier = sql`(SELECT count(*) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptionId} AND ${earlierSecrets.until} > ${now})`;
  return sql`EXISTS (SELECT 1 FROM ${subscriptions} WHERE ${isThere(subscriptionId)})
    AND ${until === null ? sql`true` : sql`${earlier} < ${EARLIER_SECRETS_MAX}`}`;
}

/**
 * Puts a new secret in place of a subscription's own, which goes on signing beside it until `until`;
 * null ends all earlier ones at once. Applied a second time, it could undo a later one: see `commitOnce`.
 *
 * @param sealed the new secret; no two have the same text.
 * @param until Unix milliseconds.
 */
export function rotate(
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
    deleteFrom(earlierSecrets).where(
      and(ofSubscription, until === null ? undefined : lte(earlierSecrets.until, now)),
    ),
    until === null
      ? inOrder([])
      : insertFrom(
          earlierSecrets,
          { subscriptionId: id, sealedSecret, until },
          sql`FROM ${subscriptions} WHERE ${isOwn}
              AND (SELECT count(*) FROM ${earlierSecrets} WHERE ${ofSubscription}) < ${EARLIER_SECRETS_MAX}`,
        ),
    update(subscriptions)
      .set({ sealedSecret: sealed })
      .where(
        and(
          isOwn,
          until === null
            ? undefined
            : sql`EXISTS (SELECT 1 FROM ${earlierSecrets} WHERE ${isKept})`,
        ),
      ),
    select({ sealedSecret }).from(subscriptions).where(isOwn),
  ]);
  return readAs(statements, ([, , , [row]]) => {
    if (!row) return "unknown";
    return row.sealedSecret === sealed ? "done" : "too_many";
  });
}

/** The secrets that sign beside that of a subscription, as a field of its row. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(${earlierSecrets.sealedSecret}) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptions.id} AND ${earlierSecrets.until} > ${now})`.mapWith(
    toTexts,
  );
}

/** Deletes the earlier secrets of those of the subscriptions that were deleted: they sign no more. */
export function deleteSecretsOfDeleted(condition: SQL | undefined): Statements<number> {
  const { id, deletedAt } = subscriptions;
  const deleted = select({ id })
    .from(subscriptions)
    .where(and(condition, isNotNull(deletedAt)));
  return write(deleteFrom(earlierSecrets).where(inArray(earlierSecrets.subscriptionId, deleted)));
}

/** Deletes the secrets that sign no more. */
export function deleteEndedSecrets(db: Database, now: number) {
  return retrying(() => db.delete(earlierSecrets).where(lte(earlierSecrets.until, now)));
}

/** A subscription's secret as it is stored. */
export interface SealedSecret {
  id: string;
  sealedSecret: string;
}

/** The next `limit` secrets behind `after`, earlier ones too, that are not sealed under the key `keyId`. */
export function listUnderOtherKeys(
  db: Database,
  keyId: string,
  after: SealedSecret,
  limit: number,
): Promise<SealedSecret[]> {
  const under = underOthers(keyId);
  return query(
    db,
    select({ id: under.id, sealedSecret: under.sealedSecret })
      .from(under)
      .where(sql`(${under.id}, ${under.sealedSecret}) > (${after.id}, ${after.sealedSecret})`)
      .orderBy(under.id, under.sealedSecret)
      .limit(limit),
  );
}

/** How many secrets are not sealed under the key `keyId`. */
export function countUnderOtherKeys(keyId: string): Statements<number> {
  const counts = rows(select({ count: count() }).from(underOthers(keyId)));
  return readAs(counts, ([row]) => row?.count ?? 0);
}

function underOthers(keyId: string) {
  const isUnderOther = (sealedSecret: Column) =>
    sql`substr(${sealedSecret}, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
  return select({ id: subscriptions.id, sealedSecret: subscriptions.sealedSecret })
    .from(subscriptions)
    .where(isUnderOther(subscriptions.sealedSecret))
    .unionAll(
      select({ id: earlierSecrets.subscriptionId, sealedSecret: earlierSecrets.sealedSecret })
        .from(earlierSecrets)
        .where(isUnderOther(earlierSecrets.sealedSecret)),
    )
    .as("sealed");
}

/**
 * Puts `sealed` in place of the secret that was read, wherever a rotation has moved it meanwhile; one
 * that is there no more does not come back.
 */
export function updateSecret(
  { id, sealedSecret }: SealedSecret,
  sealed: string,
): Statements<unknown> {
  return inOrder([
    update(subscriptions)
      .set({ sealedSecret: sealed })
      .where(and(eq(subscriptions.id, id), eq(subscriptions.sealedSecret, sealedSecret))),
    update(earlierSecrets)
      .set({ sealedSecret: sealed })
      .where(
        and(eq(earlierSecrets.subscriptionId, id), eq(earlierSecrets.sealedSecret, sealedSecret)),
      ),
  ]);
}

import { lte, type SQL, sql } from "drizzle-orm";
import { EARLIER_SECRETS_MAX } from "../contract/limits.ts";
import {
  type Database,
  inOrder,
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
const isThere = (id: string) => sql`id = ${id} AND deleted_at IS NULL`;

/** True in SQL where one more secret of a subscription may be replaced: the guard of `rotate`. */
export function isRotatable(subscriptionId: string, until: number | null, now: number): SQL {
  const earlier = sql`(SELECT count(*) FROM ${earlierSecrets}
    WHERE subscription_id = ${subscriptionId} AND until > ${now})`;
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
  const ownId = isThere(subscriptionId);
  const statements = inOrder([
    write(sql`DELETE FROM ${earlierSecrets} WHERE subscription_id = ${subscriptionId}
      AND ${until === null ? sql`true` : sql`until <= ${now}`}`),
    until === null
      ? inOrder([])
      : write(sql`INSERT INTO ${earlierSecrets} (subscription_id, sealed_secret, until)
          SELECT id, sealed_secret, ${until} FROM ${subscriptions} WHERE ${ownId}
            AND (SELECT count(*) FROM ${earlierSecrets} WHERE subscription_id = ${subscriptionId}) < ${EARLIER_SECRETS_MAX}`),
    write(sql`UPDATE ${subscriptions} SET sealed_secret = ${sealed} WHERE ${ownId}
      AND ${until === null ? sql`true` : sql`EXISTS (SELECT 1 FROM ${earlierSecrets} AS e WHERE e.subscription_id = id AND e.sealed_secret = ${subscriptions.sealedSecret})`}`),
    rows<{ isDone: 0 | 1 }>(
      sql`SELECT sealed_secret = ${sealed} AS isDone FROM ${subscriptions} WHERE ${ownId}`,
    ),
  ]);
  return readAs(statements, ([, , , [row]]) => {
    if (!row) return "unknown";
    return row.isDone === 1 ? "done" : "too_many";
  });
}

/** The secrets in SQL that sign beside that of the subscription `s`, as a JSON array. */
export function earlierSecretsOf(now: number): SQL {
  return sql`(SELECT json_group_array(e.sealed_secret) FROM ${earlierSecrets} AS e
    WHERE e.subscription_id = s.id AND e.until > ${now})`;
}

/** Deletes the earlier secrets of those of the subscriptions that were deleted: they sign no more. */
export function deleteSecretsOfDeleted(condition: SQL): Statements<unknown> {
  return write(sql`DELETE FROM ${earlierSecrets} WHERE subscription_id IN (
    SELECT id FROM ${subscriptions} WHERE ${condition} AND deleted_at IS NOT NULL)`);
}

/** Deletes the secrets that sign no more. */
export function deleteEndedSecrets(db: Database, now: number) {
  return retrying(() => db.delete(earlierSecrets).where(lte(earlierSecrets.until, now)));
}

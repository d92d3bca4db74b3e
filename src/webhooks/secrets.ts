import {
  and,
  type Column,
  count,
  eq,
  inArray,
  isNotNull,
  isNull,
  lte,
  not,
  type Placeholder,
  type SQL,
  sql,
} from "drizzle-orm";
import { insertFrom, qb, toTexts } from "../db/builder.ts";
import {
  type Database,
  inOrder,
  prepared,
  readAs,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { earlierSecrets, subscriptions, workspaces } from "../db/schema.ts";
import { isWritable } from "../workspaces/moves.ts";
import { IS_FREE, NOBODY } from "./dispatch/lease.ts";

/** Maximum earlier secrets that sign concurrently for one subscription. */
const EARLIER_SECRETS_MAX = 4;

/** The result of a rotation. */
export interface Rotation {
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

/** SQL condition: the subscription exists. */
function isThere(id: string): SQL | undefined {
  return and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt));
}

/** SQL condition: the subscription's secret may be rotated. This is the guard of `rotate`. */
export function isRotatable(subscriptionId: string, until: number | null, now: number): SQL {
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
      .set({ sealedSecret: sealed })
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

/** A subscription's earlier secrets that still sign, as a field of its row. */
export function earlierSecretsAt(now: number | Placeholder): SQL<string[]> {
  return sql`(SELECT json_group_array(${earlierSecrets.sealedSecret}) FROM ${earlierSecrets}
    WHERE ${earlierSecrets.subscriptionId} = ${subscriptions.id} AND ${earlierSecrets.until} > ${now})`.mapWith(
    toTexts,
  );
}

/** Deletes the earlier secrets of the deleted subscriptions that match. */
export function deleteSecretsOfDeleted(condition: SQL | undefined): Statements<unknown> {
  const { id, deletedAt } = subscriptions;
  const deleted = qb
    .select({ id })
    .from(subscriptions)
    .where(and(condition, isNotNull(deletedAt)));
  return write(qb.delete(earlierSecrets).where(inArray(earlierSecrets.subscriptionId, deleted)));
}

/** Deletes earlier secrets that no longer sign. */
export async function deleteEndedSecrets(db: Database, now: number) {
  return db.delete(earlierSecrets).where(lte(earlierSecrets.until, now));
}

/** A subscription's secret or a workspace's data key, as stored. */
export interface SealedSecret {
  /** The id of the subscription or the workspace. */
  id: string;
  sealedSecret: string;
}

/**
 * The next `limit` secrets after `after`, earlier ones included, that are sealed under a key other
 * than `keyId`.
 */
export async function listUnderOtherKeys(
  db: Database,
  keyId: string,
  after: SealedSecret,
  limit: number,
): Promise<SealedSecret[]> {
  const under = underOthers(keyId);
  return db
    .select({ id: under.id, sealedSecret: under.sealedSecret })
    .from(under)
    .where(sql`(${under.id}, ${under.sealedSecret}) > (${after.id}, ${after.sealedSecret})`)
    .orderBy(under.id, under.sealedSecret)
    .limit(limit);
}

/** How many secrets are sealed under a key other than `keyId`. */
export function countUnderOtherKeys(keyId: string): Statements<number> {
  const counts = rows(qb.select({ count: count() }).from(underOthers(keyId)));
  return readAs(counts, ([row]) => row?.count ?? 0);
}

function underOthers(keyId: string) {
  const isUnderOther = (sealedSecret: Column) =>
    sql`substr(${sealedSecret}, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
  // Those of a workspace that changes its database are sealed anew where it lives.
  const isHere = isWritable(subscriptions.workspaceId);
  return qb
    .select({ id: subscriptions.id, sealedSecret: subscriptions.sealedSecret })
    .from(subscriptions)
    .where(and(isUnderOther(subscriptions.sealedSecret), isHere))
    .unionAll(
      qb
        .select({ id: workspaces.id, sealedSecret: sql<string>`${workspaces.dataKey}` })
        .from(workspaces)
        .where(and(isUnderOther(workspaces.dataKey), isWritable(workspaces.id))),
    )
    .unionAll(
      qb
        .select({ id: earlierSecrets.subscriptionId, sealedSecret: earlierSecrets.sealedSecret })
        .from(earlierSecrets)
        .innerJoin(subscriptions, eq(subscriptions.id, earlierSecrets.subscriptionId))
        .where(and(isUnderOther(earlierSecrets.sealedSecret), isHere)),
    )
    .as("sealed");
}

/**
 * Replaces a sealed secret with `sealed`, even if a rotation has moved it in the meantime. A secret
 * that has been deleted does not come back.
 */
export function updateSecret(
  { id, sealedSecret }: SealedSecret,
  sealed: string,
): Statements<unknown> {
  return inOrder([
    // Also for an earlier one: while the workspace moves, that is what tells of it.
    qb
      .update(subscriptions)
      .set({
        sealedSecret: sql`CASE ${subscriptions.sealedSecret} WHEN ${sealedSecret} THEN ${sealed}
          ELSE ${subscriptions.sealedSecret} END`,
      })
      .where(eq(subscriptions.id, id)),
    qb
      .update(workspaces)
      .set({ dataKey: sealed })
      .where(and(eq(workspaces.id, id), eq(workspaces.dataKey, sealedSecret))),
    qb
      .update(earlierSecrets)
      .set({ sealedSecret: sealed })
      .where(
        and(eq(earlierSecrets.subscriptionId, id), eq(earlierSecrets.sealedSecret, sealedSecret)),
      ),
  ]);
}

import { and, eq, gt, isNull, type SQL, sql } from "drizzle-orm";
import { SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import type { Webhook } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import {
  type Database,
  inOrder,
  prepared,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { subscriptions } from "../db/schema.ts";
import { cancelWithdrawn, WITHDRAWN } from "./deliveries.ts";
import { type PageRequest, pageOrder, pageValues, toPage } from "./page.ts";

type SubscriptionRow = typeof subscriptions.$inferSelect;
/** What is shown of a row, as SQL gives it. */
type StoredSubscription = Pick<SubscriptionRow, "id" | "url" | "createdAt" | "disabledAt"> & {
  events: string;
};

export const WEBHOOKS_LIST = "webhooks";

const readPage = prepared<StoredSubscription>(sql`
  SELECT id, url, events, created_at AS createdAt, disabled_at AS disabledAt
  FROM subscriptions
  WHERE workspace_id = ${sql.placeholder("workspaceId")} AND deleted_at IS NULL ${pageOrder("created_at")}`);

/** One page of the workspace's subscriptions, newest first. */
export async function listSubscriptions(db: Database, workspaceId: string, request: PageRequest) {
  const values = { workspaceId, ...pageValues(request) };
  const found = await retrying(() => readPage(db, values));
  const position = (row: StoredSubscription) => ({ at: row.createdAt, id: row.id });
  const toItem = (row: StoredSubscription) => toWebhook({ ...row, events: JSON.parse(row.events) });
  return toPage(WEBHOOKS_LIST, found, request.limit, position, toItem);
}

/** Inserts a subscription, unless the workspace has as many as it may; gives whether it is there. */
export function insertSubscription(
  row: Pick<
    SubscriptionRow,
    "id" | "workspaceId" | "url" | "events" | "sealedSecret" | "createdAt"
  >,
): Statements<boolean> {
  const inserted = inOrder([
    write(sql`
      INSERT INTO ${subscriptions} (id, workspace_id, url, events, sealed_secret, created_at)
      SELECT ${row.id}, ${row.workspaceId}, ${row.url}, ${JSON.stringify(row.events)}, ${row.sealedSecret}, ${row.createdAt}
      WHERE (SELECT count(*) FROM ${subscriptions}
        WHERE workspace_id = ${row.workspaceId} AND deleted_at IS NULL) < ${SUBSCRIPTIONS_MAX}
      ON CONFLICT (id) DO NOTHING`),
    rows<{ id: string }>(sql`SELECT id FROM ${subscriptions} WHERE id = ${row.id}`),
  ]);
  return readAs(inserted, ([, found]) => found.length > 0);
}

/**
 * Deletes a subscription of the workspace and withdraws what it was still owed; gives whether there
 * was one, and whether some of that is left to be cancelled.
 */
export function deleteSubscription(
  workspaceId: string,
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  const statements = inOrder([
    write(sql`UPDATE ${subscriptions} SET deleted_at = ${now}, ${WITHDRAWN}
      WHERE id = ${id} AND workspace_id = ${workspaceId} AND deleted_at IS NULL`),
    cancelWithdrawn(sql`SELECT ${id}`, now),
    rows<{ id: string }>(sql`SELECT id FROM ${subscriptions} WHERE id = ${id}`),
  ]);
  return readAs(statements, ([changes, , left]) => ({ found: changes > 0, left: left.length > 0 }));
}

/** Withdraws what the subscriptions of a workspace are owed; gives those of which some is left to be cancelled. */
export function withdrawWorkspace(workspaceId: string, now: number): Statements<string[]> {
  const statements = inOrder([
    write(sql`UPDATE ${subscriptions} SET ${WITHDRAWN}
      WHERE workspace_id = ${workspaceId} AND deleted_at IS NULL`),
    cancelWithdrawn(
      sql`SELECT own.id FROM ${subscriptions} AS own WHERE own.workspace_id = ${workspaceId}`,
      now,
    ),
    rows<{ id: string }>(sql`SELECT id FROM ${subscriptions}
      WHERE workspace_id = ${workspaceId} AND cancelling`),
  ]);
  return readAs(statements, ([, , left]) => left.map(({ id }) => id));
}

/** Makes a disabled subscription active and healthy again; gives its row, if there is one. */
export function enableSubscription(db: Database, id: string) {
  return retrying(() =>
    db
      .update(subscriptions)
      .set({
        disabledAt: null,
        failingSince: null,
        failures: 0,
        postsAtOnce: 1,
        backoff: 0,
        nextAt: 0,
        slow: false,
      })
      .where(and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt)))
      .returning({ id: subscriptions.id }),
  );
}

/** The public shape, without the secret. */
export function toWebhook(
  row: Pick<SubscriptionRow, "id" | "url" | "events" | "createdAt" | "disabledAt">,
): Webhook {
  return {
    id: row.id,
    url: row.url,
    events: row.events,
    created_at: isoTime(row.createdAt),
    disabled_at: row.disabledAt === null ? null : isoTime(row.disabledAt),
  };
}

/** A subscription's secret as it is stored. */
export interface SealedSecret {
  id: string;
  sealedSecret: string;
}

/** The next `limit` secrets behind the subscription `after` that are not sealed under the key `keyId`. */
export function secretsUnderOtherKeys(
  db: Database,
  keyId: string,
  after: string,
  limit: number,
): Promise<SealedSecret[]> {
  return retrying(() =>
    db
      .select({ id: subscriptions.id, sealedSecret: subscriptions.sealedSecret })
      .from(subscriptions)
      .where(and(gt(subscriptions.id, after), isUnderOther(keyId)))
      .orderBy(subscriptions.id)
      .limit(limit),
  );
}

/** How many secrets are not sealed under the key `keyId`. */
export function countUnderOtherKeys(keyId: string): Statements<number> {
  const counts = rows<{ count: number }>(
    sql`SELECT count(*) AS count FROM ${subscriptions} WHERE ${isUnderOther(keyId)}`,
  );
  return readAs(counts, ([row]) => row?.count ?? 0);
}

function isUnderOther(keyId: string): SQL {
  return sql`substr(${subscriptions.sealedSecret}, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
}

/** Puts `sealed` in place of the secret that was read, unless it has changed since. */
export function replaceSecret(
  { id, sealedSecret }: SealedSecret,
  sealed: string,
): Statements<number> {
  return write(sql`UPDATE ${subscriptions} SET sealed_secret = ${sealed}
    WHERE id = ${id} AND sealed_secret = ${sealedSecret}`);
}

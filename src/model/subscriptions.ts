import { and, eq, isNull, type SQL, sql } from "drizzle-orm";
import { SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { type Lane, laneOf } from "../contract/pace.ts";
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
import { earlierSecrets, subscriptions, workspaces } from "../db/schema.ts";
import { cancelWithdrawn, IS_OWED, WITHDRAWN } from "./deliveries.ts";
import { unknownWebhook } from "./health.ts";
import { type PageRequest, pageOrder, pageValues, toPage } from "./page.ts";
import { deleteSecretsOfDeleted, earlierSecretsOf } from "./secrets.ts";

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

/**
 * Inserts a subscription, unless the workspace has as many as it may; gives whether it is there, and
 * how many the workspace may have.
 */
export function insertSubscription(
  row: Pick<
    SubscriptionRow,
    "id" | "workspaceId" | "url" | "events" | "sealedSecret" | "createdAt"
  >,
): Statements<{ isThere: boolean; max: number }> {
  const max = sql`(SELECT coalesce(webhooks_max, ${SUBSCRIPTIONS_MAX}) FROM ${workspaces}
    WHERE id = ${row.workspaceId})`;
  const inserted = inOrder([
    write(sql`
      INSERT INTO ${subscriptions} (id, workspace_id, url, events, sealed_secret, created_at)
      SELECT ${row.id}, ${row.workspaceId}, ${row.url}, ${JSON.stringify(row.events)}, ${row.sealedSecret}, ${row.createdAt}
      WHERE (SELECT count(*) FROM ${subscriptions}
        WHERE workspace_id = ${row.workspaceId} AND deleted_at IS NULL) < ${max}
      ON CONFLICT (id) DO NOTHING`),
    rows<{ isThere: 0 | 1; max: number | null }>(sql`
      SELECT EXISTS (SELECT 1 FROM ${subscriptions} WHERE id = ${row.id}) AS isThere, ${max} AS max`),
  ]);
  return readAs(inserted, ([, [found]]) => ({
    isThere: found?.isThere === 1,
    max: found?.max ?? SUBSCRIPTIONS_MAX,
  }));
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
  return deletion(sql`id = ${id} AND workspace_id = ${workspaceId}`, id, now);
}

/** The same of a subscription of whichever workspace. */
export function deleteAnySubscription(
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  return deletion(sql`id = ${id}`, id, now);
}

/**
 * Disables a subscription and withdraws what it was still owed; gives whether there is one, and
 * whether some of that is left to be cancelled.
 */
export function disableSubscription(
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  const statements = inOrder([
    write(sql`UPDATE ${subscriptions} SET disabled_at = ${now}, ${WITHDRAWN}
      WHERE id = ${id} AND disabled_at IS NULL AND deleted_at IS NULL`),
    cancelWithdrawn(sql`SELECT ${id}`, now),
    rows<{ cancelling: 0 | 1 }>(
      sql`SELECT cancelling FROM ${subscriptions} WHERE id = ${id} AND deleted_at IS NULL`,
    ),
  ]);
  return readAs(statements, ([, , [row]]) => ({ found: !!row, left: row?.cancelling === 1 }));
}

function deletion(
  condition: SQL,
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  const statements = inOrder([
    write(sql`UPDATE ${subscriptions} SET deleted_at = ${now}, ${WITHDRAWN}
      WHERE ${condition} AND deleted_at IS NULL`),
    // Before the row goes, by which they are found.
    deleteSecretsOfDeleted(condition),
    cancelWithdrawn(sql`SELECT ${id}`, now),
    rows<{ id: string }>(sql`SELECT id FROM ${subscriptions} WHERE id = ${id}`),
  ]);
  return readAs(statements, ([changes, , , left]) => ({
    found: changes > 0,
    left: left.length > 0,
  }));
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

/** A subscription as the Platform door needs to know it. */
export interface KnownSubscription {
  id: string;
  workspaceId: string;
  url: string;
  sealedSecret: string;
  /** Secrets that were replaced and still sign, sealed. */
  earlierSecrets: string[];
  /** Whether events are owed to it: it is neither disabled nor without access. */
  isOwed: boolean;
  lane: Lane;
}

/** The subscription of this id. @throws InputError when there is none, or it was deleted. */
export async function findSubscription(
  db: Database,
  id: string,
  now: number,
): Promise<KnownSubscription> {
  interface Row extends Pick<KnownSubscription, "workspaceId" | "url" | "sealedSecret"> {
    earlierSecrets: string;
    owed: 0 | 1;
    slow: 0 | 1;
    backoff: number;
  }
  const [row] = await retrying(() =>
    db.all<Row>(sql`
    SELECT s.workspace_id AS workspaceId, s.url AS url, s.sealed_secret AS sealedSecret,
      ${earlierSecretsOf(now)} AS earlierSecrets, ${IS_OWED} AS owed, s.slow AS slow, s.backoff AS backoff
    FROM ${subscriptions} AS s WHERE s.id = ${id} AND s.deleted_at IS NULL`),
  );
  if (!row) throw unknownWebhook();
  const { workspaceId, url, sealedSecret, owed, slow, backoff } = row;
  const lane = laneOf({ slow: slow === 1, backoff });
  const earlier: string[] = JSON.parse(row.earlierSecrets);
  return { id, workspaceId, url, sealedSecret, earlierSecrets: earlier, isOwed: owed === 1, lane };
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

/** The next `limit` secrets behind `after`, earlier ones too, that are not sealed under the key `keyId`. */
export function secretsUnderOtherKeys(
  db: Database,
  keyId: string,
  after: SealedSecret,
  limit: number,
): Promise<SealedSecret[]> {
  return retrying(() =>
    db.all<SealedSecret>(sql`SELECT id, sealed_secret AS sealedSecret ${underOthers(keyId)}
      AND (id, sealed_secret) > (${after.id}, ${after.sealedSecret})
    ORDER BY id, sealed_secret LIMIT ${limit}`),
  );
}

/** How many secrets are not sealed under the key `keyId`. */
export function countUnderOtherKeys(keyId: string): Statements<number> {
  const counts = rows<{ count: number }>(sql`SELECT count(*) AS count ${underOthers(keyId)}`);
  return readAs(counts, ([row]) => row?.count ?? 0);
}

function underOthers(keyId: string): SQL {
  return sql`FROM (SELECT id, sealed_secret FROM ${subscriptions}
      UNION ALL SELECT subscription_id, sealed_secret FROM ${earlierSecrets})
    WHERE substr(sealed_secret, 1, ${keyId.length + 1}) <> ${`${keyId}.`}`;
}

/**
 * Puts `sealed` in place of the secret that was read, wherever a rotation has moved it meanwhile; one
 * that is there no more does not come back.
 */
export function replaceSecret(
  { id, sealedSecret }: SealedSecret,
  sealed: string,
): Statements<unknown> {
  return inOrder([
    write(sql`UPDATE ${subscriptions} SET sealed_secret = ${sealed}
      WHERE id = ${id} AND sealed_secret = ${sealedSecret}`),
    write(sql`UPDATE ${earlierSecrets} SET sealed_secret = ${sealed}
      WHERE subscription_id = ${id} AND sealed_secret = ${sealedSecret}`),
  ]);
}

import { and, eq, gt, lte, type SQL, sql } from "drizzle-orm";
import { SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { type Executable, readAs, type Statements, transaction } from "../db/client.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { WEBHOOKS_MAX } from "../workspaces/workspaces.ts";

const CREATED = {
  id: subscriptions.id,
  workspaceId: subscriptions.workspaceId,
  url: subscriptions.url,
  events: subscriptions.events,
  sealedSecret: subscriptions.sealedSecret,
  createdAt: subscriptions.createdAt,
};

/** A subscription as it is created. */
export type NewSubscription = Pick<typeof subscriptions.$inferSelect, keyof typeof CREATED>;

/** The request that creates one: its `Idempotency-Key` and its API key, if it has them. */
export interface CreationRequest {
  idempotencyKey?: string | null;
  keyId?: string | null;
}

/** The subscription that a request with this `Idempotency-Key` created within a day. */
export function findCreated(
  workspaceId: string,
  idempotencyKey: string,
  now: number,
): Statements<NewSubscription | undefined> {
  return created(
    and(
      eq(subscriptions.workspaceId, workspaceId),
      eq(subscriptions.idempotencyKey, idempotencyKey),
      gt(subscriptions.createdAt, now - DAY_MS),
    ),
  );
}

/** Forgets an `Idempotency-Key` that is a day old, so that it can be used again. */
function releaseIdempotencyKey(
  workspaceId: string,
  idempotencyKey: string,
  now: number,
): Executable {
  return qb
    .update(subscriptions)
    .set({ idempotencyKey: null })
    .where(
      and(
        eq(subscriptions.workspaceId, workspaceId),
        eq(subscriptions.idempotencyKey, idempotencyKey),
        lte(subscriptions.createdAt, now - DAY_MS),
      ),
    );
}

function created(condition: SQL | undefined): Statements<NewSubscription | undefined> {
  return readAs(qb.select(CREATED).from(subscriptions).where(condition), ([one]) => one);
}

/**
 * Inserts a subscription, unless the workspace is at its limit or has one with the same
 * `Idempotency-Key`. Reads the one that is stored now, if any, and that limit.
 */
export function insertSubscription(
  row: NewSubscription,
  { idempotencyKey = null, keyId = null }: CreationRequest = {},
): Statements<{ stored: NewSubscription | undefined; max: number }> {
  const { id, workspaceId, deletedAt } = subscriptions;
  const isWorkspace = eq(workspaces.id, row.workspaceId);
  const [forget, find] =
    idempotencyKey === null
      ? [undefined, created(eq(id, row.id))]
      : [
          releaseIdempotencyKey(row.workspaceId, idempotencyKey, row.createdAt),
          findCreated(row.workspaceId, idempotencyKey, row.createdAt),
        ];
  const statements = transaction({
    forgotten: forget,
    inserted: insertFrom(
      subscriptions,
      { ...row, idempotencyKey, keyId },
      sql`FROM ${workspaces}
          WHERE ${isWorkspace} AND (SELECT count(*) FROM ${subscriptions}
            WHERE ${workspaceId} = ${row.workspaceId} AND ${deletedAt} IS NULL) < ${WEBHOOKS_MAX}
          ON CONFLICT DO NOTHING`,
    ),
    stored: find,
    workspace: qb.select({ max: WEBHOOKS_MAX }).from(workspaces).where(isWorkspace),
  });
  return readAs(statements, ({ stored, workspace: [found] }) => ({
    stored,
    max: found?.max ?? SUBSCRIPTIONS_MAX,
  }));
}

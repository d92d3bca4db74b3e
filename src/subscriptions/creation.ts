import { and, eq, gt, isNull, not, type SQL, sql } from "drizzle-orm";
import { SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { DAY_MS } from "../contract/time.ts";
import { insertFrom, qb } from "../db/builder.ts";
import { combine, type Part, readAs, type Statements } from "../db/client.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { WEBHOOKS_MAX } from "../workspaces/workspaces.ts";

/** The columns that the creation of a subscription writes. */
const CREATED_COLUMNS = {
  id: subscriptions.id,
  workspaceId: subscriptions.workspaceId,
  url: subscriptions.url,
  events: subscriptions.events,
  sealedSecret: subscriptions.sealedSecret,
  createdAt: subscriptions.createdAt,
};

type Row = typeof subscriptions.$inferSelect;

/** A subscription as it is created. */
export type NewSubscription = Pick<Row, keyof typeof CREATED_COLUMNS> &
  Partial<Pick<Row, "description" | "headerNames" | "sealedHeaders">>;

/** The fields that tell a request from another one with the same `Idempotency-Key`; values of headers do not. */
export function requestedFields(row: Omit<NewSubscription, "sealedSecret" | "createdAt">) {
  const { url, events, description, headerNames = [] } = row;
  return {
    url,
    events,
    ...(description && { description }),
    ...(headerNames.length > 0 && { headerNames }),
  };
}

/** A created subscription, with the fields that were requested; null without an `Idempotency-Key`. */
export type CreatedSubscription = Pick<Row, keyof typeof CREATED_COLUMNS | "requested">;

/** The request that creates a subscription. */
export interface CreationRequest {
  /** Its `Idempotency-Key`, if it has one. */
  idempotencyKey?: string | null;
  /** Its API key; null for a session of the portal. */
  keyId?: string | null;
}

/**
 * Returns the stored form of an `Idempotency-Key`, which includes the API key. Without it, a client could repeat
 * the request of another one and be shown the secret of its subscription.
 */
function scopedKey({ idempotencyKey, keyId }: CreationRequest): string | null {
  return idempotencyKey == null ? null : `${keyId ?? "portal"} ${idempotencyKey}`;
}

/**
 * Reads the subscription that the same API key created with this `Idempotency-Key`, if that request may be repeated
 * (`isRepeatable`).
 */
export function selectCreated(
  workspaceId: string,
  request: CreationRequest & { idempotencyKey: string },
  now: number,
): Statements<CreatedSubscription | undefined> {
  return selectByKey(workspaceId, scopedKey(request) as string, now);
}

function selectByKey(workspaceId: string, scoped: string, now: number) {
  return created(
    and(
      eq(subscriptions.workspaceId, workspaceId),
      eq(subscriptions.idempotencyKey, scoped),
      isRepeatable(now),
    ),
  );
}

/**
 * SQL condition: the request that created the subscription may be repeated, and is then shown the secret. It is less
 * than a day old, and the subscription still exists and has its first secret. The key stays stored otherwise, because a
 * restored database would have it back.
 */
function isRepeatable(now: number): SQL {
  const { createdAt, rotatedAt, deletedAt } = subscriptions;
  return and(gt(createdAt, now - DAY_MS), isNull(rotatedAt), isNull(deletedAt)) as SQL;
}

/** Clears an `Idempotency-Key` whose request cannot be repeated any more, so that it can be used again. */
function releaseIdempotencyKey(workspaceId: string, idempotencyKey: string, now: number): Part {
  return qb
    .update(subscriptions)
    .set({ idempotencyKey: null })
    .where(
      and(
        eq(subscriptions.workspaceId, workspaceId),
        eq(subscriptions.idempotencyKey, idempotencyKey),
        not(isRepeatable(now)),
      ),
    );
}

function created(condition: SQL | undefined): Statements<CreatedSubscription | undefined> {
  const columns = { ...CREATED_COLUMNS, requested: subscriptions.requested };
  return readAs(qb.select(columns).from(subscriptions).where(condition), ([one]) => one);
}

/**
 * Inserts a subscription, unless the workspace is at its limit or has one with the same `Idempotency-Key`. Reads
 * the subscription that is stored now, if any, and the limit.
 */
export function insertSubscription(
  row: NewSubscription,
  request: CreationRequest = {},
): Statements<{ stored: CreatedSubscription | undefined; max: number }> {
  const { id, workspaceId, deletedAt } = subscriptions;
  const idempotencyKey = scopedKey(request);
  const requested = idempotencyKey === null ? null : requestedFields(row);
  const isWorkspace = eq(workspaces.id, row.workspaceId);
  const [forget, find] =
    idempotencyKey === null
      ? [undefined, created(eq(id, row.id))]
      : [
          releaseIdempotencyKey(row.workspaceId, idempotencyKey, row.createdAt),
          selectByKey(row.workspaceId, idempotencyKey, row.createdAt),
        ];
  const statements = combine({
    forgotten: forget,
    inserted: insertFrom(
      subscriptions,
      { ...row, idempotencyKey, requested, keyId: request.keyId ?? null },
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

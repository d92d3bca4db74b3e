import { and, eq, isNull, sql } from "drizzle-orm";
import { API_KEYS_LIST } from "../contract/cursor.ts";
import { STANDING_MAX_AGE_MS } from "../contract/limits.ts";
import type { Page } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import {
  commit,
  type Database,
  inOrder,
  prepared,
  readAs,
  retrying,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { apiKeys, workspaces } from "../db/schema.ts";
import { type PageRequest, pageOrder, pageValues, toPage } from "./page.ts";

/** Inserts an API key, known by its hash only. */
export function insertApiKey(db: Database, key: typeof apiKeys.$inferInsert) {
  return retrying(() => db.insert(apiKeys).values(key).onConflictDoNothing());
}

/** A key as those see it who tell its gate of a change. */
export interface GatedKey {
  keyHash: string;
  /** Null for a key that was never used: it has no gate, and must not get one before its first use. */
  lastUsedAt: number | null;
}

const GATED_KEY = { keyHash: apiKeys.keyHash, lastUsedAt: apiKeys.lastUsedAt };

/** Revokes a key for good and gives it; nothing when there is no such key. */
export function revokeKey(
  db: Database,
  key: { id: string } | { keyHash: string },
  now: number,
): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .update(apiKeys)
      .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${now})` })
      .where("id" in key ? eq(apiKeys.id, key.id) : eq(apiKeys.keyHash, key.keyHash))
      .returning(GATED_KEY),
  );
}

/** Gives a key another quota, null for the deployment's; nothing when there is no such key, or it is revoked. */
export function updateQuota(
  db: Database,
  id: string,
  requestsPerWindow: number | null,
): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .update(apiKeys)
      .set({ requestsPerWindow })
      .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)))
      .returning(GATED_KEY),
  );
}

/** A workspace's keys that are not revoked. */
export function liveKeys(db: Database, workspaceId: string): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .select(GATED_KEY)
      .from(apiKeys)
      .where(and(eq(apiKeys.workspaceId, workspaceId), isNull(apiKeys.revokedAt))),
  );
}

/** A key as the platform sees it. */
interface ApiKeyEntry {
  keyId: string;
  createdAt: string;
  /** The last use lies in the hour that begins then; null for a key that was never used. */
  lastUsedAt: string | null;
  /** Null for the deployment's quota. */
  requestsPerWindow: number | null;
  revokedAt: string | null;
}

/** A key as it is stored; times are Unix milliseconds. */
export type StoredKey = Pick<
  typeof apiKeys.$inferSelect,
  "id" | "keyHash" | "createdAt" | "lastUsedAt" | "requestsPerWindow" | "revokedAt"
>;

const readPage = prepared<StoredKey>(sql`
  SELECT id, key_hash AS keyHash, created_at AS createdAt, last_used_at AS lastUsedAt,
    requests_per_window AS requestsPerWindow, revoked_at AS revokedAt
  FROM api_keys WHERE workspace_id = ${sql.placeholder("workspaceId")} ${pageOrder("created_at")}`);

/** One page of a workspace's keys, newest first, revoked ones included. */
export async function listStoredKeys(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<StoredKey>> {
  const found = await retrying(() => readPage(db, { workspaceId, ...pageValues(request) }));
  const position = (row: StoredKey) => ({ at: row.createdAt, id: row.id });
  return toPage(API_KEYS_LIST, found, request.limit, position, (row) => row);
}

/** The same, as the platform sees them. */
export async function listApiKeys(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<ApiKeyEntry>> {
  const page = await listStoredKeys(db, workspaceId, request);
  return {
    ...page,
    data: page.data.map((row) => ({
      keyId: row.id,
      createdAt: isoTime(row.createdAt),
      lastUsedAt: row.lastUsedAt === null ? null : isoTime(row.lastUsedAt),
      requestsPerWindow: row.requestsPerWindow,
      revokedAt: row.revokedAt === null ? null : isoTime(row.revokedAt),
    })),
  };
}

/** What a gate must know of a key. */
export interface Standing {
  keyId: string;
  workspaceId: string;
  accessGranted: boolean;
  /** The key's own quota; null for the deployment's. */
  requestsPerWindow: number | null;
  lastUsedAt: number | null;
}

/** The standing of a key; `null` when it is unknown or revoked. */
export function findStanding(db: Database, keyHash: string): Promise<Standing | null> {
  return commit(db, standingOf(keyHash));
}

/**
 * The standing of a key that is being used, and that it is: in one transaction, so that whoever changes
 * the key or its workspace either comes first, and is seen here, or finds the key used, and tells its
 * gate.
 */
export async function useKey(db: Database, keyHash: string, now: number): Promise<Standing | null> {
  const noted = write(sql`
    UPDATE ${apiKeys} SET last_used_at = ${now}
    WHERE key_hash = ${keyHash} AND revoked_at IS NULL
      AND coalesce(last_used_at, 0) < ${now - STANDING_MAX_AGE_MS}`);
  const [, standing] = await commit(db, inOrder([noted, standingOf(keyHash)]));
  return standing;
}

function standingOf(keyHash: string): Statements<Standing | null> {
  const found = rows<Omit<Standing, "accessGranted"> & { accessGranted: number }>(sql`
    SELECT k.id AS keyId, w.id AS workspaceId, w.access_granted AS accessGranted,
      k.requests_per_window AS requestsPerWindow, k.last_used_at AS lastUsedAt
    FROM ${apiKeys} AS k JOIN ${workspaces} AS w ON w.id = k.workspace_id
    WHERE k.key_hash = ${keyHash} AND k.revoked_at IS NULL`);
  return readAs(found, ([row]) =>
    row ? { ...row, accessGranted: row.accessGranted === 1 } : null,
  );
}

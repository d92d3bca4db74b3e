import { and, eq, type SQL, sql } from "drizzle-orm";
import { API_KEYS_LIST } from "../contract/cursor.ts";
import { InputError } from "../contract/input-error.ts";
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
import { isoTimeOrNull } from "./health.ts";
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

/**
 * Replaces a live key that has no end yet by a new one of the same workspace and quota.
 *
 * @param endsAt when the old key is refused, Unix milliseconds; revoked at once unless later than `now`.
 * @returns the old key, whose gate must be told; or why it cannot be rolled.
 */
export function rollKey(
  oldId: string,
  { id, keyHash }: { id: string; keyHash: string },
  endsAt: number,
  now: number,
): Statements<GatedKey> {
  const ended = endsAt > now ? sql`expires_at = ${endsAt}` : sql`revoked_at = ${now}`;
  // Until it has been done: a second try changes nothing.
  const isRollable = sql`id = ${oldId} AND revoked_at IS NULL AND expires_at IS NULL`;
  interface Rolled extends GatedKey {
    revokedAt: number | null;
    isDone: 0 | 1;
  }
  const statements = inOrder([
    write(sql`
      INSERT INTO ${apiKeys} (id, workspace_id, key_hash, requests_per_window, created_at)
      SELECT ${id}, workspace_id, ${keyHash}, requests_per_window, ${now}
      FROM ${apiKeys} WHERE ${isRollable}`),
    write(sql`UPDATE ${apiKeys} SET ${ended} WHERE ${isRollable}`),
    rows<Rolled>(sql`
      SELECT key_hash AS keyHash, last_used_at AS lastUsedAt, revoked_at AS revokedAt,
        EXISTS (SELECT 1 FROM ${apiKeys} WHERE id = ${id}) AS isDone
      FROM ${apiKeys} WHERE id = ${oldId}`),
  ]);
  return readAs(statements, ([, , [old]]) => {
    if (!old) throw new InputError("keyId: no such key");
    if (old.isDone) return { keyHash: old.keyHash, lastUsedAt: old.lastUsedAt };
    throw new InputError(
      old.revokedAt === null
        ? "keyId: this key was rolled before; listApiKeys shows when it expires, and the new key"
        : "keyId: this key is revoked",
    );
  });
}

/** True in SQL for a key that is neither revoked nor expired. */
export function isLive(now: number): SQL {
  return sql`revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${now})`;
}

/** Gives a live key another quota, null for the deployment's; nothing when there is no such key. */
export function updateQuota(
  db: Database,
  id: string,
  requestsPerWindow: number | null,
  now: number,
): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .update(apiKeys)
      .set({ requestsPerWindow })
      .where(and(eq(apiKeys.id, id), isLive(now)))
      .returning(GATED_KEY),
  );
}

/** A workspace's live keys. */
export function liveKeys(db: Database, workspaceId: string, now: number): Promise<GatedKey[]> {
  return retrying(() =>
    db
      .select(GATED_KEY)
      .from(apiKeys)
      .where(and(eq(apiKeys.workspaceId, workspaceId), isLive(now))),
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
  /** When a key that was rolled is refused; null for a key without an end. */
  expiresAt: string | null;
}

/** A key as it is stored; times are Unix milliseconds. */
export type StoredKey = Pick<
  typeof apiKeys.$inferSelect,
  "id" | "keyHash" | "createdAt" | "lastUsedAt" | "requestsPerWindow" | "revokedAt" | "expiresAt"
>;

const readPage = prepared<StoredKey>(sql`
  SELECT id, key_hash AS keyHash, created_at AS createdAt, last_used_at AS lastUsedAt,
    requests_per_window AS requestsPerWindow, revoked_at AS revokedAt, expires_at AS expiresAt
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
      lastUsedAt: isoTimeOrNull(row.lastUsedAt),
      requestsPerWindow: row.requestsPerWindow,
      revokedAt: isoTimeOrNull(row.revokedAt),
      expiresAt: isoTimeOrNull(row.expiresAt),
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
  /** From then on the key is refused, Unix milliseconds; null for a key without an end. */
  expiresAt: number | null;
}

/** The standing of a key at `now`; `null` when it is unknown, revoked or expired. */
export function findStanding(db: Database, keyHash: string, now: number): Promise<Standing | null> {
  return commit(db, standingOf(keyHash, now));
}

/**
 * The standing of a key that is being used, and that it is: in one transaction, so that whoever changes
 * the key or its workspace either comes first, and is seen here, or finds the key used, and tells its
 * gate.
 */
export async function useKey(db: Database, keyHash: string, now: number): Promise<Standing | null> {
  const noted = write(sql`
    UPDATE ${apiKeys} SET last_used_at = ${now}
    WHERE key_hash = ${keyHash} AND ${isLive(now)}
      AND coalesce(last_used_at, 0) < ${now - STANDING_MAX_AGE_MS}`);
  const [, standing] = await commit(db, inOrder([noted, standingOf(keyHash, now)]));
  return standing;
}

function standingOf(keyHash: string, now: number): Statements<Standing | null> {
  const found = rows<Omit<Standing, "accessGranted"> & { accessGranted: number }>(sql`
    SELECT k.id AS keyId, w.id AS workspaceId, w.access_granted AS accessGranted,
      k.requests_per_window AS requestsPerWindow, k.last_used_at AS lastUsedAt,
      k.expires_at AS expiresAt
    FROM ${apiKeys} AS k JOIN ${workspaces} AS w ON w.id = k.workspace_id
    WHERE k.key_hash = ${keyHash} AND ${isLive(now)}`);
  return readAs(found, ([row]) =>
    row ? { ...row, accessGranted: row.accessGranted === 1 } : null,
  );
}

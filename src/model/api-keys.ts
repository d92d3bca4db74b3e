import { and, eq, isNull, sql } from "drizzle-orm";
import { STANDING_MAX_AGE_MS } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import { select, update } from "../db/builder.ts";
import {
  commit,
  type Database,
  inOrder,
  prepared,
  query,
  readAs,
  retrying,
  type Statements,
  write,
} from "../db/client.ts";
import { apiKeys, workspaces } from "../db/schema.ts";
import {
  isBehind,
  type Listing,
  newestFirst,
  type PageRequest,
  pageValues,
  ROWS,
  toListing,
} from "./page.ts";

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

const page = prepared(
  select({
    id: apiKeys.id,
    createdAt: apiKeys.createdAt,
    lastUsedAt: apiKeys.lastUsedAt,
    requestsPerWindow: apiKeys.requestsPerWindow,
    revokedAt: apiKeys.revokedAt,
  })
    .from(apiKeys)
    .where(
      and(
        eq(apiKeys.workspaceId, sql.placeholder("workspaceId")),
        isBehind(apiKeys.createdAt, apiKeys.id),
      ),
    )
    .orderBy(...newestFirst(apiKeys.createdAt, apiKeys.id))
    .limit(ROWS),
);

/** One page of a workspace's keys, newest first, revoked ones included. */
export async function listApiKeys(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Listing<ApiKeyEntry>> {
  const found = await query(db, page({ workspaceId, ...pageValues(request) }));
  const position = ({ createdAt, id }: (typeof found)[number]) => ({ at: createdAt, id });
  return toListing(found, request.limit, position, (row) => ({
    keyId: row.id,
    createdAt: isoTime(row.createdAt),
    lastUsedAt: row.lastUsedAt === null ? null : isoTime(row.lastUsedAt),
    requestsPerWindow: row.requestsPerWindow,
    revokedAt: row.revokedAt === null ? null : isoTime(row.revokedAt),
  }));
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
  const [, standing] = await commit(
    db,
    inOrder([
      write(
        update(apiKeys)
          .set({ lastUsedAt: now })
          .where(
            and(
              eq(apiKeys.keyHash, keyHash),
              isNull(apiKeys.revokedAt),
              sql`coalesce(${apiKeys.lastUsedAt}, 0) < ${now - STANDING_MAX_AGE_MS}`,
            ),
          ),
      ),
      standingOf(keyHash),
    ]),
  );
  return standing;
}

const standing = prepared(
  select({
    keyId: apiKeys.id,
    workspaceId: workspaces.id,
    accessGranted: workspaces.accessGranted,
    requestsPerWindow: apiKeys.requestsPerWindow,
    lastUsedAt: apiKeys.lastUsedAt,
  })
    .from(apiKeys)
    .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
    .where(and(eq(apiKeys.keyHash, sql.placeholder("keyHash")), isNull(apiKeys.revokedAt))),
);

function standingOf(keyHash: string): Statements<Standing | null> {
  return readAs(standing({ keyHash }), ([row = null]) => row);
}

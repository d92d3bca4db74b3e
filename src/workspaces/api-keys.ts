import { and, eq, gt, isNull, or, type Placeholder, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input-error.ts";
import { HOUR_MS } from "../contract/time.ts";
import { aliasFields, inJson, insertFrom, qb } from "../db/builder.ts";
import {
  commit,
  type Database,
  prepared,
  type ResultOf,
  readAs,
  type Statements,
  transaction,
} from "../db/client.ts";
import { DIRECTORY } from "../db/databases.ts";
import { isOnPage, type Listing, type PageRequest, preparePages } from "../db/page.ts";
import { apiKeys, workspaces } from "../db/schema.ts";
import { beingErased } from "./moves.ts";

/** Maximum age of a key's status in its gate; reading it also notes that the key is used. */
export const KEY_STATUS_MAX_AGE_MS = HOUR_MS;

/**
 * Inserts an API key; only its hash is stored.
 *
 * @throws InputError if its workspace is being erased.
 */
export function insertApiKey(key: typeof apiKeys.$inferInsert): Statements<void> {
  const isErased = sql`${workspaces.id} = ${key.workspaceId} AND ${workspaces.erasing}`;
  const statements = transaction({
    inserted: insertFrom(
      apiKeys,
      key,
      sql`WHERE NOT EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isErased}) ON CONFLICT DO NOTHING`,
    ),
    erased: qb.select({ id: workspaces.id }).from(workspaces).where(isErased),
  });
  return readAs(statements, ({ erased }) => {
    if (erased.length > 0) throw beingErased();
  });
}

const { id, keyHash, workspaceId, lastUsedAt } = apiKeys;
/**
 * What is needed to tell a key's gate about a change. A key that was never used has no gate, and must not
 * get one before its first use.
 */
export const GATED_KEY = { id, keyHash, workspaceId, lastUsedAt };
export type GatedKey = Pick<StoredKey, keyof typeof GATED_KEY>;

/** Revokes a key for good. @returns the key, or nothing if there is no such key. */
export async function revokeKey(
  db: Database,
  key: { id: string } | { keyHash: string },
  now: number,
): Promise<GatedKey[]> {
  return db
    .update(apiKeys)
    .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${now})` })
    .where("id" in key ? eq(apiKeys.id, key.id) : eq(apiKeys.keyHash, key.keyHash))
    .returning(GATED_KEY);
}

/**
 * Replaces a live key that does not expire yet by a new one for the same workspace with the same name and
 * quota.
 *
 * @param endsAt when the old key expires, in Unix milliseconds; unless that is later than `now`, it is
 *   revoked immediately.
 * @returns the old key, whose gate must be told.
 * @throws InputError that says why the key cannot be rolled.
 */
export function rollKey(
  oldId: string,
  { id, keyHash, lastFour }: Pick<StoredKey, "id" | "keyHash" | "lastFour">,
  endsAt: number,
  now: number,
): Statements<GatedKey> {
  const { revokedAt, expiresAt } = apiKeys;
  // No longer true once it is rolled, so a second try changes nothing.
  const isRollable = and(eq(apiKeys.id, oldId), isNull(revokedAt), isNull(expiresAt));
  const statements = transaction({
    inserted: insertFrom(
      apiKeys,
      {
        id,
        workspaceId: apiKeys.workspaceId,
        keyHash,
        name: apiKeys.name,
        lastFour,
        requestsPerWindow: apiKeys.requestsPerWindow,
        createdAt: now,
      },
      sql`FROM ${apiKeys} WHERE ${isRollable}`,
    ),
    ended: qb
      .update(apiKeys)
      .set(endsAt > now ? { expiresAt: endsAt } : { revokedAt: now })
      .where(isRollable),
    found: qb
      .select({ ...GATED_KEY, revokedAt })
      .from(apiKeys)
      .where(eq(apiKeys.id, oldId)),
    rolled: qb.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, id)),
  });
  return readAs(statements, ({ found: [old], rolled: [rolled] }) => {
    if (!old) throw new InputError("keyId", "no such key");
    if (rolled) return old;
    throw new InputError(
      "keyId",
      old.revokedAt === null
        ? "this key was rolled before; listApiKeys shows when it expires, and the new key"
        : "this key is revoked",
    );
  });
}

/** SQL condition: the key is neither revoked nor expired. */
function isLive(now: number | Placeholder): SQL | undefined {
  const { revokedAt, expiresAt } = apiKeys;
  return and(isNull(revokedAt), or(isNull(expiresAt), gt(expiresAt, now)));
}

/**
 * Changes the quota of a live key; null for the deployment's default.
 *
 * @returns the key, or nothing if there is no such live key.
 */
export async function updateQuota(
  db: Database,
  id: string,
  requestsPerWindow: number | null,
  now: number,
): Promise<GatedKey[]> {
  return db
    .update(apiKeys)
    .set({ requestsPerWindow })
    .where(and(eq(apiKeys.id, id), isLive(now)))
    .returning(GATED_KEY);
}

export async function listLiveKeys(
  db: Database,
  workspaceId: string,
  now: number,
): Promise<GatedKey[]> {
  const ofWorkspace = eq(apiKeys.workspaceId, workspaceId);
  return db
    .select(GATED_KEY)
    .from(apiKeys)
    .where(and(ofWorkspace, isLive(now)));
}

/** A key as stored; times are in Unix milliseconds. */
export type StoredKey = typeof apiKeys.$inferSelect;

const ORDER = { at: apiKeys.createdAt, id: apiKeys.id };
const pages = preparePages(
  ORDER,
  qb
    .select()
    .from(apiKeys)
    .where(and(eq(apiKeys.workspaceId, sql.placeholder("workspaceId")), isOnPage(ORDER))),
);

/** One page of a workspace's keys, newest first, including revoked ones. */
export function listStoredKeys(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Listing<StoredKey>> {
  return pages(db, { workspaceId }, request);
}

/** What its owner recognises a key by, such as `CRM …a8Xz`. */
function labelOf({ name, lastFour }: Pick<StoredKey, "name" | "lastFour">): string {
  return name === null ? `…${lastFour}` : `${name} …${lastFour}`;
}

/** The labels of those of the ids that are keys, by id, read from the directory. */
export async function labelKeys(db: Database, ids: string[]): Promise<Record<string, string>> {
  const keyIds = [...new Set(ids.filter((id) => id.startsWith("key_")))];
  if (keyIds.length === 0) return {};
  const { id, name, lastFour } = apiKeys;
  const found = await db.select({ id, name, lastFour }).from(apiKeys).where(inJson(id, keyIds));
  return Object.fromEntries(found.map((key) => [key.id, labelOf(key)]));
}

/** What a gate must know about a workspace, which its own database knows. */
export const WORKSPACE_STATUS = { accessGranted: workspaces.accessGranted };

const keyStatus = prepared(
  qb
    .select({
      ...aliasFields({ keyId: apiKeys.id }),
      workspaceId: workspaces.id,
      /** The name of the workspace's database. */
      database: sql<string>`coalesce(${workspaces.database}, ${DIRECTORY})`,
      ...WORKSPACE_STATUS,
      /** The key's own quota; null for the deployment's default. */
      requestsPerWindow: apiKeys.requestsPerWindow,
      lastUsedAt: apiKeys.lastUsedAt,
      expiresAt: apiKeys.expiresAt,
    })
    .from(apiKeys)
    .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
    .where(and(eq(apiKeys.keyHash, sql.placeholder("keyHash")), isLive(sql.placeholder("now")))),
);

/** What a gate must know about a key. If its workspace lives elsewhere, `WORKSPACE_STATUS` is there. */
export type KeyStatus = ResultOf<ReturnType<typeof keyStatus>>[number];

/**
 * Reads the status of a key and notes that the key is in use, in one transaction. So a change to the
 * key or its workspace either comes first, and is read here, or finds the key in use, and tells its
 * gate.
 *
 * @returns null if the key is unknown, revoked or expired.
 */
export async function useKey(
  db: Database,
  keyHash: string,
  now: number,
): Promise<KeyStatus | null> {
  const noted = qb
    .update(apiKeys)
    .set({ lastUsedAt: now })
    .where(
      and(
        eq(apiKeys.keyHash, keyHash),
        isLive(now),
        sql`coalesce(${apiKeys.lastUsedAt}, 0) < ${now - KEY_STATUS_MAX_AGE_MS}`,
      ),
    );
  const { found } = await commit(db, { noted, found: keyStatus({ keyHash, now }) });
  return found[0] ?? null;
}

import { and, eq, exists, gt, isNull, or, type Placeholder, type SQL, sql } from "drizzle-orm";
import { InputError } from "../contract/input.ts";
import { API_KEYS_MAX } from "../contract/limits.ts";
import { inJson, insertFrom, qb } from "../db/builder.ts";
import { combine, commit, type Database, readAs, type Statements } from "../db/client.ts";
import { isOnPage, type Page, type PageRequest, preparePage } from "../db/page.ts";
import { apiKeys, workspaces } from "../db/schema.ts";
import { beingErased } from "./placement.ts";

/**
 * Inserts an API key, of which only the hash is stored.
 *
 * @throws InputError if its workspace is being erased or has too many keys.
 */
export function insertApiKey(key: typeof apiKeys.$inferInsert): Statements<void> {
  const isErased = sql`${workspaces.id} = ${key.workspaceId} AND ${workspaces.erasing}`;
  const statements = combine({
    inserted: insertFrom(
      apiKeys,
      key,
      sql`WHERE NOT EXISTS (SELECT 1 FROM ${workspaces} WHERE ${isErased})
        AND ${hasRoom(sql`${key.workspaceId}`, key.createdAt)} ON CONFLICT DO NOTHING`,
    ),
    erased: qb.select({ id: workspaces.id }).from(workspaces).where(isErased),
    created: qb.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, key.id)),
  });
  return readAs(statements, ({ erased, created }) => {
    if (erased.length > 0) throw beingErased();
    if (created.length === 0) throw new InputError("workspaceId", TOO_MANY);
  });
}

const TOO_MANY = `it has ${API_KEYS_MAX} live API keys, the maximum: revoke one first`;

/** SQL condition: the workspace may have another live key. */
function hasRoom(workspaceId: SQL, now: number): SQL {
  return sql`(SELECT count(*) FROM ${apiKeys}
    WHERE ${apiKeys.workspaceId} = ${workspaceId} AND ${isLive(now)}) < ${API_KEYS_MAX}`;
}

/**
 * The columns to select for `invalidateKey`, after a change of the key. A key that was never used, as `lastUsedAt`
 * shows, has no gate.
 */
export const GATED_KEY = {
  id: apiKeys.id,
  keyHash: apiKeys.keyHash,
  workspaceId: apiKeys.workspaceId,
  lastUsedAt: apiKeys.lastUsedAt,
};
export type GatedKey = Pick<StoredKey, keyof typeof GATED_KEY>;

/** Revokes a key for good. @returns the key, or nothing if there is no such key. */
export async function revokeKey(
  db: Database,
  key: { id: string } | { keyHash: string },
  now: number,
): Promise<GatedKey[]> {
  return commit(
    db,
    qb
      .update(apiKeys)
      .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${now})` })
      .where("id" in key ? eq(apiKeys.id, key.id) : eq(apiKeys.keyHash, key.keyHash))
      .returning(GATED_KEY),
  );
}

/**
 * Rotates a live key that does not expire yet: inserts a new key with the same workspace, name and rate limit.
 *
 * @param endsAt when the grace period of the old key ends, in Unix milliseconds. Unless that is later than `now`, the
 *   old key is revoked immediately.
 * @returns the old key, whose gate must be told in any case, because an earlier call may have failed before it was; and
 *   why the key cannot be rotated, if it cannot.
 * @throws InputError if there is no such key.
 */
export function rotateKey(
  oldId: string,
  { id, keyHash, lastFour }: Pick<StoredKey, "id" | "keyHash" | "lastFour">,
  endsAt: number,
  now: number,
): Statements<{ old: GatedKey; isRevoked: boolean; refusal: InputError | null }> {
  const { revokedAt, expiresAt } = apiKeys;
  const isOld = eq(apiKeys.id, oldId);
  // The condition is false once the key is rotated, so a second try changes nothing.
  const isRotatable = and(isOld, isNull(revokedAt), isNull(expiresAt));
  const workspaceId = sql`(SELECT ${apiKeys.workspaceId} FROM ${apiKeys} WHERE ${isOld})`;
  const isRevokedNow = endsAt <= now;
  const created = qb.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, id));
  const statements = combine({
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
      sql`FROM ${apiKeys} WHERE ${isRotatable} AND (${isRevokedNow} OR ${hasRoom(workspaceId, now)})`,
    ),
    ended: qb
      .update(apiKeys)
      .set(isRevokedNow ? { revokedAt: now } : { expiresAt: endsAt })
      .where(and(isRotatable, exists(created))),
    found: qb
      .select({ ...GATED_KEY, revokedAt, expiresAt })
      .from(apiKeys)
      .where(isOld),
    created,
  });
  return readAs(statements, ({ found: [old], created: [made] }) => {
    if (!old) throw new InputError("keyId", "no such key");
    const isRevoked = old.revokedAt !== null;
    return { old, isRevoked, refusal: made ? null : new InputError("keyId", whyNotRotated(old)) };
  });
}

function whyNotRotated({ revokedAt, expiresAt }: Pick<StoredKey, "revokedAt" | "expiresAt">) {
  if (revokedAt !== null) return "this key is revoked";
  if (expiresAt === null) return TOO_MANY;
  return "this key was rolled before; listApiKeys shows when it expires, and the new key";
}

/** SQL condition: the key is neither revoked nor expired. */
export function isLive(now: number | Placeholder): SQL | undefined {
  const { revokedAt, expiresAt } = apiKeys;
  return and(isNull(revokedAt), or(isNull(expiresAt), gt(expiresAt, now)));
}

/**
 * Changes the rate limit of a live key; null for the deployment's default.
 *
 * @returns the key, or nothing if there is no such live key.
 */
export async function updateQuota(
  db: Database,
  id: string,
  requestsPerWindow: number | null,
  now: number,
): Promise<GatedKey[]> {
  return commit(
    db,
    qb
      .update(apiKeys)
      .set({ requestsPerWindow })
      .where(and(eq(apiKeys.id, id), isLive(now)))
      .returning(GATED_KEY),
  );
}

/** Lists the keys of a workspace that are neither revoked nor expired. */
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

/** The row of a key; times are Unix milliseconds. */
export type StoredKey = typeof apiKeys.$inferSelect;

const KEY_ORDER = { at: apiKeys.createdAt, id: apiKeys.id };
const readPage = preparePage({
  order: KEY_ORDER,
  select: qb
    .select()
    .from(apiKeys)
    .where(and(eq(apiKeys.workspaceId, sql.placeholder("workspaceId")), isOnPage(KEY_ORDER))),
});

/** Reads one page of a workspace's keys, newest first, including revoked ones. */
export function listStoredKeys(
  db: Database,
  workspaceId: string,
  request: PageRequest,
): Promise<Page<StoredKey>> {
  return readPage(db, { workspaceId }, request);
}

/** Returns the label by which its owner recognizes a key, such as `CRM …a8Xz`. */
function labelOf({ name, lastFour }: Pick<StoredKey, "name" | "lastFour">): string {
  return name === null ? `…${lastFour}` : `${name} …${lastFour}`;
}

/** Reads the labels of the keys among these ids, by id. @param db the directory. */
export async function labelKeys(db: Database, ids: string[]): Promise<Record<string, string>> {
  const keyIds = [...new Set(ids.filter((id) => id.startsWith("key_")))];
  if (keyIds.length === 0) return {};
  const { id, name, lastFour } = apiKeys;
  const found = await db.select({ id, name, lastFour }).from(apiKeys).where(inJson(id, keyIds));
  return Object.fromEntries(found.map((key) => [key.id, labelOf(key)]));
}

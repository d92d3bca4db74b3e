import { eq, type Query, type SQL, sql } from "drizzle-orm";
import { ApiError, type ErrorCode } from "../contract/errors.ts";
import { HOUR_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Guard, type Part, prepared } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";

/*
 * Access may end between the admission of a request and its write, and a workspace may begin to be erased. So the write
 * checks that again, in its own transaction. A call that ends access, or erases, changes a row of the same database, so the
 * second of the two sees the first. That a key has expired is not checked again, because `readBody` leaves no time for it.
 */

/** The credential of a request: an API key, or a portal session by its time of issue. */
type Credential = { keyId: string } | { issuedAt: number };

/** How long `revokedKeys` holds a key: far longer than an admitted request can take until its write. */
const REVOKED_KEPT_MS = HOUR_MS;

/**
 * Makes the database of a workspace reject writes with a key, which the caller (`endKey` in platform/api-keys.ts) has
 * revoked in the directory. The directory may be another database, which a transaction of this one cannot read. Keys are
 * dropped by age, so that no number of other revocations makes a key valid again.
 */
export function refuseWrites(workspaceId: string, keyId: string, now: number): Part {
  const { id, revokedKeys } = workspaces;
  const recent = sql`SELECT json_set(json_group_object(key, value), ${`$.${keyId}`}, ${now})
    FROM json_each(${revokedKeys}) WHERE value > ${now - REVOKED_KEPT_MS}`;
  return qb
    .update(workspaces)
    .set({ revokedKeys: sql`(${recent})` })
    .where(eq(id, workspaceId));
}

/** Begins the invalid JSON path that stands for a refusal (`failIfRefused`). */
const REFUSED = "write refused: ";
/** A valid JSON path, which stands for no refusal. */
const PERMITTED = "$";
const ENDED: ErrorCode = "invalid_api_key";
const DENIED: ErrorCode = "workspace_access_denied";
const ERASING = "erasing";

/**
 * Prepares a statement that fails if a call may not write, and so undoes its transaction. If the key has ended, it amounts
 * to
 *
 *     SELECT json_extract('{}', 'write refused: invalid_api_key')
 *
 * which fails, because that is not a JSON path. The error quotes the path (`toRefusal`). If the request may write, the
 * path is `$`, which is valid.
 *
 * SQLite offers nothing better. `RAISE` works in triggers only, and a `CHECK` fails for rows only, so either needs a table
 * or a view that exists for nothing else. A condition in each write would have to be in every one, and a write of no
 * rows says nothing of the reason.
 *
 * @param path SQL: the path for the row of the workspace.
 * @param unknown the path for a workspace without a row.
 */
function failIfRefused(path: SQL, unknown: string) {
  const found = sql`SELECT ${path} FROM ${workspaces} WHERE ${workspaces.id} = ${sql.placeholder("workspaceId")}`;
  return prepared(sql`SELECT json_extract('{}', coalesce((${found}), ${unknown}))`);
}

const isRevoked = sql`${sql.placeholder("keyId")} IN (SELECT key FROM json_each(${workspaces.revokedKeys}))`;
const hasEnded = sql`${sql.placeholder("issuedAt")} <= ${workspaces.sessionsNotBefore}`;

// The codes come in the order in which an admission checks them. An erased workspace has no row.
const failIfKeyEnded = failIfRefused(
  sql`CASE WHEN ${isRevoked} THEN ${REFUSED + ENDED} WHEN NOT ${workspaces.accessGranted} THEN ${REFUSED + DENIED} ELSE ${PERMITTED} END`,
  REFUSED + ENDED,
);
const failIfSessionEnded = failIfRefused(
  sql`CASE WHEN NOT ${workspaces.accessGranted} THEN ${REFUSED + DENIED} WHEN ${hasEnded} THEN ${REFUSED + ENDED} ELSE ${PERMITTED} END`,
  REFUSED + ENDED,
);

/**
 * A statement that fails if the workspace is being erased (`isErasing`). It passes for an unknown one. It is for calls of
 * the platform, because an erasure ends the access of clients and of the portal before it deletes anything.
 */
export const failIfErasing = failIfRefused(
  sql`iif(${workspaces.erasing}, ${REFUSED + ERASING}, ${PERMITTED})`,
  PERMITTED,
);

/** Whether an error is that of `failIfErasing`. */
export function isErasing(error: unknown): boolean {
  return error instanceof Error && error.message.includes(REFUSED + ERASING);
}

/**
 * Makes the guard of a request's writes: a transaction fails with the refusal of an admission if the access of the
 * request has ended. A request that writes nothing is not checked again.
 */
export function guardWrites(workspaceId: string, credential: Credential): Guard {
  const { queries } =
    "keyId" in credential
      ? failIfKeyEnded({ workspaceId, ...credential })
      : failIfSessionEnded({ workspaceId, ...credential });
  return { query: queries[0] as Query, toError: toRefusal };
}

/** Returns the refusal that a failed transaction stands for, or else its own error. */
function toRefusal(error: unknown): unknown {
  const { message } = error as Error;
  const code = [ENDED, DENIED].find((each) => message.includes(REFUSED + each));
  return code ? new ApiError(code) : error;
}

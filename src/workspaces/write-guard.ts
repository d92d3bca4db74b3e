import { eq, type SQL, sql } from "drizzle-orm";
import { ApiError, type ErrorCode } from "../contract/errors.ts";
import { qb } from "../db/builder.ts";
import { type Executable, prepared } from "../db/client.ts";
import { workspaces } from "../db/schema.ts";
import { type D1Client, LateClient, type Query } from "../db/session.ts";

/*
 * Access may end between the admission of a request and its write. So the write itself checks the access, in its own
 * transaction: what ends access changes a row of the same database, and whichever comes second sees the other.
 */

/** What a request writes with: an API key, or a portal session by its time of issue. */
export type Credential = { keyId: string } | { issuedAt: number };

/** How many keys `revokedKeys` names. A write takes far less time than as many revocations. */
const REVOKED_KEYS_MAX = 100;

/**
 * Makes a workspace's database refuse writes with a key. The directory has revoked the key, but it may be another
 * database, which no transaction of this one can read.
 */
export function refuseWrites(workspaceId: string, keyId: string): Executable {
  const { id, revokedKeys } = workspaces;
  const latest = sql`SELECT ${keyId} AS value UNION ALL SELECT value FROM json_each(${revokedKeys})`;
  return qb
    .update(workspaces)
    .set({
      revokedKeys: sql`(SELECT json_group_array(value) FROM (${latest} LIMIT ${REVOKED_KEYS_MAX}))`,
    })
    .where(eq(id, workspaceId));
}

const REFUSED = "write refused: ";
const ENDED: ErrorCode = "invalid_api_key";
const DENIED: ErrorCode = "workspace_access_denied";

/**
 * A statement that fails if a request may not write, and so undoes its transaction. SQLite has no statement for that
 * outside triggers, hence the JSON path: an invalid one is an error that quotes it.
 *
 * @param refusal SQL: the error code if the request is refused, or else null.
 */
function guard(refusal: SQL) {
  const { id } = workspaces;
  const found = sql`SELECT coalesce(${REFUSED} || ${refusal}, '$') FROM ${workspaces} WHERE ${id} = ${sql.placeholder("workspaceId")}`;
  // An erased workspace has no row.
  return prepared(sql`SELECT json_extract('{}', coalesce((${found}), ${REFUSED + ENDED}))`);
}

const { accessGranted, revokedKeys, sessionsNotBefore } = workspaces;
const isRevoked = sql`${sql.placeholder("keyId")} IN (SELECT value FROM json_each(${revokedKeys}))`;
const hasEnded = sql`${sql.placeholder("issuedAt")} <= ${sessionsNotBefore}`;

// The codes come in the order in which an admission checks them.
const guardKey = guard(
  sql`CASE WHEN ${isRevoked} THEN ${ENDED} WHEN NOT ${accessGranted} THEN ${DENIED} END`,
);
const guardSession = guard(
  sql`CASE WHEN NOT ${accessGranted} THEN ${DENIED} WHEN ${hasEnded} THEN ${ENDED} END`,
);

/**
 * A workspace's database as a request writes to it: a transaction fails, with the answer of an admission, if the
 * request's access has ended. Single statements are reads, because all writes are transactions (`commit`).
 */
export class GuardedClient extends LateClient {
  readonly #client: D1Client;
  readonly #guard: D1PreparedStatement;

  constructor(client: D1Client, workspaceId: string, credential: Credential) {
    super();
    this.#client = client;
    const { queries } =
      "keyId" in credential
        ? guardKey({ workspaceId, ...credential })
        : guardSession({ workspaceId, ...credential });
    const [{ sql: text, params }] = queries as [{ sql: string; params: unknown[] }];
    this.#guard = this.prepare(text).bind(...params);
  }

  override execute<T>(query: Query<T>): Promise<T> {
    return query(this.#client);
  }

  override async batch<T>(statements: D1PreparedStatement[]): Promise<D1Result<T>[]> {
    try {
      const [, ...results] = await super.batch<T>([this.#guard, ...statements]);
      return results;
    } catch (error) {
      throw toRefusal(error);
    }
  }
}

/** The refusal that a failed transaction stands for, or else its own error. */
function toRefusal(error: unknown): unknown {
  const { message } = error as Error;
  const code = [ENDED, DENIED].find((each) => message.includes(REFUSED + each));
  return code ? new ApiError(code) : error;
}

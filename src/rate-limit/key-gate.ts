import { DurableObject } from "cloudflare:workers";
import { and, eq, isNull, sql } from "drizzle-orm";
import { HOUR_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, prepared, query, type ResultOf } from "../db/client.ts";
import { DIRECTORY, openDatabase, openDirectory } from "../db/databases.ts";
import { apiKeys, workspaces } from "../db/schema.ts";
import { isLive } from "../workspaces/key-rows.ts";
import {
  countUsage,
  type HourUsage,
  type RateLimit,
  type Rule,
  rateLimitOf,
  take,
  type Window,
  windowAt,
} from "./window.ts";

/*
 * The rate limiter of keys. The other files of this folder:
 *
 * - address-gate.ts limits the authentication failures of an IP address.
 * - window.ts counts in a fixed window, and by hour.
 * - gates.ts calls gates from an isolate, and caches their results there.
 * - key-text.ts generates and verifies the text of keys.
 */

/** Minimum time between two writes of a key's window. A reset of the object loses the counts of that time. */
const WINDOW_WRITTEN_EVERY_MS = 500;
/** Maximum age of a cached status. Reading the status also notes the use of the key. */
const STATUS_MAX_AGE_MS = HOUR_MS;

/** The result for a valid key whose request is refused: its workspace has no access, or its window is used up. */
export interface KeyRefusal {
  verdict: "access_denied" | "rate_limited";
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
}

/** The result for a valid key whose request is admitted. */
export interface KeyAdmission {
  verdict: "admitted";
  keyId: string;
  workspaceId: string;
  rateLimit: RateLimit;
  /** The name of the workspace's database. */
  database: string;
  /**
   * When the gate read the key's status. While it is the same, the workspace has not moved, not even away and back, because
   * a move makes the gate read the status again.
   */
  statusReadAt: number;
}

/** The result of a gate for one request. */
export type GateResult = { verdict: "unknown_key" } | KeyRefusal | KeyAdmission;

/** 429s with the key that an isolate returned from its cache, and that the gate has not counted yet. */
export interface UncountedRefusals {
  count: number;
  /** The approximate time, in Unix milliseconds. */
  at: number;
}

interface CachedStatus {
  /** The status; null for a key that is unknown, revoked or expired, which will never be valid again. */
  status: KeyStatus | null;
  /** When it was read, in Unix milliseconds. */
  readAt: number;
  /** When it must be read again, in Unix milliseconds. */
  until: number;
}

/** The requests with the key. They are stored as one value, so that counting the usage takes no extra write. */
interface Counted {
  window: Window | undefined;
  hours: HourUsage[];
}

/**
 * The key cache and rate limiter of one API key, named by the key's hash. One call checks the key's status and
 * its rate limit. The status is read from the database and cached until `forget`, or for an hour. The window is counted
 * in memory and stored at most twice a second, without waiting for the disk. The count is exact unless the object is
 * reset, which loses the requests that were admitted since the last write.
 */
export class KeyGate extends DurableObject<Env> {
  #cached = this.ctx.storage.kv.get<CachedStatus>("status");
  #counted: Counted = this.ctx.storage.kv.get("counted") ?? { window: undefined, hours: [] };
  #savedAt = 0;
  #saving = false;
  /** The look-up in progress, shared by all requests that need it. */
  #loading: Promise<void> | undefined;
  /** Incremented by `forget`. A status that was read at an earlier version is out of date. */
  #statusVersion = 0;

  /**
   * Admits or refuses one request with the key.
   *
   * @param keyHash the name of this object.
   * @param uncounted 429s that the isolate has returned from its cache since its last call.
   */
  async admit(keyHash: string, uncounted?: UncountedRefusals): Promise<GateResult> {
    // A look-up caches nothing if `forget` was called meanwhile.
    while (!this.#cached || Date.now() >= this.#cached.until) {
      this.#loading ??= this.#load(keyHash, Date.now()).finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
    // No await follows, so decisions are made one after the other.
    if (uncounted) this.#countRefused(uncounted);
    return this.#decide(Date.now());
  }

  /** Returns the number of requests with the key in each hour that had any, oldest first. */
  usage(): HourUsage[] {
    return this.#counted.hours;
  }

  #countRefused({ at, count }: UncountedRefusals): void {
    this.#counted.hours = countUsage(this.#counted.hours, at, { refused: count });
    this.#saveCounts();
  }

  #decide(now: number): GateResult {
    if (!this.#cached?.status) return { verdict: "unknown_key" };
    const { status, readAt } = this.#cached;
    const rule: Rule = {
      limit: status.requestsPerWindow ?? Number(this.env.QUOTA_REQUESTS),
      windowMs: Number(this.env.QUOTA_WINDOW_SECONDS) * 1000,
    };
    const { keyId, workspaceId } = status;
    const window = windowAt(this.#counted.window, rule, now);
    // Requests without access also count. Otherwise, such a client could send any number of them.
    const taken = take(window, rule);
    if (taken) {
      this.#counted.window = taken;
      this.#counted.hours = countUsage(this.#counted.hours, now, {
        requests: 1,
        busiest: taken.count,
      });
      this.#saveCounts();
    }
    const known = { keyId, workspaceId, rateLimit: rateLimitOf(taken ?? window, rule, now) };
    if (!status.accessGranted) return { verdict: "access_denied", ...known };
    if (!taken) {
      this.#countRefused({ at: now, count: 1 });
      return { verdict: "rate_limited", ...known };
    }
    return { verdict: "admitted", ...known, database: status.database, statusReadAt: readAt };
  }

  /** Drops the cached status, which the platform has changed. Once this returns, no request is admitted on it. */
  forget(): void {
    this.#statusVersion++;
    this.#cached = undefined;
    this.ctx.storage.kv.delete("status");
  }

  /** Stores the counts, now or within `WINDOW_WRITTEN_EVERY_MS`, with all requests that are counted until then. */
  #saveCounts(): void {
    if (this.#saving) return;
    const agoMs = Date.now() - this.#savedAt;
    // The time is negative if the clock was set back.
    if (agoMs < 0 || agoMs >= WINDOW_WRITTEN_EVERY_MS) {
      this.#writeCounts();
      return;
    }
    this.#saving = true;
    // An object is not evicted while a timer is pending; only a reset can lose this write.
    setTimeout(() => this.#writeCounts(), WINDOW_WRITTEN_EVERY_MS - agoMs);
  }

  #writeCounts(): void {
    this.#saving = false;
    this.#savedAt = Date.now();
    this.ctx.waitUntil(this.ctx.storage.put("counted", this.#counted, { allowUnconfirmed: true }));
  }

  /**
   * Reads the status of the key, on first use, then once an hour and after each `forget`.
   *
   * @param now Unix milliseconds; the status ages from this time on.
   */
  async #load(keyHash: string, now: number): Promise<void> {
    const version = this.#statusVersion;
    const status = await this.#read(keyHash, now);
    // If the status changed while it was read, this may be the previous one, and `admit` looks it up again.
    if (version !== this.#statusVersion) return;
    const endsAt = status?.expiresAt ?? Number.POSITIVE_INFINITY;
    this.#cached = { status, readAt: now, until: Math.min(now + STATUS_MAX_AGE_MS, endsAt) };
    // An unknown key is not stored, so that a flood of invented keys leaves nothing behind.
    if (status) this.ctx.storage.kv.put("status", this.#cached);
  }

  /**
   * Reads the status of the key from the directory and, if the workspace lives in another database, its access from
   * there. No change of either is missed (`noteUseAndReadStatus`).
   */
  async #read(keyHash: string, now: number): Promise<KeyStatus | null> {
    for (let attempt = 1; ; attempt++) {
      const status = await noteUseAndReadStatus(openDirectory(this.env), keyHash, now);
      if (!status || status.database === DIRECTORY) return status;
      const { database, workspaceId } = status;
      const access = await findAccess(openDatabase(this.env, database), workspaceId);
      if (access) return { ...status, ...access };
      // The workspace may have moved between the two reads.
      if (attempt === 2) throw new Error(`workspace ${workspaceId} is not in ${database}`);
    }
  }
}

const selectStatus = prepared(
  qb
    .select({
      keyId: apiKeys.id,
      workspaceId: apiKeys.workspaceId,
      /** The name of the workspace's database. */
      database: sql<string>`coalesce(${workspaces.database}, ${DIRECTORY})`,
      /** If the workspace lives in another database, it is there: see `findAccess`. */
      accessGranted: workspaces.accessGranted,
      /** The key's own rate limit; null for the deployment's default. */
      requestsPerWindow: apiKeys.requestsPerWindow,
      expiresAt: apiKeys.expiresAt,
    })
    .from(apiKeys)
    .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
    .where(and(eq(apiKeys.keyHash, sql.placeholder("keyHash")), isLive(sql.placeholder("now")))),
);

type KeyStatus = ResultOf<ReturnType<typeof selectStatus>>[number];

/**
 * Notes the use of a key and reads its status, in one transaction, so that no change is missed. A change that commits
 * earlier is read, here or in `findAccess`. A later one finds `lastUsedAt` set, and invalidates the gate (`invalidateKey`).
 *
 * @param db the directory.
 * @returns null if the key is unknown, revoked or expired.
 */
async function noteUseAndReadStatus(
  db: Database,
  keyHash: string,
  now: number,
): Promise<KeyStatus | null> {
  const noted = qb
    .update(apiKeys)
    .set({ lastUsedAt: now })
    .where(and(eq(apiKeys.keyHash, keyHash), isLive(now)));
  const { found } = await commit(db, { noted, found: selectStatus({ keyHash, now }) });
  return found[0] ?? null;
}

const selectAccess = prepared(
  qb
    .select({ accessGranted: workspaces.accessGranted })
    .from(workspaces)
    .where(and(eq(workspaces.id, sql.placeholder("id")), isNull(workspaces.database))),
);

/**
 * Reads the access of a workspace in the database where it lives; undefined if that is not `db`. A null in
 * `workspaces.database` means the database that the row is in.
 */
async function findAccess(db: Database, id: string) {
  const [row] = await query(db, selectAccess({ id }));
  return row;
}

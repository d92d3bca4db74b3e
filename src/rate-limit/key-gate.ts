import { DurableObject } from "cloudflare:workers";
import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { isOlder } from "../db/session.ts";
import { KEY_STATUS_MAX_AGE_MS, type KeyStatus, useKey } from "../workspaces/api-keys.ts";
import { findAccess } from "../workspaces/workspaces.ts";
import type { KeyRefusal } from "./memory.ts";
import { countUsage, type HourUsage } from "./usage.ts";
import { type RateLimit, type Rule, rateLimitOf, take, type Window, windowAt } from "./window.ts";

/** Minimum time between two writes of a key's window; a reset loses the counts of that time. */
const WINDOW_WRITTEN_EVERY_MS = 500;

/** A gate's answer to one request. */
export type Admission =
  | { verdict: "unknown_key" }
  | KeyRefusal
  | {
      verdict: "admitted";
      keyId: string;
      workspaceId: string;
      rateLimit: RateLimit;
      /** The name of the workspace's database. */
      database: string;
      /** A bookmark of that database: reads for this request must not be older. */
      bookmark: string | null;
    };

/** The status of a key, as the gate reports it after a write. */
export type KeyStatusVerdict = "admitted" | "unknown_key" | "access_denied";

/** Requests with the key that an isolate answered 429 from memory, which the gate has not counted yet. */
export interface UncountedRefusals {
  count: number;
  /** Roughly when, in Unix milliseconds. */
  at: number;
}

interface CachedStatus {
  /** Null for a key that is unknown, revoked or expired: it will never be valid again. */
  status: Omit<KeyStatus, "database"> | null;
  /** When it must be read again, in Unix milliseconds. */
  until: number;
}

/** The requests with the key; stored as one value, so that its usage takes no extra write. */
interface Counted {
  window: Window | undefined;
  hours: HourUsage[];
}

/**
 * The key cache and rate limiter of one API key, named by the key's hash. One call checks the key's status and
 * its rate limit. The status is read from the database once and cached until `forget`. The window is counted in
 * memory and stored at most twice a second, without waiting for the disk. The count is exact unless the object
 * is reset: then the requests admitted since the last write are lost.
 */
export class KeyGate extends DurableObject<Env> {
  #cached = this.ctx.storage.kv.get<CachedStatus>("status");
  #counted: Counted = this.ctx.storage.kv.get("counted") ?? { window: undefined, hours: [] };
  #bookmark = this.ctx.storage.kv.get<string>("bookmark") ?? null;
  /** The database that the bookmark belongs to, as of the last time the status was read. */
  #database = this.ctx.storage.kv.get<string>("database") ?? DIRECTORY;
  #savedAt = 0;
  #saving = false;
  /** The look-up in progress, shared by all requests that need it. */
  #loading: Promise<void> | undefined;
  /** Raised by `forget`: a status that was read at an earlier version is out of date. */
  #statusVersion = 0;

  /**
   * Decides on one request made with the key.
   *
   * @param keyHash the name of this object.
   * @param at Unix milliseconds; defaults to the current time.
   * @param uncounted requests that the isolate refused from memory since this gate refused one.
   */
  async admit(keyHash: string, at?: number, uncounted?: UncountedRefusals): Promise<Admission> {
    await this.#ensureStatus(keyHash, at);
    // Nothing is awaited from here on, so decisions are made one after the other.
    if (uncounted) this.#countRefused(uncounted);
    return this.#decide(at ?? Date.now());
  }

  async #ensureStatus(keyHash: string, at?: number): Promise<void> {
    while (!this.#cached || (at ?? Date.now()) > this.#cached.until) {
      this.#loading ??= this.#load(keyHash, at ?? Date.now()).finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
  }

  /** The number of requests with the key in each hour that had any, oldest first. */
  usage(): HourUsage[] {
    return this.#counted.hours;
  }

  #countRefused({ at, count }: UncountedRefusals): void {
    this.#counted.hours = countUsage(this.#counted.hours, at, { refused: count });
    this.#saveCounts();
  }

  #decide(now: number): Admission {
    const status = this.#cached?.status;
    if (!status) return { verdict: "unknown_key" };
    const rule: Rule = {
      limit: status.requestsPerWindow ?? Number(this.env.QUOTA_REQUESTS),
      windowMs: Number(this.env.QUOTA_WINDOW_SECONDS) * 1000,
    };
    const { keyId, workspaceId, expiresAt } = status;
    const window = windowAt(this.#counted.window, rule, now);
    // Denied requests count too: otherwise a client without access could send any number.
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
    if (!status.accessGranted) return { verdict: "access_denied", ...known, expiresAt };
    if (!taken) {
      this.#countRefused({ at: now, count: 1 });
      return { verdict: "rate_limited", ...known, expiresAt };
    }
    return { verdict: "admitted", ...known, database: this.#database, bookmark: this.#bookmark };
  }

  /**
   * Raises the bookmark that admissions return, after a write of the client. When this returns, the
   * bookmark is stored.
   *
   * @param database the name of the database that the bookmark belongs to. One that the workspace has
   *   left is ignored: bookmarks of different databases cannot be compared.
   * @param keyHash the name of this object; undefined if a former version calls.
   * @returns the status of the key after the write: it may have ended since the write was admitted.
   */
  async advance(bookmark: string, database: string, keyHash?: string): Promise<KeyStatusVerdict> {
    this.#raiseBookmark(bookmark, database);
    if (keyHash !== undefined) await this.#ensureStatus(keyHash);
    if (!this.#cached?.status) return "unknown_key";
    return this.#cached.status.accessGranted ? "admitted" : "access_denied";
  }

  #raiseBookmark(bookmark: string, database: string): void {
    if (database !== this.#database || !isOlder(this.#bookmark, bookmark)) return;
    this.#bookmark = bookmark;
    this.ctx.storage.kv.put("bookmark", bookmark);
  }

  /** Switches to the database that the workspace has moved to. */
  #moveTo(database: string): void {
    this.#database = database;
    this.#bookmark = null;
    this.ctx.storage.kv.put("database", database);
    this.ctx.storage.kv.delete("bookmark");
  }

  /** Drops the cached status, which the platform has changed. When this returns, it admits nothing more. */
  forget(): void {
    this.#statusVersion++;
    this.#cached = undefined;
    this.ctx.storage.kv.delete("status");
  }

  /** Stores the counts, now or shortly, including what is counted until then. */
  #saveCounts(): void {
    if (this.#saving) return;
    const agoMs = Date.now() - this.#savedAt;
    // Negative if the clock was set back.
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
   * Reads the key's status, on first use and then once an hour. That also records that the key is in use.
   *
   * @param now Unix milliseconds: the status ages from here on.
   */
  async #load(keyHash: string, now: number): Promise<void> {
    for (;;) {
      const version = this.#statusVersion;
      const { status, database, bookmark } = await this.#read(keyHash, now);
      // The status changed while it was being read: this may be the former one.
      if (version !== this.#statusVersion) continue;
      // Cached until the key's use must be recorded again: an hour after it was last recorded, not read.
      const usedAt = Math.min(status?.lastUsedAt ?? now, now);
      const staleAt = usedAt + KEY_STATUS_MAX_AGE_MS;
      // Or until the key expires: the look-up then no longer finds it.
      const lastMs = (status?.expiresAt ?? Number.POSITIVE_INFINITY) - 1;
      this.#cached = { status, until: Math.min(staleAt, lastMs) };
      // Not stored, so that a flood of invented keys leaves nothing behind.
      if (!status) return;
      if (database !== this.#database) this.#moveTo(database);
      // Reads are never older than the status that they are admitted on.
      if (bookmark !== null) this.#raiseBookmark(bookmark, database);
      this.ctx.storage.kv.put("status", this.#cached);
      return;
    }
  }

  /**
   * Reads the key's status from the directory and, if the workspace lives in another database, its access from
   * there. No change is missed: access is changed first, and the keys in use are looked up after.
   */
  async #read(keyHash: string, now: number) {
    for (let attempt = 1; ; attempt++) {
      const directory = this.env.DB.withSession("first-primary");
      const found = await useKey(openDatabase(directory), keyHash, now);
      if (!found || found.database === DIRECTORY)
        return { status: found, database: DIRECTORY, bookmark: directory.getBookmark() };
      const { database, ...status } = found;
      const session = bindingOf(this.env, database).withSession("first-primary");
      const access = await findAccess(openDatabase(session), status.workspaceId);
      if (access)
        return { status: { ...status, ...access }, database, bookmark: session.getBookmark() };
      // It may have moved in between.
      if (attempt === 2) throw new Error(`workspace ${status.workspaceId} is not in ${database}`);
    }
  }
}

import { DurableObject } from "cloudflare:workers";
import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { isOlder } from "../db/session.ts";
import { STANDING_MAX_AGE_MS, type Standing, useKey } from "../workspaces/api-keys.ts";
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

/** Requests with the key that an isolate answered 429 without asking the gate. */
export interface RefusedElsewhere {
  count: number;
  /** Roughly when, in Unix milliseconds. */
  at: number;
}

interface CachedStanding {
  /** Null for a key that is unknown, revoked or expired: it will never be valid again. */
  standing: Omit<Standing, "database"> | null;
  /** When it must be read again, in Unix milliseconds. */
  until: number;
}

/** The requests with the key; stored as one value, so that its usage takes no extra write. */
interface Counted {
  window: Window | undefined;
  hours: HourUsage[];
}

/**
 * The gate of one API key, named by the key's hash. It checks standing and quota in one call. The
 * standing is read from the database once and kept until `forget`. The window is counted in memory
 * and stored at most twice a second, without waiting for the disk. The count is exact unless the
 * object is reset: then requests admitted since the last write are forgotten.
 */
export class KeyGate extends DurableObject<Env> {
  #cached = this.ctx.storage.kv.get<CachedStanding>("standing");
  #counted: Counted = this.ctx.storage.kv.get("counted") ?? { window: undefined, hours: [] };
  #bookmark = this.ctx.storage.kv.get<string>("bookmark") ?? null;
  /** The database that the bookmark belongs to, as of the last time the standing was read. */
  #database = this.ctx.storage.kv.get<string>("database") ?? DIRECTORY;
  #savedAt = 0;
  #saving = false;
  /** The look-up in progress, shared by all requests that need it. */
  #loading: Promise<void> | undefined;
  /** How often `forget` was called: a standing read before the last call is out of date. */
  #forgotten = 0;

  /**
   * Decides on one request made with the key.
   *
   * @param keyHash the name of this object.
   * @param at Unix milliseconds; defaults to the current time.
   * @param elsewhere requests that the isolate refused by itself since this gate refused one.
   */
  async admit(keyHash: string, at?: number, elsewhere?: RefusedElsewhere): Promise<Admission> {
    while (!this.#cached || (at ?? Date.now()) > this.#cached.until) {
      this.#loading ??= this.#load(keyHash, at ?? Date.now()).finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
    // Nothing is awaited from here on, so decisions are made one after the other.
    if (elsewhere) this.#countRefused(elsewhere);
    return this.#decide(at ?? Date.now());
  }

  /** The number of requests with the key in each hour that had any, oldest first. */
  usage(): HourUsage[] {
    return this.#counted.hours;
  }

  #countRefused({ at, count }: RefusedElsewhere): void {
    this.#counted.hours = countUsage(this.#counted.hours, at, { refused: count });
    this.#saveCounts();
  }

  #decide(now: number): Admission {
    const standing = this.#cached?.standing;
    if (!standing) return { verdict: "unknown_key" };
    const rule: Rule = {
      limit: standing.requestsPerWindow ?? Number(this.env.QUOTA_REQUESTS),
      windowMs: Number(this.env.QUOTA_WINDOW_SECONDS) * 1000,
    };
    const { keyId, workspaceId, expiresAt } = standing;
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
    if (!standing.accessGranted) return { verdict: "access_denied", ...known, expiresAt };
    if (!taken) {
      this.#countRefused({ at: now, count: 1 });
      return { verdict: "quota_exceeded", ...known, expiresAt };
    }
    return { verdict: "admitted", ...known, database: this.#database, bookmark: this.#bookmark };
  }

  /**
   * Raises the bookmark that admissions return, after a write of the client. When this returns, the
   * bookmark is stored.
   *
   * @param database the name of the database that the bookmark belongs to. One that the workspace has
   *   left is ignored: bookmarks of different databases cannot be compared.
   */
  advance(bookmark: string, database: string): void {
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

  /** Drops the standing, which the platform has changed. When this returns, it admits nothing more. */
  forget(): void {
    this.#forgotten++;
    this.#cached = undefined;
    this.ctx.storage.kv.delete("standing");
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
   * Reads the standing, on first use and then once an hour; that also notes that the key is in use.
   *
   * @param now Unix milliseconds: the standing ages from here on.
   */
  async #load(keyHash: string, now: number): Promise<void> {
    for (;;) {
      const forgotten = this.#forgotten;
      const { standing, database, bookmark } = await this.#read(keyHash, now);
      // Changed while it was being read: this may be the old standing.
      if (forgotten !== this.#forgotten) continue;
      // Kept until the key's use must be noted again: that is an hour after it was last noted, not read.
      const usedAt = Math.min(standing?.lastUsedAt ?? now, now);
      const staleAt = usedAt + STANDING_MAX_AGE_MS;
      // Or until the key expires: the look-up then no longer finds it.
      const lastMs = (standing?.expiresAt ?? Number.POSITIVE_INFINITY) - 1;
      this.#cached = { standing, until: Math.min(staleAt, lastMs) };
      // Not stored, so that a flood of invented keys leaves nothing behind.
      if (!standing) return;
      if (database !== this.#database) this.#moveTo(database);
      // Reads are never older than the standing that they are admitted on.
      if (bookmark !== null) this.advance(bookmark, database);
      this.ctx.storage.kv.put("standing", this.#cached);
      return;
    }
  }

  /**
   * Reads the standing from the directory and, if the workspace lives in another database, its access
   * from there. No change is missed: access is changed first, and the keys in use are looked up after.
   */
  async #read(keyHash: string, now: number) {
    for (let attempt = 1; ; attempt++) {
      const directory = this.env.DB.withSession("first-primary");
      const found = await useKey(openDatabase(directory), keyHash, now);
      if (!found || found.database === DIRECTORY)
        return { standing: found, database: DIRECTORY, bookmark: directory.getBookmark() };
      const { database, ...standing } = found;
      const session = bindingOf(this.env, database).withSession("first-primary");
      const there = await findAccess(openDatabase(session), standing.workspaceId);
      if (there)
        return { standing: { ...standing, ...there }, database, bookmark: session.getBookmark() };
      // It may have moved in between.
      if (attempt === 2) throw new Error(`workspace ${standing.workspaceId} is not in ${database}`);
    }
  }
}

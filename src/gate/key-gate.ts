import { DurableObject } from "cloudflare:workers";
import { STANDING_MAX_AGE_MS, WINDOW_WRITTEN_EVERY_MS } from "../contract/limits.ts";
import { openDatabase } from "../db/client.ts";
import { bindingOf, DIRECTORY } from "../db/databases.ts";
import { isOlder } from "../db/session.ts";
import { type Standing, useKey } from "../model/api-keys.ts";
import { findAccess } from "../model/workspaces.ts";
import type { KeyRefusal } from "./memory.ts";
import { countUsage, type HourUsage } from "./usage.ts";
import { type Figures, figuresOf, type Rule, take, type Window, windowAt } from "./window.ts";

/** A gate's answer to one request. */
export type Admission =
  | { verdict: "unknown_key" }
  | KeyRefusal
  | {
      verdict: "admitted";
      keyId: string;
      workspaceId: string;
      figures: Figures;
      /**
       * The name of the database that the workspace lives in; left out, the directory's, by an object
       * that a deployment has not reached yet.
       */
      database?: string;
      /** The bookmark of that database that what is read for this request must not be older than. */
      bookmark: string | null;
    };

/** Requests with the key that were answered 429 without asking its gate. */
export interface RefusedElsewhere {
  count: number;
  /** About when: Unix milliseconds. */
  at: number;
}

interface Kept {
  /** Null for a key that is unknown, revoked or expired: no such key becomes good again. */
  standing: Omit<Standing, "database"> | null;
  /** When it must be read anew, Unix milliseconds. */
  until: number;
}

/** What is written of the window: with it, and so without a write of its own, the usage of the key. */
interface KeptWindow extends Window {
  /** Absent in what was written before usage was counted. */
  hours?: HourUsage[];
}

/**
 * The gate of one API key, named by the key's hash: its standing and its quota, in one call. The
 * standing is read from the database once and kept until `forget`; the window is counted in memory,
 * and written twice a second at the most, without waiting for the disk. The count is exact, unless the
 * object is reset: then it forgets what was admitted since the last write.
 */
export class KeyGate extends DurableObject<Env> {
  #kept = this.ctx.storage.kv.get<Kept>("standing");
  #window = this.ctx.storage.kv.get<KeptWindow>("window");
  #hours = this.#window?.hours ?? [];
  #bookmark = this.ctx.storage.kv.get<string>("bookmark") ?? null;
  /** The database whose bookmark it is: that of the standing which was read last. */
  #database = this.ctx.storage.kv.get<string>("database") ?? DIRECTORY;
  /** Bookmarks of others. */
  readonly #early = new Map<string, string>();
  /** When the window was written last, Unix milliseconds, and whether the next write is waiting. */
  #savedAt = 0;
  #saving = false;
  /** The look-up under way, which every request that needs it shares. */
  #loading: Promise<void> | undefined;
  /** Counts the calls of `forget`: what was read before the last one is out of date. */
  #forgotten = 0;

  /**
   * Decides on one request made with the key.
   *
   * @param keyHash the name of this object.
   * @param at Unix milliseconds; the time of the decision when left out.
   * @param elsewhere requests that were refused without asking, since this gate refused one.
   */
  async admit(keyHash: string, at?: number, elsewhere?: RefusedElsewhere): Promise<Admission> {
    while (!this.#isFresh(at ?? Date.now())) {
      this.#loading ??= this.#load(keyHash, at ?? Date.now()).finally(() => {
        this.#loading = undefined;
      });
      await this.#loading;
    }
    // From here on nothing waits: decisions are made one after the other.
    if (elsewhere) this.#countRefused(elsewhere);
    return this.#decide(at ?? Date.now());
  }

  /** The requests of the key, in the hours that had any, oldest first. */
  usage(): HourUsage[] {
    return this.#hours;
  }

  #countRefused({ at, count }: RefusedElsewhere): void {
    this.#hours = countUsage(this.#hours, at, { refused: count });
    this.#saveWindow();
  }

  #decide(now: number): Admission {
    const standing = this.#kept?.standing;
    if (!standing) return { verdict: "unknown_key" };
    const rule: Rule = {
      limit: standing.requestsPerWindow ?? Number(this.env.QUOTA_REQUESTS),
      windowMs: Number(this.env.QUOTA_WINDOW_SECONDS) * 1000,
    };
    const { keyId, workspaceId, expiresAt } = standing;
    const window = windowAt(this.#window, rule, now);
    // A request that is denied access counts too, or a denied client could ask without limit.
    const taken = take(window, rule);
    if (taken) {
      this.#window = taken;
      this.#hours = countUsage(this.#hours, now, { requests: 1 });
      this.#saveWindow();
    }
    const known = { keyId, workspaceId, figures: figuresOf(taken ?? window, rule, now) };
    if (!standing.accessGranted) return { verdict: "access_denied", ...known, expiresAt };
    if (!taken) {
      this.#countRefused({ at: now, count: 1 });
      return { verdict: "quota_exceeded", ...known, expiresAt };
    }
    return { verdict: "admitted", ...known, database: this.#database, bookmark: this.#bookmark };
  }

  /**
   * Raises the bookmark that is handed out with admissions; when this returns, for good.
   *
   * @param database the name of the database that it is of.
   */
  advance(bookmark: string, database = DIRECTORY): void {
    if (database !== this.#database) {
      // The standing that says so may be on its way. Lost with the object, which then reads both anew.
      if (isOlder(this.#early.get(database) ?? null, bookmark)) this.#early.set(database, bookmark);
      return;
    }
    if (!isOlder(this.#bookmark, bookmark)) return;
    this.#bookmark = bookmark;
    this.ctx.storage.kv.put("bookmark", bookmark);
  }

  /** Goes over to another database, whose bookmarks have nothing to do with those before. */
  #moveTo(database: string): void {
    if (database === this.#database) return;
    const early = this.#early.get(database);
    this.#early.clear();
    this.#database = database;
    this.#bookmark = null;
    this.ctx.storage.kv.put("database", database);
    this.ctx.storage.kv.delete("bookmark");
    if (early !== undefined) this.advance(early, database);
  }

  /** Drops the key's standing: the platform has changed it. When it returns, nothing old is admitted. */
  forget(): void {
    this.#forgotten++;
    this.#kept = undefined;
    this.ctx.storage.kv.delete("standing");
  }

  /** Writes the window, now or a little later with what is counted until then. */
  #saveWindow(): void {
    if (this.#saving) return;
    const agoMs = Date.now() - this.#savedAt;
    // Less than nothing after a clock was set back.
    if (agoMs < 0 || agoMs >= WINDOW_WRITTEN_EVERY_MS) {
      this.#writeWindow();
      return;
    }
    this.#saving = true;
    // An object is not evicted while a timer runs: only a reset can come in between.
    setTimeout(() => this.#writeWindow(), WINDOW_WRITTEN_EVERY_MS - agoMs);
  }

  #writeWindow(): void {
    this.#saving = false;
    this.#savedAt = Date.now();
    const kept = { ...this.#window, hours: this.#hours };
    this.ctx.waitUntil(this.ctx.storage.put("window", kept, { allowUnconfirmed: true }));
  }

  #isFresh(now: number): boolean {
    return this.#kept !== undefined && now <= this.#kept.until;
  }

  /**
   * Reads the standing, which notes the use of the key: at the first one, and then once an hour.
   *
   * @param now when it begins, Unix milliseconds: from then on, the standing gets older.
   */
  async #load(keyHash: string, now: number): Promise<void> {
    for (;;) {
      const forgotten = this.#forgotten;
      const { standing, database, bookmark } = await this.#read(keyHash, now);
      // Forgotten while it was being read: it may be the old one.
      if (forgotten !== this.#forgotten) continue;
      // Read anew when its use is to be noted again, even if it was forgotten and read in between.
      const usedAt = Math.min(standing?.lastUsedAt ?? now, now);
      const staleAt = usedAt + STANDING_MAX_AGE_MS;
      // And when the key expires, which the look-up then sees.
      const lastMs = (standing?.expiresAt ?? Number.POSITIVE_INFINITY) - 1;
      this.#kept = { standing, until: Math.min(staleAt, lastMs) };
      // Not written: a flood of invented keys leaves nothing behind.
      if (!standing) return;
      const begins = this.#bookmark === null || database !== this.#database;
      this.#moveTo(database);
      // From then on, whoever writes what this key shall see finds it used, and tells this gate.
      if (begins && bookmark !== null) this.advance(bookmark, database);
      this.ctx.storage.kv.put("standing", this.#kept);
      return;
    }
  }

  /**
   * Reads the standing in the directory, and, of a workspace that lives in another database, its access
   * there: whoever changes that does so before he looks for the keys that are in use.
   */
  async #read(keyHash: string, now: number) {
    for (let attempt = 1; ; attempt++) {
      const directory = this.env.DB.withSession("first-primary");
      const found = await useKey(openDatabase(directory), keyHash, now);
      if (!found || found.database === DIRECTORY)
        return { standing: found, database: DIRECTORY, bookmark: directory.getBookmark() };
      const { database, ...standing } = found;
      const home = bindingOf(this.env, database).withSession("first-primary");
      const accessGranted = await findAccess(openDatabase(home), standing.workspaceId);
      if (accessGranted !== null)
        return { standing: { ...standing, accessGranted }, database, bookmark: home.getBookmark() };
      // Unless it has moved in between.
      if (attempt === 2) throw new Error(`workspace ${standing.workspaceId} is not in ${database}`);
    }
  }
}

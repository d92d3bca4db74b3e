import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import { open, parseEncryptionKeys } from "../../src/encryption/seal.ts";
import { ROOT } from "../shared/checkout.ts";
import { type Cloudflare, CloudflareError, orIfNoWorker } from "../shared/cloudflare.ts";
import {
  type ConfiguredDatabase,
  databasesIn,
  findDatabase,
  ListedDatabase,
  listDatabases,
} from "../shared/databases.ts";
import { print } from "../shared/terminal.ts";
import type { Wrangler } from "../shared/wrangler.ts";
import { placeOf } from "./queues.ts";

const Named = z.array(z.object({ name: z.string() }));
const Bookmark = z.object({ bookmark: z.string() });

/** A database of the configuration that exists. */
export interface FoundDatabase extends ConfiguredDatabase {
  uuid: string;
  /** Where it is stored; empty: in no jurisdiction. */
  jurisdiction: string;
}

/** The databases of a configuration, as they are in the account. */
export interface FoundDatabases {
  existing: FoundDatabase[];
  missing: ConfiguredDatabase[];
  /** The empty databases in another jurisdiction, where the dashboard and other tools create them. */
  misplaced: FoundDatabase[];
}

/** The newest version of the Worker, which may be a draft that another tool has made. */
interface NewestVersion {
  /** The ids of the databases that it is bound to, by binding. */
  bound: Map<string, string>;
  /** Whether no deployment has set it up yet. */
  isDraft: boolean;
}

const Bindings = z.object({
  bindings: z
    .array(z.object({ type: z.string(), name: z.string(), id: z.string().optional() }))
    .nullish(),
});

/** Finds the ids of the databases that the newest version of the Worker is bound to, by binding. */
export async function findBound(
  { call }: Cloudflare,
  { name }: Unstable_Config,
): Promise<Map<string, string>> {
  const path = `/workers/scripts/${name}/settings`;
  const settings = await call(Bindings, "GET", path).catch((error) => orIfNoWorker(error, null));
  const bound = new Map<string, string>();
  for (const { type, name, id } of settings?.bindings ?? [])
    if (type === "d1" && id) bound.set(name, id);
  return bound;
}

/**
 * Looks the databases up.
 *
 * @param jurisdiction where they should be; empty: anywhere.
 * @param closed the bindings of those that workspaces are to leave.
 * @throws Error if one that holds something is in another jurisdiction, or one with an id does not exist.
 */
export async function findDatabases(
  cloudflare: Cloudflare,
  databases: ConfiguredDatabase[],
  jurisdiction: string,
  closed: string[],
  newest: NewestVersion,
): Promise<FoundDatabases> {
  const listed = await listDatabases(cloudflare);
  const found: FoundDatabases = { existing: [], missing: [], misplaced: [] };
  for (const database of databases) {
    const { binding, name, id } = database;
    const there =
      findDatabase(listed, database) ??
      (await findReplacement(cloudflare, listed, database, newest));
    if (!there) {
      found.missing.push(database);
      continue;
    }
    const place = there.jurisdiction ?? "";
    const existing = { ...database, uuid: there.uuid, jurisdiction: place };
    if (place === jurisdiction || closed.includes(binding)) found.existing.push(existing);
    else if (await isEmpty(cloudflare, existing)) {
      // Wrangler would look for the deleted database, which it takes from the draft.
      if (!id && newest.bound.get(binding) === there.uuid)
        throw new Error(
          `The database ${name} is empty and stored ${placeOf(place)}, and a draft of the Worker is bound to it: add database_id = "${there.uuid}" to ${binding} in wrangler.toml, so that it can be replaced. Nothing was deployed.`,
        );
      found.misplaced.push(existing);
    }
    // A list that does not mention the jurisdiction says nothing about it.
    else if (there.jurisdiction === undefined) found.existing.push(existing);
    else
      throw new Error(
        `The database ${name} is stored ${placeOf(place)}, not ${placeOf(jurisdiction)}, and cannot be moved: list it in DATABASES_CLOSED, bind a new one, and moveWorkspace to that (docs/admin.md, Where data is stored). Nothing was deployed.`,
      );
  }
  return found;
}

/**
 * Finds the database that has replaced the one with the configured id. A pipeline's checkout still has the id of the
 * empty database that a former deployment replaced.
 *
 * @returns undefined if there is none yet.
 * @throws Error if the Worker does not prove that this is the right account: that it is bound to the replacement or, as
 *   a draft, to the database that is gone. A draft does not prove that the replacement is this service's, so it must not
 *   hold anything else.
 */
async function findReplacement(
  cloudflare: Cloudflare,
  listed: ListedDatabase[],
  { binding, name, id }: ConfiguredDatabase,
  { bound, isDraft }: NewestVersion,
): Promise<ListedDatabase | undefined> {
  if (!id) return undefined;
  const replacement = listed.find((each) => each.name === name);
  const boundId = bound.get(binding);
  const isReplaced = replacement !== undefined && boundId === replacement.uuid;
  if (isReplaced) return replacement;
  if (isDraft && boundId === id) {
    if (!replacement || (await isOwn(cloudflare, replacement))) return replacement;
    throw new Error(
      `The account has a database ${name}, but not with the id ${id}, and it holds something else: give ${binding} another database_name in wrangler.toml, and no database_id. Nothing was deployed.`,
    );
  }
  throw new Error(
    `The account has no database with the id ${id}, which wrangler.toml gives ${binding}. If this is the right account, delete that line: the database is then found, or created, as ${name}. Nothing was deployed.`,
  );
}

const MIGRATIONS = "SELECT name FROM d1_migrations";
const TABLES =
  "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND substr(name, 1, 4) <> '_cf_'";

/** Whether a database has no tables but SQLite's and Cloudflare's own. */
export async function isEmpty(cloudflare: Cloudflare, database: ListedDatabase): Promise<boolean> {
  return (await query(cloudflare, database, TABLES, Named)).length === 0;
}

/** Whether a database is empty, or has migrations of this checkout. The first one may have failed. */
async function isOwn(cloudflare: Cloudflare, database: ListedDatabase): Promise<boolean> {
  const tables = await query(cloudflare, database, TABLES, Named);
  if (tables.every(({ name }) => name === "d1_migrations")) return true;
  const known = migrationsHere();
  const applied = await query(cloudflare, database, MIGRATIONS, Named);
  return applied.some(({ name }) => known.includes(name));
}

/**
 * Deletes databases that were empty, so that they can be created where they should be.
 *
 * @throws Error if one is not empty any more.
 */
export async function deleteEmpty(
  cloudflare: Cloudflare,
  databases: FoundDatabase[],
): Promise<void> {
  for (const database of databases) {
    const { name, uuid, jurisdiction } = database;
    if (!(await isEmpty(cloudflare, database)))
      throw new Error(
        `The database ${name} is not empty any more, so it is not replaced: run the command again. Nothing was deployed.`,
      );
    print(`Replacing the database ${name}, which is empty and stored ${placeOf(jurisdiction)}.`);
    await cloudflare.call(z.unknown(), "DELETE", `/d1/database/${uuid}`);
  }
}

/** Creates databases. */
export async function makeDatabases(
  { call }: Cloudflare,
  databases: ConfiguredDatabase[],
  jurisdiction: string,
): Promise<FoundDatabase[]> {
  const created: FoundDatabase[] = [];
  for (const { binding, name, id } of databases) {
    print(`Creating the database ${name}.`);
    const { uuid } = await call(ListedDatabase, "POST", "/d1/database", {
      name,
      ...(jurisdiction && { jurisdiction }),
    });
    created.push({ binding, name, id, uuid, jurisdiction });
  }
  return created;
}

/** The id of a database in a configuration, which is TOML or JSON, after its key. */
const DATABASE_ID = /(\bdatabase_id"?\s*[=:]\s*["'])([^"']*)/g;

/** Replaces the ids in the configuration that are not those of its databases any more: wrangler binds by these ids. */
export function writeIds(configFile: string, databases: FoundDatabase[]): void {
  for (const { name, id, uuid } of databases) {
    if (!id || id === uuid) continue;
    const config = readFileSync(configFile, "utf8");
    writeFileSync(
      configFile,
      config.replaceAll(DATABASE_ID, (whole, key: string, found: string) =>
        found === id ? key + uuid : whole,
      ),
    );
    print(
      `${basename(configFile)} now gives the database ${name} its new id ${uuid}: commit that.`,
    );
  }
}

/**
 * Wrangler looks up the databases that the newest version is bound to, unless the configuration gives their ids, and
 * fails if one was deleted.
 *
 * @throws Error if one was, with the id of the database that has its name.
 */
export async function expectInheritable(
  cloudflare: Cloudflare,
  config: Unstable_Config,
): Promise<void> {
  const listed = await listDatabases(cloudflare);
  const bound = await findBound(cloudflare, config);
  for (const database of databasesIn(config)) {
    const id = bound.get(database.binding);
    if (database.id || !id || listed.some(({ uuid }) => uuid === id)) continue;
    throw new Error(
      `The newest version of the Worker is bound to a database that was deleted: add database_id = "${findDatabase(listed, database)?.uuid}" to ${database.binding} in wrangler.toml. Nothing was deployed.`,
    );
  }
}

/** Reads, and prints, the bookmark that each database can be restored to. */
export async function bookmark(
  { call }: Cloudflare,
  databases: FoundDatabase[],
): Promise<string[]> {
  const bookmarks: string[] = [];
  for (const { binding, name, uuid } of databases) {
    const path = `/d1/database/${uuid}/time_travel/bookmark`;
    const { bookmark } = await call(Bookmark, "GET", path);
    print(`The database ${name} can be restored to ${bookmark}.`);
    bookmarks.push(`${binding} ${bookmark}`);
  }
  return bookmarks;
}

/** Applies the missing migrations to databases that lack some. @throws Error at the first that fails. */
export async function migrateDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  for (const { binding, name } of databases) {
    print(`Migrating the database ${name}.`);
    // Without prompts: a declined migration would look like an applied one.
    const args = ["d1", "migrations", "apply", binding, "--remote"];
    const code = await wrangler.show(args, { CI: "1" });
    if (code !== 0)
      throw new Error(`The database ${name} could not be migrated: nothing was deployed.`);
  }
}

/** The name of a migration that code from before it cannot run on. */
const ONE_WAY = /_forbids_rollback\.sql$/;

/** The migrations of this checkout. */
export function migrationsHere(): string[] {
  return readdirSync(join(ROOT, "migrations")).filter((name) => name.endsWith(".sql"));
}

/**
 * Finds the databases that lack a migration. The others need no call of wrangler, which takes seconds.
 *
 * @param known the migrations that the code to be deployed has.
 * @throws Error if a database has one that this code cannot run on.
 */
export async function findUnmigrated(
  cloudflare: Cloudflare,
  databases: FoundDatabase[],
  known: string[],
): Promise<FoundDatabase[]> {
  const lacking: FoundDatabase[] = [];
  for (const database of databases) {
    const applied = await query(cloudflare, database, MIGRATIONS, Named);
    const barrier = applied.find(({ name }) => ONE_WAY.test(name) && !known.includes(name));
    if (barrier)
      throw new Error(
        `The database ${database.name} has the migration ${barrier.name}, which this version is too old for: nothing was deployed.`,
      );
    const names = new Set(applied.map(({ name }) => name));
    if (known.some((name) => !names.has(name))) lacking.push(database);
  }
  return lacking;
}

/** Counts, in the directory, the workspaces in each database other than `DB`. */
const WORKSPACE_COUNTS =
  "SELECT database, count(*) AS workspaces FROM workspaces WHERE database IS NOT NULL GROUP BY database";
const WorkspaceCounts = z.array(z.object({ database: z.string(), workspaces: z.number() }));

/**
 * @param missing the databases that the account lacks, although the Worker was deployed before.
 * @throws Error if `DB` is one of them: a new one would be an empty service.
 */
export function expectDirectory(missing: ConfiguredDatabase[]): void {
  const directory = missing.find(({ binding }) => binding === "DB");
  if (directory)
    throw new Error(
      `The account has no database ${directory.name}, but the Worker was deployed with one: give DB its former database_name in wrangler.toml, or pass --new-database to begin with an empty one. Nothing was deployed.`,
    );
}

/**
 * @param directory the database that says where each workspace lives.
 * @param missing the databases that the account lacks.
 * @throws Error if workspaces live in a database that is missing or not bound: the Worker would not find them.
 */
export async function expectAllThere(
  cloudflare: Cloudflare,
  directory: FoundDatabase,
  databases: ConfiguredDatabase[],
  missing: ConfiguredDatabase[],
): Promise<void> {
  const counts = await query(cloudflare, directory, WORKSPACE_COUNTS, WorkspaceCounts);
  for (const { database, workspaces } of counts) {
    const lost = missing.find(({ binding }) => binding === database);
    if (lost)
      throw new Error(
        `The account has no database ${lost.name}, but workspaces live in ${database} (${workspaces}): give it its former database_name in wrangler.toml. Nothing was deployed.`,
      );
    if (!databases.some(({ binding }) => binding === database))
      throw new Error(
        `wrangler.toml does not bind ${database}, but workspaces live there (${workspaces}): nothing was deployed.`,
      );
  }
}

/** One data key under each encryption key that is in use; reads all of them. */
const SEALED_UNDER_EACH_KEY = `SELECT id AS owner, min(sealed_data_key) AS sealed FROM workspaces
  WHERE sealed_data_key IS NOT NULL GROUP BY substr(sealed_data_key, 1, instr(sealed_data_key, '.'))`;
const Sealed = z.array(z.object({ owner: z.string(), sealed: z.string() }));

/**
 * @param keys `ENCRYPTION_KEYS`.
 * @param lost the ids of keys that are lost for good.
 * @throws Error if another key that something stored is encrypted under is not among them.
 */
export async function expectReadable(
  cloudflare: Cloudflare,
  databases: FoundDatabase[],
  keys: string,
  lost: string[],
): Promise<void> {
  const ring = parseEncryptionKeys(keys);
  for (const database of databases)
    for (const { owner, sealed } of await query(
      cloudflare,
      database,
      SEALED_UNDER_EACH_KEY,
      Sealed,
    ))
      await open(ring, owner, sealed).catch(() => {
        const [keyId = ""] = sealed.split(".");
        if (lost.includes(keyId)) return;
        throw new Error(
          `ENCRYPTION_KEYS lacks the key ${keyId}, under which the database ${database.name} has secrets: add it at the end, or pass --lost-key ${keyId} if it is lost for good. Nothing was deployed.`,
        );
      });
}

/** The rows of a query; none if the database has no such table yet. */
async function query<T>(
  { call }: Cloudflare,
  { uuid }: ListedDatabase,
  sql: string,
  schema: z.ZodType<T[]>,
): Promise<T[]> {
  const answer = z.array(z.object({ results: schema }));
  try {
    const found = await call(answer, "POST", `/d1/database/${uuid}/query`, { sql });
    return found.flatMap(({ results }) => results);
  } catch (error) {
    if (error instanceof CloudflareError && /no such table/.test(error.message)) return [];
    throw error;
  }
}

import { z } from "@hono/zod-openapi";
import { open, parseEncryptionKeys } from "../../src/encryption/seal.ts";
import { type Cloudflare, CloudflareError } from "../shared/cloudflare.ts";
import {
  APPLIED_MIGRATIONS,
  type ConfiguredDatabase,
  findDatabase,
  ListedDatabase,
  listDatabases,
  migrate,
  migrationsHere,
  runIn,
} from "../shared/databases.ts";
import { print } from "../shared/terminal.ts";

const Named = z.array(z.object({ name: z.string() }));

/** A database of the configuration that exists. */
export interface FoundDatabase extends ConfiguredDatabase {
  uuid: string;
  /** Where it is stored; empty: in no jurisdiction; undefined if Cloudflare does not say. */
  jurisdiction: string | undefined;
}

/** The databases of a configuration, as they are in the account. */
export interface FoundDatabases {
  existing: FoundDatabase[];
  missing: ConfiguredDatabase[];
}

/** Looks the databases up. @throws Error if one whose id the configuration has does not exist. */
export async function findDatabases(
  cloudflare: Cloudflare,
  databases: ConfiguredDatabase[],
): Promise<FoundDatabases> {
  const listed = await listDatabases(cloudflare);
  const found: FoundDatabases = { existing: [], missing: [] };
  for (const database of databases) {
    const { binding, name, id } = database;
    const there = findDatabase(listed, database);
    if (there)
      found.existing.push({
        ...database,
        uuid: there.uuid,
        jurisdiction: there.jurisdiction === null ? "" : there.jurisdiction,
      });
    else if (id)
      throw new Error(
        `The account has no database with the id ${id}, which wrangler.toml gives ${binding}. If this is the right account, delete that line: the database is then found, or created, as ${name}. Nothing was deployed.`,
      );
    else found.missing.push(database);
  }
  return found;
}

/** Creates databases. Wrangler would create them without a jurisdiction. @returns them. */
export async function makeDatabases(
  { call }: Cloudflare,
  databases: ConfiguredDatabase[],
  jurisdiction: string,
): Promise<ListedDatabase[]> {
  const made: ListedDatabase[] = [];
  for (const { name } of databases) {
    print(`Creating the database ${name}.`);
    const place = jurisdiction && { jurisdiction };
    made.push(await call(ListedDatabase, "POST", "/d1/database", { name, ...place }));
  }
  return made;
}

/** Applies the missing migrations to databases. @throws Error at the first that fails. */
export async function migrateDatabases(
  cloudflare: Cloudflare,
  databases: ListedDatabase[],
): Promise<void> {
  for (const database of databases) {
    const { name } = database;
    const announce = () => print(`Migrating the database ${name}.`);
    await migrate(runIn(cloudflare, database), announce).catch((error: Error) => {
      throw new Error(
        `The database ${name} could not be migrated: nothing was deployed. ${error.message}`,
      );
    });
  }
}

/** The name of a migration that code from before it cannot run on. */
const ONE_WAY = /_forbids_rollback\.sql$/;

/** @throws Error if a database has a migration that the code to be deployed cannot run on. */
export async function expectNoBarrier(
  cloudflare: Cloudflare,
  databases: FoundDatabase[],
): Promise<void> {
  const known = migrationsHere();
  for (const database of databases) {
    const applied = await query(cloudflare, database, APPLIED_MIGRATIONS, Named);
    const barrier = applied.find(({ name }) => ONE_WAY.test(name) && !known.includes(name));
    if (barrier)
      throw new Error(
        `The database ${database.name} has the migration ${barrier.name}, which this version is too old for: nothing was deployed.`,
      );
  }
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
      `The account has no database ${directory.name}, but the Worker was deployed with one: give DB its former database_name in wrangler.toml or, if the database is lost, see docs/rebuilding.md. Nothing was deployed.`,
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

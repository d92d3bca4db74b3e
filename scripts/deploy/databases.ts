import { readdirSync } from "node:fs";
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import { open, parseEncryptionKeys } from "../../src/encryption/seal.ts";
import { ROOT } from "../shared/checkout.ts";
import type { ConfiguredDatabase } from "../shared/databases.ts";
import { print } from "../shared/terminal.ts";
import type { Answer, Wrangler } from "../shared/wrangler.ts";
import { placeOf } from "./queues.ts";

const Databases = z.array(
  z.object({ name: z.string(), uuid: z.string(), jurisdiction: z.string().nullish() }),
);
const Named = z.array(z.object({ name: z.string() }));
const Bookmark = z.object({ bookmark: z.string() });

/** The databases of a configuration, as they are in the account. */
export interface FoundDatabases {
  existing: ConfiguredDatabase[];
  missing: ConfiguredDatabase[];
}

/**
 * Looks the databases up.
 *
 * @param jurisdiction where they should be; empty: anywhere.
 * @param closed the bindings of those that workspaces are to leave.
 * @throws Error if another one is in another jurisdiction, or they cannot be listed.
 */
export async function findDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  jurisdiction: string,
  closed: string[],
): Promise<FoundDatabases> {
  const { stdout, complaint } = await wrangler.ask("d1", "list", "--json");
  const listed = Databases.safeParse(parseJson(stdout));
  if (!listed.success) throw new Error(`The databases cannot be listed:\n${complaint}`);
  const find = ({ name, id }: ConfiguredDatabase) =>
    listed.data.find((each) => (id ? each.uuid === id : each.name === name));
  for (const database of databases) {
    const there = find(database)?.jurisdiction;
    // An answer that does not mention it says nothing about it.
    if (there === undefined || closed.includes(database.binding)) continue;
    if ((there ?? "") !== jurisdiction)
      throw new Error(
        `The database ${database.name} is stored ${placeOf(there ?? "")}, not ${placeOf(jurisdiction)}, and cannot be moved: list it in DATABASES_CLOSED, bind a new one, and moveWorkspace to that (docs/operations.md, Where data is stored). Nothing was deployed.`,
      );
  }
  return {
    existing: databases.filter((database) => database.id || find(database)),
    missing: databases.filter((database) => !database.id && !find(database)),
  };
}

/** Creates databases. */
export async function makeDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  jurisdiction: string,
): Promise<void> {
  const where = jurisdiction ? [`--jurisdiction=${jurisdiction}`] : [];
  for (const { name } of databases) {
    print(`Creating the database ${name}.`);
    const made = await wrangler.ask("d1", "create", name, ...where);
    if (!made.ok) throw new Error(`The database ${name} could not be created:\n${made.complaint}`);
  }
}

/** Reads, and prints, the bookmark that each database can be restored to. */
export async function bookmark(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<string[]> {
  const bookmarks: string[] = [];
  for (const { binding, name } of databases) {
    const { stdout, complaint } = await wrangler.ask(
      ...["d1", "time-travel", "info", binding, "--json"],
    );
    const { success, data } = Bookmark.safeParse(parseJson(stdout));
    if (!success) throw new Error(`The database ${name} gives no bookmark:\n${complaint}`);
    print(`The database ${name} can be restored to ${data.bookmark}.`);
    bookmarks.push(`${binding} ${data.bookmark}`);
  }
  return bookmarks;
}

/** Applies the missing migrations to each database. @throws Error at the first that fails. */
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
 * @param known the migrations that the code to be deployed has.
 * @throws Error if a database has one that this code cannot run on.
 */
export async function expectRunsOn(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  known: string[],
): Promise<void> {
  for (const { binding, name } of databases) {
    const applied = await query(wrangler, binding, "SELECT name FROM d1_migrations", Named);
    const barrier = applied.find(({ name }) => ONE_WAY.test(name) && !known.includes(name));
    if (barrier)
      throw new Error(
        `The database ${name} has the migration ${barrier.name}, which this version is too old for: nothing was deployed.`,
      );
  }
}

/** Counts, in the directory, the workspaces in each database other than `DB`. */
const WORKSPACE_COUNTS =
  "SELECT database, count(*) AS workspaces FROM workspaces WHERE database IS NOT NULL GROUP BY database";
const WorkspaceCounts = z.array(z.object({ database: z.string(), workspaces: z.number() }));

/** @throws Error if workspaces live in a database that is not bound: the Worker would not find them. */
export async function expectAllBound(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  const bound = databases.map(({ binding }) => binding);
  const counts = await query(wrangler, "DB", WORKSPACE_COUNTS, WorkspaceCounts);
  for (const { database, workspaces } of counts)
    if (!bound.includes(database))
      throw new Error(
        `wrangler.toml does not bind ${database}, but workspaces live there (${workspaces}): nothing was deployed.`,
      );
}

/** One data key under each encryption key that is in use; reads all of them. */
const SEALED_UNDER_EACH_KEY = `SELECT id AS owner, min(data_key) AS sealed FROM workspaces
  WHERE data_key IS NOT NULL GROUP BY substr(data_key, 1, instr(data_key, '.'))`;
const Sealed = z.array(z.object({ owner: z.string(), sealed: z.string() }));

/**
 * @param keys `ENCRYPTION_KEYS`.
 * @param lost the ids of keys that are lost for good.
 * @throws Error if another key that something stored is encrypted under is not among them.
 */
export async function expectReadable(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
  keys: string,
  lost: string[],
): Promise<void> {
  const ring = parseEncryptionKeys(keys);
  for (const { binding, name } of databases)
    for (const { owner, sealed } of await query(wrangler, binding, SEALED_UNDER_EACH_KEY, Sealed))
      await open(ring, owner, sealed).catch(() => {
        const [keyId = ""] = sealed.split(".");
        if (lost.includes(keyId)) return;
        throw new Error(
          `ENCRYPTION_KEYS lacks the key ${keyId}, under which the database ${name} has secrets: add it at the end, or pass --lost-key ${keyId} if it is lost for good. Nothing was deployed.`,
        );
      });
}

/** The rows of a query; none if the database has no such table yet. */
async function query<T>(
  wrangler: Wrangler,
  binding: string,
  sql: string,
  schema: z.ZodType<T[]>,
): Promise<T[]> {
  const command = sql.replace(/\s+/g, " ");
  const { stdout, complaint } = await wrangler.ask(
    ...["d1", "execute", binding, "--remote", "--json", "--command", command],
  );
  if (/no such table/.test(complaint)) return [];
  const answer = z.array(z.object({ results: schema })).safeParse(parseJson(stdout));
  if (!answer.success) throw new Error(`The database ${binding} cannot be read:\n${complaint}`);
  return answer.data.flatMap(({ results }) => results);
}

/** Parses the names in a list that wrangler printed. @throws Error if it is not a list. */
export function parseNames({ ok, stdout, complaint }: Answer, what: string): string[] {
  const list = Named.safeParse(ok ? parseJson(stdout) : null);
  if (!list.success) throw new Error(`${what} cannot be listed:\n${complaint}`);
  return list.data.map(({ name }) => name);
}

/** Parses JSON; null if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

import { z } from "@hono/zod-openapi";
import type { ConfiguredDatabase } from "../shared/databases.ts";
import type { Answer, Wrangler } from "../shared/wrangler.ts";

const Directory = z.array(
  z.object({ results: z.array(z.object({ database: z.string(), workspaces: z.number() })) }),
);
const Named = z.array(z.object({ name: z.string() }));

/** The databases that do not exist yet. */
export async function missingDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<ConfiguredDatabase[]> {
  const wanted = databases.filter(({ hasId }) => !hasId);
  if (wanted.length === 0) return [];
  const known = parseNames(await wrangler.ask("d1", "list", "--json"), "The databases");
  return wanted.filter(({ name }) => !known.includes(name));
}

/** Creates the databases that do not exist yet. */
export async function makeDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  for (const { name } of await missingDatabases(wrangler, databases)) {
    console.log(`Creating the database ${name}.`);
    const made = await wrangler.ask("d1", "create", name);
    if (!made.ok) throw new Error(`The database ${name} could not be created:\n${made.complaint}`);
  }
}

/** Applies the missing migrations to each database. @throws Error at the first that fails. */
export async function migrateDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  for (const { binding, name } of databases) {
    console.log(`Migrating the database ${name}.`);
    // Without prompts: a declined migration would look like an applied one.
    const args = ["d1", "migrations", "apply", binding, "--remote"];
    const code = await wrangler.show(args, { CI: "1" });
    if (code !== 0)
      throw new Error(`The database ${name} could not be migrated: nothing was deployed.`);
  }
}

/** Counts, in the directory, the workspaces in each database other than `DB`. */
const WORKSPACE_COUNTS =
  "SELECT database, count(*) AS workspaces FROM workspaces WHERE database IS NOT NULL GROUP BY database";

/** @throws Error if workspaces live in a database that is not bound: the Worker would not find them. */
export async function expectAllBound(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  const options = ["--remote", "--json", "--command", WORKSPACE_COUNTS];
  const { stdout, complaint } = await wrangler.ask("d1", "execute", "DB", ...options);
  const answer = Directory.safeParse(parseJson(stdout));
  if (!answer.success) throw new Error(`The directory cannot be read:\n${complaint}`);
  const bound = databases.map(({ binding }) => binding);
  for (const { database, workspaces } of answer.data.flatMap(({ results }) => results))
    if (!bound.includes(database))
      throw new Error(
        `wrangler.toml does not bind ${database}, but workspaces live there (${workspaces}): nothing was deployed.`,
      );
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

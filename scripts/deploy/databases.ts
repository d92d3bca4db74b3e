import { z } from "zod";
import type { ConfiguredDatabase } from "../shared/databases.ts";
import type { Answer, Wrangler } from "../shared/wrangler.ts";

const Directory = z.array(
  z.object({ results: z.array(z.object({ database: z.string(), workspaces: z.number() })) }),
);
const Named = z.array(z.object({ name: z.string() }));

/** Those of the databases that are not there yet. */
export async function missingDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<ConfiguredDatabase[]> {
  const wanted = databases.filter(({ hasId }) => !hasId);
  if (wanted.length === 0) return [];
  const known = namesIn(await wrangler.ask("d1", "list", "--json"), "The databases");
  return wanted.filter(({ name }) => !known.includes(name));
}

/** Makes the databases that are not there yet. */
export async function makeDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  for (const { name } of await missingDatabases(wrangler, databases)) {
    console.log(`Making the database ${name}.`);
    const made = await wrangler.ask("d1", "create", name);
    if (!made.ok) throw new Error(`The database ${name} could not be made:\n${made.complaint}`);
  }
}

/** Applies to each database the migrations that it lacks. @throws Error at the first that fails. */
export async function migrateDatabases(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  for (const { binding, name } of databases) {
    console.log(`Bringing the database ${name} up to date.`);
    // Without questions: a migration that is declined would look like one that was applied.
    const args = ["d1", "migrations", "apply", binding, "--remote"];
    const code = await wrangler.show(args, { CI: "1" });
    if (code !== 0)
      throw new Error(
        `The database ${name} could not be brought up to date: nothing was deployed.`,
      );
  }
}

/** How many workspaces live in which other database than `DB`, as the directory says. */
const DIRECTORY_QUESTION =
  "SELECT database, count(*) AS workspaces FROM workspaces WHERE database IS NOT NULL GROUP BY database";

/** @throws Error when workspaces live in a database that is not bound: the code would not find them. */
export async function expectAllBound(
  wrangler: Wrangler,
  databases: ConfiguredDatabase[],
): Promise<void> {
  const options = ["--remote", "--json", "--command", DIRECTORY_QUESTION];
  const { stdout, complaint } = await wrangler.ask("d1", "execute", "DB", ...options);
  const answer = Directory.safeParse(parse(stdout));
  if (!answer.success) throw new Error(`The directory cannot be read:\n${complaint}`);
  const bound = databases.map(({ binding }) => binding);
  for (const { database, workspaces } of answer.data.flatMap(({ results }) => results))
    if (!bound.includes(database))
      throw new Error(
        `wrangler.toml does not bind ${database}, where workspaces live (${workspaces}): nothing was deployed.`,
      );
}

/** The names in a list that wrangler gave. @throws Error when it gave none. */
export function namesIn({ ok, stdout, complaint }: Answer, what: string): string[] {
  const list = Named.safeParse(ok ? parse(stdout) : null);
  if (!list.success) throw new Error(`${what} cannot be listed:\n${complaint}`);
  return list.data.map(({ name }) => name);
}

/** JSON, or else null: what is not JSON is no answer. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

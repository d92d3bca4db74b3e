import { env } from "cloudflare:workers";
import type { WebhookEvent } from "../../src/contract/enumerations.ts";
import { openApi, setUp } from "./api.ts";
import { subscriberUrl } from "./deliveries.ts";
import { interposed } from "./interposed.ts";
import { DATABASES, type DatabaseName } from "./placement.ts";

/** The databases that are bound in these tests. */
export const NAMES = Object.keys(DATABASES) as DatabaseName[];

/** The real database with this name. */
export function databaseOf(name: DatabaseName): D1Database {
  return DATABASES[name];
}

/** The rows of one statement in a database. */
export async function rowsIn<Row = Record<string, unknown>>(
  name: DatabaseName,
  sql: string,
  ...values: unknown[]
): Promise<Row[]> {
  const statement = databaseOf(name).prepare(sql);
  return (await statement.bind(...values).all<Row>()).results;
}

/** The only column of the first row of a statement; undefined if there is no row. */
export async function valueIn<Value = unknown>(
  name: DatabaseName,
  sql: string,
  ...values: unknown[]
): Promise<Value | undefined> {
  const [row] = await rowsIn<Record<string, Value>>(name, sql, ...values);
  return row && Object.values(row)[0];
}

/** The deployment with some databases replaced. */
export function deploymentWith(databases: Partial<Record<DatabaseName, D1Database>>): Env {
  return { ...env, ...databases };
}

/** How a database is unreachable. */
export const WAYS = ["rejects", "hangs"] as const;

/** A database that rejects every call, as D1 does, or never answers. */
export function unreachableDatabase(way: (typeof WAYS)[number]): D1Database {
  const overloaded = "D1_ERROR: D1 DB is overloaded. Too many requests queued.";
  return interposed(env.DB, () =>
    way === "hangs" ? new Promise(() => {}) : Promise.reject(new Error(overloaded)),
  );
}

/** A workspace in the given database, with a key, and the API as seen with this key. */
export async function openWorkspaceIn(database: DatabaseName, name = `Agence ${database}`) {
  const { workspaceId } = await setUp.createWorkspace({ name, database });
  const { keyId, apiKey } = await setUp.createApiKey({ workspaceId });
  return { database, workspaceId, keyId, apiKey, api: openApi(apiKey) };
}

/** Such a workspace with a subscription to some kinds of events, created with its key. */
export async function openSubscribedIn(
  database: DatabaseName,
  { behaviour = "ok", events = ["lead.created"] as WebhookEvent[] } = {},
) {
  const workspace = await openWorkspaceIn(database);
  const url = subscriberUrl(behaviour);
  const { body } = await workspace.api.post<{ id: string }>("/v1/webhooks", { url, events });
  return { ...workspace, webhookId: body.id, url };
}

/**
 * The tables of a database that contain a text anywhere, such as a workspace's id, but for the audit
 * trail, which outlives what it names.
 */
export async function tablesWith(database: DatabaseName, text: string): Promise<string[]> {
  const tables = await rowsIn<{ name: string; columns: string }>(
    database,
    `SELECT t.name, group_concat('"' || c.name || '"') AS columns
      FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c
      WHERE t.type = 'table' AND t.name NOT LIKE '\\_cf%' ESCAPE '\\' AND t.name NOT LIKE 'sqlite%'
        AND t.name <> 'audit_trail' GROUP BY 1 ORDER BY 1`,
  );
  const searches = tables.map(({ name, columns }) =>
    databaseOf(database)
      .prepare(
        `SELECT '${name}' AS name FROM "${name}" WHERE instr(concat_ws(' ', ${columns}), ?) LIMIT 1`,
      )
      .bind(text),
  );
  const found = await databaseOf(database).batch<{ name: string }>(searches);
  return found.flatMap(({ results }) => results.map(({ name }) => name));
}

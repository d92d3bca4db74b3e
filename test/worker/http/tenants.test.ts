import { describe, expect, test } from "vitest";
import { SUBSCRIPTIONS_MAX } from "../../../src/contract/limits.ts";
import type { D1Client } from "../../../src/db/session.ts";
import { deployedWith, openApi, send, withoutRateLimit } from "../../support/api.ts";
import { type Operation, operationsOf } from "../../support/document.ts";
import { idFor, openFilledWorkspace } from "../../support/filled.ts";
import { keepLog } from "../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";

const lines = keepLog();

const { body: document } = await send<object>("/openapi.json");
const operations = operationsOf(document);

const ROWS = [
  ...["automations", "leads", "runs", "subscriptions", "events"].map(
    (table) => `SELECT * FROM ${table} WHERE workspace_id = ?`,
  ),
  `SELECT * FROM deliveries
    WHERE subscription_id IN (SELECT id FROM subscriptions WHERE workspace_id = ?)`,
];

/** What is stored of a workspace. */
async function rowsOf(workspaceId: string): Promise<string> {
  const results = await WORKSPACE_DB.batch(
    ROWS.map((sql) => WORKSPACE_DB.prepare(sql).bind(workspaceId)),
  );
  return JSON.stringify(results.map((one) => one.results));
}

const headersOf = ({ parameters }: Operation) =>
  parameters.filter((one) => one.in === "header").map(({ name }) => name);

/** Two workspaces; the other one is newer, and may not have more subscriptions if one is created. */
async function openBoth(operation: Operation) {
  const webhooks =
    operation.method === "POST" ? SUBSCRIPTIONS_MAX - headersOf(operation).length : 3;
  return { own: await openFilledWorkspace(), foreign: await openFilledWorkspace(webhooks) };
}

/**
 * What an operation gives away of another workspace, or changes in it, in a deployment on `db`.
 */
async function leaksOf(
  operation: Operation,
  db: D1Database,
  { own, foreign }: Awaited<ReturnType<typeof openBoth>>,
): Promise<string[]> {
  const { path, method, parameters, requestBody } = operation;
  const body = JSON.stringify(requestBody?.content["application/json"].example);
  const headerNames = headersOf(operation);
  const isList = parameters.some(({ name }) => name === "cursor");
  const [ownId, foreignId] = [idFor(operation, own.ids), idFor(operation, foreign.ids)];
  const at = (id: string, query: string) => path.replace(/\{\w+\}/, id) + query;
  const { body: page } = isList
    ? await foreign.api.get<{ next_cursor: string }>(at(foreignId, "?limit=1"))
    : { body: null };
  const shared = crypto.randomUUID();
  const headers = {
    ...(body && { "Content-Type": "application/json" }),
    ...Object.fromEntries(headerNames.map((name) => [name, shared])),
  };
  // The other workspace has sent the same headers.
  if (headerNames.length > 0) {
    const sent = await foreign.api.send<{ id: string }>(path, { method, headers, body });
    foreign.ids.push(sent.body.id);
  }
  const before = await rowsOf(foreign.workspaceId);
  const api = openApi(own.apiKey, deployedWith({ DB: db }));
  const ask = (id: string, query = "") =>
    api.send(at(id, query), { method, headers, ...(body && { body }) });
  const leaks: string[] = [];
  const expectNothingOfTheirs = (what: string, shown: unknown) => {
    const text = JSON.stringify(shown);
    const theirs = [foreign.workspaceId, ...foreign.ids].filter((one) => text.includes(one));
    if (theirs.length > 0) leaks.push(`${what}: ${theirs}`);
  };
  if (foreignId) {
    const unknown = await ask(foreignId.slice(0, 4) + "0".repeat(25));
    if (unknown.status !== 404) leaks.push(`an unknown id: ${unknown.status}`);
    for (const id of [foreignId, "nothing-of-ours"]) {
      const [one, other] = [await ask(id), unknown].map((each) =>
        JSON.stringify(withoutRateLimit(each)),
      );
      if (one !== other) leaks.push(`${id}: ${one} instead of ${other}`);
    }
  }
  if (page) expectNothingOfTheirs("their cursor", await ask(ownId, `?cursor=${page.next_cursor}`));
  const answer = await ask(ownId);
  // A lead of theirs that is read cannot be decrypted, and is left out.
  expectNothingOfTheirs(
    "leads",
    lines.filter((line) => line.includes("lead_unreadable")),
  );
  lines.length = 0;
  if (answer.status >= 300) leaks.push(`its own: ${answer.status}`);
  expectNothingOfTheirs("its own", answer);
  expectNothingOfTheirs("its rows", await rowsOf(own.workspaceId));
  if ((await rowsOf(foreign.workspaceId)) !== before) leaks.push("their rows have changed");
  return leaks;
}

/** The database, with each query as `rewrite` returns it. */
function rewritten<T extends D1Client>(db: T, rewrite: (query: string) => string): T {
  return {
    prepare: (query: string) => db.prepare(rewrite(query)),
    batch: (statements: D1PreparedStatement[]) => db.batch(statements),
    withSession: (since: string) =>
      rewritten((db as unknown as D1Database).withSession(since), rewrite),
    getBookmark: () => (db as unknown as D1DatabaseSession).getBookmark(),
  } as unknown as T;
}

/** A query's conditions on the workspace. */
const FILTER = /"\w+"\."workspace_id" = \?/g;

/** Filters without which nothing leaks, by what precedes them in their query. */
const HARMLESS: [before: RegExp, why: string][] = [
  [
    /^update "subscriptions" set "idempotency_key" = \? where \($/,
    "a key that is a day old is void",
  ],
  [/NOT EXISTS \(SELECT 1 FROM "events"\s+WHERE $/, "an event's id is unique by itself"],
  [
    /AND EXISTS \(SELECT 1 FROM "subscriptions"\s+WHERE $/,
    "an event that nobody is owed is stored",
  ],
  [/^select "id", "slow", "backoff" from "subscriptions" where \($/, "a wake carries no data"],
  [/^delete from "earlier_secrets" .* and $/s, "a deleted subscription has no secrets left"],
];
const met = new Set<string>();

describe("another workspace's data is neither shown nor changed, and would be without any one filter", () => {
  test.each(operations)("by $operationId", async (operation) => {
    const queries = new Set<string>();
    const observed = rewritten(WORKSPACE_DB, (query) => {
      queries.add(query);
      return query;
    });
    // Reads change nothing, and share theirs.
    const shared = await openBoth(operation);
    const both = () => (operation.method === "GET" ? shared : openBoth(operation));
    expect(await leaksOf(operation, observed, shared)).toEqual([]);
    const filters = [...queries].flatMap((query) =>
      [...query.matchAll(FILTER)].map(({ 0: filter, index }) => ({ query, filter, index })),
    );
    expect(filters.length).toBeGreaterThan(0);
    for (const { query, filter, index } of filters) {
      const before = query.slice(0, index);
      // Its parameter stays, so that the others keep their places.
      const without = before + query.slice(index).replace(filter, "? IS NOT NULL");
      const db = rewritten(WORKSPACE_DB, (other) => (other === query ? without : other));
      const leaks = await leaksOf(operation, db, await both());
      const [, why] = HARMLESS.find(([place]) => place.test(before)) ?? [];
      if (why) met.add(why);
      expect(leaks.length > 0, `${why ?? "not noticed"}: ${without}`).toBe(!why);
    }
  });

  test("but for those that are redundant", () => {
    expect([...met].toSorted()).toEqual(HARMLESS.map(([, why]) => why).toSorted());
  });
});

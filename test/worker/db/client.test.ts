import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { eq, sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { qb } from "../../../src/db/builder.ts";
import {
  commit,
  jsonParameters,
  openDatabase,
  query,
  withoutRetries,
} from "../../../src/db/client.ts";
import { causeOf, isTransient } from "../../../src/db/errors.ts";
import { apiKeys, workspaces } from "../../../src/db/schema.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import { openWorkspace } from "../../support/api.ts";
import { observedDatabase } from "../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";

const LOST = "D1_ERROR: Network connection lost.";

/** A database that loses its first `failures` requests. */
function failing(failures: number) {
  const { DB, trips } = observedDatabase({
    before: (trip) => {
      if (trip <= failures) throw new Error(LOST);
    },
  });
  return { DB, trips };
}

test("a query that is awaited is retried, and so is a batch", async () => {
  const { workspaceId: id } = await openWorkspace();
  const its = eq(workspaces.id, id);
  const fields = { id: workspaces.id, adminEmails: workspaces.adminEmails };
  const [once, twice] = [failing(1), failing(2)];
  const query = openDatabase(once.DB).select(fields).from(workspaces).where(its);
  expect(await query).toEqual([{ id, adminEmails: [] }]);
  expect(once.trips).toHaveLength(2);
  const update = qb.update(workspaces).set({ webhooksMax: 7 }).where(its);
  const batch = openDatabase(twice.DB).batch([
    update.returning({ id: workspaces.id }),
    qb.select(fields).from(workspaces).where(its),
  ]);
  expect(await batch).toEqual([[{ id }], [{ id, adminEmails: [] }]]);
  expect(twice.trips).toHaveLength(3);
});

test("without retries, the first error is thrown", async () => {
  const { DB, trips } = failing(1);
  const db = withoutRetries(openDatabase(DB));
  await expect(commit(db, qb.select({ id: workspaces.id }).from(workspaces))).rejects.toThrow(LOST);
  expect(trips).toHaveLength(1);
});

test("the error of an awaited query is judged by its cause", async () => {
  const db = openDatabase(failing(Number.POSITIVE_INFINITY).DB);
  const ofPerson = eq(workspaces.name, "zoe@example.com");
  const query = db.select({ id: workspaces.id }).from(workspaces).where(ofPerson);
  const thrown = await query.catch((error: unknown) => error);
  expect(String(thrown)).toContain("zoe@example.com");
  expect(causeOf(thrown)).toEqual(new Error(LOST));
  expect(isTransient(thrown)).toBe(true);
});

test("an error that leaves the Platform API has no parameters of a query", async () => {
  const { DB } = failing(Number.POSITIVE_INFINITY);
  const platform = new Platform(createExecutionContext(), { ...env, DB });
  await expect(platform.revokeApiKey({ keyId: "key_unheard_of" })).rejects.toThrow(new Error(LOST));
});

test("columns with the same name are refused until one has an alias", async () => {
  const { keyId, workspaceId } = await openWorkspace();
  const joined = (fields: Parameters<typeof qb.select>[0] & object) =>
    qb
      .select(fields)
      .from(apiKeys)
      .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
      .where(eq(apiKeys.id, keyId));
  const db = openDatabase(WORKSPACE_DB);
  const collision = joined({ key: apiKeys.id, workspace: workspaces.id });
  await expect(commit(db, collision)).rejects.toThrow("two selected columns are named id");
  const aliased = joined({ key: sql`${apiKeys.id}`.as("key"), workspace: workspaces.id });
  expect(await commit(db, aliased)).toEqual([{ key: keyId, workspace: workspaceId }]);
  expect(await query(db, aliased)).toEqual([{ key: keyId, workspace: workspaceId }]);
});

test("a query without a database says so when it is awaited", async () => {
  const awaited = Promise.resolve(qb.select({ id: workspaces.id }).from(workspaces));
  await expect(awaited.catch((error) => Promise.reject(causeOf(error)))).rejects.toThrow(
    "this query has no database",
  );
});

test("a JSON parameter has at most two megabytes, whatever its characters", () => {
  const rows = Array.from({ length: 100 }, () => ({ text: "é".repeat(15_000) }));
  const parameters = jsonParameters(rows);
  expect(parameters.flatMap((parameter) => JSON.parse(parameter))).toEqual(rows);
  for (const parameter of parameters)
    expect(new TextEncoder().encode(parameter).length).toBeLessThan(2_000_000);
});

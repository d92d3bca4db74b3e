import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { eq, sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { qb } from "../../../src/db/builder.ts";
import * as client from "../../../src/db/client.ts";
import { causeOf, isTemporary } from "../../../src/db/errors.ts";
import { apiKeys, workspaces } from "../../../src/db/schema.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import { openWorkspace } from "../../support/api.ts";
import { CONNECTION_LOST, observedDatabase } from "../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { shortenTimers } from "../../support/timers.ts";

const { commit, connect } = client;
const ID = { id: workspaces.id };

/** A database that loses its first `failures` requests. */
const failing = (failures: number) =>
  observedDatabase({
    before: (trip) => {
      if (trip <= failures) throw CONNECTION_LOST;
    },
  });

test("a query that is awaited is retried, and so is a transaction", async () => {
  const { workspaceId: id } = await openWorkspace();
  const its = eq(workspaces.id, id);
  const fields = { id: workspaces.id, adminEmails: workspaces.adminEmails };
  const [once, twice] = [failing(1), failing(2)];
  const query = connect(once.DB).select(fields).from(workspaces).where(its);
  expect(await query).toEqual([{ id, adminEmails: [] }]);
  expect(once.trips).toHaveLength(2);
  const transaction = commit(connect(twice.DB), {
    written: qb.update(workspaces).set({ webhooksMax: 7 }).where(its).returning(ID),
    read: qb.select(fields).from(workspaces).where(its),
  });
  expect(await transaction).toEqual({ written: [{ id }], read: [{ id, adminEmails: [] }] });
  expect(twice.trips).toHaveLength(3);
});

test("the error of a query leaves the Platform API without parameters", async () => {
  const { DB } = failing(Number.POSITIVE_INFINITY);
  const query = connect(DB).select(ID).from(workspaces);
  const thrown = await query.where(eq(workspaces.name, "zoe@example.com")).catch((error) => error);
  expect(String(thrown)).toContain("zoe@example.com");
  expect(causeOf(thrown)).toBe(CONNECTION_LOST);
  expect(isTemporary(thrown)).toBe(true);
  shortenTimers((ms) => ms < 1_000);
  const platform = new Platform(createExecutionContext(), { ...env, DB });
  await expect(platform.revokeApiKey({ keyId: "key_unheard_of" })).rejects.toThrow(CONNECTION_LOST);
});

test("columns with the same name are rejected until one has an alias", async () => {
  const { keyId, workspaceId } = await openWorkspace();
  const joined = (fields: Parameters<typeof qb.select>[0] & object) =>
    qb
      .select(fields)
      .from(apiKeys)
      .innerJoin(workspaces, eq(workspaces.id, apiKeys.workspaceId))
      .where(eq(apiKeys.id, keyId));
  const db = connect(WORKSPACE_DB);
  const collision = joined({ key: apiKeys.id, workspace: workspaces.id });
  await expect(commit(db, collision)).rejects.toThrow("two selected columns are named id");
  const aliased = joined({ key: sql`${apiKeys.id}`.as("key"), workspace: workspaces.id });
  for (const run of [commit, client.query])
    expect(await run(db, aliased)).toEqual([{ key: keyId, workspace: workspaceId }]);
});

test("the results of a transaction have the names of its parts, without those that are left out", async () => {
  const { keyId, workspaceId } = await openWorkspace();
  const own = eq(workspaces.id, workspaceId);
  const renamed = client.counted(qb.update(workspaces).set({ name: "Renamed" }).where(own));
  const parts = {
    before: qb.select({ name: workspaces.name }).from(workspaces).where(own),
    nested: client.combine({ renamed, key: qb.select({ id: apiKeys.id }).from(apiKeys) }),
    skipped: undefined,
    after: qb.select({ name: workspaces.name }).from(workspaces).where(own),
  };
  const results = await commit(connect(WORKSPACE_DB), parts);
  expect(Object.keys(results)).toEqual(["before", "nested", "after"]);
  expect(results.before).not.toEqual([{ name: "Renamed" }]);
  expect(results.nested.renamed).toBe(1);
  expect(results.nested.key).toContainEqual({ id: keyId });
  expect(results.after).toEqual([{ name: "Renamed" }]);
});

test("a part of several queries reads with all of them, and a part of none with none", async () => {
  const { keyId, workspaceId } = await openWorkspace();
  const db = connect(WORKSPACE_DB);
  const both = client.combine({
    workspace: qb.select(ID).from(workspaces).where(eq(workspaces.id, workspaceId)),
    key: qb.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, keyId)),
  });
  expect(await client.query(db, both)).toEqual({
    workspace: [{ id: workspaceId }],
    key: [{ id: keyId }],
  });
  expect(await client.query(db, client.combine([]))).toEqual([]);
});

test("the result of a write without RETURNING is undefined", async () => {
  const { workspaceId } = await openWorkspace();
  const renamed = qb.update(workspaces).set({ name: "Renamed" });
  const query = renamed.where(eq(workspaces.id, workspaceId));
  expect(await commit(connect(WORKSPACE_DB), query)).toBeUndefined();
});

test("a JSON parameter has at most two megabytes, whatever its characters", () => {
  const rows = Array.from({ length: 100 }, () => ({ text: "é".repeat(15_000) }));
  const parameters = client.jsonParameters(rows);
  expect(parameters.flatMap((parameter) => JSON.parse(parameter))).toEqual(rows);
  for (const parameter of parameters)
    expect(new TextEncoder().encode(parameter).length).toBeLessThan(2_000_000);
});

import { z } from "@hono/zod-openapi";
import { WorkspaceId } from "../contract/fields.ts";
import { Budget } from "../db/budget.ts";
import { databaseNames } from "../db/databases.ts";
import { advanceMove, MoveProgress } from "../moving/move.ts";
import { DatabaseView, findFigures, NO_FIGURES } from "../workspaces/database-figures.ts";
import { queryIfReachable } from "../workspaces/placement.ts";
import { DatabaseName, pageOf } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectDatabase, expectWorkspace } from "./placements.ts";

/** Maximum duration of one call that moves a workspace. */
const MOVE_MAX_MS = 20_000;

export const databases = operation({
  about: "Lists the bound databases, and how full each is.",
  input: z.strictObject({}),
  output: pageOf(DatabaseView),
  examples: [{}],
  async run({ env }) {
    const items = databaseNames(env).map(async (database) => ({
      database,
      ...((await queryIfReachable(env, database, findFigures)) ?? NO_FIGURES),
    }));
    return { items: await Promise.all(items), nextCursor: null };
  },
});

export const moveWorkspace = operation({
  about:
    "Moves a workspace to another database. During the move, reads work as usual, and writes are rejected. The API responds with 500 and `Retry-After`, and these operations fail with `moving: try again`. Call it until it is done; the command in a terminal makes one call. To cancel the move, move the workspace to the database it lives in, before everything is copied.",
  input: z.strictObject({
    workspaceId: WorkspaceId,
    database: DatabaseName.describe("binding of the database to move to"),
  }),
  output: MoveProgress,
  examples: [{ workspaceId: "wks_…", database: "DB_2" }],
  async run({ env }, { workspaceId, database }) {
    expectDatabase(env, database);
    await expectWorkspace(env, workspaceId);
    const budget = new Budget(MOVE_MAX_MS);
    return advanceMove(budget.meter(env), workspaceId, database, () => budget.hasMore());
  },
});

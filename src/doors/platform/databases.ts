import { MOVE_MAX_MS } from "../../contract/limits.ts";
import { databaseNames } from "../../db/databases.ts";
import { findFigures, NO_FIGURES } from "../../model/databases.ts";
import { moveWorkspace } from "../../moving/move.ts";
import { expectDatabase, expectWorkspace, queryIfReachable } from "./homes.ts";
import type { Methods } from "./methods.ts";

/** The methods that concern databases and which one a workspace lives in. */
export const databaseMethods = {
  /**
   * Lists the databases that are bound: how full each is, how fast it grows, and when it will be full.
   * A database that does not answer has no figures.
   */
  async databases({ env }) {
    const now = Date.now();
    const items = databaseNames(env).map(async (database) => {
      const figures = await queryIfReachable(env, database, (db) => findFigures(db, now));
      return { database, isAway: figures === null, ...(figures ?? NO_FIGURES) };
    });
    return { items: await Promise.all(items), nextCursor: null };
  },

  /**
   * Moves a workspace to another database while it is in use. If one call does not finish the move,
   * the next call or the sweep continues it. Moving a workspace to the database that it lives in
   * cancels a move that is still copying.
   */
  async moveWorkspace({ env }, { workspaceId, database }) {
    expectDatabase(env, database);
    await expectWorkspace(env, workspaceId);
    const startedAt = performance.now();
    const mayGoOn = () => performance.now() - startedAt < MOVE_MAX_MS;
    return moveWorkspace(env, workspaceId, database, mayGoOn);
  },
} satisfies Partial<Methods>;

import { InputError } from "../../contract/input-error.ts";
import { ERASURE_MAX_MS } from "../../contract/limits.ts";
import { commit } from "../../db/client.ts";
import { DIRECTORY, openDirectory } from "../../db/databases.ts";
import { allHomes } from "../../db/homes.ts";
import { forgetKey } from "../../gate/forget.ts";
import { eraseLeads } from "../../model/erasure.ts";
import { exportPage } from "../../model/export.ts";
import { beginErasure } from "../../model/moves.ts";
import { closeKeys, closeWorkspace, eraseWorkspace } from "../../model/workspace-erasure.ts";
import { workspaceExists } from "../../model/workspaces.ts";
import {
  expectDatabase,
  expectWorkspace,
  findKnownHome,
  openHome,
  queryIfReachable,
} from "./homes.ts";
import type { Methods } from "./methods.ts";

/** The methods that erase or hand out what we know about people. */
export const personalDataMethods = {
  /**
   * Erases leads for good, with the events that announced them and the deliveries of those; their runs
   * lose the link. Unknown ids are ignored.
   */
  async eraseLeads({ env }, { workspaceId, ids }) {
    await expectWorkspace(env, workspaceId);
    const { db } = await openHome(env, workspaceId);
    await commit(db, eraseLeads(workspaceId, ids));
    return {};
  },

  /**
   * Erases a workspace for good, with everything we store about it. When the first call returns, its
   * keys are refused and its subscriptions deleted. The rest is erased in chunks, so a large workspace
   * takes several calls; `done` once nothing is left, also for a workspace that never existed.
   */
  async eraseWorkspace({ env }, { workspaceId }) {
    const now = Date.now();
    const { db } = await openHome(env, workspaceId);
    if (await commit(db, beginErasure(workspaceId, now)))
      throw new InputError("workspaceId: it is being moved; erase it when that is done");
    const closed = await commit(openDirectory(env), closeKeys(workspaceId, now));
    if (!closed) return { done: true, remaining: 0 };
    await Promise.all(closed.keys.map((key) => forgetKey(env, key)));
    // If its database is no longer bound, the workspace would look erased.
    expectDatabase(env, closed.database);
    await commit(db, closeWorkspace(workspaceId, now));
    const startedAt = performance.now();
    const mayGoOn = () => performance.now() - startedAt < ERASURE_MAX_MS;
    let remaining = 0;
    // The directory comes last: until then, it points to what is left.
    for (const home of allHomes(env).reverse()) {
      const isNeeded = home.database === closed.database || home.database === DIRECTORY;
      // What it left in other databases is deleted anyway, once they answer again.
      const isThere =
        isNeeded ||
        (await queryIfReachable(env, home.database, (other) =>
          workspaceExists(other, workspaceId),
        ));
      if (isThere && remaining === 0)
        remaining = await eraseWorkspace(home.db, workspaceId, mayGoOn);
    }
    return { done: remaining === 0, remaining };
  },

  /** Exports everything we store about a workspace, except secrets, in pages of about a megabyte. */
  async exportWorkspace({ env }, { workspaceId, cursor }) {
    const { db } = await findKnownHome(env, workspaceId);
    const keys = env.WEBHOOK_ENCRYPTION_KEYS;
    return exportPage(db, openDirectory(env), keys, workspaceId, cursor ?? null);
  },
} satisfies Partial<Methods>;

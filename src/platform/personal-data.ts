import { z } from "@hono/zod-openapi";
import { InputError } from "../contract/input-error.ts";
import { Id } from "../contract/text.ts";
import { commit } from "../db/client.ts";
import { DIRECTORY, openDirectory } from "../db/databases.ts";
import { forgetKey } from "../quota/forget.ts";
import { eraseLeads as erase } from "../records/erasure.ts";
import type { ExportItem } from "../workspaces/export-item.ts";
import {
  closeKeys,
  closeWorkspace,
  eraseWorkspace as eraseRows,
} from "../workspaces/lifecycle/erase.ts";
import { exportPage } from "../workspaces/lifecycle/export.ts";
import { EXPORT_KINDS } from "../workspaces/manifest.ts";
import { beginErasure } from "../workspaces/moves.ts";
import { allPlacements } from "../workspaces/placement.ts";
import { workspaceExists } from "../workspaces/workspaces.ts";
import { Nothing, several, WorkspaceId } from "./fields.ts";
import { operation } from "./operation.ts";
import {
  expectDatabase,
  expectWorkspace,
  findKnownPlacement,
  openPlacement,
  queryIfReachable,
} from "./placements.ts";

/** Maximum duration of one call that erases a workspace. */
const ERASURE_MAX_MS = 10_000;

/* Erasing and handing out what we know about people. */

const workspaceId = "wks_…";

export const eraseLeads = operation({
  about: "Erases leads with their events and deliveries; unknown ids are ignored.",
  input: z.strictObject({ workspaceId: WorkspaceId, ids: several(Id).describe("lea_…") }),
  output: Nothing,
  examples: [{ workspaceId, ids: ["lea_…"] }],
  async run({ env }, { workspaceId, ids }) {
    await expectWorkspace(env, workspaceId);
    const { db } = await openPlacement(env, workspaceId);
    // Their runs lose the link.
    await commit(db, erase(workspaceId, ids));
    return {};
  },
});

export const eraseWorkspace = operation({
  about:
    "Erases a workspace and everything in it, starting with its keys. Call it until it is done; an unknown id is not an error.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: z.object({
    done: z.boolean().describe("nothing is left"),
    remaining: z.int().describe("rows that are left"),
  }),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId }) {
    const now = Date.now();
    const { db } = await openPlacement(env, workspaceId);
    if (await commit(db, beginErasure(workspaceId, now)))
      throw new InputError("workspaceId", "it is being moved; erase it when that is done");
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
    for (const placement of allPlacements(env).reverse()) {
      const isNeeded = placement.database === closed.database || placement.database === DIRECTORY;
      // What it left in other databases is deleted anyway, once they answer again.
      const isThere =
        isNeeded ||
        (await queryIfReachable(env, placement.database, (other) =>
          workspaceExists(other, workspaceId),
        ));
      if (isThere && remaining === 0)
        remaining = await eraseRows(placement.db, workspaceId, mayGoOn);
    }
    return { done: remaining === 0, remaining };
  },
});

export const exportWorkspace = operation({
  about: "Exports everything stored about a workspace except secrets, page by page.",
  input: z.strictObject({
    workspaceId: WorkspaceId,
    cursor: z
      .string()
      .nullish()
      .describe("the previous page's nextCursor; default: the first page"),
  }),
  output: z.object({
    items: z.array(
      z.looseObject({ kind: z.enum(EXPORT_KINDS) }) as unknown as z.ZodType<ExportItem>,
    ),
    nextCursor: z.string().nullable(),
  }),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId, cursor }) {
    const { db } = await findKnownPlacement(env, workspaceId);
    const keys = env.ENCRYPTION_KEYS;
    return exportPage(db, openDirectory(env), keys, workspaceId, cursor ?? null);
  },
});

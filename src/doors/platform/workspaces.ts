import { WORKSPACES_LIST } from "../../contract/cursor.ts";
import { randomId } from "../../contract/ids.ts";
import { PORTAL_LINK_MINUTES, PORTAL_LINK_OPENS_MS } from "../../contract/limits.ts";
import { createDataKey } from "../../contract/personal-data.ts";
import { commit, inOrder, withoutRetries } from "../../db/client.ts";
import { DIRECTORY, databaseNames, hasOneDatabase, openDirectory } from "../../db/databases.ts";
import { type Home, homeNamed } from "../../db/homes.ts";
import { wake } from "../../delivery/wake.ts";
import { forgetKey } from "../../gate/forget.ts";
import { signPortalToken } from "../../gate/portal-token.ts";
import { listLiveKeys } from "../../model/api-keys.ts";
import { findSize } from "../../model/databases.ts";
import { withdrawWorkspace } from "../../model/subscriptions.ts";
import {
  insertDirectoryEntry,
  insertWorkspace,
  listWorkspaces,
  updateAccess,
  updateWorkspace,
} from "../../model/workspaces.ts";
import { unknownWorkspace } from "../../recording/references.ts";
import { expectDatabase, expectWorkspace, openHome, queryIfReachable } from "./homes.ts";
import { type Methods, pageAfter, toPlatformPage } from "./methods.ts";

/** The methods that concern workspaces and who has access to them. */
export const workspaceMethods = {
  /** Creates a workspace that has access to the service, in the smallest database unless one is given. */
  async createWorkspace({ env }, { name, adminEmails, database }) {
    const home = database == null ? await findSmallest(env) : expectDatabase(env, database);
    const workspaceId = randomId("workspace");
    const workspace = {
      id: workspaceId,
      name,
      adminEmails: adminEmails ?? [],
      dataKey: await createDataKey(env.WEBHOOK_ENCRYPTION_KEYS, workspaceId),
      createdAt: Date.now(),
    };
    await insertWorkspace(home.db, workspace);
    // Last, so that the directory never points to a workspace that is not there yet.
    if (home.database !== DIRECTORY)
      await insertDirectoryEntry(openDirectory(env), { ...workspace, database: home.database });
    return { workspaceId };
  },

  /**
   * Changes a workspace's name, its administrators, or how many subscriptions it may have; fields left
   * out stay as they are. A lower limit removes no subscriptions, it only prevents new ones.
   */
  async updateWorkspace({ env }, { workspaceId, ...changes }) {
    const { db } = await openHome(env, workspaceId);
    const updated = await commit(db, updateWorkspace(workspaceId, changes, Date.now()));
    if (updated === 0) throw unknownWorkspace();
    return {};
  },

  /**
   * Lists all workspaces, newest first. If a workspace's database does not answer, only its id, its
   * database and its creation time are known.
   */
  async listWorkspaces({ env }, { cursor }) {
    const found = await listWorkspaces(
      openDirectory(env),
      (database, find) => queryIfReachable(env, database, find),
      pageAfter(cursor),
    );
    return toPlatformPage(WORKSPACES_LIST, found);
  },

  /** Grants or denies a workspace access. When this returns, the gates of all its keys know. */
  async setWorkspaceAccess({ env, ctx }, { workspaceId, granted }) {
    const home = await openHome(env, workspaceId);
    const now = Date.now();
    const withdrawal = granted ? [] : [withdrawWorkspace(workspaceId, now)];
    // Not retried: if the reply was lost, a later call may have decided otherwise in the meantime.
    const [updated, [toCancel = []]] = await commit(
      withoutRetries(home.db),
      inOrder([updateAccess(workspaceId, granted), inOrder(withdrawal)]),
    );
    if (updated === 0) throw unknownWorkspace();
    const wakes = toCancel.map((subscriptionId) => ({ subscriptionId, lane: "slow" as const }));
    ctx.waitUntil(wake(env, home.database, wakes));
    const keys = await listLiveKeys(openDirectory(env), workspaceId, now);
    await Promise.all(keys.map((key) => forgetKey(env, key)));
    return {};
  },

  /**
   * Makes a link to the portal. Anyone who opens it within two minutes can manage the workspace's
   * webhooks, until the session ends or the workspace loses access.
   */
  async createPortalLink({ env }, { workspaceId, validMinutes }) {
    const { PORTAL, PORTAL_ORIGIN, PORTAL_SIGNING_KEYS } = env;
    if (PORTAL === "off") throw new Error("this deployment serves no portal: PORTAL is off");
    if (PORTAL_ORIGIN === "")
      throw new Error("PORTAL_ORIGIN is empty: set it to the public address of this deployment");
    await expectWorkspace(env, workspaceId);
    const now = Date.now();
    const endsAt = now + (validMinutes ?? PORTAL_LINK_MINUTES.default) * 60_000;
    const opensUntil = now + PORTAL_LINK_OPENS_MS;
    const grant = { workspaceId, endsAt };
    const token = await signPortalToken(PORTAL_SIGNING_KEYS, "link", grant, opensUntil);
    // In the fragment, which no server, proxy or log ever sees.
    return { url: `${new URL(PORTAL_ORIGIN).origin}/portal#${token}` };
  },
} satisfies Partial<Methods>;

/** The smallest of the databases that answer and are not closed, or the directory's if there is none. */
async function findSmallest(env: Env): Promise<Home> {
  if (hasOneDatabase(env)) return homeNamed(env, DIRECTORY);
  const closed: string[] = env.DATABASES_CLOSED.split(",").map((name) => name.trim());
  const open = databaseNames(env).filter((name) => !closed.includes(name));
  const sizes = open.map(async (database) => {
    const bytes = await queryIfReachable(env, database, findSize);
    return bytes === null ? [] : { database, bytes };
  });
  const known = (await Promise.all(sizes)).flat();
  const [smallest] = known.sort((a, b) => a.bytes - b.bytes);
  return homeNamed(env, smallest?.database ?? DIRECTORY);
}

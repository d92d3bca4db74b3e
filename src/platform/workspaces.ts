import { z } from "@hono/zod-openapi";
import { WebhookEvent } from "../contract/enumerations.ts";
import { WorkspaceId } from "../contract/fields.ts";
import { randomId } from "../contract/ids.ts";
import { InputError } from "../contract/input.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  PAGE_LIMIT,
  PORTAL_LINK_MINUTES,
  PORTAL_LINK_OPENS_MS,
  RETURN_URL_MAX_LENGTH,
  STOPS_WITHIN_MS,
  SUBSCRIPTIONS_MAX,
} from "../contract/limits.ts";
import { MINUTE_MS } from "../contract/time.ts";
import { commit, withoutRetries } from "../db/client.ts";
import { DIRECTORY, databaseNames, openDirectory } from "../db/databases.ts";
import { TemporaryError } from "../db/errors.ts";
import { sendWakeUps } from "../delivery/wake.ts";
import { label, Name } from "../primitives/text.ts";
import { invalidateKey } from "../rate-limit/gates.ts";
import { interruptReplaysOf } from "../replay/replays.ts";
import { cancelPendingOf } from "../subscriptions/subscriptions.ts";
import { createDataKey } from "../workspaces/data-keys.ts";
import { findSize } from "../workspaces/database-figures.ts";
import { listLiveKeys } from "../workspaces/key-rows.ts";
import {
  findPlacement,
  type Placement,
  placementIn,
  queryIfReachable,
  unknownWorkspace,
} from "../workspaces/placement.ts";
import { WorkspaceDetails } from "../workspaces/views.ts";
import {
  endSessions,
  findPortalAccess,
  insertEntry,
  insertWorkspace,
  listEntries,
  updateAccess,
  updateDetails,
  WorkspaceView,
} from "../workspaces/workspaces.ts";
import { cursorOf, DatabaseName, integer, Nothing, pageAfter, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectDatabase, expectWorkspace } from "./placements.ts";
import { signPortalToken } from "./portal-token.ts";

const workspaceId = "wks_…";
const WorkspaceName = Name.describe("shown in e-mails to administrators");
const AdminEmails = z
  .array(z.union([z.email(), z.strictObject({ email: z.email(), language: z.enum(["fr", "en"]) })]))
  .max(50)
  .nullish()
  .describe(
    "administrators, who receive e-mails about webhooks that fail, recover, are disabled, reject an event type or have too many pending deliveries; each is an address, or an address with the language of its e-mails, French by default",
  );

export const createWorkspace = operation({
  about: "Creates a workspace that has access to the service.",
  input: z.strictObject({
    name: WorkspaceName,
    adminEmails: AdminEmails,
    database: DatabaseName.nullish().describe("binding of its database; default: the smallest one"),
  }),
  output: z.object({ workspaceId: WorkspaceId }),
  examples: [{ name: "Agence Lumière", adminEmails: ["admin@example.com"] }],
  async run({ env, note }, { name, adminEmails, database }) {
    const placement = database == null ? await findSmallest(env) : expectDatabase(env, database);
    const workspaceId = randomId("workspace");
    const workspace = {
      id: workspaceId,
      name,
      adminEmails: adminEmails ?? [],
      sealedDataKey: await createDataKey(env.ENCRYPTION_KEYS, workspaceId),
      createdAt: Date.now(),
    };
    // If one of the writes fails, the audit trail has the id, for which `eraseWorkspace` deletes what was stored.
    note?.(workspaceId);
    await insertWorkspace(placement.db, workspace);
    // The directory entry comes last, so that it never points to a workspace that does not exist yet.
    if (placement.database !== DIRECTORY)
      await commit(openDirectory(env), insertEntry(workspace, placement.database));
    return { workspaceId };
  },
});

/**
 * Finds the smallest open database that responds.
 *
 * @throws TemporaryError if there is none. A closed one does not take its place, because it may be in a jurisdiction
 *   that the service has left.
 */
async function findSmallest(env: Env): Promise<Placement> {
  const closed: string[] = env.DATABASES_CLOSED.split(",").map((name) => name.trim());
  const open = databaseNames(env).filter((name) => !closed.includes(name));
  const [only, ...others] = open;
  if (only !== undefined && others.length === 0) return placementIn(env, only);
  const sizes = open.map(async (database) => {
    const bytes = await queryIfReachable(env, database, findSize);
    return bytes === null ? [] : { database, bytes };
  });
  const known = (await Promise.all(sizes)).flat();
  const [smallest] = known.sort((a, b) => a.bytes - b.bytes);
  if (!smallest) throw new TemporaryError("no open database responds: try again");
  return placementIn(env, smallest.database);
}

export const readWorkspace = operation({
  about: "Shows a workspace's name and limits.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: WorkspaceDetails,
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId }) {
    const { db } = await findPlacement(env, workspaceId);
    const found = await findPortalAccess(db, workspaceId, null);
    if (!found) throw unknownWorkspace();
    return {
      workspaceId,
      name: found.name,
      webhooksMax: found.webhooksMax,
      // Events that were not delivered may be kept for longer, so this time holds for all of them.
      retentionDays: Number(env.EVENTS_KEPT_DAYS),
      events: WebhookEvent.options,
    };
  },
});

export const updateWorkspace = operation({
  about:
    "Changes a workspace's name, administrators or webhook limit; omitted fields stay as they are.",
  input: z.strictObject({
    workspaceId: WorkspaceId,
    name: WorkspaceName.nullish(),
    adminEmails: AdminEmails,
    // A lower limit removes no subscription; it only prevents new ones.
    webhooksMax: integer(1, AGREED_SUBSCRIPTIONS_MAX)
      .nullish()
      .describe(`maximum webhooks; ${SUBSCRIPTIONS_MAX} by default`),
  }),
  output: Nothing,
  examples: [
    { workspaceId, adminEmails: ["admin@example.com"] },
    { workspaceId, webhooksMax: 50 },
  ],
  async run({ env }, { workspaceId, ...changes }) {
    const { db } = await findPlacement(env, workspaceId);
    // Not retried: a second try could undo a change that another call made in between.
    const updated = await commit(withoutRetries(db), updateDetails(workspaceId, changes));
    if (updated === 0) throw unknownWorkspace();
    return {};
  },
});

/** Maximum pages of workspaces that one call searches for a name. */
const SEARCHED_PAGES = 20;

export const listWorkspaces = operation({
  about: `Lists workspaces, newest first, ${PAGE_LIMIT.max} per page. With a name, a page examines ${SEARCHED_PAGES * PAGE_LIMIT.max}, so it may be empty and still have a next one. If a database does not respond, the values stored in it are null.`,
  input: z.strictObject({
    name: Name.nullish().describe("only those whose name contains this, in upper or lower case"),
    cursor: cursorOf("workspaces"),
  }),
  output: pageOf(WorkspaceView),
  examples: [{}, { name: "lumière" }],
  async run({ env }, { name, cursor }) {
    const wanted = name?.toLowerCase();
    const items: z.infer<typeof WorkspaceView>[] = [];
    let request = pageAfter(cursor);
    for (let pages = 1; ; pages++) {
      const found = await listEntries(env, request);
      items.push(
        ...found.items.filter((each) => !wanted || each.name?.toLowerCase().includes(wanted)),
      );
      const isFull = !wanted || items.length >= PAGE_LIMIT.max || pages === SEARCHED_PAGES;
      if (isFull || !found.next) return toPage("workspaces", { items, next: found.next });
      request = { ...request, after: found.next };
    }
  },
});

export const setWorkspaceAccess = operation({
  about: `Grants or denies a workspace access before the call returns. A delivery may still start for ${STOPS_WITHIN_MS / 1000} s.`,
  input: z.strictObject({
    workspaceId: WorkspaceId,
    granted: z
      .boolean()
      .describe(
        "false: its keys get 403, its pending deliveries are cancelled, and its portal sessions end for good; until true, its events get no deliveries (missed, see `redeliver`)",
      ),
  }),
  output: Nothing,
  examples: [{ workspaceId, granted: false }],
  async run({ env, ctx }, { workspaceId, granted }) {
    const placement = await findPlacement(env, workspaceId);
    const now = Date.now();
    // The change is tried once. After a lost reply, a second try could undo a decision that another call made since.
    const { updated, wakeUps = [] } = await commit(withoutRetries(placement.db), {
      updated: updateAccess(workspaceId, granted),
      sessions: granted ? undefined : endSessions(workspaceId, now),
      wakeUps: granted ? undefined : cancelPendingOf(workspaceId),
      replays: granted ? undefined : interruptReplaysOf(workspaceId, now),
    });
    if (updated === 0) throw unknownWorkspace();
    ctx.waitUntil(sendWakeUps(env, placement.database, wakeUps));
    // All keys of the workspace have the new access once this returns.
    const keys = await listLiveKeys(openDirectory(env), workspaceId, now);
    await Promise.all(keys.map((key) => invalidateKey(env, key)));
    return {};
  },
});

export const createPortalLink = operation({
  about: `Creates a portal link, to be opened within ${PORTAL_LINK_OPENS_MS / MINUTE_MS} minutes. Anyone who opens it can manage the workspace's webhooks until the session ends. The audit trail names the \`actor\` of this call for each change.`,
  input: z.strictObject({
    workspaceId: WorkspaceId,
    validMinutes: integer(1, PORTAL_LINK_MINUTES.max)
      .nullish()
      .describe(`how long the session lasts, from now on; default: ${PORTAL_LINK_MINUTES.default}`),
    readOnly: z
      .boolean()
      .nullish()
      .describe("true: the session shows everything and changes nothing"),
    returnUrl: label(RETURN_URL_MAX_LENGTH)
      .pipe(z.url({ protocol: /^https$/, error: "must be an https URL" }))
      .nullish()
      .describe("where the portal leads back to, such as your settings page"),
  }),
  output: z.object({ url: z.string() }),
  examples: [
    { workspaceId },
    { workspaceId, validMinutes: 15, returnUrl: "https://app.example.com/settings" },
    { workspaceId, readOnly: true },
  ],
  async run({ env, actor = null }, { workspaceId, validMinutes, readOnly, returnUrl }) {
    const { PORTAL, PORTAL_ORIGIN, PORTAL_SIGNING_KEYS } = env;
    if (PORTAL === "off")
      throw new InputError([], "this deployment serves no portal: PORTAL is off");
    if (PORTAL_ORIGIN === "")
      throw new InputError(
        [],
        "PORTAL_ORIGIN is empty: set it to the public address of this deployment",
      );
    const { db } = await expectWorkspace(env, workspaceId);
    const access = await findPortalAccess(db, workspaceId, null);
    if (!access) throw unknownWorkspace();
    const now = Date.now();
    const endsAt = now + (validMinutes ?? PORTAL_LINK_MINUTES.default) * MINUTE_MS;
    const opensUntil = now + PORTAL_LINK_OPENS_MS;
    const grant = {
      workspaceId,
      // The link must be newer than those that `endSessions` has ended, even if this clock is slow.
      issuedAt: Math.max(now, access.sessionsNotBefore + 1),
      endsAt,
      actor,
      readOnly: readOnly ?? false,
      returnUrl: returnUrl ?? null,
    };
    const token = await signPortalToken(PORTAL_SIGNING_KEYS, "link", grant, opensUntil);
    // The token is in the fragment, which browsers do not send, so no server, proxy or log has it.
    return { url: `${new URL(PORTAL_ORIGIN).origin}/portal#${token}` };
  },
});

export const endPortalSessions = operation({
  about:
    "Ends all portal sessions of a workspace, and its links that have not been opened. New links work at once.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: Nothing,
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId }) {
    const { db } = await expectWorkspace(env, workspaceId);
    // Not retried: a second try would end a link that was created in between.
    const ended = await commit(withoutRetries(db), endSessions(workspaceId, Date.now()));
    if (ended === 0) throw unknownWorkspace();
    return {};
  },
});

import { WorkerEntrypoint } from "cloudflare:workers";
import {
  API_KEYS_LIST,
  DELIVERIES_LIST,
  encodeCursor,
  type Position,
  WORKSPACES_LIST,
} from "../contract/cursor.ts";
import type { ExportItem } from "../contract/export.ts";
import { randomId } from "../contract/ids.ts";
import { readInput } from "../contract/input.ts";
import { InputError, nameRefusals } from "../contract/input-error.ts";
import {
  ERASURE_MAX_MS,
  MOVE_MAX_MS,
  PAGE_LIMIT,
  PORTAL_LINK_MINUTES,
  SECRET_OVERLAP_SECONDS,
} from "../contract/limits.ts";
import type { PlatformInput, Recorded, RecordingMethod } from "../contract/platform.ts";
import { commit, type Database, inOrder } from "../db/client.ts";
import {
  DIRECTORY,
  databaseNames,
  hasOneDatabase,
  openDirectory,
  openNamed,
} from "../db/databases.ts";
import {
  allHomes,
  findHome,
  findHomeOfWebhook,
  type Home,
  homeNamed,
  inTime,
  openToWrite,
} from "../db/homes.ts";
import { wake } from "../delivery/wake.ts";
import { hashApiKey, mintApiKey } from "../gate/api-key.ts";
import { callObject } from "../gate/call.ts";
import { usedUpKeys } from "../gate/memory.ts";
import { signPortalToken } from "../gate/portal-token.ts";
import { logError } from "../log.ts";
import {
  type GatedKey,
  insertApiKey,
  listApiKeys,
  liveKeys,
  revokeKey,
  rollKey,
  updateQuota,
} from "../model/api-keys.ts";
import { findFigures, findSize, NO_FIGURES } from "../model/databases.ts";
import { type Backlog, findBacklog, sumBacklogs } from "../model/due.ts";
import { closeKeys, closeWorkspace, eraseLeads, eraseWorkspace } from "../model/erasure.ts";
import { exportPage } from "../model/export.ts";
import { listHealth, unknownWebhook } from "../model/health.ts";
import { findDelivery, listDeliveries } from "../model/history.ts";
import { findLedger, type Ledger, sumLedgers } from "../model/ledger.ts";
import { beginErasure } from "../model/moves.ts";
import { ALL_STATES } from "../model/owing.ts";
import type { Listing, PageRequest } from "../model/page.ts";
import { enableAgain, redeliverAgain } from "../model/redelivery.ts";
import {
  deleteAnySubscription,
  disableSubscription,
  findSubscription,
  withdrawWorkspace,
} from "../model/subscriptions.ts";
import {
  insertLine,
  insertWorkspace,
  listWorkspaces,
  updateAccess,
  updateWorkspace,
  workspaceExists,
} from "../model/workspaces.ts";
import { type MoveProgress, moveWorkspace } from "../moving/move.ts";
import { record } from "../recording/record.ts";
import { referring, unknownWorkspace } from "../recording/references.ts";
import { type Resealed, resealSecrets } from "../webhooks/reseal.ts";
import { rotateSecret } from "../webhooks/rotation.ts";
import { readKeyRing } from "../webhooks/seal.ts";
import { sendTestEvent, type TestResult } from "../webhooks/test-event.ts";

/**
 * The RPC door of the platform that produces automations, leads and runs, and of operators. Every
 * method takes one plain object and gives one; wrong input is an `Error` that says what and where,
 * and then nothing is written. All but those that create a workspace or a key can be called again
 * after a lost reply.
 */
export class Platform extends WorkerEntrypoint<Env> {
  /** Creates a workspace that has access to the service, in the database with the most room. */
  async createWorkspace(input: PlatformInput<"createWorkspace">): Promise<{ workspaceId: string }> {
    const { name, adminEmails, database } = await readInput("createWorkspace", input);
    const home = database == null ? await this.#findRoom() : this.#bound(database);
    const id = randomId("workspace");
    const workspace = { id, name, adminEmails: adminEmails ?? [], createdAt: Date.now() };
    await insertWorkspace(home.db, workspace);
    // Last: what the directory leads to is there.
    if (home.database !== DIRECTORY)
      await insertLine(this.#directory, { ...workspace, database: home.database });
    return { workspaceId: id };
  }

  /**
   * Moves a workspace to another database while it is in use. What one call does not finish, the next
   * one does, or the sweep. Back to where it lives, it ends a move that is still copying.
   */
  async moveWorkspace(input: PlatformInput<"moveWorkspace">): Promise<MoveProgress> {
    const { workspaceId, database } = await readInput("moveWorkspace", input);
    this.#bound(database);
    await this.#expectWorkspace(workspaceId);
    const startedAt = performance.now();
    const mayGoOn = () => performance.now() - startedAt < MOVE_MAX_MS;
    return moveWorkspace(this.env, workspaceId, database, mayGoOn);
  }

  /**
   * Lists the databases that are bound: how full each is, how fast it fills, when there is no more
   * room. One that is away has no figures.
   */
  async databases(input: PlatformInput<"databases">) {
    await readInput("databases", input);
    const now = Date.now();
    const items = databaseNames(this.env).map(async (database) => {
      const figures = await this.#ask(database, (db) => findFigures(db, now));
      return { database, isAway: figures === null, ...(figures ?? NO_FIGURES) };
    });
    return { items: await Promise.all(items), nextCursor: null };
  }

  /**
   * Changes the name of a workspace, its administrators, or how many subscriptions it may have; what
   * is left out stays. A lower limit removes no subscription, and lets no new one in.
   */
  async updateWorkspace(input: PlatformInput<"updateWorkspace">): Promise<Record<string, never>> {
    const { workspaceId, ...changes } = await readInput("updateWorkspace", input);
    const { db } = await this.#toWrite(workspaceId);
    const updated = await commit(db, updateWorkspace(workspaceId, changes, Date.now()));
    if (updated === 0) throw unknownWorkspace();
    return {};
  }

  /**
   * Lists all workspaces, newest first. Of one whose database is away, no more is known than where it
   * lives, and since when.
   */
  async listWorkspaces(input: PlatformInput<"listWorkspaces">) {
    const { cursor } = await readInput("listWorkspaces", input);
    const found = await listWorkspaces(
      this.#directory,
      (database, question) => this.#ask(database, question),
      pageAfter(cursor),
    );
    return toPlatformPage(WORKSPACES_LIST, found);
  }

  /** Grants or denies a workspace access; when this returns, every key of it is answered so. */
  async setWorkspaceAccess(
    input: PlatformInput<"setWorkspaceAccess">,
  ): Promise<Record<string, never>> {
    const { workspaceId, granted } = await readInput("setWorkspaceAccess", input);
    const home = await this.#toWrite(workspaceId);
    const now = Date.now();
    const withdrawal = granted ? [] : [withdrawWorkspace(workspaceId, now)];
    // Not retried: if the reply was lost, a later call may have decided otherwise meanwhile.
    const [updated, [left = []]] = await commit(
      home.db,
      inOrder([updateAccess(workspaceId, granted), inOrder(withdrawal)]),
      1,
    );
    if (updated === 0) throw unknownWorkspace();
    const wakes = left.map((subscriptionId) => ({ subscriptionId, lane: "slow" as const }));
    this.ctx.waitUntil(wake(this.env, home.database, wakes));
    const keys = await liveKeys(this.#directory, workspaceId, now);
    await Promise.all(keys.map((key) => this.#forget(key)));
    return {};
  }

  /**
   * Makes a link to the portal: whoever has it manages the webhooks of the workspace until it ends, or
   * until the workspace has no access any more.
   */
  async createPortalLink(input: PlatformInput<"createPortalLink">): Promise<{ url: string }> {
    const { workspaceId, validMinutes } = await readInput("createPortalLink", input);
    const { PORTAL, PORTAL_ORIGIN, PORTAL_SIGNING_KEYS } = this.env;
    if (PORTAL === "off") throw new Error("this deployment serves no portal: PORTAL is off");
    if (PORTAL_ORIGIN === "")
      throw new Error("PORTAL_ORIGIN is empty: set it to the public address of this deployment");
    await this.#expectWorkspace(workspaceId);
    const endsAt = Date.now() + (validMinutes ?? PORTAL_LINK_MINUTES.default) * 60_000;
    const token = await signPortalToken(PORTAL_SIGNING_KEYS, { workspaceId, endsAt });
    // In the fragment: no server, proxy or log on the way gets to see it.
    return { url: `${new URL(PORTAL_ORIGIN).origin}/portal#${token}` };
  }

  /** Creates a key of a workspace. The key is in this answer only; what is kept is its SHA-256. */
  async createApiKey(
    input: PlatformInput<"createApiKey">,
  ): Promise<{ keyId: string; apiKey: string }> {
    const { workspaceId, requestsPerWindow } = await readInput("createApiKey", input);
    const id = randomId("key");
    const apiKey = await mintApiKey(this.env.API_KEY_CHECKSUM_KEYS);
    const key = {
      id,
      workspaceId,
      keyHash: await hashApiKey(apiKey),
      requestsPerWindow: requestsPerWindow ?? null,
      createdAt: Date.now(),
    };
    await referring(insertApiKey(this.#directory, key));
    return { keyId: id, apiKey };
  }

  /** Gives a live key another quota; when this returns, its gate decides by it. */
  async updateApiKey(input: PlatformInput<"updateApiKey">): Promise<Record<string, never>> {
    const { keyId, requestsPerWindow } = await readInput("updateApiKey", input);
    const [updated] = await updateQuota(this.#directory, keyId, requestsPerWindow, Date.now());
    if (!updated) throw new InputError("keyId: no such key, or it is revoked or expired");
    await this.#forget(updated);
    return {};
  }

  /**
   * Gives a client a new key of the same workspace and quota, in this answer only. The old key is
   * good until the overlap ends, and is then refused by its gate without anybody's doing; when this
   * returns, the gate knows the end. A key is rolled once.
   */
  async rollApiKey(input: PlatformInput<"rollApiKey">): Promise<{ keyId: string; apiKey: string }> {
    const { keyId, overlapSeconds } = await readInput("rollApiKey", input);
    const id = randomId("key");
    const apiKey = await mintApiKey(this.env.API_KEY_CHECKSUM_KEYS);
    const key = { id, keyHash: await hashApiKey(apiKey) };
    const now = Date.now();
    const rolled = rollKey(keyId, key, now + overlapSeconds * 1000, now);
    await this.#forget(await commit(this.#directory, rolled));
    return { keyId: id, apiKey };
  }

  /** Revokes a key for good; when this returns, it is refused everywhere. */
  async revokeApiKey(input: PlatformInput<"revokeApiKey">): Promise<Record<string, never>> {
    const { keyId, apiKey } = await readInput("revokeApiKey", input);
    const key = keyId != null ? { id: keyId } : { keyHash: await hashApiKey(apiKey ?? "") };
    const [revoked] = await revokeKey(this.#directory, key, Date.now());
    if (!revoked) throw new InputError(`${keyId != null ? "keyId" : "apiKey"}: no such key`);
    await this.#forget(revoked);
    return {};
  }

  /** Lists the keys of a workspace, revoked ones included, newest first. */
  async listApiKeys(input: PlatformInput<"listApiKeys">) {
    const { workspaceId, cursor } = await readInput("listApiKeys", input);
    await this.#expectWorkspace(workspaceId);
    const found = await listApiKeys(this.#directory, workspaceId, pageAfter(cursor));
    return toPlatformPage(API_KEYS_LIST, found);
  }

  /** Inserts automations or brings them up to date, by reference; announces activations and pauses. */
  async recordAutomations(input: PlatformInput<"recordAutomations">): Promise<Recorded> {
    const { ids, changed } = await this.#record("recordAutomations", input);
    return { ids, created: changed };
  }

  /**
   * Removes automations whose account was unsubscribed, and their runs; unknown ids are no error.
   * Gives how many were there.
   */
  async removeAutomations(input: PlatformInput<"removeAutomations">): Promise<{ removed: number }> {
    const { changed } = await this.#record("removeAutomations", input);
    return { removed: changed };
  }

  /** Inserts leads and announces them; one whose reference is known stays as it is. */
  async recordLeads(input: PlatformInput<"recordLeads">): Promise<Recorded> {
    const { ids, changed } = await this.#record("recordLeads", input);
    return { ids, created: changed };
  }

  /** Inserts finished runs and announces them; one whose reference is known stays as it is. */
  async recordRuns(input: PlatformInput<"recordRuns">): Promise<Recorded> {
    const { ids, changed } = await this.#record("recordRuns", input);
    return { ids, created: changed };
  }

  /**
   * Erases leads for good, with the events that tell of them and the deliveries of these, at once;
   * their runs lose the link. Unknown ids are no error.
   */
  async eraseLeads(input: PlatformInput<"eraseLeads">): Promise<Record<string, never>> {
    const { workspaceId, ids } = await readInput("eraseLeads", input);
    await this.#expectWorkspace(workspaceId);
    const { db } = await this.#toWrite(workspaceId);
    await commit(db, eraseLeads(workspaceId, ids));
    return {};
  }

  /**
   * Erases a workspace for good, with all that is kept about it. When the first call returns, its keys
   * are refused and its subscriptions deleted; the rest goes in pieces, so that a large one takes
   * several calls. Called after that, or of a workspace that nobody knows, it is done.
   */
  async eraseWorkspace(
    input: PlatformInput<"eraseWorkspace">,
  ): Promise<{ done: boolean; remaining: number }> {
    const { workspaceId } = await readInput("eraseWorkspace", input);
    const now = Date.now();
    const { db } = await this.#toWrite(workspaceId);
    if (await commit(db, beginErasure(workspaceId, now)))
      throw new InputError("workspaceId: it is being moved; erase it when that is done");
    const closed = await commit(this.#directory, closeKeys(workspaceId, now));
    if (!closed) return { done: true, remaining: 0 };
    await Promise.all(closed.keys.map((key) => this.#forget(key)));
    // One whose database is not bound any more would be taken for erased.
    this.#bound(closed.database);
    await commit(db, closeWorkspace(workspaceId, now));
    const startedAt = performance.now();
    const mayGoOn = () => performance.now() - startedAt < ERASURE_MAX_MS;
    let remaining = 0;
    // The directory last: until then, it leads to what is left.
    for (const home of allHomes(this.env).reverse()) {
      const isNeeded = home.database === closed.database || home.database === DIRECTORY;
      // What it left elsewhere is deleted in any case, once that database is back.
      const isThere =
        isNeeded || (await this.#ask(home.database, (one) => workspaceExists(one, workspaceId)));
      if (isThere && remaining === 0)
        remaining = await eraseWorkspace(home.db, workspaceId, mayGoOn);
    }
    return { done: remaining === 0, remaining };
  }

  /** Exports all that is kept about a workspace, but for secrets, in pages of about a megabyte. */
  async exportWorkspace(
    input: PlatformInput<"exportWorkspace">,
  ): Promise<{ items: ExportItem[]; nextCursor: string | null }> {
    const { workspaceId, cursor } = await readInput("exportWorkspace", input);
    const { db } = await this.#homeOf(workspaceId);
    return exportPage(db, this.#directory, workspaceId, cursor ?? null);
  }

  /** Counts the deliveries of a workspace, of a database, or of all. */
  async ledger(input: PlatformInput<"ledger">): Promise<Ledger> {
    const { workspaceId, database } = await readInput("ledger", input);
    const homes = await this.#homes(workspaceId, database);
    const now = Date.now();
    const counted = homes.map(({ db }) => findLedger(db, workspaceId ?? undefined, now));
    return sumLedgers(await Promise.all(counted));
  }

  /** Tells what waits to be delivered, as the ledger does, at the price of reading just that. */
  async backlog(input: PlatformInput<"backlog">): Promise<Backlog> {
    const { workspaceId, database } = await readInput("backlog", input);
    const homes = await this.#homes(workspaceId, database);
    const now = Date.now();
    const counted = homes.map(({ db }) => findBacklog(db, workspaceId ?? undefined, now));
    return sumBacklogs(await Promise.all(counted));
  }

  /** Lists the subscriptions of a workspace, newest first, with their health. */
  async listWebhooks(input: PlatformInput<"listWebhooks">) {
    const { workspaceId } = await readInput("listWebhooks", input);
    const { db } = await findHome(this.env, workspaceId);
    const items = await listHealth(db, workspaceId);
    if (items.length === 0) await this.#expectWorkspace(workspaceId);
    return { items, nextCursor: null };
  }

  /** Lists the deliveries to a subscription, newest first. */
  async listDeliveries(input: PlatformInput<"listDeliveries">) {
    const { webhookId, state, type, limit, cursor } = await readInput("listDeliveries", input);
    const request = pageAfter(cursor, limit ?? PAGE_LIMIT.default);
    const { db } = await findHomeOfWebhook(this.env, webhookId);
    const found = await listDeliveries(db, webhookId, { state, type }, request);
    return toPlatformPage(DELIVERIES_LIST, found);
  }

  /** Shows a delivery, every failed attempt at it, and the exact body. */
  async readDelivery(input: PlatformInput<"readDelivery">) {
    const { webhookId, eventId } = await readInput("readDelivery", input);
    const { db } = await findHomeOfWebhook(this.env, webhookId);
    return findDelivery(db, webhookId, eventId);
  }

  /**
   * Delivers events once more, delivered ones too, oldest first, a few a second; what is pending is
   * left alone. Gives how many will be sent.
   */
  async redeliver(input: PlatformInput<"redeliver">): Promise<{ count: number }> {
    const now = Date.now();
    const { webhookId, eventIds, since, until, states } = await readInput("redeliver", input);
    const range = { since: since ?? now, until: until ?? null, states: states ?? ALL_STATES };
    const home = await this.#webhookToWrite(webhookId);
    const owed = await redeliverAgain(home.db, webhookId, eventIds ?? range, now);
    if (!owed) throw new InputError("webhookId: the subscription is disabled, or without access");
    const wakes = [{ subscriptionId: webhookId, lane: owed.lane }];
    this.ctx.waitUntil(wake(this.env, home.database, wakes));
    return { count: owed.count };
  }

  /**
   * Makes a disabled subscription active again. With `redeliverSince`, it also gets what it has
   * missed since then, oldest first, a few a second. Gives how many will be sent.
   */
  async enableWebhook(input: PlatformInput<"enableWebhook">): Promise<{ count: number }> {
    const { webhookId, redeliverSince } = await readInput("enableWebhook", input);
    const home = await this.#webhookToWrite(webhookId);
    const count = await enableAgain(home.db, webhookId, redeliverSince ?? null, Date.now());
    if (redeliverSince == null) return { count };
    const wakes = [{ subscriptionId: webhookId, lane: "fast" as const }];
    this.ctx.waitUntil(wake(this.env, home.database, wakes));
    return { count };
  }

  /** Posts a labelled sample to a subscription now, once, and says what its server answered. */
  async sendTestEvent(input: PlatformInput<"sendTestEvent">): Promise<TestResult> {
    const now = Date.now();
    const { webhookId, type } = await readInput("sendTestEvent", input);
    const { db } = await findHomeOfWebhook(this.env, webhookId);
    const subscription = await findSubscription(db, webhookId, now);
    if (!subscription.accessGranted) throw new InputError("webhookId: its workspace has no access");
    return sendTestEvent(this.env, subscription, type, now);
  }

  /** Disables a subscription; what it is still owed is cancelled. */
  async disableWebhook(input: PlatformInput<"disableWebhook">): Promise<Record<string, never>> {
    const { webhookId } = await readInput("disableWebhook", input);
    const home = await this.#webhookToWrite(webhookId);
    const { found, left } = await commit(home.db, disableSubscription(webhookId, Date.now()));
    if (!found) throw unknownWebhook();
    if (left) this.#wakeToCancel(home.database, webhookId);
    return {};
  }

  /** Deletes a subscription; what it is still owed is cancelled. An unknown id is no error. */
  async deleteWebhook(input: PlatformInput<"deleteWebhook">): Promise<Record<string, never>> {
    const { webhookId } = await readInput("deleteWebhook", input);
    const home = await this.#webhookToWrite(webhookId);
    const { left } = await commit(home.db, deleteAnySubscription(webhookId, Date.now()));
    if (left) this.#wakeToCancel(home.database, webhookId);
    return {};
  }

  /**
   * Gives a subscription a new secret, which is in this answer only; until the overlap ends, what it
   * is sent is signed with the old one too.
   */
  async rotateWebhookSecret(
    input: PlatformInput<"rotateWebhookSecret">,
  ): Promise<{ secret: string; overlapEndsAt: string | null }> {
    const { webhookId, overlapSeconds } = await readInput("rotateWebhookSecret", input);
    const overlap = overlapSeconds ?? SECRET_OVERLAP_SECONDS.default;
    const keys = this.env.WEBHOOK_ENCRYPTION_KEYS;
    const home = await this.#webhookToWrite(webhookId);
    return rotateSecret(home.db, keys, webhookId, overlap, Date.now());
  }

  /**
   * Seals up to 100 webhook secrets under the first of `WEBHOOK_ENCRYPTION_KEYS`. Once nothing
   * remains, the other keys can go: no key of the ring opens what is unreadable, which the log names.
   */
  async resealSecrets(input: PlatformInput<"resealSecrets">): Promise<Resealed> {
    await readInput("resealSecrets", input);
    const ring = readKeyRing(this.env.WEBHOOK_ENCRYPTION_KEYS);
    const done: Resealed = { resealed: 0, remaining: 0, unreadable: 0 };
    for (const { db } of allHomes(this.env)) {
      const { resealed, remaining, unreadable } = await resealSecrets(
        db,
        ring,
        100 - done.resealed,
      );
      done.resealed += resealed;
      done.remaining += remaining;
      done.unreadable += unreadable;
    }
    return done;
  }

  get #directory(): Database {
    return openDirectory(this.env);
  }

  /** A database of that name. @throws Error that says which there are. */
  #bound(database: string): Home {
    const names = databaseNames(this.env);
    if (names.includes(database)) return homeNamed(this.env, database);
    throw new InputError(`database: none is bound as ${database}; there is ${names.join(", ")}`);
  }

  /** The smallest of the databases that answer and are not closed; the directory's when none is left. */
  async #findRoom(): Promise<Home> {
    if (hasOneDatabase(this.env)) return homeNamed(this.env, DIRECTORY);
    const closed: string[] = this.env.DATABASES_CLOSED.split(",").map((name) => name.trim());
    const open = databaseNames(this.env).filter((name) => !closed.includes(name));
    const sizes = open.map(async (database) => {
      const bytes = await this.#ask(database, findSize);
      return bytes === null ? [] : { database, bytes };
    });
    const known = (await Promise.all(sizes)).flat();
    const [smallest] = known.sort((a, b) => a.bytes - b.bytes);
    return homeNamed(this.env, smallest?.database ?? DIRECTORY);
  }

  /** Asks one of several databases; null when it is away, or not bound: the others go on without it. */
  async #ask<T>(database: string, question: (db: Database) => Promise<T>): Promise<T | null> {
    try {
      return await inTime(database, question(openNamed(this.env, database)));
    } catch (error) {
      logError("database_away", error, { database });
      return null;
    }
  }

  /** Figures of a workspace that is not there would look healthy. */
  async #expectWorkspace(workspaceId: string): Promise<void> {
    if (!(await workspaceExists(this.#directory, workspaceId))) throw unknownWorkspace();
  }

  /** Where a workspace lives. @throws InputError for one that nobody knows. */
  async #homeOf(workspaceId: string): Promise<Home> {
    await this.#expectWorkspace(workspaceId);
    return findHome(this.env, workspaceId);
  }

  /** Where a workspace lives, for writes, which follow it when it changes its database. */
  #toWrite(workspaceId: string): Promise<Home> {
    return openToWrite(this.env, () => findHome(this.env, workspaceId));
  }

  /** The same of a subscription's workspace. */
  #webhookToWrite(webhookId: string): Promise<Home> {
    return openToWrite(this.env, () => findHomeOfWebhook(this.env, webhookId));
  }

  /** The databases to ask about a workspace, about one of them, or about all. */
  async #homes(workspaceId?: string | null, database?: string | null): Promise<Home[]> {
    if (workspaceId != null) return [await this.#homeOf(workspaceId)];
    return database == null ? allHomes(this.env) : [this.#bound(database)];
  }

  /** Records a call, and wakes the subscribers of its events without making the caller wait. */
  async #record<M extends RecordingMethod>(method: M, input: PlatformInput<M>) {
    const { ids, changed, database, wakes } = await record(this.env, method, input, Date.now());
    this.ctx.waitUntil(wake(this.env, database, wakes));
    return { ids, changed };
  }

  #wakeToCancel(database: string, subscriptionId: string): void {
    this.ctx.waitUntil(wake(this.env, database, [{ subscriptionId, lane: "slow" }]));
  }

  /**
   * Makes the gate of a key read it anew; one that was never used has none. Elsewhere, a key known to
   * have used up its quota is refused as before, with 429 or 403, for up to two seconds more.
   */
  async #forget({ keyHash, lastUsedAt }: GatedKey): Promise<void> {
    if (lastUsedAt === null) return;
    usedUpKeys.delete(keyHash);
    await callObject(this.env.KEY_GATE, keyHash, (gate) => gate.forget());
  }
}

nameRefusals(Platform.prototype);

function pageAfter(
  after: Position | null | undefined,
  limit: number = PAGE_LIMIT.max,
): PageRequest {
  return { limit, after: after ?? null };
}

/** A page of `list` as the door's methods give it. */
function toPlatformPage<Item>(list: string, { items, next }: Listing<Item>) {
  return { items, nextCursor: next && encodeCursor(list, next) };
}

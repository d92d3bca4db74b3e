import { DELIVERIES_LIST } from "../../contract/cursor.ts";
import { InputError } from "../../contract/input-error.ts";
import { PAGE_LIMIT } from "../../contract/limits.ts";
import { findHomeOfWebhook } from "../../db/homes.ts";
import { wake } from "../../delivery/wake.ts";
import { findBacklog, sumBacklogs } from "../../model/due.ts";
import { findDelivery, listDeliveries } from "../../model/history.ts";
import { findLedger, sumLedgers } from "../../model/ledger.ts";
import { ALL_STATES } from "../../model/owing.ts";
import { redeliverAgain } from "../../model/redelivery.ts";
import { findHomes, openHomeOfWebhook } from "./homes.ts";
import { type Methods, pageAfter, toPlatformPage } from "./methods.ts";

/** The methods that show, count and repeat deliveries. */
export const deliveryMethods = {
  /** Lists the deliveries to a subscription, newest first. */
  async listDeliveries({ env }, { webhookId, state, type, limit, cursor }) {
    const { db } = await findHomeOfWebhook(env, webhookId);
    const request = pageAfter(cursor, limit ?? PAGE_LIMIT.default);
    const found = await listDeliveries(db, webhookId, { state, type }, request);
    return toPlatformPage(DELIVERIES_LIST, found);
  },

  /** Returns a delivery, all its failed attempts, and the exact body. */
  async readDelivery({ env }, { webhookId, eventId }) {
    const { db } = await findHomeOfWebhook(env, webhookId);
    return findDelivery(db, env.WEBHOOK_ENCRYPTION_KEYS, webhookId, eventId);
  },

  /**
   * Delivers events again, even delivered ones, oldest first, a few a second; pending deliveries are
   * left alone.
   *
   * @returns how many events are about to be sent, and whether there may be more in the range.
   */
  async redeliver({ env, ctx }, { webhookId, eventIds, since, until, states }) {
    const now = Date.now();
    const range = { since: since ?? now, until: until ?? null, states: states ?? ALL_STATES };
    const home = await openHomeOfWebhook(env, webhookId);
    const owed = await redeliverAgain(home.db, webhookId, eventIds ?? range, now);
    if (!owed) throw new InputError("webhookId: it is disabled, or its workspace has no access");
    const { lane, ...sent } = owed;
    ctx.waitUntil(wake(env, home.database, [{ subscriptionId: webhookId, lane }]));
    return sent;
  },

  /** Counts the deliveries of a workspace, of a database, or of all databases. */
  async ledger({ env }, { workspaceId, database }) {
    const homes = await findHomes(env, workspaceId, database);
    const now = Date.now();
    const counted = homes.map(({ db }) => findLedger(db, workspaceId ?? undefined, now));
    return sumLedgers(await Promise.all(counted));
  },

  /** Counts the pending deliveries alone: what the ledger says about them, but far cheaper to read. */
  async backlog({ env }, { workspaceId, database }) {
    const homes = await findHomes(env, workspaceId, database);
    const now = Date.now();
    const counted = homes.map(({ db }) => findBacklog(db, workspaceId ?? undefined, now));
    return sumBacklogs(await Promise.all(counted));
  },
} satisfies Partial<Methods>;

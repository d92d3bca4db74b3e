import { WorkerEntrypoint } from "cloudflare:workers";
import { randomId } from "./contract/ids.ts";
import { type PlatformInput, readInput } from "./contract/platform.ts";
import type { AutomationType } from "./contract/resources.ts";
import { isServed } from "./contract/served.ts";
import {
  changes,
  commit,
  type Database,
  openDatabase,
  retrying,
  type Statement,
} from "./db/client.ts";
import { open, readKeyRing, seal, sealingKeyId } from "./delivery/seal.ts";
import { wake } from "./delivery/wake.ts";
import { hashApiKey, mintApiKey } from "./gate/api-key.ts";
import { usedUpKeys } from "./gate/memory.ts";
import {
  type ReportedAutomation,
  readAutomation,
  recordAutomations,
  removeAutomations,
  toAutomation,
  typesOfAutomations,
} from "./model/automations.ts";
import { cancelWorkspace } from "./model/deliveries.ts";
import {
  announce,
  commitAnnounced,
  draftEvent,
  isMove,
  isNewLead,
  isNewRun,
} from "./model/events.ts";
import { knownLeads, readLead, recordLeads, toLead } from "./model/leads.ts";
import { type Ledger, readLedger } from "./model/ledger.ts";
import { redeliver } from "./model/redelivery.ts";
import { type ReportedRun, readRun, recordRuns, toRun } from "./model/runs.ts";
import { enableSubscription, replaceSecret, secretsUnderOtherKeys } from "./model/subscriptions.ts";
import {
  insertApiKey,
  insertWorkspace,
  liveKeyHashes,
  revokeKey,
  updateAccess,
  workspaceExists,
} from "./model/workspaces.ts";

/**
 * The RPC door of the platform that produces automations, leads and runs, and of operators. Every
 * method takes one plain object and gives one; wrong input is an `Error` that says what and where,
 * and then nothing is written. All but the two that create a workspace and a key can be called again
 * after a lost reply.
 */
export class Platform extends WorkerEntrypoint<Env> {
  /** Creates a workspace that has access to the service. */
  async createWorkspace(input: PlatformInput<"createWorkspace">): Promise<{ workspaceId: string }> {
    const { name, adminEmails } = readInput("createWorkspace", input);
    const id = randomId("workspace");
    const workspace = { id, name, adminEmails: adminEmails ?? [], createdAt: Date.now() };
    await insertWorkspace(this.#db, workspace);
    return { workspaceId: id };
  }

  /** Grants or denies a workspace access; when this returns, every key of it is answered so. */
  async setWorkspaceAccess(
    input: PlatformInput<"setWorkspaceAccess">,
  ): Promise<Record<string, never>> {
    const { workspaceId, granted } = readInput("setWorkspaceAccess", input);
    const db = this.#db;
    const [updated] = await commit(db, [
      updateAccess(workspaceId, granted),
      ...(granted ? [] : [cancelWorkspace(workspaceId, Date.now())]),
    ]);
    if (changes(updated) === 0) throw unknownWorkspace();
    const keys = await liveKeyHashes(db, workspaceId);
    await Promise.all(keys.map(({ keyHash }) => this.#forget(keyHash)));
    return {};
  }

  /** Creates a key of a workspace. The key is in this answer only; what is kept is its SHA-256. */
  async createApiKey(
    input: PlatformInput<"createApiKey">,
  ): Promise<{ keyId: string; apiKey: string }> {
    const { workspaceId, requestsPerWindow } = readInput("createApiKey", input);
    const id = randomId("key");
    const apiKey = mintApiKey();
    const key = {
      id,
      workspaceId,
      keyHash: await hashApiKey(apiKey),
      requestsPerWindow: requestsPerWindow ?? null,
      createdAt: Date.now(),
    };
    await referring(insertApiKey(this.#db, key));
    return { keyId: id, apiKey };
  }

  /** Revokes a key for good; when this returns, it is refused everywhere. */
  async revokeApiKey(input: PlatformInput<"revokeApiKey">): Promise<Record<string, never>> {
    const { keyId } = readInput("revokeApiKey", input);
    const [revoked] = await revokeKey(this.#db, keyId, Date.now());
    if (!revoked) throw new Error("keyId: no such key");
    await this.#forget(revoked.keyHash);
    return {};
  }

  /** Inserts automations or brings them up to date, by reference; announces activations and pauses. */
  async recordAutomations(input: PlatformInput<"recordAutomations">): Promise<{ ids: string[] }> {
    const { workspaceId, automations } = readInput("recordAutomations", input);
    const now = Date.now();
    const reported = await Promise.all(
      automations.map((automation) => readAutomation(workspaceId, automation)),
    );
    // Of several reports of one automation in a call, the last one counts.
    const latest: ReportedAutomation[] = [
      ...new Map(reported.map((report) => [report.id, report])).values(),
    ];
    const drafts = latest
      .filter(({ status }) => status === "active" || status === "paused")
      .filter(({ type }) => this.#shows(type))
      .map((report) => {
        const automation = toAutomation({ ...report, updatedAt: report.updatedAt ?? now });
        return draftEvent("automation.status_changed", automation, now);
      });
    await this.#record(
      workspaceId,
      announce(workspaceId, "automation.status_changed", drafts, isMove, now),
      recordAutomations(workspaceId, latest, now),
      now,
    );
    return { ids: reported.map(({ id }) => id) };
  }

  /** Removes automations whose account was unsubscribed, and their runs; unknown ids are no error. */
  async removeAutomations(
    input: PlatformInput<"removeAutomations">,
  ): Promise<Record<string, never>> {
    const { workspaceId, ids } = readInput("removeAutomations", input);
    if (!(await workspaceExists(this.#db, workspaceId))) throw unknownWorkspace();
    await commit(this.#db, [removeAutomations(workspaceId, ids)]);
    return {};
  }

  /** Inserts leads and announces them; one whose reference is known stays as it is. */
  async recordLeads(input: PlatformInput<"recordLeads">): Promise<{ ids: string[] }> {
    const { workspaceId, leads } = readInput("recordLeads", input);
    const now = Date.now();
    const reported = await Promise.all(leads.map((lead) => readLead(workspaceId, lead, now)));
    const fresh = firstOfEach(reported);
    const drafts = fresh.map((lead) => draftEvent("lead.created", toLead(lead), now));
    await this.#record(
      workspaceId,
      announce(workspaceId, "lead.created", drafts, isNewLead, now),
      recordLeads(workspaceId, fresh),
      now,
    );
    return { ids: reported.map(({ id }) => id) };
  }

  /** Inserts finished runs and announces them; one whose reference is known stays as it is. */
  async recordRuns(input: PlatformInput<"recordRuns">): Promise<{ ids: string[] }> {
    const { workspaceId, runs } = readInput("recordRuns", input);
    const now = Date.now();
    const reported = await Promise.all(runs.map((run) => readRun(workspaceId, run, now)));
    const types = await this.#checkReferences(workspaceId, reported);
    const fresh = firstOfEach(reported);
    const drafts = fresh
      .filter(({ automationId }) => this.#shows(types.get(automationId)))
      .map((run) => draftEvent("run.completed", toRun(run), now));
    await this.#record(
      workspaceId,
      announce(workspaceId, "run.completed", drafts, isNewRun, now),
      recordRuns(workspaceId, fresh),
      now,
      new Error("runs: an automation that they name has just been removed"),
    );
    return { ids: reported.map(({ id }) => id) };
  }

  /** Counts the deliveries of a workspace, or of all. */
  async ledger(input: PlatformInput<"ledger">): Promise<Ledger> {
    const { workspaceId } = readInput("ledger", input);
    if (workspaceId != null && !(await workspaceExists(this.#db, workspaceId)))
      throw unknownWorkspace();
    return readLedger(this.#db, workspaceId ?? undefined, Date.now());
  }

  /**
   * Makes a disabled subscription active again. With `redeliverSince`, it also gets what it has
   * missed since then, oldest first, a few a second.
   */
  async enableWebhook(input: PlatformInput<"enableWebhook">): Promise<Record<string, never>> {
    const { webhookId, redeliverSince } = readInput("enableWebhook", input);
    const enabled = await enableSubscription(this.#db, webhookId);
    if (enabled.length === 0) throw new Error("webhookId: no such subscription");
    if (redeliverSince != null) {
      await redeliver(this.#db, webhookId, redeliverSince, Date.now());
      this.ctx.waitUntil(wake(this.env, [{ subscriptionId: webhookId, failing: false }]));
    }
    return {};
  }

  /**
   * Seals up to 100 webhook secrets under the first of `WEBHOOK_ENCRYPTION_KEYS`. Once nothing
   * remains, the other keys can go.
   */
  async resealSecrets(
    input: PlatformInput<"resealSecrets">,
  ): Promise<{ resealed: number; remaining: number }> {
    readInput("resealSecrets", input);
    const ring = readKeyRing(this.env.WEBHOOK_ENCRYPTION_KEYS);
    const { secrets, count } = await secretsUnderOtherKeys(this.#db, sealingKeyId(ring), 100);
    const replacements = await Promise.all(
      secrets.map(async (secret) => {
        const { id, sealedSecret } = secret;
        return replaceSecret(secret, await seal(ring, id, await open(ring, id, sealedSecret)));
      }),
    );
    if (replacements.length > 0) await commit(this.#db, replacements);
    return { resealed: secrets.length, remaining: count - secrets.length };
  }

  get #db(): Database {
    return openDatabase(this.env.DB);
  }

  /** Commits a record with its events, and wakes their subscribers without making the caller wait. */
  async #record(
    workspaceId: string,
    announcement: Statement[],
    writes: Statement[],
    now: number,
    missing?: Error,
  ): Promise<void> {
    const { wakes } = await referring(
      commitAnnounced(this.#db, workspaceId, announcement, writes, now),
      missing,
    );
    this.ctx.waitUntil(wake(this.env, wakes));
  }

  /** The types of the runs' automations. @throws Error for one, or a lead, that is not the workspace's. */
  async #checkReferences(workspaceId: string, runs: ReportedRun[]) {
    const db = this.#db;
    const leadIds = runs.flatMap(({ leadId }) => leadId ?? []);
    const automationIds = runs.map(({ automationId }) => automationId);
    const [exists, types, leads] = await Promise.all([
      workspaceExists(db, workspaceId),
      typesOfAutomations(db, workspaceId, automationIds),
      leadIds.length > 0 ? knownLeads(db, workspaceId, leadIds) : new Set<string>(),
    ]);
    if (!exists) throw unknownWorkspace();
    for (const [index, { automationId, leadId }] of runs.entries()) {
      if (!types.has(automationId))
        throw new Error(`runs[${index}].automationId: no such automation in this workspace`);
      if (leadId !== null && !leads.has(leadId))
        throw new Error(`runs[${index}].leadId: no such lead in this workspace`);
    }
    return types;
  }

  /** Whether this deployment shows automations of a type, and so tells of them. */
  #shows(type: AutomationType | undefined): boolean {
    return type !== "crm_source" || isServed(this.env.SERVED_ROUTES, "automations.crm_source");
  }

  /** Elsewhere, a key known to have used up its quota is answered 429 for up to two seconds more. */
  #forget(keyHash: string): Promise<void> {
    usedUpKeys.delete(keyHash);
    return retrying(async () => this.env.KEY_GATE.getByName(keyHash).forget());
  }
}

/** Of several records with one id, the first. */
function firstOfEach<T extends { id: string }>(records: T[]): T[] {
  const first = new Map(records.toReversed().map((record) => [record.id, record]));
  return records.filter((record) => first.get(record.id) === record);
}

/** A write that names other rows: the database knows whether they are there. */
async function referring<T>(write: Promise<T>, missing = unknownWorkspace()): Promise<T> {
  return write.catch((error: unknown) => {
    if (!(error instanceof Error && error.message.includes("FOREIGN KEY constraint failed")))
      throw error;
    throw missing;
  });
}

function unknownWorkspace(): Error {
  return new Error("workspaceId: no such workspace");
}

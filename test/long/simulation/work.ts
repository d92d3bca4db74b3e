import { LARGE_BYTES } from "../../../src/db/schema.ts";
import type { Deployment } from "./deployment.ts";
import { Violation } from "./invariants.ts";
import type { Store } from "./store.ts";
import { BEHAVIOURS, type Subscribers } from "./subscribers.ts";
import { Isolate, type World } from "./world.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const STATES = ["delivered", "exhausted", "cancelled", "missed"];
const KINDS = ["lead.created", "run.completed", "automation.status_changed"];
const AGENT = { reference: "agent", name: "Agent" };
/** Large enough to be stored apart. */
const LARGE_FIELDS = { text: "x".repeat(LARGE_BYTES) };
const LARGE_ACTIONS = Array(20).fill({ type: "x".repeat(200) });

/** What the platform and the workspaces do. */
export class Work {
  #workspaces: string[] = [];
  #references = 0;

  readonly world: World;
  readonly store: Store;
  readonly deployment: Deployment;
  readonly subscribers: Subscribers;

  constructor(world: World, store: Store, deployment: Deployment, subscribers: Subscribers) {
    this.world = world;
    this.store = store;
    this.deployment = deployment;
    this.subscribers = subscribers;
  }

  /** Some hours of it. */
  async happen(): Promise<void> {
    const { world } = this;
    for (let i = 0; i < 2; i++) await this.#createWorkspace();
    for (let i = world.chance.between(1, 4); i > 0; i--) await this.#subscribe();
    if (world.chance.happens(0.2)) await this.#subscribeSlowCrowd();
    for (let i = world.chance.between(8, 30); i > 0; i--) {
      await world.sleep(
        world.chance.happens(0.5)
          ? world.chance.between(0, 200)
          : world.chance.between(0, 20 * MINUTE_MS),
      );
      await this.#somethingHappens();
    }
  }

  /** Overlapping recordings in every workspace. */
  recordEverywhere(): Promise<unknown> {
    return Promise.all(
      this.#workspaces.map((workspaceId) => this.#recordConcurrently(workspaceId)),
    );
  }

  async #createWorkspace(): Promise<void> {
    const { names } = this.store;
    const database = names.length === 1 ? null : this.world.chance.pick(names);
    const input = { name: "Agence", adminEmails: ["admin@example.com"], database };
    this.#workspaces.push(
      (await this.deployment.call("createWorkspace", input)).workspaceId as never,
    );
  }

  async #subscribe(
    workspaceId = this.world.chance.pick(this.#workspaces),
    behaviour = this.world.chance.pick(BEHAVIOURS),
  ): Promise<void> {
    const { world } = this;
    const id = `whk_${this.subscribers.count}`;
    const row = {
      id,
      workspaceId,
      url: `https://${this.subscribers.open(behaviour)}/`,
      events: KINDS.filter(() => world.chance.happens(0.7)) as never[],
      sealedSecret: "sealed",
      createdAt: Date.now(),
    };
    const isolate = new Isolate(world, "http", 0);
    const db = this.deployment.worker.openDatabase(
      this.store.binding(isolate, this.store.homeOf(workspaceId)),
    );
    await this.deployment.worker
      .commit(db, this.deployment.worker.insertSubscription(row))
      .catch((error) => {
        world.note(`subscribing fails: ${error}`);
      });
    world.note(`${id} subscribes to ${row.events}`);
  }

  /** A separate workspace whose subscribers all answer late. */
  async #subscribeSlowCrowd(): Promise<void> {
    await this.#createWorkspace();
    const workspaceId = this.#workspaces.at(-1);
    for (let i = this.world.chance.between(8, 20); i > 0; i--)
      await this.#subscribe(workspaceId, "slow");
  }

  async #somethingHappens(): Promise<void> {
    const { world } = this;
    const workspaceId = world.chance.pick(this.#workspaces);
    const dice = world.chance.number();
    if (dice < 0.4) return this.#recordLeads(workspaceId);
    if (dice < 0.5) return this.#recordConcurrently(workspaceId);
    if (dice < 0.65) return this.#recordAutomationAndRuns(workspaceId);
    if (dice < 0.68) return this.#redeliver();
    if (dice < 0.7) return this.#recordNonsense(workspaceId);
    if (dice < 0.8) return this.subscribers.changeWeather();
    if (dice < 0.85) return this.#subscribe();
    if (dice < 0.86) return this.#unsubscribe();
    if (dice < 0.88) {
      // While it gets many posts, one after another.
      await this.#subscribe(workspaceId, "slow");
      await this.#recordLeads(workspaceId, 40);
      await world.sleep(world.chance.between(0, 20_000));
      return this.#unsubscribe("ORDER BY created_at DESC, id DESC LIMIT 1");
    }
    if (dice < 0.91) return this.#jumpClock();
    if (dice < 0.93 && this.store.names.length > 1) return this.#move(workspaceId);
    if (dice < 0.95) {
      await this.deployment.call("setWorkspaceAccess", { workspaceId, granted: false });
      const denied = this.store
        .rows<{ id: string }>("SELECT id FROM subscriptions WHERE workspace_id = ?", workspaceId)
        .map(({ id }) => id);
      for (const id of denied) this.subscribers.withdrawnAt.set(id, world.now);
      await world.sleep(world.chance.between(0, 10 * MINUTE_MS));
      for (const id of denied) this.subscribers.withdrawnAt.delete(id);
      await this.deployment.call("setWorkspaceAccess", { workspaceId, granted: true });
      return;
    }
    // The long way to a disabled subscription and back.
    await world.sleep(world.chance.between(1, 30) * HOUR_MS);
    const [disabled] = this.store.rows<{ id: string }>(
      "SELECT id FROM subscriptions WHERE deleted_at IS NULL ORDER BY disabled_at IS NULL, id LIMIT 1",
    );
    const redeliverSince = new Date(
      world.now - world.chance.between(0, 100) * HOUR_MS,
    ).toISOString();
    if (disabled)
      await this.deployment.call("enableWebhook", { webhookId: disabled.id, redeliverSince });
  }

  async #recordLeads(
    workspaceId: string,
    count = this.world.chance.between(1, this.world.chance.happens(0.1) ? 40 : 3),
  ): Promise<void> {
    const { world } = this;
    const leads = Array.from({ length: count }, () => ({
      // Sometimes one that was recorded before.
      reference: `lead-${world.chance.happens(0.15) ? world.chance.between(0, this.#references) : ++this.#references}`,
      source: "crm",
      agent: AGENT,
      name: "Lead",
      customFields: this.#references % 4 === 0 ? LARGE_FIELDS : {},
    }));
    await this.deployment.call("recordLeads", { workspaceId, leads });
  }

  /** Several calls that overlap: the first to begin is not always the first to be committed. */
  async #recordConcurrently(workspaceId: string): Promise<void> {
    const { world } = this;
    const later = Array.from({ length: 5 }, async () => {
      await world.sleep(world.chance.between(0, 1_000));
      await this.#recordLeads(workspaceId, 1);
    });
    await Promise.all([this.#recordLeads(workspaceId), ...later]);
  }

  async #recordAutomationAndRuns(workspaceId: string): Promise<void> {
    const { world } = this;
    const automation = {
      reference: `automation-${world.chance.between(0, 2)}`,
      type: "lead_ads",
      provider: "facebook",
      agent: AGENT,
      status: world.chance.pick(["active", "paused", "draft", "error"]),
    };
    const { ids } = await this.deployment.call("recordAutomations", {
      workspaceId,
      automations: [automation],
    });
    const run = {
      reference: `run-${++this.#references}`,
      automationId: (ids as unknown as string[])[0],
      status: "success",
      triggerType: "lead_ads",
      actions: this.#references % 2 === 0 ? LARGE_ACTIONS : [],
    };
    await this.deployment.call("recordRuns", { workspaceId, runs: [run] });
  }

  /** A call that is refused: nothing of it may be written. */
  async #recordNonsense(workspaceId: string): Promise<void> {
    const run = { status: "success", triggerType: "lead_ads" };
    const runs = [
      { ...run, reference: `refused-${++this.#references}`, automationId: "aut_nowhere" },
    ];
    await this.deployment.call("recordRuns", { workspaceId, runs }).then(
      () => {
        throw new Violation("a run of an unknown automation was recorded");
      },
      (error) => {
        if (error instanceof Violation) throw error;
      },
    );
  }

  /** Events are sent again, named or by range. What a crash of the call leaves, sweeps do. */
  async #redeliver(): Promise<void> {
    const { world } = this;
    const known = this.store.rows<{ id: string; workspace_id: string; events: string }>(
      "SELECT id, workspace_id, events FROM subscriptions WHERE deleted_at IS NULL",
    );
    if (known.length === 0) return;
    const { id: webhookId, workspace_id, events } = world.chance.pick(known);
    const eventIds = this.store
      .rows<{ id: string }>(
        "SELECT id FROM events WHERE workspace_id = ? AND type IN (SELECT value FROM json_each(?))",
        workspace_id,
        events,
      )
      .map(({ id }) => id)
      .filter(() => world.chance.happens(0.3))
      .slice(0, 100);
    const states = STATES.filter(() => world.chance.happens(0.6));
    const since = new Date(world.now - world.chance.between(0, 100) * HOUR_MS).toISOString();
    const isRange = eventIds.length === 0 || world.chance.happens(0.6);
    const wanted = isRange ? { since, ...(states.length > 0 && { states }) } : { eventIds };
    await this.deployment.call("redeliver", { webhookId, ...wanted }, isRange).catch((error) => {
      // It may have ended meanwhile.
      if (!/is disabled|no such subscription/.test(String(error))) throw error;
    });
  }

  /** A workspace goes to another database; what one call does not finish, later ones or sweeps do. */
  async #move(workspaceId: string): Promise<void> {
    const input = { workspaceId, database: this.world.chance.pick(this.store.names) };
    for (let calls = this.world.chance.between(1, 5); calls > 0; calls--) {
      // The next one may be due much later, and writes may wait for it.
      for (const minutes of [1, 2, 3, 4])
        this.world.after(minutes * MINUTE_MS, () => this.deployment.sweep());
      // One that is on its way elsewhere, or has left something there, is not moved.
      const refused = await this.deployment.call("moveWorkspace", input).then(
        ({ done }) => done as unknown,
        (error) => /is being moved|is still being deleted/.test(String(error)),
      );
      if (refused) return;
      await this.#recordLeads(workspaceId);
    }
  }

  async #unsubscribe(which = ""): Promise<void> {
    const rows = this.store.rows<{ id: string; workspace_id: string }>(
      `SELECT id, workspace_id FROM subscriptions WHERE deleted_at IS NULL ${which}`,
    );
    if (rows.length === 0) return;
    const { id, workspace_id } = this.world.chance.pick(rows);
    const isolate = new Isolate(this.world, "http", 0);
    const db = this.deployment.worker.openDatabase(
      this.store.binding(isolate, this.store.homeOf(workspace_id)),
    );
    const deletion = this.deployment.worker.deleteSubscription(workspace_id, id, Date.now());
    await this.deployment.worker.commit(this.deployment.worker.withoutRetries(db), deletion).then(
      () => this.subscribers.withdrawnAt.set(id, this.world.now),
      (error) => this.world.note(`unsubscribing fails: ${error}`),
    );
    this.world.note(`${id} is deleted`);
  }

  #jumpClock(): void {
    this.world.skew(this.world.chance.between(-10 * MINUTE_MS, 10 * MINUTE_MS));
  }
}

import type { Deployment } from "./deployment.ts";
import { Violation } from "./invariants.ts";
import { BEHAVIOURS, KINDS } from "./subscribers.ts";
import { Isolate } from "./world.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const STATES = ["delivered", "exhausted", "cancelled", "missed"];
const AGENT = { reference: "agent", name: "Agent" };
const LARGE_FIELDS = { text: "x".repeat(10_000) };
const LARGE_ACTIONS = Array(20).fill({ type: "x".repeat(200) });

/** What the platform and the workspaces do. */
export function openWork({ world, store, subscribers, worker, call, sweep }: Deployment) {
  const { chance } = world;
  const workspaces: string[] = [];
  let references = 0;

  /** The database of a workspace, as a request of a client uses it. */
  const openDatabaseOf = (workspaceId: string) =>
    worker.openDatabase(store.binding(new Isolate(world, "http", 0), store.homeOf(workspaceId)));

  /** Some hours of it. */
  async function happen(): Promise<void> {
    for (let i = 0; i < 2; i++) await createWorkspace();
    for (let i = chance.between(1, 4); i > 0; i--) await subscribe();
    if (chance.happens(0.2)) await subscribeSlowCrowd();
    for (let i = chance.between(8, 30); i > 0; i--) {
      await world.sleep(
        chance.happens(0.5) ? chance.between(0, 200) : chance.between(0, 20 * MINUTE_MS),
      );
      await somethingHappens();
    }
  }

  /** Overlapping recordings of every kind in every workspace. */
  function recordEverywhere(): Promise<unknown> {
    return Promise.all(
      workspaces.flatMap((workspaceId) => [
        recordConcurrently(workspaceId),
        recordAutomationAndRuns(workspaceId),
      ]),
    );
  }

  async function createWorkspace(): Promise<void> {
    const { names } = store;
    const database = names.length === 1 ? null : chance.pick(names);
    const input = { name: "Agence", adminEmails: ["admin@example.com"], database };
    workspaces.push((await call("createWorkspace", input)).workspaceId as never);
  }

  async function subscribe(
    workspaceId = chance.pick(workspaces),
    behaviour = chance.pick(BEHAVIOURS),
  ): Promise<void> {
    const id = `whk_${subscribers.count()}`;
    const row = {
      id,
      workspaceId,
      url: `https://${subscribers.open(behaviour)}/`,
      events: KINDS.filter(() => chance.happens(0.7)) as never[],
      sealedSecret: "sealed",
      createdAt: Date.now(),
    };
    const db = openDatabaseOf(workspaceId);
    await worker.commit(db, worker.insertSubscription(row)).catch((error) => {
      world.note(`subscribing fails: ${error}`);
    });
    world.note(`${id} subscribes to ${row.events}`);
  }

  /** A separate workspace whose subscribers all answer late. */
  async function subscribeSlowCrowd(): Promise<void> {
    await createWorkspace();
    const workspaceId = workspaces.at(-1);
    for (let i = chance.between(8, 20); i > 0; i--) await subscribe(workspaceId, "slow");
  }

  async function somethingHappens(): Promise<void> {
    const workspaceId = chance.pick(workspaces);
    const dice = chance.number();
    if (dice < 0.4) return recordLeads(workspaceId);
    if (dice < 0.5) return recordConcurrently(workspaceId);
    if (dice < 0.65) return recordAutomationAndRuns(workspaceId);
    if (dice < 0.68) return redeliver();
    if (dice < 0.7) return recordNonsense(workspaceId);
    if (dice < 0.8) return subscribers.changeWeather();
    if (dice < 0.85) return subscribe();
    if (dice < 0.86) return unsubscribe();
    if (dice < 0.88) {
      // While it gets many posts, one after another.
      await subscribe(workspaceId, "slow");
      await recordLeads(workspaceId, 40);
      await world.sleep(chance.between(0, 20_000));
      return unsubscribe("ORDER BY created_at DESC, id DESC LIMIT 1");
    }
    if (dice < 0.91) return jumpClock();
    if (dice < 0.93 && store.names.length > 1) return move(workspaceId);
    if (dice < 0.95) {
      await call("setWorkspaceAccess", { workspaceId, granted: false });
      const denied = store
        .rows<{ id: string }>("SELECT id FROM subscriptions WHERE workspace_id = ?", workspaceId)
        .map(({ id }) => id);
      for (const id of denied) subscribers.withdrawnAt.set(id, world.now);
      await world.sleep(chance.between(0, 10 * MINUTE_MS));
      for (const id of denied) subscribers.withdrawnAt.delete(id);
      await call("setWorkspaceAccess", { workspaceId, granted: true });
      return;
    }
    // The long way to a disabled subscription and back.
    await world.sleep(chance.between(1, 30) * HOUR_MS);
    const [disabled] = store.rows<{ id: string }>(
      "SELECT id FROM subscriptions WHERE deleted_at IS NULL ORDER BY disabled_at IS NULL, id LIMIT 1",
    );
    const redeliverSince = new Date(world.now - chance.between(0, 100) * HOUR_MS).toISOString();
    if (disabled) await call("enableWebhook", { webhookId: disabled.id, redeliverSince });
  }

  async function recordLeads(
    workspaceId: string,
    count = chance.between(1, chance.happens(0.1) ? 40 : 3),
  ): Promise<void> {
    const leads = Array.from({ length: count }, () => ({
      // Sometimes one that was recorded before.
      reference: `lead-${chance.happens(0.15) ? chance.between(0, references) : ++references}`,
      source: "crm",
      agent: AGENT,
      name: "Lead",
      customFields: references % 4 === 0 ? LARGE_FIELDS : {},
    }));
    await call("recordLeads", { workspaceId, leads });
  }

  /** Several calls that overlap: the first to begin is not always the first to be committed. */
  async function recordConcurrently(workspaceId: string): Promise<void> {
    const later = Array.from({ length: 5 }, async () => {
      await world.sleep(chance.between(0, 1_000));
      await recordLeads(workspaceId, 1);
    });
    await Promise.all([recordLeads(workspaceId), ...later]);
  }

  async function recordAutomationAndRuns(workspaceId: string): Promise<void> {
    const automation = {
      reference: `automation-${chance.between(0, 2)}`,
      type: "lead_ads",
      provider: "facebook",
      agent: AGENT,
      status: chance.pick(["active", "paused", "draft", "error"]),
    };
    const { ids } = await call("recordAutomations", {
      workspaceId,
      automations: [automation],
    });
    const run = {
      reference: `run-${++references}`,
      automationId: (ids as unknown as string[])[0],
      status: "success",
      triggerType: "lead_ads",
      actions: references % 2 === 0 ? LARGE_ACTIONS : [],
    };
    await call("recordRuns", { workspaceId, runs: [run] });
  }

  /** A call that is refused: nothing of it may be written. */
  async function recordNonsense(workspaceId: string): Promise<void> {
    const run = { status: "success", triggerType: "lead_ads" };
    const runs = [{ ...run, reference: `refused-${++references}`, automationId: "aut_nowhere" }];
    await call("recordRuns", { workspaceId, runs }).then(
      () => {
        throw new Violation("a run of an unknown automation was recorded");
      },
      (error) => {
        if (error instanceof Violation) throw error;
      },
    );
  }

  /** Events are sent again, named or by range. */
  async function redeliver(): Promise<void> {
    const known = store.rows<{ id: string; workspace_id: string; events: string }>(
      "SELECT id, workspace_id, events FROM subscriptions WHERE deleted_at IS NULL",
    );
    if (known.length === 0) return;
    const { id: webhookId, workspace_id, events } = chance.pick(known);
    const eventIds = store
      .rows<{ id: string }>(
        "SELECT id FROM events WHERE workspace_id = ? AND type IN (SELECT value FROM json_each(?))",
        workspace_id,
        events,
      )
      .map(({ id }) => id)
      .filter(() => chance.happens(0.3))
      .slice(0, 100);
    const states = STATES.filter(() => chance.happens(0.6));
    const since = new Date(world.now - chance.between(0, 100) * HOUR_MS).toISOString();
    const isRange = eventIds.length === 0 || chance.happens(0.6);
    const wanted = isRange ? { since, ...(states.length > 0 && { states }) } : { eventIds };
    await call("redeliver", { webhookId, ...wanted }, isRange).catch((error) => {
      // It may have ended meanwhile.
      if (!/is disabled|no such subscription/.test(String(error))) throw error;
    });
  }

  /** A workspace goes to another database; what one call does not finish, later ones or sweeps do. */
  async function move(workspaceId: string): Promise<void> {
    const input = { workspaceId, database: chance.pick(store.names) };
    for (let calls = chance.between(1, 5); calls > 0; calls--) {
      // The next one may be due much later, and writes may wait for it.
      for (const minutes of [1, 2, 3, 4]) world.after(minutes * MINUTE_MS, sweep);
      // One that is on its way elsewhere, or has left something there, is not moved.
      const refused = await call("moveWorkspace", input).then(
        ({ done }) => done as unknown,
        (error) => /is being moved|is still being deleted/.test(String(error)),
      );
      if (refused) return;
      await recordLeads(workspaceId);
    }
  }

  async function unsubscribe(which = ""): Promise<void> {
    const rows = store.rows<{ id: string; workspace_id: string }>(
      `SELECT id, workspace_id FROM subscriptions WHERE deleted_at IS NULL ${which}`,
    );
    if (rows.length === 0) return;
    const { id, workspace_id } = chance.pick(rows);
    const db = openDatabaseOf(workspace_id);
    const deletion = worker.deleteSubscription(workspace_id, id, Date.now());
    await worker.commit(worker.withoutRetries(db), deletion).then(
      () => subscribers.withdrawnAt.set(id, world.now),
      (error) => world.note(`unsubscribing fails: ${error}`),
    );
    world.note(`${id} is deleted`);
  }

  function jumpClock(): void {
    world.skew(chance.between(-10 * MINUTE_MS, 10 * MINUTE_MS));
  }

  return { happen, recordEverywhere };
}

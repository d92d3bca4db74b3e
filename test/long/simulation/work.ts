import { type Behaviour, TYPES } from "./endpoints.ts";
import type { Life } from "./simulate.ts";
import type { LoadedWorker } from "./worker.ts";
import { Violation } from "./world.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const STATES = ["delivered", "exhausted", "cancelled", "missed"];
const AGENT = { reference: "agent", name: "Agent" };
const LARGE_FIELDS = { text: "x".repeat(10_000) };
const LARGE_ACTIONS = Array(20).fill({ type: "x".repeat(200) });

/** What the platform and the workspaces do. */
export function openWork({ world, store, endpoints, deployment }: Life, worker: LoadedWorker) {
  const { call, openDatabaseOf, runScheduledJob, subscribe: subscribeTo } = deployment;
  const { chance } = world;
  const workspaces: string[] = [];
  let references = 0;

  /** Some hours of it. */
  async function happen(): Promise<void> {
    for (let i = 0; i < 2; i++) await createWorkspace();
    for (let i = chance.between(1, 4); i > 0; i--) await subscribe();
    if (chance.happens(0.2)) await subscribeSlowCrowd();
    for (let i = chance.between(8, 30); i > 0; i--) {
      await world.sleep(
        chance.happens(0.5) ? chance.between(0, 200) : chance.between(0, 20 * MINUTE_MS),
      );
      await chance.pick(draw)(chance.pick(workspaces));
    }
  }

  /** Overlapping recordings of every type in every workspace. */
  function recordEverywhere(): Promise<unknown> {
    return Promise.all(
      workspaces.flatMap((workspaceId) => [
        recordConcurrently(workspaceId),
        recordAutomationAndRuns(workspaceId),
        recordLeads(workspaceId),
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
    behaviour: Behaviour = endpoints.pickBehaviour(),
  ): Promise<void> {
    const isShared = world.isHarsh && endpoints.count() > 0 && chance.happens(0.3);
    const host = isShared ? endpoints.pickHost() : endpoints.open(behaviour);
    const events = TYPES.filter(() => chance.happens(0.7));
    await subscribeTo(workspaceId, host, events);
  }

  /** A separate workspace whose subscribers all answer late. */
  async function subscribeSlowCrowd(): Promise<void> {
    await createWorkspace();
    const workspaceId = workspaces.at(-1);
    for (let i = chance.between(8, 20); i > 0; i--) await subscribe(workspaceId, "slow");
  }

  /** What happens, and how often beside the others. */
  const happenings: [share: number, happen: (workspaceId: string) => Promise<void> | void][] = [
    [36, (workspaceId) => recordLeads(workspaceId)],
    [10, recordConcurrently],
    [13, recordAutomationAndRuns],
    [3, redeliver],
    [2, recordNonsense],
    [8, () => endpoints.changeAll()],
    [4, () => subscribe()],
    [1, () => unsubscribe()],
    [2, unsubscribeBusy],
    [3, jumpClock],
    [2, move],
    [2, denyForAWhile],
    [2, disableForAWhile],
    [2, listOtherTypes],
    [2, eraseLeads],
    [2, removeAutomations],
    [2, patch],
    [2, disaster],
    [3, enableLater],
  ];
  if (world.isHarsh) happenings.push(...harshHappenings());
  const draw = happenings.flatMap(([share, happen]) => Array<typeof happen>(share).fill(happen));

  /** What also happens in harsh worlds. */
  function harshHappenings(): typeof happenings {
    return [
      [8, changeUrl],
      [8, flip],
      [3, rush],
      [2, burst],
      [8, resendFailing],
      [4, redeliver],
      [4, () => world.sleep(chance.between(1, 12) * HOUR_MS)],
      [3, disaster],
      [3, removeAutomations],
    ];
  }

  /** A subscription gets another URL, perhaps during requests to the former one. */
  async function changeUrl(workspaceId: string): Promise<void> {
    const webhookId = someSubscription(workspaceId);
    if (!webhookId) return;
    const isKnown = chance.happens(0.5);
    const host = isKnown ? endpoints.pickHost() : endpoints.open(endpoints.pickBehaviour());
    if (chance.happens(0.5)) await recordLeads(workspaceId, 20);
    const url = `https://${host}/`;
    const [row] = store.rows<{ url: string }>(
      "SELECT url FROM subscriptions WHERE id = ?",
      webhookId,
    );
    endpoints.endedAt.delete(`${webhookId} ${url}`);
    await call("updateWebhook", { webhookId, url });
    if (row && row.url !== url) endpoints.endedAt.set(`${webhookId} ${row.url}`, world.now);
  }

  /** A subscription is disabled and enabled in quick succession. */
  async function flip(workspaceId: string): Promise<void> {
    const webhookId = someSubscription(workspaceId);
    if (!webhookId) return;
    for (let i = chance.between(1, 5); i > 0; i--) {
      if (chance.happens(0.5)) await recordLeads(workspaceId);
      const since = chance.happens(0.5) ? { redeliverSince: earlier() } : {};
      await call("disableWebhook", { webhookId });
      endpoints.endedAt.set(webhookId, world.now);
      await world.sleep(chance.pick([0, 500, 3_000, 30_000]));
      endpoints.endedAt.delete(webhookId);
      await call("enableWebhook", { webhookId, ...since });
      await world.sleep(chance.pick([0, 500, 3_000, 30_000]));
    }
  }

  /** Events in quick succession, for minutes. */
  async function rush(workspaceId: string): Promise<void> {
    for (let i = chance.between(20, 120); i > 0; i--) {
      await recordLeads(workspaceId, 1);
      await world.sleep(chance.between(0, 3_000));
    }
  }

  async function burst(workspaceId: string): Promise<void> {
    for (let i = chance.between(1, 3); i > 0; i--) await recordLeads(workspaceId, 100);
  }

  /** Events that a subscription waits for are resent by hand, perhaps again and again. */
  async function resendFailing(): Promise<void> {
    const [failing] = store.rows<{ id: string; events: string }>(
      `SELECT s.id, (SELECT json_group_array(event_id) FROM deliveries d WHERE d.subscription_id = s.id AND d.state = 'pending') AS events
        FROM subscriptions s JOIN workspaces w ON w.id = s.workspace_id WHERE w.access_granted AND s.deleted_at IS NULL AND s.disabled_at IS NULL
        AND s.circuits <> '{}' ORDER BY s.id`,
    );
    const eventIds = failing ? (JSON.parse(failing.events) as string[]).slice(0, 100) : [];
    if (!failing || eventIds.length === 0) return;
    for (let i = chance.between(1, 4); i > 0; i--) {
      await call("redeliver", { webhookId: failing.id, eventIds }).catch((error) => {
        if (!/is disabled|no such (subscription|event)|are pending/.test(String(error)))
          throw error;
      });
      await world.sleep(chance.pick([0, 2_000, 60_000]));
    }
  }

  /** Deletes a slow subscription while it gets many posts, one after another. */
  async function unsubscribeBusy(workspaceId: string): Promise<void> {
    await subscribe(workspaceId, "slow");
    await recordLeads(workspaceId, 40);
    await world.sleep(chance.between(0, 20_000));
    return unsubscribe("ORDER BY created_at DESC, id DESC LIMIT 1");
  }

  async function denyForAWhile(workspaceId: string): Promise<void> {
    await call("setWorkspaceAccess", { workspaceId, granted: false });
    const denied = store
      .rows<{ id: string }>("SELECT id FROM subscriptions WHERE workspace_id = ?", workspaceId)
      .map(({ id }) => id);
    await withdraw(denied);
    await call("setWorkspaceAccess", { workspaceId, granted: true });
  }

  async function disableForAWhile(workspaceId: string): Promise<void> {
    const webhookId = someSubscription(workspaceId);
    if (!webhookId) return;
    await call("disableWebhook", { webhookId });
    await withdraw([webhookId]);
    await call("enableWebhook", {
      webhookId,
      ...(chance.happens(0.6) && { redeliverSince: earlier() }),
    });
  }

  /** Nothing may be sent to these, for a while. */
  async function withdraw(subscriptionIds: string[]): Promise<void> {
    for (const id of subscriptionIds) endpoints.endedAt.set(id, world.now);
    await world.sleep(chance.between(0, 10 * MINUTE_MS));
    for (const id of subscriptionIds) endpoints.endedAt.delete(id);
  }

  /** The long way to a disabled subscription and back. */
  async function enableLater(): Promise<void> {
    await world.sleep(chance.between(1, 30) * HOUR_MS);
    const [disabled] = store.rows<{ id: string }>(
      "SELECT id FROM subscriptions WHERE deleted_at IS NULL ORDER BY disabled_at IS NULL, id LIMIT 1",
    );
    if (disabled)
      await call("enableWebhook", { webhookId: disabled.id, redeliverSince: earlier() });
  }

  async function listOtherTypes(workspaceId: string): Promise<void> {
    const webhookId = someSubscription(workspaceId);
    const events = TYPES.filter(() => chance.happens(0.6));
    if (!webhookId || events.length === 0) return;
    for (const type of events) endpoints.endedAt.delete(`${webhookId} ${type}`);
    await call("updateWebhook", { webhookId, events });
    for (const type of TYPES.filter((type) => !events.includes(type)))
      endpoints.endedAt.set(`${webhookId} ${type}`, world.now);
  }

  /** Some of which may be on their way to endpoints. */
  async function eraseLeads(workspaceId: string): Promise<void> {
    if (chance.happens(0.5)) await recordLeads(workspaceId, 20);
    const leads = store
      .rows<{ id: string; event_id: string }>(
        "SELECT id, event_id FROM leads WHERE workspace_id = ? ORDER BY created_at DESC, id LIMIT 30",
        workspaceId,
      )
      .filter(() => chance.happens(0.3));
    if (leads.length === 0) return;
    for (const { event_id } of leads) store.erasedAt.set(event_id, Number.POSITIVE_INFINITY);
    await call("eraseLeads", { workspaceId, ids: leads.map(({ id }) => id) });
    for (const { event_id } of leads) store.erasedAt.set(event_id, world.now);
  }

  async function removeAutomations(workspaceId: string): Promise<void> {
    const ids = someAutomations(workspaceId).filter(() => chance.happens(0.5));
    for (const id of ids) store.removedAutomations.add(id);
    if (ids.length > 0) await call("removeAutomations", { workspaceId, ids });
  }

  /** Clients change an automation at the same time, perhaps while the platform reports it. */
  async function patch(workspaceId: string): Promise<void> {
    const [id] = someAutomations(workspaceId);
    if (!id) return;
    const db = openDatabaseOf(workspaceId);
    const patches = Array.from({ length: chance.between(1, 4) }, () =>
      worker
        .controlAutomation(db, workspaceId, id, chance.pick(["active", "paused"]))
        .catch((error) => world.note(`a client's PATCH fails: ${error}`)),
    );
    const report = chance.happens(0.5) ? recordAutomationAndRuns(workspaceId) : undefined;
    await Promise.all([...patches, report]);
  }

  /** Something larger fails, for a while. */
  function disaster(): void {
    const part = chance.pick(["d1", "queues", "cron", "invocations"] as const);
    if (part === "invocations") {
      world.endInvocations();
      return;
    }
    const forMs = chance.between(10_000, 20 * MINUTE_MS);
    world.downUntil[part] = world.now + forMs;
    world.note(`${part} is down for ${forMs} ms`);
  }

  function someSubscription(workspaceId: string): string | undefined {
    const known = store.rows<{ id: string }>(
      "SELECT id FROM subscriptions WHERE workspace_id = ? AND deleted_at IS NULL ORDER BY id",
      workspaceId,
    );
    return known.length === 0 ? undefined : chance.pick(known).id;
  }

  function someAutomations(workspaceId: string): string[] {
    return store
      .rows<{ id: string }>(
        "SELECT id FROM automations WHERE workspace_id = ? AND removed_at IS NULL ORDER BY id",
        workspaceId,
      )
      .map(({ id }) => id);
  }

  /** Some time in the last days. */
  function earlier(): string {
    return new Date(world.now - chance.between(0, 100) * HOUR_MS).toISOString();
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
    const since = earlier();
    const isRange = eventIds.length === 0 || chance.happens(0.6);
    const wanted = isRange ? { since, ...(states.length > 0 && { states }) } : { eventIds };
    await call("redeliver", { webhookId, ...wanted }, isRange).catch((error) => {
      // It may have ended meanwhile, or have too many resends.
      if (!/is disabled|no such webhook|are pending/.test(String(error))) throw error;
    });
  }

  /** A workspace goes to another database; what one call does not finish, later ones or sweeps do. */
  async function move(workspaceId: string): Promise<void> {
    const input = { workspaceId, database: chance.pick(store.names) };
    for (let calls = chance.between(1, 5); calls > 0; calls--) {
      // The next one may be due much later, and writes may wait for it.
      for (const minutes of [1, 2, 3, 4]) world.after(minutes * MINUTE_MS, runScheduledJob);
      // One that is on its way elsewhere, or has left something there, is not moved.
      const refused = await call("moveWorkspace", input).then(
        ({ done }) => done as unknown,
        (error) => /is being moved|still being deleted/.test(String(error)),
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
      () => endpoints.endedAt.set(id, world.now),
      (error) => world.note(`unsubscribing fails: ${error}`),
    );
    world.note(`${id} is deleted`);
  }

  function jumpClock(): void {
    world.skew(chance.between(-world.odds.clockJumpMs, world.odds.clockJumpMs));
  }

  return { happen, recordEverywhere };
}

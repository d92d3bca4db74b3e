import { pathToFileURL } from "node:url";
import type { Fault } from "../../../scripts/shared/faults.ts";
import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import {
  bodyOf,
  EVENTS_WITH_BODIES,
  type EventWithBody,
} from "../../../scripts/shared/stored-bodies.ts";
import { LARGE_BYTES } from "../../../src/db/schema.ts";
import { makeBody } from "../../../src/webhooks/bodies.ts";
import { BACKGROUND_DISPATCHES_MAX } from "../../../src/webhooks/dispatch/consumer.ts";
import type { Target } from "../../../src/webhooks/dispatch/pipeline.ts";
import type { Claimed } from "../../../src/webhooks/dispatch/settle-and-claim.ts";
import type { Outcome } from "../../../src/webhooks/outcome.ts";
import { Broker } from "./broker.ts";
import {
  checkCommit,
  checkEnd,
  checkOverdue,
  checkPauses,
  checkPost,
  checkWrites,
  type Post,
  Violation,
} from "./invariants.ts";
import { SLOW_REPLY_MS, Store } from "./store.ts";
import { Isolate, World } from "./world.ts";

/** Subscriptions with ranges that are being redelivered. */
const IN_RANGES = "SELECT id FROM subscriptions WHERE ranges IS NOT NULL";

/** The entry points of the Worker, loaded from a source tree: the shipped one, or one with a planted bug. */
export interface LoadedWorker {
  Platform: new (ctx: unknown, env: unknown) => Record<string, (input: unknown) => Promise<never>>;
  consume: typeof import("../../../src/webhooks/dispatch/consumer.ts").consume;
  sweep: typeof import("../../../src/sweep.ts").sweep;
  commit: typeof import("../../../src/db/client.ts").commit;
  openDatabase: typeof import("../../../src/db/client.ts").openDatabase;
  withoutRetries: typeof import("../../../src/db/client.ts").withoutRetries;
  insertSubscription: typeof import("../../../src/webhooks/creation.ts").insertSubscription;
  deleteSubscription: typeof import("../../../src/webhooks/subscriptions.ts").deleteSubscription;
}

/**
 * Loads the Worker from the folder `src`. `cloudflare:workers` must already be replaced by a
 * stand-in.
 */
export async function loadWorker(src: string): Promise<LoadedWorker> {
  const load = (file: string) => import(new URL(file, pathToFileURL(`${src}/`)).href);
  const modules = await Promise.all([
    load("platform/entrypoint.ts"),
    load("webhooks/dispatch/consumer.ts"),
    load("sweep.ts"),
    load("db/client.ts"),
    load("webhooks/creation.ts"),
    load("webhooks/subscriptions.ts"),
  ]);
  return Object.assign({}, ...modules);
}

/** The result of one seed. */
export interface SimulationResult {
  seed: number;
  /** The violation; null if every invariant held. */
  violation: string | null;
  history: string[];
  events: number;
  posts: number;
  crashes: number;
  /** How D1 has failed. */
  injected: Set<Fault>;
  /** True time that passed in the world. */
  simulatedMs: number;
}

/** How a subscriber's server behaves; this changes over time. */
const BEHAVIOURS = [
  ...(["fine", "slow", "flaky", "poisoned", "error", "hang"] as const),
  ...(["unreachable", "stall", "overloaded"] as const),
];
type Behaviour = (typeof BEHAVIOURS)[number];

/**
 * One wave and the probes of two ladders: a delivery may end after its subscription was re-enabled.
 */
const DEAD_POSTS_MAX = 6 + 22;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const STATES = ["delivered", "exhausted", "cancelled", "missed"];
const KINDS = ["lead.created", "run.completed", "automation.status_changed"];
const AGENT = { reference: "agent", name: "Agent" };
/** Large enough to be stored apart. */
const LARGE_FIELDS = { text: "x".repeat(LARGE_BYTES) };
const LARGE_ACTIONS = Array(20).fill({ type: "x".repeat(200) });

/**
 * Simulates one world: some hours of work and faults, then days in which everything must settle.
 */
export async function simulate(seed: number, worker: LoadedWorker): Promise<SimulationResult> {
  const world = new World(seed);
  const restore = world.install();
  const startedAt = world.now;
  // Every fifth world has three databases, and workspaces that go from one to another.
  const store = new Store(world, seed % 5 === 0 ? 3 : 1);
  const scenario = new Scenario(world, store, worker);
  let violation: string | null = null;
  try {
    await scenario.live();
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    violation = error.message;
  } finally {
    restore();
  }
  const [count] = store.rows<{ n: number }>("SELECT count(*) AS n FROM events");
  store.close();
  return {
    seed,
    violation,
    history: world.history,
    events: count?.n ?? 0,
    posts: scenario.posts.length,
    crashes: world.history.filter((line) => line.endsWith("crashes")).length,
    injected: store.injected,
    simulatedMs: world.now - startedAt,
  };
}

class Scenario {
  readonly posts: Post[] = [];
  /** A failure outside the checking task, to be thrown there. */
  #failure: unknown = null;
  #workspaces: string[] = [];
  #references = 0;
  /** Sweeps that have ended. */
  #sweeps = 0;
  #healthySince = 0;
  /**
   * The longest that a fast subscriber may wait for its next post, once only subscribers fail: the
   * platform's wake follows the reply from D1, and its dispatch may first have to be released by others.
   */
  #pauseMs = 4_000 + SLOW_REPLY_MS;
  #behaviours = new Map<string, Behaviour>();
  /** When subscriptions were withdrawn and the call that did it had returned. */
  #withdrawnAt = new Map<string, number>();
  #lanes: { deliveries: Broker; redeliveries: Broker };

  readonly world: World;
  readonly store: Store;
  readonly worker: LoadedWorker;

  constructor(world: World, store: Store, worker: LoadedWorker) {
    this.world = world;
    this.store = store;
    this.worker = worker;
    const concurrency = world.chance.pick([1, 3, 10, 250]);
    // An isolate with the maximum number of dispatches waits for one more.
    const dispatches = world.chance.pick([0, BACKGROUND_DISPATCHES_MAX]);
    // What is due in the future, by its consumer's clock, is woken again, in whole seconds.
    if (world.isolateSkewMs > 0) this.#pauseMs += 2 * world.isolateSkewMs + 1_000;
    const broker = (name: string) =>
      new Broker(world, name, concurrency, (messages, isolate) => {
        const attempt = (delivery: Claimed, target: Target) =>
          this.#attempt(delivery, target, isolate);
        const ctx = { waitUntil: () => {} };
        return worker.consume(
          messages,
          this.#env(isolate),
          ctx,
          attempt,
          new Map(store.names.map((name) => [name, dispatches])),
        );
      });
    this.#lanes = {
      deliveries: broker("webhook-deliveries"),
      redeliveries: broker("webhook-redeliveries"),
    };
    store.onCommit = () => this.#guard(() => checkCommit(store));
  }

  async live(): Promise<void> {
    const { world } = this;
    let working = true;
    const work = async () => {
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
      working = false;
    };
    work().catch((error) => this.#fail(error));
    this.#sweepAgain();
    await world.run(() => this.#failure !== null || !working);
    this.#throwFailure();
    world.note("— the work is over, faults end —");
    world.faults = false;
    world.skew(0);
    this.#healthySince = world.now;
    // Slow ones stay slow: the others must not wait for them.
    for (const [host, behaviour] of this.#behaviours)
      if (behaviour === "stall" || (behaviour !== "slow" && world.chance.happens(0.7)))
        this.#behaviours.set(host, "fine");
    const settledBy = world.now + 30 * 24 * HOUR_MS;
    await world.run(() => this.#failure !== null || this.#pending() === 0 || world.now > settledBy);
    // What is still in progress may end.
    const quietAt = world.now + 10 * MINUTE_MS;
    await world.run(() => this.#failure !== null || world.now > quietAt);
    this.#throwFailure();
    await this.#checkPrompt();
    this.#throwFailure();
    await checkEnd(this.store, ENCRYPTION_KEYS, this.posts);
    checkWrites(this.store, this.posts);
    this.#checkDead();
  }

  /**
   * Events for everyone, twice, once it is known who is fast: a subscriber that answers immediately is
   * posted to immediately, whoever else there is, and whichever of overlapping recordings is committed
   * first.
   */
  async #checkPrompt(): Promise<void> {
    const { world } = this;
    const recordAll = () =>
      Promise.all(this.#workspaces.map((workspaceId) => this.#recordConcurrently(workspaceId)));
    for (let i = 0; i < 2; i++) {
      const [last] = this.store.rows<{ id: string | null }>("SELECT max(id) AS id FROM events");
      const open = this.store.rows<{ id: string; url: string }>(
        "SELECT id, url FROM subscriptions WHERE disabled_at IS NULL AND deleted_at IS NULL AND backoff = 0 AND NOT slow",
      );
      let recorded = false;
      recordAll().then(
        () => (recorded = true),
        (error) => this.#fail(error),
      );
      const until = world.now + 10 * MINUTE_MS;
      await world.run(() => this.#failure !== null || (recorded && world.now > until));
      this.#throwFailure();
      if (i === 0) continue;
      const fine = open.filter(({ url }) => this.#behaviours.get(new URL(url).host) === "fine");
      for (const { id } of fine) {
        const posts = this.posts.filter(
          ({ subscriptionId, eventId }) => subscriptionId === id && eventId > (last?.id ?? ""),
        );
        checkPauses(this.store, posts, this.#pauseMs, (from, to) =>
          this.#lanes.deliveries.saturatedMs(from, to),
        );
      }
    }
    const settledBy = world.now + 30 * 24 * HOUR_MS;
    await world.run(() => this.#failure !== null || this.#pending() === 0 || world.now > settledBy);
    const quietAt = world.now + 10 * MINUTE_MS;
    await world.run(() => this.#failure !== null || world.now > quietAt);
  }

  /** A subscriber that has only failed since the faults ended was probed, not flooded. */
  #checkDead(): void {
    const since = this.#healthySince + MINUTE_MS;
    for (const [id, posts] of Map.groupBy(this.posts, ({ subscriptionId }) => subscriptionId)) {
      const late = posts.filter(({ startedAt }) => startedAt > since);
      if (late.length > DEAD_POSTS_MAX && !late.some(({ acknowledged }) => acknowledged))
        throw new Violation(`${id} fails always, and was posted to ${late.length} times`);
    }
  }

  /** How long nothing but subscribers has failed, in milliseconds. */
  #healthyFor(): number {
    return this.world.faults ? 0 : this.world.now - this.#healthySince;
  }

  #pending(): number {
    return this.store.rows("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1").length;
  }

  #env(isolate: Isolate): Env {
    const { store } = this;
    return {
      ...Object.fromEntries(store.names.map((name) => [name, store.binding(isolate, name)])),
      DELIVERIES: this.#lanes.deliveries.producer(isolate),
      REDELIVERIES: this.#lanes.redeliveries.producer(isolate),
      ENCRYPTION_KEYS,
      SERVED_ROUTES: "automations.crm_source",
      DELIVERED_KEPT_DAYS: 60,
      UNDELIVERED_KEPT_DAYS: 60,
      WORKSPACE_EVENTS_MAX_MB: 250,
      KEY_GATE: { getByName: () => this.#gate(isolate) },
      EMAIL: { send: async () => this.#sendEmail(isolate) },
      EMAIL_FROM: "api@example.com",
    } as unknown as Env;
  }

  /** How likely a call or a sweep crashes at each step; with several databases they take many more. */
  get #crashChance(): number {
    return this.store.names.length === 1 ? 0.02 : 0.004;
  }

  /** The key gates, as far as the Worker changes them. */
  #gate(isolate: Isolate) {
    const advance = async () => {
      await isolate.step();
      if (this.world.faults && this.world.chance.happens(0.1))
        throw new Error("Durable Object is overloaded");
    };
    return {
      forget: () => isolate.request(() => isolate.step()),
      advance: () => isolate.request(advance),
    };
  }

  async #sendEmail(isolate: Isolate): Promise<void> {
    await isolate.step();
    if (this.world.faults && this.world.chance.happens(0.3))
      throw new Error("the mail server is busy");
    this.world.note("an e-mail is sent");
    await isolate.step();
  }

  /** A call of the Platform API, retried with the same input until it is answered, or made once. */
  async #call(method: string, input: unknown, once = false): Promise<Record<string, never>> {
    const { world } = this;
    const sweepsBefore = this.#sweeps;
    for (let attempt = 1; ; attempt++) {
      let crashed = false;
      const background: Promise<unknown>[] = [];
      const crash = Promise.withResolvers<"crashed">();
      const isolate = new Isolate(world, `platform ${method}`, this.#crashChance, () => {
        crashed = true;
        crash.resolve("crashed");
      });
      const ctx = { waitUntil: (task: Promise<unknown>) => background.push(task) };
      const platform = new this.worker.Platform(ctx, this.#env(isolate));
      try {
        const call = isolate.run(() => platform[method]?.(input));
        const answer = await Promise.race([call, crash.promise]);
        if (!crashed) {
          world.note(`platform ${method} ${JSON.stringify(input)} → ${JSON.stringify(answer)}`);
          return answer as unknown as Record<string, never>;
        }
      } catch (error) {
        world.note(`platform ${method} throws ${error}`);
        if (!/D1_ERROR|overloaded|is changing its database/.test(String(error))) throw error;
      }
      if (once) return {};
      // A workspace that is changing its database is refused until a sweep gets through.
      if (attempt > 50 && this.#sweeps - sweepsBefore > 2)
        throw new Violation(`${method} never got through`);
      await world.sleep(world.chance.between(10, 5_000));
    }
  }

  /** The database that a workspace lives in. */
  #placement(workspaceId: string): string {
    return this.store.homeOf(workspaceId);
  }

  async #createWorkspace(): Promise<void> {
    const { names } = this.store;
    const database = names.length === 1 ? null : this.world.chance.pick(names);
    const input = { name: "Agence", adminEmails: ["admin@example.com"], database };
    this.#workspaces.push((await this.#call("createWorkspace", input)).workspaceId as never);
  }

  async #subscribe(
    workspaceId = this.world.chance.pick(this.#workspaces),
    behaviour = this.world.chance.pick(BEHAVIOURS),
  ): Promise<void> {
    const { world } = this;
    const host = `subscriber-${this.#behaviours.size}.example`;
    const row = {
      id: `whk_${this.#behaviours.size}`,
      workspaceId,
      url: `https://${host}/`,
      events: KINDS.filter(() => world.chance.happens(0.7)) as never[],
      sealedSecret: "sealed",
      createdAt: Date.now(),
    };
    this.#behaviours.set(host, behaviour);
    const isolate = new Isolate(world, "http", 0);
    const db = this.worker.openDatabase(this.store.binding(isolate, this.#placement(workspaceId)));
    await this.worker.commit(db, this.worker.insertSubscription(row)).catch((error) => {
      world.note(`subscribing fails: ${error}`);
    });
    world.note(`${row.id} subscribes to ${row.events}`);
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
    if (dice < 0.8) return this.#changeWeather();
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
      await this.#call("setWorkspaceAccess", { workspaceId, granted: false });
      const denied = this.store
        .rows<{ id: string }>("SELECT id FROM subscriptions WHERE workspace_id = ?", workspaceId)
        .map(({ id }) => id);
      for (const id of denied) this.#withdrawnAt.set(id, world.now);
      await world.sleep(world.chance.between(0, 10 * MINUTE_MS));
      for (const id of denied) this.#withdrawnAt.delete(id);
      await this.#call("setWorkspaceAccess", { workspaceId, granted: true });
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
    if (disabled) await this.#call("enableWebhook", { webhookId: disabled.id, redeliverSince });
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
    await this.#call("recordLeads", { workspaceId, leads });
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
    const { ids } = await this.#call("recordAutomations", {
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
    await this.#call("recordRuns", { workspaceId, runs: [run] });
  }

  /** A call that is refused: nothing of it may be written. */
  async #recordNonsense(workspaceId: string): Promise<void> {
    const run = { status: "success", triggerType: "lead_ads" };
    const runs = [
      { ...run, reference: `refused-${++this.#references}`, automationId: "aut_nowhere" },
    ];
    await this.#call("recordRuns", { workspaceId, runs }).then(
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
    await this.#call("redeliver", { webhookId, ...wanted }, isRange).catch((error) => {
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
        this.world.after(minutes * MINUTE_MS, () => this.#sweep());
      // One that is on its way elsewhere, or has left something there, is not moved.
      const refused = await this.#call("moveWorkspace", input).then(
        ({ done }) => done as unknown,
        (error) => /is being moved|is still being deleted/.test(String(error)),
      );
      if (refused) return;
      await this.#recordLeads(workspaceId);
    }
  }

  #changeWeather(): void {
    for (const host of this.#behaviours.keys())
      if (this.world.chance.happens(0.5))
        this.#behaviours.set(host, this.world.chance.pick(BEHAVIOURS));
    this.world.note(`subscribers are now ${[...this.#behaviours.values()]}`);
  }

  async #unsubscribe(which = ""): Promise<void> {
    const rows = this.store.rows<{ id: string; workspace_id: string }>(
      `SELECT id, workspace_id FROM subscriptions WHERE deleted_at IS NULL ${which}`,
    );
    if (rows.length === 0) return;
    const { id, workspace_id } = this.world.chance.pick(rows);
    const isolate = new Isolate(this.world, "http", 0);
    const db = this.worker.openDatabase(this.store.binding(isolate, this.#placement(workspace_id)));
    const deletion = this.worker.deleteSubscription(workspace_id, id, Date.now());
    await this.worker.commit(this.worker.withoutRetries(db), deletion).then(
      () => this.#withdrawnAt.set(id, this.world.now),
      (error) => this.world.note(`unsubscribing fails: ${error}`),
    );
    this.world.note(`${id} is deleted`);
  }

  #jumpClock(): void {
    this.world.skew(this.world.chance.between(-10 * MINUTE_MS, 10 * MINUTE_MS));
  }

  /** The network and the subscriber's server, for one attempt. */
  #attempt(delivery: Claimed, target: Target, isolate: Isolate): Promise<Outcome> {
    return isolate.request(() => this.#post(delivery, target, isolate));
  }

  async #post(delivery: Claimed, target: Target, isolate: Isolate): Promise<Outcome> {
    const { world } = this;
    await isolate.step();
    const { eventId, subscriptionId } = delivery;
    const { host } = new URL(target.url);
    const [stored] = this.store.rows<EventWithBody>(
      `${EVENTS_WITH_BODIES} WHERE "events"."id" = ?`,
      eventId,
    );
    const body =
      (await makeBody(ENCRYPTION_KEYS, target, delivery.event)) ??
      (stored && (await bodyOf(ENCRYPTION_KEYS, stored))) ??
      "";
    const post: Post = {
      eventId,
      subscriptionId,
      body,
      isolate,
      startedAt: world.now,
      endedAt: null,
      acknowledged: false,
    };
    this.#guard(() => checkPost(this.store, post, this.posts, this.#withdrawnAt));
    this.posts.push(post);
    const behaviour = this.#behaviours.get(host) ?? "fine";
    const outcome = await this.#answer(behaviour, eventId);
    post.endedAt = world.now;
    post.acknowledged = outcome.kind === "answered" && outcome.status < 300;
    world.note(`post ${eventId} to ${subscriptionId} (${behaviour}): ${JSON.stringify(outcome)}`);
    await isolate.step();
    return outcome;
  }

  async #answer(behaviour: Behaviour, eventId: string): Promise<Outcome> {
    const { world } = this;
    const answered = (status: number, retryAfterSeconds: number | null = null): Outcome => ({
      kind: "answered",
      status,
      retryAfterSeconds,
    });
    // A machine that stalls gets its answer long after its lease has ended.
    await world.sleep(
      behaviour === "stall" ? world.chance.between(1, 600_000) : world.chance.between(5, 500),
    );
    switch (behaviour) {
      case "slow":
        await world.sleep(world.chance.between(1_000, 9_400));
        return answered(200);
      case "poisoned":
        // One event in five is always rejected.
        return answered(eventId.charCodeAt(eventId.length - 1) % 5 === 0 ? 500 : 200);
      case "flaky":
        return answered(world.chance.happens(0.5) ? 200 : 500);
      case "error":
        return answered(world.chance.pick([301, 400, 404, 410, 500, 503]));
      case "overloaded":
        return answered(world.chance.pick([429, 503]), world.chance.between(0, 100_000));
      case "unreachable":
        return { kind: "unreachable" };
      case "hang":
        await world.sleep(10_000);
        return { kind: "timed_out" };
      case "stall":
        return world.chance.happens(0.5) ? answered(200) : { kind: "timed_out" };
      default:
        return answered(world.chance.pick([200, 201, 204, 299]));
    }
  }

  /** The scheduled job, in the minutes in which it could have something to do. */
  #sweepAgain(): void {
    const { world } = this;
    const [next] = this.store.rows<{ due: number | null; owed: number | null }>(
      `SELECT min(CASE WHEN s.cancelling THEN 0 ELSE max(d.due_at, s.next_at, s.held_until) END) AS due,
          (SELECT min(due_at) FROM (SELECT due_at FROM notices WHERE sent_at IS NULL
            UNION ALL SELECT due_at FROM emails WHERE state = 'owed')) AS owed
        FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
        WHERE d.state = 'pending'`,
    );
    this.#guard(() => checkOverdue(this.store, this.#healthyFor()));
    this.#guard(() => checkWrites(this.store, this.posts));
    const overdueInMs = (next?.due ?? Number.POSITIVE_INFINITY) + MINUTE_MS - Date.now();
    const owedInMs = (next?.owed ?? Number.POSITIVE_INFINITY) - Date.now();
    const waitMs = Math.min(overdueInMs, owedInMs, world.faults ? 10 * MINUTE_MS : 3 * HOUR_MS);
    const isBusy = this.store.isAnybodyMoving() || this.store.rows(IN_RANGES).length > 0;
    const soonMs = isBusy ? MINUTE_MS : waitMs;
    world.after(Math.max(MINUTE_MS, Math.ceil(soonMs / MINUTE_MS) * MINUTE_MS), () => {
      this.#sweep();
      this.#sweepAgain();
    });
  }

  #sweep(): void {
    const isolate = new Isolate(this.world, "sweep", this.#crashChance);
    isolate
      .run(() => this.worker.sweep(this.#env(isolate), Date.now()))
      .then(
        () => void this.#sweeps++,
        (error) => this.world.note(String(error)),
      );
  }

  /** Runs a check from anywhere; a violation ends the simulation. */
  #guard(check: () => void): void {
    try {
      check();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
  }

  #throwFailure(): void {
    if (this.#failure !== null) throw this.#failure;
  }
}

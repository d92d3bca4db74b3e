import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import { BACKGROUND_DISPATCHES_MAX } from "../../../src/webhooks/dispatch/consumer.ts";
import type { Target } from "../../../src/webhooks/dispatch/pipeline.ts";
import type { Claimed } from "../../../src/webhooks/dispatch/settle-and-claim.ts";
import { Broker } from "./broker.ts";
import { Violation } from "./invariants.ts";
import type { Store } from "./store.ts";
import type { Subscribers } from "./subscribers.ts";
import type { LoadedWorker } from "./worker.ts";
import { Isolate, type World } from "./world.ts";

/** The Worker, deployed in a world: its bindings, its queues, and the calls that others make. */
export class Deployment {
  /** Sweeps that have ended. */
  #sweeps = 0;
  readonly lanes: { deliveries: Broker; redeliveries: Broker };

  readonly world: World;
  readonly store: Store;
  readonly worker: LoadedWorker;

  constructor(world: World, store: Store, worker: LoadedWorker, subscribers: Subscribers) {
    this.world = world;
    this.store = store;
    this.worker = worker;
    const concurrency = world.chance.pick([1, 3, 10, 250]);
    // An isolate with the maximum number of dispatches waits for one more.
    const dispatches = world.chance.pick([0, BACKGROUND_DISPATCHES_MAX]);
    const broker = (name: string) =>
      new Broker(world, name, concurrency, (messages, isolate) => {
        const attempt = (delivery: Claimed, target: Target) =>
          subscribers.attempt(delivery, target, isolate);
        const ctx = { waitUntil: () => {} };
        const load = new Map(store.names.map((name) => [name, dispatches]));
        return worker.consume(messages, this.#env(isolate), ctx, attempt, load);
      });
    this.lanes = {
      deliveries: broker("webhook-deliveries"),
      redeliveries: broker("webhook-redeliveries"),
    };
  }

  #env(isolate: Isolate): Env {
    const { store } = this;
    return {
      ...Object.fromEntries(store.names.map((name) => [name, store.binding(isolate, name)])),
      DELIVERIES: this.lanes.deliveries.producer(isolate),
      REDELIVERIES: this.lanes.redeliveries.producer(isolate),
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
  async call(method: string, input: unknown, once = false): Promise<Record<string, never>> {
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

  /** The scheduled job, once. */
  sweep(): void {
    const isolate = new Isolate(this.world, "sweep", this.#crashChance);
    isolate
      .run(() => this.worker.sweep(this.#env(isolate), Date.now()))
      .then(
        () => void this.#sweeps++,
        (error) => this.world.note(String(error)),
      );
  }
}

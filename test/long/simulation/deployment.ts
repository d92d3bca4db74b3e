import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { PreparedDelivery, Target } from "../../../src/delivery/sender.ts";
import { mintSecret } from "../../../src/endpoints/signature.ts";
import { openBroker } from "./broker.ts";
import { checkEmail, type Email } from "./email.ts";
import type { Store } from "./store.ts";
import type { Subscribers } from "./subscribers.ts";
import type { LoadedWorker } from "./worker.ts";
import { Isolate, Violation, type World } from "./world.ts";

export type Deployment = ReturnType<typeof deploy>;

/** The Worker, deployed in a world: its bindings, its queues, and the calls that others make. */
export function deploy(world: World, store: Store, subscribers: Subscribers, worker: LoadedWorker) {
  const { chance } = world;
  /** How many subscriptions there are, with those that could not be stored. */
  let subscribed = 0;
  /** Sweeps that have ended. */
  let sweeps = 0;
  const concurrency = chance.pick([1, 3, 10, 250]);
  const broker = (name: string) =>
    openBroker(world, name, concurrency, (messages, isolate) => {
      const attempt = (delivery: PreparedDelivery, target: Target) =>
        subscribers.attempt(delivery, target, isolate);
      const ctx = { waitUntil: () => {} };
      const bindings = env(isolate);
      const sender = { ...worker.createSender(bindings), attempt };
      return worker.consume(messages, bindings, ctx, sender);
    });
  const lanes = {
    deliveries: broker("webhook-deliveries"),
    redeliveries: broker("webhook-redeliveries"),
  };
  const emails = openBroker(world, "webhook-emails", concurrency, (messages, isolate) =>
    worker.consumeEmails(messages, env(isolate)),
  );

  function env(isolate: Isolate): Env {
    return {
      ...Object.fromEntries(store.names.map((name) => [name, store.binding(isolate, name)])),
      DELIVERIES: lanes.deliveries.producer(isolate),
      REDELIVERIES: lanes.redeliveries.producer(isolate),
      EMAILS: emails.producer(isolate),
      ENCRYPTION_KEYS,
      SERVED_ROUTES: "automations.crm_source",
      EVENTS_KEPT_DAYS: 60,
      EVENTS_KEPT_MAX: 300_000,
      KEY_GATE: { getByName: () => gate(isolate) },
      EMAIL: { send: (email: Email) => sendEmail(isolate, email) },
      EMAIL_FROM: "api@example.com",
      PORTAL_ORIGIN: "https://api.example",
    } as unknown as Env;
  }

  /** How likely a call or a sweep crashes at each step; with several databases they take many more. */
  const crashChance = store.names.length === 1 ? 0.02 : 0.004;

  /** The key gates, as far as the Worker changes them. */
  function gate(isolate: Isolate) {
    return { forget: () => isolate.request(() => isolate.step()) };
  }

  async function sendEmail(isolate: Isolate, email: Email): Promise<void> {
    await isolate.step();
    world.guard(() => checkEmail(store, email, subscribers.posts));
    if (world.faults && chance.happens(0.3)) throw new Error("the mail server is busy");
    await isolate.step();
  }

  /** A call of the Platform API, retried with the same input until it is answered, or made once. */
  async function call(
    method: string,
    input: unknown,
    once = false,
  ): Promise<Record<string, never>> {
    const sweepsBefore = sweeps;
    for (let attempt = 1; ; attempt++) {
      let crashed = false;
      const background: Promise<unknown>[] = [];
      const crash = Promise.withResolvers<"crashed">();
      const isolate = new Isolate(world, `platform ${method}`, crashChance, () => {
        crashed = true;
        crash.resolve("crashed");
      });
      world.invocations.add(isolate);
      const ctx = { waitUntil: (task: Promise<unknown>) => background.push(task) };
      const platform = new worker.Platform(ctx, env(isolate));
      try {
        const call = isolate.run(() => platform[method]?.(input));
        const answer = await Promise.race([call, crash.promise]);
        if (!crashed) {
          world.note(`platform ${method} ${JSON.stringify(input)} → ${JSON.stringify(answer)}`);
          return answer as unknown as Record<string, never>;
        }
      } catch (error) {
        world.note(`platform ${method} throws ${error}`);
        if (!/D1_ERROR|overloaded|moving: try again|does not respond/.test(String(error)))
          throw error;
      } finally {
        world.invocations.delete(isolate);
      }
      if (once) return {};
      // A workspace that is changing its database is refused until a sweep gets through.
      if (attempt > (world.isHarsh ? 500 : 50) && sweeps - sweepsBefore > 2)
        throw new Violation(`${method} never got through`);
      await world.sleep(chance.between(10, 5_000));
    }
  }

  /** The database of a workspace, as a request of a client uses it. */
  function openDatabaseOf(workspaceId: string) {
    return worker.openDatabase(
      store.binding(new Isolate(world, "http", 0), store.homeOf(workspaceId)),
    );
  }

  /** A client subscribes. @returns the subscription's id. */
  async function subscribe(
    workspaceId: string,
    host: string,
    events: WebhookEvent[],
  ): Promise<string> {
    const id = `whk_${String(subscribed++).padStart(25, "0")}`;
    const db = openDatabaseOf(workspaceId);
    const row = { id, workspaceId, url: `https://${host}/`, events };
    try {
      const dataKey = await worker.loadDataKeyToWrite(db, ENCRYPTION_KEYS, workspaceId);
      const sealedSecret = await worker.sealSecret(dataKey, id, mintSecret());
      const createdAt = Date.now();
      await worker.commit(db, worker.insertSubscription({ ...row, sealedSecret, createdAt }));
    } catch (error) {
      world.note(`subscribing fails: ${error}`);
    }
    world.note(`${id} subscribes to ${events}`);
    return id;
  }

  /** The scheduled job, once. */
  function sweep(): void {
    if (world.isDown("cron")) return;
    const isolate = new Isolate(world, "sweep", crashChance);
    world.invocations.add(isolate);
    isolate
      .run(() => worker.sweep(env(isolate), Date.now()))
      .then(
        () => void sweeps++,
        (error) => world.note(String(error)),
      )
      .finally(() => world.invocations.delete(isolate));
  }

  return { world, store, subscribers, worker, lanes, call, openDatabaseOf, subscribe, sweep };
}

import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { mintSecret } from "../../../src/endpoints/signature.ts";
import { openBroker } from "./broker.ts";
import { checkEmail, type Email } from "./invariants.ts";
import type { Store } from "./store.ts";
import type { LoadedWorker } from "./worker.ts";
import { Isolate, Violation, type World } from "./world.ts";

/** The Worker, deployed in a world: its bindings, its queues, and the calls that others make. */
export function deploy(world: World, store: Store, worker: LoadedWorker) {
  const { chance } = world;
  /** How many subscriptions there are, with those that could not be stored. */
  let subscribed = 0;
  /** Runs of the scheduled job that have ended. */
  let scheduledRuns = 0;
  const concurrency = chance.pick([1, 3, 10, 250]);
  const ctx = { waitUntil: () => {} };
  const deliveries = (name: string) =>
    openBroker(world, name, concurrency, (messages, isolate) =>
      worker.consume(messages, env(isolate), ctx),
    );
  const fast = deliveries("webhook-deliveries");
  const slow = deliveries("webhook-deliveries-slow");
  const emails = openBroker(world, "webhook-emails", concurrency, (messages, isolate) =>
    worker.consumeEmails(messages, env(isolate)),
  );

  function env(isolate: Isolate): Env {
    return {
      ...Object.fromEntries(store.names.map((name) => [name, store.binding(isolate, name)])),
      DELIVERIES: fast.producer(isolate),
      SLOW_DELIVERIES: slow.producer(isolate),
      REDELIVERIES: slow.producer(isolate),
      EMAILS: emails.producer(isolate),
      ENCRYPTION_KEYS,
      SERVED_ROUTES: "automations.crm_source",
      EVENTS_KEPT_DAYS: 60,
      EVENTS_KEPT_MAX: 300_000,
      DATABASES_CLOSED: "",
      KEY_GATE: { getByName: () => gate(isolate) },
      EMAIL: { send: (email: Email) => sendEmail(isolate, email) },
      EMAIL_FROM: "api@example.com",
      PORTAL_ORIGIN: "https://api.example",
    } as unknown as Env;
  }

  /** How likely a call or the scheduled job dies at a step; with several databases they take many more. */
  const diesAtStep = () => world.odds.callDies / (store.names.length === 1 ? 1 : 5);

  /** The key gates, as far as the Worker changes them. */
  function gate(isolate: Isolate) {
    return { forget: () => isolate.request(() => isolate.step()) };
  }

  async function sendEmail(isolate: Isolate, email: Email): Promise<void> {
    await isolate.step();
    world.guard(() => checkEmail(store, email));
    if (chance.happens(world.odds.mailIsRefused)) throw new Error("the mail server is busy");
    await isolate.step();
  }

  /** A call of the Platform API, retried with the same input until it is answered, or made once. */
  async function call(
    method: string,
    input: unknown,
    once = false,
  ): Promise<Record<string, never>> {
    const runsBefore = scheduledRuns;
    for (let attempt = 1; ; attempt++) {
      const death = Promise.withResolvers<null>();
      const isolate = new Isolate(world, `platform ${method}`, diesAtStep, () =>
        death.resolve(null),
      );
      const platform = new worker.Platform(ctx, env(isolate));
      try {
        const call = isolate.run(() => platform[method]?.(input));
        const answer = await Promise.race([call, death.promise]);
        if (answer !== null) {
          world.note(`platform ${method} ${JSON.stringify(input)} → ${JSON.stringify(answer)}`);
          return answer as unknown as Record<string, never>;
        }
      } catch (error) {
        world.note(`platform ${method} throws ${error}`);
        if (!/D1_ERROR|overloaded|moving: try again|does not respond/.test(String(error)))
          throw error;
      } finally {
        isolate.end();
      }
      if (once) return {};
      // A workspace that is changing its database is refused until the scheduled job gets through.
      if (attempt > (world.isHarsh ? 500 : 50) && scheduledRuns - runsBefore > 2)
        throw new Violation(`${method} never got through`);
      await world.sleep(chance.between(10, 5_000));
    }
  }

  /** The database of a workspace, as a request of a client uses it. */
  function openDatabaseOf(workspaceId: string) {
    return worker.connect(store.binding(new Isolate(world, "http"), store.homeOf(workspaceId)));
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
      const secret = mintSecret();
      store.secrets.set(id, secret);
      const sealedSecret = await worker.sealSecret(dataKey, id, secret);
      const createdAt = Date.now();
      await worker.commit(db, worker.insertSubscription({ ...row, sealedSecret, createdAt }));
    } catch (error) {
      world.note(`subscribing fails: ${error}`);
    }
    world.note(`${id} subscribes to ${events}`);
    return id;
  }

  /** The scheduled job, once. */
  function runScheduledJob(): void {
    if (world.isDown("cron")) return;
    const isolate = new Isolate(world, "scheduled job", diesAtStep);
    isolate
      .run(() => worker.sweep(env(isolate), Date.now()))
      .then(
        () => void scheduledRuns++,
        (error) => world.note(String(error)),
      )
      .finally(() => isolate.end());
  }

  return {
    call,
    openDatabaseOf,
    subscribe,
    runScheduledJob,
    /** Whether no wake-up message is underway, and no consumer of an earlier one may still run. */
    /** Whether each queue has at least as many consumers at once as a deployment. */
    isOfFullSize: concurrency >= 10,
    areQueuesIdle: () => fast.isIdle() && slow.isIdle(),
    /** How often the queues of deliveries have passed on a batch. */
    consumed: () => fast.invocations() + slow.invocations(),
  };
}

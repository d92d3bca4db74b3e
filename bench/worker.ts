/**
 * The shipped Worker with metered bindings: it counts what each call costs in Cloudflare's billed
 * units, and can make every call to a binding take as long as it would from far away. Its consumers have
 * as many connections as Cloudflare gives them.
 */

import { bindingOf, databaseNames } from "../src/db/databases.ts";
import shipped, { AddressGate, KeyGate, Platform as ShippedPlatform } from "../src/index.ts";
import { advanceMove } from "../src/moving/move.ts";
import { sleep } from "../src/primitives/timing.ts";
import { countedCall, interposed, interposedObjects } from "../test/support/interposed.ts";
import { answerNaively, insertLeads, postBodies } from "./bare.ts";
import {
  consumeWhileHeld,
  drain,
  hold,
  holdQueue,
  setClock,
  type Work,
  withConnections,
} from "./queues.ts";

/** Its handlers as the runtime calls them, whatever arguments they use. */
const worker: Required<Pick<ExportedHandler<Env>, "fetch" | "queue" | "scheduled">> = shipped;

/** The use of the bindings since the meters were reset. */
export interface Meters {
  d1RoundTrips: number;
  rowsRead: number;
  rowsWritten: number;
  /** The messages that were sent to queues. */
  messages: number;
}

const meters: Meters = {
  d1RoundTrips: 0,
  rowsRead: 0,
  rowsWritten: 0,
  messages: 0,
};

/** The bindings, metered, each call of which takes this much longer than its own time. */
function metered(env: Env, roundTripMs = 0): Env {
  const travel = async <T>(work: () => Promise<T>): Promise<T> => {
    if (roundTripMs === 0) return work();
    const [result] = await Promise.all([work(), sleep(roundTripMs)]);
    return result;
  };
  const databases = databaseNames(env).map((name) => [
    name,
    interposed(bindingOf(env, name), (call) => {
      meters.d1RoundTrips++;
      return travel(() => countedCall(call, meter));
    }),
  ]);
  return {
    ...env,
    ...Object.fromEntries(databases),
    KEY_GATE: interposedObjects(env.KEY_GATE, travel),
    ADDRESS_GATE: interposedObjects(env.ADDRESS_GATE, travel),
    DELIVERIES: counted(holdQueue("webhook-deliveries", env.DELIVERIES)),
    SLOW_DELIVERIES: counted(holdQueue("webhook-deliveries-slow", env.SLOW_DELIVERIES)),
  };
}

function meter({ meta }: D1Result): void {
  meters.rowsRead += meta.rows_read;
  meters.rowsWritten += meta.rows_written;
}

function counted(queue: Queue): Queue {
  return Object.assign(Object.create(queue), {
    sendBatch(messages: MessageSendRequest[]) {
      meters.messages += messages.length;
      return queue.sendBatch(messages);
    },
  });
}

/**
 * - `/bench/meters` returns the use of each binding since `/bench/reset`.
 * - `/bench/naive` reads automations as it is usually written.
 * - `/bench/insert?workspace=&count=` inserts leads by raw D1 batches of 100.
 * - `/bench/post?url=&count=` sends bodies, six at a time.
 * - `/bench/move?workspace=&database=` moves a workspace, from as far away as the header says.
 * - `/bench/clock?offset=` moves the clock, in milliseconds from the true time.
 * - `/bench/hold?on=` holds messages from now on, or lets them go to their queues again.
 * - `/bench/consume?consumers=&after=` consumes what is held, with as many consumers, until nothing is held any more.
 * - `/bench/drain?consumers=&leap=` consumes what is held until nothing is pending.
 */
async function answerBench(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const text = (name: string) => String(searchParams.get(name));
  const number = (name: string) => Number(searchParams.get(name));
  switch (pathname) {
    case "/bench/meters":
      return Response.json(meters);
    case "/bench/reset":
      for (const name of Object.keys(meters) as (keyof Meters)[]) meters[name] = 0;
      break;
    case "/bench/naive":
      return answerNaively(request, asAskedFrom(request, env));
    case "/bench/insert":
      await insertLeads(env, text("workspace"), number("count"), 100);
      break;
    case "/bench/post":
      await postBodies(text("url"), number("count"));
      break;
    case "/bench/move": {
      const bindings = asAskedFrom(request, env);
      await advanceMove(bindings, text("workspace"), text("database"), () => true);
      break;
    }
    case "/bench/clock":
      setClock(number("offset"));
      break;
    case "/bench/hold":
      hold(text("on") === "true");
      break;
    case "/bench/consume":
      await consumeWhileHeld(
        text("after") === "waiting"
          ? workOf(env, ctx).consume
          : // As in production, the consumer is free once its handler has returned.
            (batch) => withConnections(async () => worker.queue(batch, metered(env), ctx)),
        number("consumers"),
      );
      break;
    case "/bench/drain":
      await drain(workOf(env, ctx), number("consumers"), text("leap") === "true");
  }
  return new Response();
}

/** Returns the bindings at the distance that the request names. */
function asAskedFrom(request: Request, env: Env): Env {
  return metered(env, Number(request.headers.get("X-Bench-Round-Trip-Ms")));
}

function workOf(env: Env, ctx: ExecutionContext): Work {
  const pending = env.DB.prepare("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1");
  return {
    /** Waits for the dispatches that continue after the consumer has returned. */
    async consume(batch) {
      const underWay: Promise<unknown>[] = [];
      const waitUntil = (work: Promise<unknown>) => void underWay.push(work);
      const waiting = Object.assign(Object.create(ctx), { waitUntil });
      await withConnections(() => worker.queue(batch, metered(env), waiting));
      await Promise.all(underWay);
    },
    async scheduled() {
      const controller = { scheduledTime: Date.now() } as ScheduledController;
      await worker.scheduled(controller, metered(env), ctx);
    },
    // This query is not metered, because it is not part of the work.
    isDone: async () => (await pending.all()).results.length === 0,
  };
}

export class Platform extends ShippedPlatform {
  constructor(ctx: ExecutionContext, env: Env) {
    super(ctx, metered(env));
  }
}

export { AddressGate, KeyGate };

export default {
  fetch: (request, env, ctx) =>
    new URL(request.url).pathname.startsWith("/bench/")
      ? answerBench(request, env, ctx)
      : worker.fetch(request, asAskedFrom(request, env), ctx),
  queue: (batch, env, ctx) => withConnections(() => worker.queue(batch, metered(env), ctx)),
  scheduled: (controller, env, ctx) => worker.scheduled(controller, metered(env), ctx),
} satisfies ExportedHandler<Env>;

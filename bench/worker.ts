/**
 * The shipped Worker with metered bindings: it counts what each call costs in Cloudflare's billed
 * units, and can make every call to a binding take as long as it would from far away. Its consumers have
 * as many connections as Cloudflare gives them.
 */

import shipped, { AddressGate, KeyGate, Platform as ShippedPlatform } from "../src/index.ts";
import { advanceMove } from "../src/workspaces/moving/move.ts";
import { answerNaively, insertLeads, postBodies } from "./bare.ts";
import { connected, withConnections } from "./connections.ts";
import { answerControl, holdQueue } from "./control.ts";
import { distant } from "./distance.ts";

/** Its handlers as the runtime calls them, whatever arguments they use. */
const worker: Required<Pick<ExportedHandler<Env>, "fetch" | "queue" | "scheduled">> = shipped;

/** What the bindings were used for since the meters were reset. */
export interface Meters {
  d1RoundTrips: number;
  rowsRead: number;
  rowsWritten: number;
}

const meters: Meters = {
  d1RoundTrips: 0,
  rowsRead: 0,
  rowsWritten: 0,
};

function metered(env: Env): Env {
  return {
    ...env,
    DB: meterDatabase(env.DB),
    DELIVERIES: connectQueue(holdQueue("webhook-deliveries", env.DELIVERIES)),
    REDELIVERIES: connectQueue(holdQueue("webhook-redeliveries", env.REDELIVERIES)),
  };
}

function meterDatabase<T extends D1Database | D1DatabaseSession>(db: T): T {
  const count = <T extends D1Result | D1Result[]>(results: T): T => {
    meters.d1RoundTrips++;
    for (const { meta } of [results].flat() as D1Result[]) {
      meters.rowsRead += meta.rows_read;
      meters.rowsWritten += meta.rows_written;
    }
    return results;
  };
  const meterStatement = (statement: D1PreparedStatement): D1PreparedStatement =>
    ({
      statement,
      bind: (...values: unknown[]) => meterStatement(statement.bind(...values)),
      all: async () => count(await statement.all()),
      run: async () => count(await statement.run()),
      // `raw` does not report its cost; `all` returns the same rows if no two columns share a name.
      raw: async () => count(await statement.all()).results.map((row) => Object.values(row)),
    }) as unknown as D1PreparedStatement;
  return {
    withSession: (since: string) => meterDatabase((db as D1Database).withSession(since)),
    getBookmark: () => (db as D1DatabaseSession).getBookmark(),
    prepare: (query: string) => meterStatement(db.prepare(query)),
    batch: async (statements: D1PreparedStatement[]) =>
      count(
        await db.batch(
          statements.map(
            (statement) => (statement as unknown as { statement: D1PreparedStatement }).statement,
          ),
        ),
      ),
  } as unknown as T;
}

/** A queue whose sends take a connection, as they do at Cloudflare. */
function connectQueue(queue: Queue): Queue {
  const sendBatch = (messages: MessageSendRequest[]) => connected(() => queue.sendBatch(messages));
  return {
    sendBatch,
    send: (body: unknown, options: QueueSendOptions = {}) => sendBatch([{ body, ...options }]),
  } as unknown as Queue;
}

/**
 * - `/bench/meters` answers what the bindings were used for since `/bench/reset`.
 * - `/bench/naive` reads automations as it is usually written.
 * - `/bench/insert?workspace=&count=` inserts leads by raw D1 batches of 100.
 * - `/bench/post?url=&count=` posts bodies, six at a time.
 * - `/bench/move?workspace=&database=` moves a workspace, from as far away as the header says.
 */
async function answerBench(request: Request, env: Env, near: Env): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const text = (name: string) => String(searchParams.get(name));
  const count = Number(searchParams.get("count"));
  if (pathname === "/bench/meters") return Response.json(meters);
  if (pathname === "/bench/naive") return answerNaively(request, env);
  if (pathname === "/bench/reset")
    for (const name of Object.keys(meters) as (keyof Meters)[]) meters[name] = 0;
  if (pathname === "/bench/insert") await insertLeads(near, text("workspace"), count, 100);
  if (pathname === "/bench/post") await postBodies(text("url"), count);
  if (pathname === "/bench/move")
    await advanceMove(env, text("workspace"), text("database"), () => true);
  return new Response();
}

/** Runs the queue consumer, and waits for the dispatches that it goes on without. */
async function consumeToEnd(batch: MessageBatch, env: Env, ctx: ExecutionContext): Promise<void> {
  const underWay: Promise<unknown>[] = [];
  const waitUntil = (work: Promise<unknown>) => void underWay.push(work);
  const waiting = Object.assign(Object.create(ctx), { waitUntil });
  await withConnections(() => worker.queue(batch, metered(env), waiting));
  await Promise.all(underWay);
}

export class Platform extends ShippedPlatform {
  constructor(ctx: ExecutionContext, env: Env) {
    super(ctx, metered(env));
  }
}

export { AddressGate, KeyGate };

export default {
  fetch(request, env, ctx) {
    const { pathname } = new URL(request.url);
    if (pathname.startsWith("/bench/control/"))
      return answerControl(request, (batch) => consumeToEnd(batch, env, ctx));
    const bindings = distant(metered(env), Number(request.headers.get("X-Bench-Round-Trip-Ms")));
    if (pathname.startsWith("/bench/")) return answerBench(request, bindings, env);
    return worker.fetch(request, bindings, ctx);
  },
  queue: (batch, env, ctx) => withConnections(() => worker.queue(batch, metered(env), ctx)),
  scheduled: (controller, env, ctx) => worker.scheduled(controller, metered(env), ctx),
} satisfies ExportedHandler<Env>;

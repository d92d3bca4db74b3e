/**
 * The shipped Worker with failing bindings: `chaos.test.ts` runs its bundle with this around it. Calls
 * to D1, Durable Objects and queues meet each fault of `service-faults.ts` in turn.
 */

import { Chance } from "../../../scripts/shared/chance.ts";
import { isDatabaseName } from "../../../src/contract/database-names.ts";
import shipped, {
  AddressGate,
  KeyGate as ShippedKeyGate,
  Platform as ShippedPlatform,
} from "../../../src/index.ts";
import { type CarryOut, wrapDatabase, wrapObjects } from "../../support/bindings.ts";
import { type Call, FAULTS, type Fault, toError } from "../../support/service-faults.ts";

/** The settings from `chaos.test.ts`, as JSON in the variable `CHAOS`. */
export interface ChaosSettings {
  seed: number;
  /** Percentage of calls that fail. */
  percent: number;
  /** Which fault each kind of call meets next. */
  next: Record<Call, number>;
}

/** A log line that reports a fault. */
export interface InjectedLine {
  injected: Call;
  /** Index of the fault in `FAULTS`. */
  index: number;
}

type Methods = Record<string, (...parameters: unknown[]) => Promise<unknown>>;
type ChaosEnv = Env & { CHAOS: string; PLATFORM: Methods };

/** Its handlers as the runtime calls them, whatever arguments they use. */
const worker: Required<Pick<ExportedHandler<Env>, "fetch" | "queue" | "scheduled">> = shipped;

let settings: (ChaosSettings & { chance: Chance }) | undefined;
/** Whether faults are over. */
let ended = false;

/** The fault that a call should meet; null for none. */
function drawFault(env: Env, call: Call): Fault | null {
  if (!settings) {
    const given = JSON.parse((env as ChaosEnv).CHAOS) as ChaosSettings;
    settings = { ...given, chance: new Chance(given.seed) };
  }
  const { chance, percent, next } = settings;
  if (ended || !chance.happens(percent / 100)) return null;
  const index = next[call] % FAULTS[call].length;
  next[call] = index + 1;
  console.log(JSON.stringify({ injected: call, index } satisfies InjectedLine));
  return FAULTS[call][index] ?? null;
}

/** The code makes four tries, so a retried call then succeeds, however often faults are drawn. */
const IN_A_ROW_MAX = 2;

/** The bindings of one invocation, or of one object. */
function faulty(env: Env): Env {
  const inARow = new Map<string, number>();
  const run: CarryOut = async (call, name, work) => {
    const met = inARow.get(name) ?? 0;
    const fault = met < IN_A_ROW_MAX ? drawFault(env, call) : null;
    inARow.set(name, fault ? met + 1 : 0);
    if (fault?.moment === "before") throw toError(fault);
    const result = await work();
    if (fault) throw toError(fault);
    return result;
  };
  const bindings = Object.entries(env as unknown as Record<string, D1Database>);
  const databases = bindings.filter(([name]) => isDatabaseName(name));
  return {
    ...env,
    ...Object.fromEntries(databases.map(([name, db]) => [name, wrapDatabase(db, run)])),
    KEY_GATE: wrapObjects(env.KEY_GATE, run),
    ADDRESS_GATE: wrapObjects(env.ADDRESS_GATE, run),
    DELIVERIES: faultyQueue(env.DELIVERIES, run),
    REDELIVERIES: faultyQueue(env.REDELIVERIES, run),
  };
}

function faultyQueue(queue: Queue, run: CarryOut): Queue {
  return {
    sendBatch: (messages: MessageSendRequest[]) =>
      run("queue", "sendBatch", () => queue.sendBatch(messages)),
  } as unknown as Queue;
}

export class Platform extends ShippedPlatform {
  constructor(ctx: ExecutionContext, env: Env) {
    super(ctx, faulty(env));
  }
}

export class KeyGate extends ShippedKeyGate {
  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, faulty(env));
  }
}

export { AddressGate };

/** The errors that ended requests, as the Worker logs them, by request id. */
const causes = new Map<string, string>();
const { error: writeError } = console;
console.error = (line: string) => {
  writeError(line);
  const { event, requestId, message } = JSON.parse(line);
  if (event === "request_failed") causes.set(requestId, message);
};

/**
 * Requests from `chaos.test.ts` itself, with JSON input: `/chaos/platform/METHOD` calls the Platform
 * API, `/chaos/query` reads the workspace's database, `/chaos/sweep` runs the scheduled job, `/chaos/end` ends all
 * faults.
 */
async function carryOut(request: Request, env: ChaosEnv, ctx: ExecutionContext): Promise<unknown> {
  const [, , action, method = ""] = new URL(request.url).pathname.split("/");
  const input = await request.json();
  switch (action) {
    case "platform":
      return env.PLATFORM[method]?.(input);
    case "query":
      return (await (await findPlacement(env)).prepare(String(input)).all()).results;
    case "sweep":
      return worker.scheduled({ scheduledTime: input } as ScheduledController, faulty(env), ctx);
    case "end":
      ended = true;
  }
}

/** The database that the one workspace lives in. */
async function findPlacement(env: Env): Promise<D1Database> {
  const line = await env.DB.prepare("SELECT database FROM workspaces").first<{
    database: string | null;
  }>();
  return (env as unknown as Record<string, D1Database>)[line?.database ?? "DB"] as D1Database;
}

export default {
  async fetch(request, env, ctx) {
    if (new URL(request.url).pathname.startsWith("/chaos/"))
      return carryOut(request, env as ChaosEnv, ctx).then(
        (value) => Response.json({ value }),
        (error) => Response.json({ error: String(error) }),
      );
    const answer = await worker.fetch(request, faulty(env), ctx);
    if (answer.status < 500) return answer;
    const cause = causes.get(answer.headers.get("X-Request-Id") ?? "") ?? "";
    return new Response(answer.body, { status: answer.status, headers: { "X-Cause": cause } });
  },
  queue: (batch, env, ctx) => worker.queue(batch, faulty(env), ctx),
  scheduled: (controller, env, ctx) => worker.scheduled(controller, faulty(env), ctx),
} satisfies ExportedHandler<Env>;

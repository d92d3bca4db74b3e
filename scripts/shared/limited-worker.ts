/**
 * The shipped Worker for `npm start` and the tests. It is limited to the D1 statements that an invocation may
 * execute, which the local runtime does not count.
 */
import { Budget } from "../../src/db/budget.ts";
import shipped, { Platform as ShippedPlatform } from "../../src/index.ts";

export { AddressGate, KeyGate } from "../../src/index.ts";

const limited = (env: Env) => new Budget(Number.POSITIVE_INFINITY).meter(env);

/** The entrypoint, of which an object handles one call. */
export class Platform extends ShippedPlatform {
  constructor(ctx: ExecutionContext, env: Env) {
    super(ctx, limited(env));
  }
}

export default {
  fetch: (request, env, ctx) => shipped.fetch(request, limited(env), ctx),
  queue: (batch, env, ctx) => shipped.queue(batch, limited(env), ctx),
  scheduled: (controller, env) => shipped.scheduled(controller, limited(env)),
} satisfies ExportedHandler<Env>;

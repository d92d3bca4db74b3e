import { WorkerEntrypoint } from "cloudflare:workers";
import { invoke, type WithActor } from "./invoke.ts";
import type { Call } from "./operation.ts";
import { OPERATIONS, type PlatformInput, type PlatformOutput } from "./operations.ts";

class PlatformEntrypoint extends WorkerEntrypoint<Env> {}

// One method for each operation. Its body is the `run` of the operation (operations.ts), which `invoke` calls.
for (const [name, operation] of Object.entries(OPERATIONS))
  Object.defineProperty(PlatformEntrypoint.prototype, name, {
    value(this: Call, input: unknown) {
      return invoke(name, operation, { env: this.env, ctx: this.ctx }, input, "rpc");
    },
  });

type RpcMethods = {
  // An editor follows a method to its operation only with `keyof` in this place.
  [M in keyof typeof OPERATIONS]: (
    input: PlatformInput<M> & WithActor,
  ) => Promise<PlatformOutput<M>>;
};

/**
 * The RPC entrypoint for the platform and for operators. Every method takes one plain object and returns one. Invalid
 * input is rejected with an Error that says what is wrong and where, and nothing is written. After a lost reply, every
 * method can be called again, except those that create a workspace or a key.
 */
export const Platform = PlatformEntrypoint as new (
  ctx: ExecutionContext,
  env: Env,
) => PlatformEntrypoint & RpcMethods;
export type Platform = InstanceType<typeof Platform>;

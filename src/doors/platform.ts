import { WorkerEntrypoint } from "cloudflare:workers";
import { InputError } from "../contract/input-error.ts";
import { type PlatformInput, type PlatformMethod, parseInput } from "../contract/platform.ts";
import { causeOf } from "../db/errors.ts";
import { apiKeyMethods } from "./platform/api-keys.ts";
import { databaseMethods } from "./platform/databases.ts";
import { deliveryMethods } from "./platform/deliveries.ts";
import type { Call, Methods } from "./platform/methods.ts";
import { personalDataMethods } from "./platform/personal-data.ts";
import { recordMethods } from "./platform/records.ts";
import { webhookMethods } from "./platform/webhooks.ts";
import { workspaceMethods } from "./platform/workspaces.ts";

const METHODS = {
  ...workspaceMethods,
  ...databaseMethods,
  ...apiKeyMethods,
  ...recordMethods,
  ...personalDataMethods,
  ...webhookMethods,
  ...deliveryMethods,
} satisfies Methods;

class PlatformEntrypoint extends WorkerEntrypoint<Env> {}

for (const method of Object.keys(METHODS) as PlatformMethod[])
  Object.defineProperty(PlatformEntrypoint.prototype, method, {
    value(this: Call, input: unknown) {
      return invoke(method, { env: this.env, ctx: this.ctx }, input);
    },
  });

type RpcMethods = {
  [M in PlatformMethod]: (input: PlatformInput<M>) => ReturnType<(typeof METHODS)[M]>;
};

/**
 * The RPC door, for the platform that produces automations, leads and runs, and for operators. Every
 * method takes one plain object and returns one. Invalid input is refused with an Error that says
 * what is wrong and where, and nothing is written. All methods except those that create a workspace
 * or a key can be called again after a lost reply.
 */
export const Platform = PlatformEntrypoint as new (
  ctx: ExecutionContext,
  env: Env,
) => PlatformEntrypoint & RpcMethods;
export type Platform = InstanceType<typeof Platform>;

/** Calls a method. A refusal begins with its name, because a log may show the message alone. */
async function invoke<M extends PlatformMethod>(method: M, call: Call, input: unknown) {
  const perform: Methods[M] = METHODS[method];
  try {
    return await perform(call, parseInput(method, input));
  } catch (thrown) {
    const error = causeOf(thrown);
    if (!(error instanceof InputError) || error.message.startsWith(`${method}: `)) throw error;
    throw new InputError(`${method}: ${error.message}`);
  }
}

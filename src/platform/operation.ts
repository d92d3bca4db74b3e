import type { z } from "@hono/zod-openapi";
import type { ChangedFields } from "../db/schema.ts";
import type { Placement } from "../workspaces/placement.ts";

/** The surroundings of a call of an operation. */
export interface Call {
  env: Env;
  /** Takes work that goes on after the operation has returned. */
  ctx: Pick<ExecutionContext, "waitUntil">;
  /** The database of the workspace that the call is about, if its caller has looked it up. */
  placement?: Placement;
  /** Who is calling, as the caller says; null or absent if it does not. */
  actor?: string | null;
  /** Notes ids for the audit trail: of the workspace, or of what the input names in another way. */
  note?(...ids: string[]): void;
  /** Notes for the audit trail that the call has changed a subscription. */
  noteChange?(change: WebhookChange): void;
}

/** A change of a subscription: the changed fields, before and after. */
export interface WebhookChange {
  webhookId: string;
  before?: ChangedFields;
  after?: ChangedFields;
}

/**
 * Something that the platform, an operator or the portal can do, exported under its name. The RPC
 * method, the command's help, the documentation and the portal's call all come from this one value.
 */
export interface Operation<
  Input extends z.ZodType = z.ZodType,
  Output extends z.ZodType = z.ZodType,
> {
  /** What it does, in a sentence or two. */
  about: string;
  /** One object. The descriptions of its fields say what their names do not. */
  input: Input;
  output: Output;
  examples: readonly [z.input<Input>, ...z.input<Input>[]];
  /**
   * Does it. The input has been parsed.
   *
   * @throws InputError if the input is wrong in another way; nothing is written then.
   */
  run(call: Call, input: z.output<Input>): Promise<z.input<Output>>;
}

/** Declares an operation; whatever is missing does not compile. */
export function operation<Input extends z.ZodType, Output extends z.ZodType>(
  declared: Operation<Input, Output>,
): Operation<Input, Output> {
  return declared;
}

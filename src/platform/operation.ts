import type { z } from "@hono/zod-openapi";
import type { ChangedFields } from "../db/schema.ts";
import type { Placement } from "../workspaces/placement.ts";

/** The context of a call of an operation. */
export interface Call {
  env: Env;
  /** The execution context, for work that continues after the operation has returned. */
  ctx: Pick<ExecutionContext, "waitUntil">;
  /** The database of the workspace that the call is about, if its caller has looked it up. */
  placement?: Placement;
  /** The person who acts, as the caller names them; null or absent if it does not. */
  actor?: string | null;
  /** Notes ids for the audit trail that the fields of the input do not have, such as the id of the workspace. */
  note?(...ids: string[]): void;
  /**
   * Notes for the audit trail that the call changes a subscription, before it does so: if it fails, the change may have
   * happened. Null says that it has changed nothing after all.
   *
   * @throws InputError if the portal has made too many changes of this kind.
   */
  noteChange?: NoteChange;
}

export type NoteChange = (change: WebhookChange | null) => Promise<void>;

/** A change of a subscription: the changed fields, before and after. */
export interface WebhookChange {
  webhookId: string;
  before?: ChangedFields;
  after?: ChangedFields;
}

/**
 * An operation of the platform, an operator or the portal, exported under its name. The RPC method, the help of the
 * command, the documentation and the call of the portal all derive from this value.
 */
export interface Operation<
  Input extends z.ZodType = z.ZodType,
  Output extends z.ZodType = z.ZodType,
> {
  /** The description of the operation, in a sentence or two. */
  about: string;
  /** The schema of the input, one object. Its fields are described where their names do not suffice. */
  input: Input;
  output: Output;
  examples: readonly [z.input<Input>, ...z.input<Input>[]];
  /**
   * Whether only the log has its calls. There may be as many recording calls as records, and the audit trail is in the
   * directory, whose size no further database relieves.
   */
  skipsAuditTrail?: boolean;
  /**
   * Performs the operation with the parsed input.
   *
   * @throws InputError if the input is invalid in a way that its schema does not check; nothing is written then.
   */
  run(call: Call, input: z.output<Input>): Promise<z.input<Output>>;
}

/** Declares an operation; one that lacks a part does not compile. */
export function operation<Input extends z.ZodType, Output extends z.ZodType>(
  declared: Operation<Input, Output>,
): Operation<Input, Output> {
  return declared;
}

import { z } from "@hono/zod-openapi";
import { ApiError } from "../contract/errors.ts";
import { idKindOf } from "../contract/fields.ts";
import { isId } from "../contract/ids.ts";
import { InputError, parseInput } from "../contract/input.ts";
import {
  PORTAL_LASTING_CHANGES_PER_DAY,
  PORTAL_LASTING_CHANGES_WITH_DELETIONS_PER_DAY,
} from "../contract/limits.ts";
import type { PortalGrant } from "../contract/portal-token.ts";
import { DIRECTORY, openDirectory } from "../db/databases.ts";
import { causeOf } from "../db/errors.ts";
import type { ChangedFields } from "../db/schema.ts";
import { log, logError } from "../log.ts";
import { label } from "../primitives/text.ts";
import {
  type AuditEntry,
  findLastingWait,
  insertAuditEntry,
  isLasting,
  VIA_API,
  VIA_PORTAL,
} from "../workspaces/audit-trail.ts";
import { inTime } from "../workspaces/placement.ts";
import type { Call, NoteChange, Operation, WebhookChange } from "./operation.ts";

/** The field that a caller may add to the input of any operation, to name the person who acts. */
const Actor = z.object({ actor: label(100).nullish() });
export type WithActor = z.input<typeof Actor>;

/** Maximum ids in an entry of the audit trail. */
const IDS_MAX = 200;

/**
 * Calls an operation for the platform or an operator, and records the call in the log and in the audit trail. If the
 * audit trail cannot be written, the call still succeeds, because it may have taken effect. The log line is written
 * first, and has everything except the actor.
 *
 * @param via the channel of the call: `rpc`, or `https:` and the id of the key.
 * @throws InputError whose message begins with the method, because a log may show the message alone;
 *   or the error of the operation.
 */
export function invoke(
  method: string,
  operation: Operation,
  call: Call,
  given: unknown,
  via: string,
): Promise<object> {
  const running = runNoted(method, operation, call, given, via);
  // Without this, the runtime would end the call if its caller hangs up.
  call.ctx.waitUntil(running.catch(() => {}));
  return running;
}

async function runNoted(
  method: string,
  operation: Operation,
  { env, ctx }: Call,
  given: unknown,
  via: string,
): Promise<object> {
  const startedAt = performance.now();
  const noted = new Set<string>();
  const note = (...ids: string[]) => ids.forEach(noted.add, noted);
  note(...idsIn(operation.input, given));
  const entry = newEntry(method, via);
  try {
    // The actor is parsed first, so that the audit trail has it even if the rest of the input is invalid.
    entry.actor = parseActor(given);
    const input = parseCall(operation, given);
    const noteChange: NoteChange = async (change) => setChange(entry, change);
    const { actor } = entry;
    const output = (await operation.run({ env, ctx, actor, note, noteChange }, input)) as object;
    note(...idsIn(operation.output, output));
    entry.result = "ok";
    return output;
  } catch (thrown) {
    const error = causeOf(thrown);
    if (!(error instanceof InputError)) throw error;
    entry.result = reasonOf(operation, error);
    throw error.in(method);
  } finally {
    entry.workspaceId = [...noted].find((id) => isId("workspace", id)) ?? null;
    noted.delete(entry.workspaceId ?? "");
    entry.ids = [...noted].slice(0, IDS_MAX);
    entry.durationMs = Math.round(performance.now() - startedAt);
    // The actor is left out, because it may name a person, and logs have no personal data.
    log("platform_call", {
      method: entry.method,
      workspaceId: entry.workspaceId,
      via: entry.via,
      result: entry.result,
      durationMs: entry.durationMs,
      ids: entry.ids.join(" "),
    });
    if (!operation.skipsAuditTrail) await writeAuditEntry(env, entry);
  }
}

function parseActor(given: unknown): string | null {
  const { actor = null } = (given ?? {}) as WithActor;
  return parseInput(Actor, { actor }).actor ?? null;
}

/**
 * Parses the input of an operation without its actor.
 *
 * @param name begins the message of the error.
 * @throws InputError
 */
export function parseCall<Input extends z.ZodType>(
  { input }: Pick<Operation<Input>, "input">,
  given: unknown,
  name?: string,
): z.output<Input> {
  if (!isObject(given)) return parseInput(input, given, name);
  const { actor: _, ...rest } = given as WithActor;
  return parseInput(input, rest, name);
}

/** Makes an entry of the audit trail for a call that begins now. The result is `failed` until the call succeeds. */
function newEntry(method: string, via: string) {
  return {
    id: crypto.randomUUID(),
    at: Date.now(),
    method,
    workspaceId: null as string | null,
    ids: [] as string[],
    actor: null as string | null,
    via,
    result: "failed",
    durationMs: 0,
    webhookId: null as string | null,
    before: null as ChangedFields | null,
    after: null as ChangedFields | null,
    lasting: false,
  };
}

/** Sets the change of an entry; null for none. */
function setChange(entry: ReturnType<typeof newEntry>, change: WebhookChange | null): void {
  Object.assign(entry, change ?? { webhookId: null, before: null, after: null });
  entry.lasting = isLasting(entry);
}

/**
 * Calls `run` for a session of the portal. If `run` notes that it changes a subscription, the audit trail gets an entry
 * with the actor of the session.
 */
export async function runInPortal<Result>(
  env: Env,
  method: string,
  workspaceId: string,
  actor: string | null,
  run: (noteChange: NoteChange) => Promise<Result>,
): Promise<Result> {
  const entry = { ...newEntry(method, VIA_PORTAL), workspaceId, actor };
  const max =
    method === "deleteWebhook"
      ? PORTAL_LASTING_CHANGES_WITH_DELETIONS_PER_DAY
      : PORTAL_LASTING_CHANGES_PER_DAY;
  const noteChange: NoteChange = async (change) => {
    setChange(entry, change);
    if (!entry.lasting) return;
    const waitSeconds = await findLastingWait(env, workspaceId, max, Date.now());
    if (waitSeconds > 0)
      throw new InputError(
        "webhookId",
        `its workspace has changed URLs, secrets or headers ${max} times in a day`,
        { retry_after_seconds: waitSeconds },
      );
  };
  return runChange(
    entry,
    () => run(noteChange),
    () => writeAuditEntry(env, entry),
  );
}

/** Notes for the audit trail that a portal session was opened; once for each link, however often that is opened. */
export function noteSession({ env, ctx }: Call, grant: PortalGrant): void {
  const { workspaceId, actor, issuedAt } = grant;
  const entry = newEntry("openPortalSession", VIA_PORTAL);
  const id = `session ${workspaceId} ${issuedAt} ${grant.endsAt} ${actor}`;
  const opened = { ...entry, id, at: issuedAt, workspaceId, actor, result: "ok" };
  ctx.waitUntil(writeAuditEntry(env, opened));
}

/**
 * Calls `run`, which changes a subscription with an API key. The entry of the audit trail is written after the response,
 * so that clients do not wait for it.
 */
export async function runForKey<Result>(
  { env, ctx }: Call,
  method: string,
  caller: { workspaceId: string; keyId: string | null },
  run: (noteChange: NoteChange) => Promise<Result>,
): Promise<Result> {
  const { workspaceId, keyId } = caller;
  const entry = { ...newEntry(method, `${VIA_API}${keyId}`), workspaceId };
  return runChange(
    entry,
    () => run(async (change) => setChange(entry, change)),
    () => ctx.waitUntil(writeAuditEntry(env, entry)),
  );
}

/** Runs a change of a subscription that fills in `entry`, and calls `write` for the entry, unless it was rejected. */
async function runChange<Result>(
  entry: ReturnType<typeof newEntry>,
  run: () => Promise<Result>,
  write: () => Promise<void> | void,
): Promise<Result> {
  const startedAt = performance.now();
  try {
    const result = await run();
    entry.result = "ok";
    return result;
  } catch (thrown) {
    const error = causeOf(thrown);
    // A rejected call has changed nothing.
    if (error instanceof InputError || error instanceof ApiError) entry.webhookId = null;
    throw thrown;
  } finally {
    entry.durationMs = Math.round(performance.now() - startedAt);
    if (entry.webhookId !== null) {
      entry.ids = [entry.webhookId];
      await write();
    }
  }
}

async function writeAuditEntry(env: Env, entry: AuditEntry): Promise<void> {
  try {
    await inTime(DIRECTORY, insertAuditEntry(openDirectory(env), entry));
  } catch (error) {
    logError("audit_failed", error, { method: entry.method, workspaceId: entry.workspaceId });
  }
}

/**
 * Lists the ids in those fields of an input or output that its schema declares as ids; ids within records do not count.
 * Only text in the form of our ids is included, because a caller may have put an API key or personal data in its place.
 */
function idsIn(schema: z.ZodType, value: unknown): string[] {
  if (!isObject(value)) return [];
  const { shape } = schema as z.ZodObject;
  return Object.entries(value).flatMap(([name, held]) => {
    const kind = Object.hasOwn(shape, name) && idKindOf(shape[name] as z.ZodType);
    return kind ? [held].flat().filter((each) => typeof each === "string" && isId(kind, each)) : [];
  });
}

/** Describes why a call was rejected, without any text of the caller. */
function reasonOf({ input }: Operation, { path, details }: InputError): string {
  const [field] = path;
  const fields = { ...(input as z.ZodObject).shape, ...Actor.shape };
  const isKnown = typeof field === "string" && Object.hasOwn(fields, field);
  return `${details.reason ?? "invalid"}${isKnown ? `: ${field}` : ""}`;
}

export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

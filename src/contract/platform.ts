import { z } from "zod";
import { RECORD_MAX_BYTES, RECORD_MAX_QUOTED_BYTES, RECORDS_MAX, RETENTION_MS } from "./limits.ts";
import {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  SOCIAL_AUTOMATION_TYPES,
  TriggerType,
} from "./resources.ts";

/** Text that every store and every client can hold: no NUL, no half of a surrogate pair. */
function text(max: number) {
  return z
    .string()
    .max(max)
    .refine((value) => value.isWellFormed() && !value.includes("\0"), "must be well-formed text");
}

const Name = text(1_000).min(1);
const Reference = text(512).min(1);
const Id = z.string().max(100);

const FIRST_MS = Date.parse("0000-01-01T00:00:00.000Z");
const LAST_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** ISO 8601 with `Z` or an offset; read as Unix milliseconds. */
const Instant = z.iso
  .datetime({ offset: true })
  .transform((value) => Date.parse(value))
  .refine((ms) => ms >= FIRST_MS && ms <= LAST_MS, "must lie in the years 0000 to 9999, in UTC");

const DEEPEST = 500;

/** Where a value is not what JSON can say, or is nested too deep, as a path; null when it is fine. */
function findFault(value: unknown, depth = 0): string[] | null {
  if (value === null || typeof value === "boolean" || typeof value === "string") return null;
  if (Number.isFinite(value)) return null;
  if (!Array.isArray(value) && !isPlainObject(value)) return [];
  if (depth > DEEPEST) return [];
  for (const [key, item] of Object.entries(value)) {
    const fault = findFault(item, depth + 1);
    if (fault) return [key, ...fault];
  }
  return null;
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

const CustomFields = z
  .custom<Record<string, unknown>>(isPlainObject, "must be a JSON object")
  .superRefine((fields, context) => {
    const path = findFault(fields);
    if (path)
      context.addIssue({
        code: "custom",
        continue: false,
        // A path that nobody can read is left out.
        path: path.length > 10 ? [] : path,
        message: `must be JSON, nested at most ${DEEPEST} deep`,
      });
  });

const Agent = z.strictObject({ reference: Reference, name: Name });

function records<T extends z.ZodType>(item: T) {
  return z
    .array(
      item.refine((value) => {
        const text = JSON.stringify(value);
        return (
          bytesOf(text) <= RECORD_MAX_BYTES &&
          bytesOf(JSON.stringify(text)) <= RECORD_MAX_QUOTED_BYTES
        );
      }, `must be at most ${RECORD_MAX_BYTES} bytes of JSON (${RECORD_MAX_QUOTED_BYTES} quoted)`),
    )
    .min(1)
    .max(RECORDS_MAX);
}

const AutomationReport = z
  .strictObject({
    reference: Reference,
    type: AutomationType,
    provider: Name,
    agent: Agent,
    /** Of a `crm_source` automation; the name of a social one is composed. */
    name: Name.nullish(),
    status: AutomationStatus,
    updatedAt: Instant.nullish(),
  })
  .refine(({ type, name }) => SOCIAL_AUTOMATION_TYPES.some((social) => social === type) || name, {
    path: ["name"],
    message: "a crm_source automation brings its name",
  });

const LeadReport = z.strictObject({
  reference: Reference,
  source: LeadSource,
  agent: Agent,
  name: text(1_000).nullish(),
  email: text(1_000).nullish(),
  phone: text(100).nullish(),
  customFields: CustomFields.nullish(),
  createdAt: Instant.nullish(),
});

const RunReport = z.strictObject({
  reference: Reference,
  automationId: Id,
  status: RunStatus,
  triggerType: TriggerType,
  occurredAt: Instant.nullish(),
  actions: z
    .array(z.strictObject({ type: text(200).optional(), status: text(200).optional() }))
    .max(100)
    .nullish(),
  leadId: Id.nullish(),
});

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** What each method of the Platform door takes. */
export const PLATFORM_INPUTS = {
  createWorkspace: z.strictObject({
    name: Name,
    adminEmails: z.array(z.email()).max(50).nullish(),
  }),
  setWorkspaceAccess: z.strictObject({ workspaceId: Id, granted: z.boolean() }),
  createApiKey: z.strictObject({
    workspaceId: Id,
    requestsPerWindow: z.int().min(1).max(1_000_000).nullish(),
  }),
  revokeApiKey: z.strictObject({ keyId: Id }),
  recordAutomations: z.strictObject({ workspaceId: Id, automations: records(AutomationReport) }),
  removeAutomations: z.strictObject({ workspaceId: Id, ids: z.array(Id).min(1).max(RECORDS_MAX) }),
  recordLeads: z.strictObject({ workspaceId: Id, leads: records(LeadReport) }),
  recordRuns: z.strictObject({ workspaceId: Id, runs: records(RunReport) }),
  ledger: z.strictObject({ workspaceId: Id.nullish() }),
  enableWebhook: z.strictObject({
    webhookId: Id,
    redeliverSince: Instant.refine(
      (since) => since >= Date.now() - RETENTION_MS,
      "must be at most 30 days ago: older events are deleted",
    ).nullish(),
  }),
  resealSecrets: z.strictObject({}),
};

export type PlatformMethod = keyof typeof PLATFORM_INPUTS;

const RecordingMethod = z.enum([
  "recordAutomations",
  "removeAutomations",
  "recordLeads",
  "recordRuns",
]);

/** The methods that record what the platform produces. */
export type RecordingMethod = z.infer<typeof RecordingMethod>;

const RecordMessage = z.strictObject({ method: RecordingMethod, input: z.unknown() });

/** The input of a method, as its caller writes it. */
export type PlatformInput<M extends PlatformMethod> = z.input<(typeof PLATFORM_INPUTS)[M]>;

/** One item of the array `K` of a method's input, once it has been read. */
export type PlatformRecord<
  M extends PlatformMethod,
  K extends keyof z.output<(typeof PLATFORM_INPUTS)[M]>,
> = z.output<(typeof PLATFORM_INPUTS)[M]>[K] extends (infer Item)[] ? Item : never;

/** An input is wrong: the message says what and where, in one line, without the value. */
export class InputError extends Error {}

/**
 * Reads the input of a method.
 *
 * @throws InputError for an input that the method does not take.
 */
export function readInput<M extends PlatformMethod>(
  method: M,
  input: unknown,
): z.output<(typeof PLATFORM_INPUTS)[M]> {
  return read(method, PLATFORM_INPUTS[method], input) as z.output<(typeof PLATFORM_INPUTS)[M]>;
}

/**
 * Reads a message of the ingest queue: `{ method, input }`, or the same as JSON text. The input is
 * left to `readInput`.
 *
 * @throws InputError for anything else.
 */
export function readRecordMessage(content: unknown): z.infer<typeof RecordMessage> {
  const value = typeof content === "string" ? parse(content) : content;
  return read("message", RecordMessage, value) as z.infer<typeof RecordMessage>;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message quotes the text.
    throw new InputError("message: not JSON");
  }
}

function read(what: string, schema: z.ZodType, value: unknown): unknown {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const where = issue?.path.reduce<string>(
    (path, key) =>
      typeof key === "number" ? `${path}[${key}]` : `${path}${path && "."}${String(key)}`,
    "",
  );
  throw new InputError(`${what}: ${where ? `${where}: ` : ""}${issue?.message}`);
}

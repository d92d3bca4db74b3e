import { z } from "@hono/zod-openapi";
import { API_KEYS_LIST, DELIVERIES_LIST, decodeCursor, WORKSPACES_LIST } from "./cursor.ts";
import { WebhookEvent } from "./enumerations.ts";
import { InputError } from "./input-error.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  KEY_OVERLAP_MAX_SECONDS,
  PAGE_LIMIT,
  PORTAL_LINK_MINUTES,
  RECORD_MAX_BYTES,
  RECORDS_MAX,
  REDELIVERY_MAX_AGE_MS,
  SECRET_OVERLAP_SECONDS,
} from "./limits.ts";
import { AutomationReport, Id, Instant, LeadReport, Name, RunReport } from "./reports.ts";

const RedeliverableSince = Instant.refine((since) => since >= Date.now() - REDELIVERY_MAX_AGE_MS, {
  error: "must be at most 30 days ago: older events are deleted",
  params: { reason: "out_of_range" },
});

/** How many missing fields a message names; a hundred records may lack thousands. */
const MISSING_NAMED_MAX = 10;

const RedeliveryState = z.enum(["delivered", "exhausted", "cancelled", "missed"]);

/** The state of an event that may be redelivered; `missed` if it was never owed. */
export type RedeliveryState = z.infer<typeof RedeliveryState>;

/** A whole number in a range, both ends included. */
function integer(min: number, max: number) {
  return z.int().min(min).max(max);
}

/** One or more items, up to the most that a call may hold. */
function several<T extends z.ZodType>(item: T, max = RECORDS_MAX) {
  return z.array(item).min(1).max(max);
}

function records<T extends z.ZodType>(item: T) {
  return several(
    item.refine(
      (value) => new TextEncoder().encode(JSON.stringify(value)).length <= RECORD_MAX_BYTES,
      `must be at most ${RECORD_MAX_BYTES} bytes of JSON`,
    ),
  );
}

/** The position where a page begins, from the previous page's `nextCursor`. */
function cursorOf(list: string) {
  return z
    .string()
    .transform((text, context) => {
      const position = decodeCursor(list, text);
      if (position) return position;
      context.addIssue({ code: "custom", message: "is not a cursor of this list" });
      return z.NEVER;
    })
    .nullish();
}

const AdminEmails = z.array(z.email()).max(50).nullish();
const Quota = integer(1, 1_000_000);
const ofWorkspace = z.strictObject({ workspaceId: Id });
const ofWebhook = z.strictObject({ webhookId: Id });
const Binding = z.string().min(1).max(20);
const ofAnyWorkspace = z.strictObject({
  workspaceId: Id.nullish(),
  database: Binding.nullish(),
});

/** The input of each method of the Platform door; `scripts/platform/words.ts` describes it. */
export const PLATFORM_INPUTS = {
  createWorkspace: z.strictObject({
    name: Name,
    adminEmails: AdminEmails,
    database: Binding.nullish(),
  }),
  databases: z.strictObject({}),
  moveWorkspace: z.strictObject({ workspaceId: Id, database: Binding }),
  eraseWorkspace: ofWorkspace,
  exportWorkspace: z.strictObject({ workspaceId: Id, cursor: z.string().nullish() }),
  updateWorkspace: z.strictObject({
    workspaceId: Id,
    name: Name.nullish(),
    adminEmails: AdminEmails,
    webhooksMax: integer(1, AGREED_SUBSCRIPTIONS_MAX).nullish(),
  }),
  listWorkspaces: z.strictObject({ cursor: cursorOf(WORKSPACES_LIST) }),
  setWorkspaceAccess: z.strictObject({ workspaceId: Id, granted: z.boolean() }),
  createPortalLink: z.strictObject({
    workspaceId: Id,
    validMinutes: integer(1, PORTAL_LINK_MINUTES.max).nullish(),
  }),
  createApiKey: z.strictObject({ workspaceId: Id, requestsPerWindow: Quota.nullish() }),
  updateApiKey: z.strictObject({ keyId: Id, requestsPerWindow: Quota.nullable() }),
  rollApiKey: z.strictObject({ keyId: Id, overlapSeconds: integer(0, KEY_OVERLAP_MAX_SECONDS) }),
  revokeApiKey: z
    .strictObject({
      keyId: Id.nullish(),
      apiKey: z.string().max(100).nullish(),
    })
    .refine(
      ({ keyId, apiKey }) => (keyId == null) !== (apiKey == null),
      "expected either keyId or apiKey",
    ),
  listApiKeys: z.strictObject({ workspaceId: Id, cursor: cursorOf(API_KEYS_LIST) }),
  recordAutomations: z.strictObject({ workspaceId: Id, automations: records(AutomationReport) }),
  removeAutomations: z.strictObject({ workspaceId: Id, ids: several(Id) }),
  recordLeads: z.strictObject({ workspaceId: Id, leads: records(LeadReport) }),
  eraseLeads: z.strictObject({ workspaceId: Id, ids: several(Id) }),
  recordRuns: z.strictObject({ workspaceId: Id, runs: records(RunReport) }),
  ledger: ofAnyWorkspace,
  listWebhooks: ofWorkspace,
  listDeliveries: z.strictObject({
    webhookId: Id,
    state: z.enum(["pending", "delivered", "exhausted", "cancelled"]).nullish(),
    type: WebhookEvent.nullish(),
    limit: integer(PAGE_LIMIT.min, PAGE_LIMIT.max).nullish(),
    cursor: cursorOf(DELIVERIES_LIST),
  }),
  readDelivery: z.strictObject({ webhookId: Id, eventId: Id }),
  redeliver: z
    .strictObject({
      webhookId: Id,
      eventIds: several(Id).nullish(),
      since: RedeliverableSince.nullish(),
      until: Instant.nullish(),
      states: several(RedeliveryState, RedeliveryState.options.length).nullish(),
    })
    .superRefine(({ eventIds, since, until, states }, context) => {
      const fault = (path: string, message: string) =>
        context.addIssue({ code: "custom", path: [path], message });
      if (eventIds == null && since == null)
        return fault("eventIds", "expected either eventIds or since");
      if (eventIds == null) return;
      if (since != null) fault("since", "cannot be combined with eventIds");
      if (until != null) fault("until", "cannot be combined with eventIds");
      if (states != null) fault("states", "cannot be combined with eventIds");
    }),
  backlog: ofAnyWorkspace,
  enableWebhook: z.strictObject({ webhookId: Id, redeliverSince: RedeliverableSince.nullish() }),
  sendTestEvent: z.strictObject({ webhookId: Id, type: WebhookEvent }),
  disableWebhook: ofWebhook,
  deleteWebhook: ofWebhook,
  rotateWebhookSecret: z.strictObject({
    webhookId: Id,
    overlapSeconds: integer(0, SECRET_OVERLAP_SECONDS.max).nullish(),
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

/** The result of a recording call. */
export interface Recorded {
  /** The ids of its records, in input order. */
  ids: string[];
  /**
   * How many of them are new, inserted by this call. If D1 lost a reply and the service committed
   * the call twice, records inserted by the first try are not counted.
   */
  created: number;
}

/** The times of a recording call, in Unix milliseconds. */
export interface Moment {
  /** When it was sent, if it came through a queue; `null` if it arrived directly. */
  sentAt: number | null;
  now: number;
}

/** The input of a method, as the caller writes it. */
export type PlatformInput<M extends PlatformMethod> = z.input<(typeof PLATFORM_INPUTS)[M]>;

/** The input of a method, once parsed. */
export type ParsedInput<M extends PlatformMethod> = z.output<(typeof PLATFORM_INPUTS)[M]>;

/** One item of the array `K` of a method's input, once parsed. */
export type PlatformRecord<
  M extends PlatformMethod,
  K extends keyof ParsedInput<M>,
> = ParsedInput<M>[K] extends (infer Item)[] ? Item : never;

/**
 * Parses the input of a method.
 *
 * @throws InputError if the input is not valid.
 */
export function parseInput<M extends PlatformMethod>(method: M, input: unknown): ParsedInput<M> {
  return check(method, PLATFORM_INPUTS[method], input) as ParsedInput<M>;
}

/**
 * Parses a message of the ingest queue: `{ method, input }`, or the same as a JSON string. The
 * input itself is left to `parseInput`.
 *
 * @throws InputError for anything else.
 */
export function parseRecordMessage(content: unknown): z.infer<typeof RecordMessage> {
  const value = typeof content === "string" ? parseJson(content) : content;
  return check("message", RecordMessage, value) as z.infer<typeof RecordMessage>;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message would quote the text.
    throw new InputError("message: not JSON");
  }
}

function check(what: string, schema: z.ZodType, value: unknown): unknown {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { issues } = result.error;
  const missing = issues.filter((issue) => isMissing(issue, value)).map(placeOf);
  const other = issues.find((issue) => !isMissing(issue, value));
  const faults = [
    ...(missing.length > 0 ? [describeMissing(missing)] : []),
    ...(other ? [`${other.path.length > 0 ? `${placeOf(other)}: ` : ""}${other.message}`] : []),
  ];
  throw new InputError(`${what}: ${faults.join("; ")}`);
}

/** Whether an issue is a required field that is missing. */
function isMissing({ code, path }: z.core.$ZodIssue, value: unknown): boolean {
  if (path.length === 0 || !(code === "invalid_type" || code === "invalid_value")) return false;
  const at = path.reduce<unknown>(
    (object, key) => (object as Record<PropertyKey, unknown>)[key],
    value,
  );
  return at === undefined;
}

/** Names the missing fields in one clause; of many, only the first few. */
function describeMissing(places: string[]): string {
  const named = places.slice(0, MISSING_NAMED_MAX).join(", ");
  const more = places.length - MISSING_NAMED_MAX;
  return `${named}${more > 0 ? ` and ${more} more` : ""} ${places.length > 1 ? "are" : "is"} missing`;
}

/** Where an issue is, such as `leads[0].agent.name`. */
function placeOf({ path }: z.core.$ZodIssue): string {
  return path.reduce<string>(
    (place, key) =>
      typeof key === "number" ? `${place}[${key}]` : `${place}${place && "."}${String(key)}`,
    "",
  );
}

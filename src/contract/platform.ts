import * as z from "zod";
import { API_KEYS_LIST, DELIVERIES_LIST, decodeCursor, WORKSPACES_LIST } from "./cursor.ts";
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
  SUBSCRIPTIONS_MAX,
} from "./limits.ts";
import { AutomationReport, EXAMPLES, Id, Instant, LeadReport, Name, RunReport } from "./reports.ts";
import { WebhookEvent } from "./resources.ts";

const WorkspaceId = Id.describe("wks_…");
const WebhookId = Id.describe("whk_…");
const EventId = Id.describe("evt_…");
const KeyId = Id.describe("key_…");

const RedeliverableSince = Instant.refine((since) => since >= Date.now() - REDELIVERY_MAX_AGE_MS, {
  error: "must be at most 30 days ago: older events are deleted",
  params: { reason: "out_of_range" },
});

/** So many missing fields are named in a message; of a hundred records there may be thousands. */
const MISSING_NAMED_MAX = 10;

const RedeliveryState = z.enum(["delivered", "exhausted", "cancelled", "missed"]);

/** The state of an event that may be redelivered; `missed` if it was never owed. */
export type RedeliveryState = z.infer<typeof RedeliveryState>;

function records<T extends z.ZodType>(item: T) {
  return z
    .array(
      item.refine(
        (value) => new TextEncoder().encode(JSON.stringify(value)).length <= RECORD_MAX_BYTES,
        `must be at most ${RECORD_MAX_BYTES} bytes of JSON`,
      ),
    )
    .min(1)
    .max(RECORDS_MAX);
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
    .nullish()
    .describe("the previous page's nextCursor; default: the first page");
}

const AdminEmails = z
  .array(z.email())
  .max(50)
  .nullish()
  .describe("who receives e-mails about failing and disabled subscriptions");
const Quota = z.int().min(1).max(1_000_000);

/**
 * The input of each method of the Platform door; the help shows these descriptions and examples.
 */
export const PLATFORM_INPUTS = {
  createWorkspace: z
    .strictObject({
      name: Name.describe("shown in e-mails to administrators"),
      adminEmails: AdminEmails,
    })
    .meta({
      description: "Creates a workspace that has access to the service.",
      examples: [{ name: "Agence Lumière", adminEmails: ["admin@example.com"] }],
    }),
  eraseWorkspace: z.strictObject({ workspaceId: WorkspaceId }).meta({
    description:
      "Erases a workspace and everything in it, starting with its keys. Call it until it is done; an unknown id is not an error.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  exportWorkspace: z
    .strictObject({
      workspaceId: WorkspaceId,
      cursor: z
        .string()
        .nullish()
        .describe("the previous page's nextCursor; default: the first page"),
    })
    .meta({
      description: "Exports everything stored about a workspace except secrets, page by page.",
      examples: [{ workspaceId: "wks_…" }],
    }),
  updateWorkspace: z
    .strictObject({
      workspaceId: WorkspaceId,
      name: Name.nullish().describe("shown in e-mails to administrators"),
      adminEmails: AdminEmails,
      webhooksMax: z
        .int()
        .min(1)
        .max(AGREED_SUBSCRIPTIONS_MAX)
        .nullish()
        .describe(`maximum subscriptions; ${SUBSCRIPTIONS_MAX} by default`),
    })
    .meta({
      description:
        "Changes a workspace's name, administrators or subscription limit; omitted fields stay as they are.",
      examples: [
        { workspaceId: "wks_…", adminEmails: ["admin@example.com"] },
        { workspaceId: "wks_…", webhooksMax: 50 },
      ],
    }),
  listWorkspaces: z.strictObject({ cursor: cursorOf(WORKSPACES_LIST) }).meta({
    description: "Lists workspaces, newest first, 100 per page.",
    examples: [{}],
  }),
  setWorkspaceAccess: z
    .strictObject({
      workspaceId: WorkspaceId,
      granted: z
        .boolean()
        .describe("false: its keys get 403 and its pending deliveries are cancelled"),
    })
    .meta({
      description: "Grants or revokes a workspace's access, at once.",
      examples: [{ workspaceId: "wks_…", granted: false }],
    }),
  createPortalLink: z
    .strictObject({
      workspaceId: WorkspaceId,
      validMinutes: z
        .int()
        .min(1)
        .max(PORTAL_LINK_MINUTES.max)
        .nullish()
        .describe("how long the link is valid; default: 60"),
    })
    .meta({
      description:
        "Creates a portal link. Anyone who has it can manage the workspace's webhooks until it expires.",
      examples: [{ workspaceId: "wks_…" }, { workspaceId: "wks_…", validMinutes: 15 }],
    }),
  createApiKey: z
    .strictObject({
      workspaceId: WorkspaceId,
      requestsPerWindow: Quota.nullish().describe("the key's own quota; default: QUOTA_REQUESTS"),
    })
    .meta({
      description: "Creates an API key for a workspace. The key is shown only once.",
      examples: [{ workspaceId: "wks_…" }, { workspaceId: "wks_…", requestsPerWindow: 6000 }],
    }),
  updateApiKey: z
    .strictObject({
      keyId: KeyId,
      requestsPerWindow: Quota.nullable().describe("the key's own quota; null: QUOTA_REQUESTS"),
    })
    .meta({
      description: "Changes a live API key's quota, at once.",
      examples: [{ keyId: "key_…", requestsPerWindow: 6000 }],
    }),
  rollApiKey: z
    .strictObject({
      keyId: KeyId,
      overlapSeconds: z
        .int()
        .min(0)
        .max(KEY_OVERLAP_MAX_SECONDS)
        .describe("how long the old key stays valid; 0 revokes it at once"),
    })
    .meta({
      description:
        "Replaces an API key; both keys are valid until the overlap ends. The new key is shown only once.",
      examples: [{ keyId: "key_…", overlapSeconds: 86_400 }],
    }),
  revokeApiKey: z
    .strictObject({
      keyId: KeyId.nullish(),
      apiKey: z
        .string()
        .max(100)
        .nullish()
        .describe("instead of keyId: the key itself, for instance one that has leaked"),
    })
    .refine(
      ({ keyId, apiKey }) => (keyId == null) !== (apiKey == null),
      "expected either keyId or apiKey",
    )
    .meta({
      description: "Revokes an API key for good, at once.",
      examples: [{ keyId: "key_…" }, { apiKey: "key_live_…" }],
    }),
  listApiKeys: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf(API_KEYS_LIST) }).meta({
    description:
      "Lists a workspace's API keys, including revoked ones, newest first, 100 per page.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  recordAutomations: z
    .strictObject({ workspaceId: WorkspaceId, automations: records(AutomationReport) })
    .meta({
      description:
        "Inserts or updates automations and announces activations and pauses. Returns the ids and how many are new.",
      examples: [{ workspaceId: "wks_…", automations: [EXAMPLES.automation] }],
    }),
  removeAutomations: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: z.array(Id).min(1).max(RECORDS_MAX).describe("aut_…"),
    })
    .meta({
      description:
        "Removes automations and their runs from the API. Returns how many were removed.",
      examples: [{ workspaceId: "wks_…", ids: ["aut_…"] }],
    }),
  recordLeads: z.strictObject({ workspaceId: WorkspaceId, leads: records(LeadReport) }).meta({
    description:
      "Inserts leads and announces them; a known reference changes nothing. Returns the ids and how many are new.",
    examples: [{ workspaceId: "wks_…", leads: [EXAMPLES.lead] }],
  }),
  eraseLeads: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: z.array(Id).min(1).max(RECORDS_MAX).describe("lea_…"),
    })
    .meta({
      description: "Erases leads with their events and deliveries; unknown ids are ignored.",
      examples: [{ workspaceId: "wks_…", ids: ["lea_…"] }],
    }),
  recordRuns: z.strictObject({ workspaceId: WorkspaceId, runs: records(RunReport) }).meta({
    description:
      "Inserts finished runs and announces them; a known reference changes nothing. Returns the ids and how many are new.",
    examples: [{ workspaceId: "wks_…", runs: [EXAMPLES.run] }],
  }),
  ledger: z
    .strictObject({ workspaceId: WorkspaceId.nullish().describe("default: all workspaces") })
    .meta({
      description: "Counts deliveries by state.",
      examples: [{}, { workspaceId: "wks_…" }],
    }),
  listWebhooks: z.strictObject({ workspaceId: WorkspaceId }).meta({
    description: "Lists a workspace's subscriptions, newest first, with their health.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  listDeliveries: z
    .strictObject({
      webhookId: WebhookId,
      state: z
        .enum(["pending", "delivered", "exhausted", "cancelled"])
        .nullish()
        .describe("only deliveries in this state"),
      type: WebhookEvent.nullish().describe("only deliveries of this kind of event"),
      limit: z
        .int()
        .min(PAGE_LIMIT.min)
        .max(PAGE_LIMIT.max)
        .nullish()
        .describe(`default: ${PAGE_LIMIT.default}`),
      cursor: cursorOf(DELIVERIES_LIST),
    })
    .meta({
      description: "Lists a subscription's deliveries, newest first.",
      examples: [{ webhookId: "whk_…" }, { webhookId: "whk_…", state: "exhausted", limit: 100 }],
    }),
  readDelivery: z.strictObject({ webhookId: WebhookId, eventId: EventId }).meta({
    description: "Shows a delivery, its failed attempts, and the exact body.",
    examples: [{ webhookId: "whk_…", eventId: "evt_…" }],
  }),
  redeliver: z
    .strictObject({
      webhookId: WebhookId,
      eventIds: z
        .array(EventId)
        .min(1)
        .max(RECORDS_MAX)
        .nullish()
        .describe("the events to redeliver"),
      since: RedeliverableSince.nullish().describe("or all events from this time on"),
      until: Instant.nullish().describe("and before this time; default: no end"),
      states: z
        .array(RedeliveryState)
        .min(1)
        .max(RedeliveryState.options.length)
        .nullish()
        .describe("only deliveries in these states; missed: never owed. Default: all"),
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
    })
    .meta({
      description:
        "Delivers events again, even delivered ones, with the same ids and bytes, at 10 per second.",
      examples: [
        { webhookId: "whk_…", eventIds: ["evt_…"] },
        { webhookId: "whk_…", since: "2026-11-01T00:00:00Z", states: ["exhausted", "cancelled"] },
      ],
    }),
  backlog: z
    .strictObject({ workspaceId: WorkspaceId.nullish().describe("default: all workspaces") })
    .meta({
      description: "Counts pending deliveries; cheaper than the ledger.",
      examples: [{}, { workspaceId: "wks_…" }],
    }),
  enableWebhook: z
    .strictObject({
      webhookId: WebhookId,
      redeliverSince: RedeliverableSince.nullish().describe(
        "also delivers events missed since this time, at most 30 days ago",
      ),
    })
    .meta({
      description:
        "Re-enables a disabled subscription. Returns how many events will be redelivered.",
      examples: [{ webhookId: "whk_…" }],
    }),
  sendTestEvent: z.strictObject({ webhookId: WebhookId, type: WebhookEvent }).meta({
    description: "Posts one sample event, marked as a test, and shows the receiver's answer.",
    examples: [{ webhookId: "whk_…", type: "lead.created" }],
  }),
  disableWebhook: z.strictObject({ webhookId: WebhookId }).meta({
    description: "Disables a subscription and cancels its pending deliveries.",
    examples: [{ webhookId: "whk_…" }],
  }),
  deleteWebhook: z.strictObject({ webhookId: WebhookId }).meta({
    description:
      "Deletes a subscription and cancels its pending deliveries. An unknown id is not an error.",
    examples: [{ webhookId: "whk_…" }],
  }),
  rotateWebhookSecret: z
    .strictObject({
      webhookId: WebhookId,
      overlapSeconds: z
        .int()
        .min(0)
        .max(SECRET_OVERLAP_SECONDS.max)
        .nullish()
        .describe("how long the old secret also signs; default: 24 h; 0 ends it at once"),
    })
    .meta({
      description:
        "Rotates a subscription's secret; both secrets sign until the overlap ends. The new one is shown only once.",
      examples: [{ webhookId: "whk_…" }, { webhookId: "whk_…", overlapSeconds: 3600 }],
    }),
  resealSecrets: z.strictObject({}).meta({
    description: "Re-encrypts up to 100 webhook secrets under the first encryption key.",
    examples: [{}],
  }),
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

/** One item of the array `K` of a method's input, once parsed. */
export type PlatformRecord<
  M extends PlatformMethod,
  K extends keyof z.output<(typeof PLATFORM_INPUTS)[M]>,
> = z.output<(typeof PLATFORM_INPUTS)[M]>[K] extends (infer Item)[] ? Item : never;

/**
 * Parses the input of a method.
 *
 * @throws InputError if the input is not valid.
 */
export function readInput<M extends PlatformMethod>(
  method: M,
  input: unknown,
): z.output<(typeof PLATFORM_INPUTS)[M]> {
  return read(method, PLATFORM_INPUTS[method], input) as z.output<(typeof PLATFORM_INPUTS)[M]>;
}

/**
 * Parses a message of the ingest queue: `{ method, input }`, or the same as a JSON string. The
 * input itself is left to `readInput`.
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
    // The parser's own message would quote the text.
    throw new InputError("message: not JSON");
  }
}

function read(what: string, schema: z.ZodType, value: unknown): unknown {
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

/** Whether an issue tells of a field that is expected and is not there. */
function isMissing({ code, path }: z.core.$ZodIssue, value: unknown): boolean {
  if (path.length === 0 || !(code === "invalid_type" || code === "invalid_value")) return false;
  const at = path.reduce<unknown>(
    (object, key) => (object as Record<PropertyKey, unknown>)[key],
    value,
  );
  return at === undefined;
}

/** Names the missing fields in one clause, the first few of many. */
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

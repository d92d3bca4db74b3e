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
const Binding = z.string().min(1).max(20);

const RedeliverableSince = Instant.refine((since) => since >= Date.now() - REDELIVERY_MAX_AGE_MS, {
  error: "must be at most 30 days ago: older events are deleted",
  params: { reason: "out_of_range" },
});

/** So many missing fields are named in a message; of a hundred records there may be thousands. */
const MISSING_NAMED_MAX = 10;

const RedeliveryState = z.enum(["delivered", "exhausted", "cancelled", "missed"]);

/** What may have become of an event that is delivered again; `missed` when nothing was owed. */
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

/** Where a page begins: the `nextCursor` of the one before. */
function cursorOf(list: string) {
  return z
    .string()
    .transform((text, context) => {
      const position = decodeCursor(list, text);
      if (position) return position;
      context.addIssue({ code: "custom", message: "is no cursor of this list" });
      return z.NEVER;
    })
    .nullish()
    .describe("nextCursor of the page before; the first page when left out");
}

const AdminEmails = z
  .array(z.email())
  .max(50)
  .nullish()
  .describe("who is told when a subscription is disabled");
const Quota = z.int().min(1).max(1_000_000);

/** What each method of the Platform door takes; the sentences and examples are those of its help. */
export const PLATFORM_INPUTS = {
  createWorkspace: z
    .strictObject({
      name: Name.describe("administrators read it in e-mails"),
      adminEmails: AdminEmails,
      database: Binding.nullish().describe(
        "binding of the database to live in; the one with the most room when left out",
      ),
    })
    .meta({
      description: "Creates a workspace that has access to the service.",
      examples: [{ name: "Agence Lumière", adminEmails: ["admin@example.com"] }],
    }),
  eraseWorkspace: z.strictObject({ workspaceId: WorkspaceId }).meta({
    description:
      "Erases a workspace and all of it, its keys first; call it again until it is done. An unknown id is no error.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  exportWorkspace: z
    .strictObject({
      workspaceId: WorkspaceId,
      cursor: z
        .string()
        .nullish()
        .describe("nextCursor of the page before; the first page when left out"),
    })
    .meta({
      description: "Exports all that is kept about a workspace, but for secrets, page by page.",
      examples: [{ workspaceId: "wks_…" }],
    }),
  updateWorkspace: z
    .strictObject({
      workspaceId: WorkspaceId,
      name: Name.nullish().describe("administrators read it in e-mails"),
      adminEmails: AdminEmails,
      webhooksMax: z
        .int()
        .min(1)
        .max(AGREED_SUBSCRIPTIONS_MAX)
        .nullish()
        .describe(`subscriptions that it may have; ${SUBSCRIPTIONS_MAX} unless told`),
    })
    .meta({
      description: "Changes a workspace's name, administrators or limit; what is left out stays.",
      examples: [
        { workspaceId: "wks_…", adminEmails: ["admin@example.com"] },
        { workspaceId: "wks_…", webhooksMax: 50 },
      ],
    }),
  listWorkspaces: z.strictObject({ cursor: cursorOf(WORKSPACES_LIST) }).meta({
    description: "Lists workspaces, newest first, 100 a page.",
    examples: [{}],
  }),
  databases: z.strictObject({}).meta({
    description:
      "Lists the databases that are bound, how full each is, and for how long there is room.",
    examples: [{}],
  }),
  moveWorkspace: z
    .strictObject({
      workspaceId: WorkspaceId,
      database: Binding.describe("binding of the database to move to"),
    })
    .meta({
      description:
        "Moves a workspace to another database while it is in use; call it again until it is done.",
      examples: [{ workspaceId: "wks_…", database: "DB_2" }],
    }),
  setWorkspaceAccess: z
    .strictObject({
      workspaceId: WorkspaceId,
      granted: z.boolean().describe("false: its keys get 403, and its deliveries are cancelled"),
    })
    .meta({
      description: "Grants or denies a workspace access, at once.",
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
        .describe("how long the link is good; an hour when left out"),
    })
    .meta({
      description:
        "Makes a link to the portal: whoever has it manages the workspace's webhooks for that time.",
      examples: [{ workspaceId: "wks_…" }, { workspaceId: "wks_…", validMinutes: 15 }],
    }),
  createApiKey: z
    .strictObject({
      workspaceId: WorkspaceId,
      requestsPerWindow: Quota.nullish().describe(
        "the key's own quota; QUOTA_REQUESTS when left out",
      ),
    })
    .meta({
      description: "Creates an API key of a workspace and shows it this once.",
      examples: [{ workspaceId: "wks_…" }, { workspaceId: "wks_…", requestsPerWindow: 6000 }],
    }),
  updateApiKey: z
    .strictObject({
      keyId: KeyId,
      requestsPerWindow: Quota.nullable().describe("the key's own quota; null: QUOTA_REQUESTS"),
    })
    .meta({
      description: "Gives a live API key another quota, at once.",
      examples: [{ keyId: "key_…", requestsPerWindow: 6000 }],
    }),
  rollApiKey: z
    .strictObject({
      keyId: KeyId,
      overlapSeconds: z
        .int()
        .min(0)
        .max(KEY_OVERLAP_MAX_SECONDS)
        .describe("how long the old key is still good; 0 revokes it at once"),
    })
    .meta({
      description:
        "Replaces an API key and shows the new one this once; both are good until the overlap ends.",
      examples: [{ keyId: "key_…", overlapSeconds: 86_400 }],
    }),
  revokeApiKey: z
    .strictObject({
      keyId: KeyId.nullish(),
      apiKey: z
        .string()
        .max(100)
        .nullish()
        .describe("instead of keyId: the key itself, as when it has leaked"),
    })
    .refine(
      ({ keyId, apiKey }) => (keyId == null) !== (apiKey == null),
      "either keyId or apiKey is expected",
    )
    .meta({
      description: "Revokes an API key for good, at once.",
      examples: [{ keyId: "key_…" }, { apiKey: "key_live_…" }],
    }),
  listApiKeys: z.strictObject({ workspaceId: WorkspaceId, cursor: cursorOf(API_KEYS_LIST) }).meta({
    description:
      "Lists the API keys of a workspace, revoked ones included, newest first, 100 a page.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  recordAutomations: z
    .strictObject({ workspaceId: WorkspaceId, automations: records(AutomationReport) })
    .meta({
      description:
        "Inserts automations or brings them up to date, and announces activations and pauses; gives the ids, and how many are new.",
      examples: [{ workspaceId: "wks_…", automations: [EXAMPLES.automation] }],
    }),
  removeAutomations: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: z.array(Id).min(1).max(RECORDS_MAX).describe("aut_…"),
    })
    .meta({
      description: "Removes automations, and their runs, from the API; gives how many were there.",
      examples: [{ workspaceId: "wks_…", ids: ["aut_…"] }],
    }),
  recordLeads: z.strictObject({ workspaceId: WorkspaceId, leads: records(LeadReport) }).meta({
    description:
      "Inserts leads and announces them; a known reference changes nothing. Gives the ids, and how many are new.",
    examples: [{ workspaceId: "wks_…", leads: [EXAMPLES.lead] }],
  }),
  eraseLeads: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: z.array(Id).min(1).max(RECORDS_MAX).describe("lea_…"),
    })
    .meta({
      description:
        "Erases leads, the events that tell of them and their deliveries; unknown ids are no error.",
      examples: [{ workspaceId: "wks_…", ids: ["lea_…"] }],
    }),
  recordRuns: z.strictObject({ workspaceId: WorkspaceId, runs: records(RunReport) }).meta({
    description:
      "Inserts finished runs and announces them; a known reference changes nothing. Gives the ids, and how many are new.",
    examples: [{ workspaceId: "wks_…", runs: [EXAMPLES.run] }],
  }),
  ledger: z
    .strictObject({
      workspaceId: WorkspaceId.nullish().describe("all, when left out"),
      database: Binding.nullish().describe("of one database: its binding"),
    })
    .meta({
      description: "Counts the deliveries by state.",
      examples: [{}, { workspaceId: "wks_…" }],
    }),
  listWebhooks: z.strictObject({ workspaceId: WorkspaceId }).meta({
    description: "Lists the subscriptions of a workspace, newest first, with their health.",
    examples: [{ workspaceId: "wks_…" }],
  }),
  listDeliveries: z
    .strictObject({
      webhookId: WebhookId,
      state: z
        .enum(["pending", "delivered", "exhausted", "cancelled"])
        .nullish()
        .describe("only those in this state"),
      type: WebhookEvent.nullish().describe("only those of this kind of event"),
      limit: z
        .int()
        .min(PAGE_LIMIT.min)
        .max(PAGE_LIMIT.max)
        .nullish()
        .describe(`${PAGE_LIMIT.default} when left out`),
      cursor: cursorOf(DELIVERIES_LIST),
    })
    .meta({
      description: "Lists the deliveries to a subscription, newest first.",
      examples: [{ webhookId: "whk_…" }, { webhookId: "whk_…", state: "exhausted", limit: 100 }],
    }),
  readDelivery: z.strictObject({ webhookId: WebhookId, eventId: EventId }).meta({
    description: "Shows a delivery, every failed attempt at it, and the exact body.",
    examples: [{ webhookId: "whk_…", eventId: "evt_…" }],
  }),
  redeliver: z
    .strictObject({
      webhookId: WebhookId,
      eventIds: z.array(EventId).min(1).max(RECORDS_MAX).nullish().describe("these events"),
      since: RedeliverableSince.nullish().describe("or those from then on"),
      until: Instant.nullish().describe("and before then; no end when left out"),
      states: z
        .array(RedeliveryState)
        .min(1)
        .max(RedeliveryState.options.length)
        .nullish()
        .describe("what became of them; missed: nothing was owed. All when left out"),
    })
    .superRefine(({ eventIds, since, until, states }, context) => {
      const fault = (path: string, message: string) =>
        context.addIssue({ code: "custom", path: [path], message });
      if (eventIds == null && since == null)
        return fault("eventIds", "either these or since is needed");
      if (eventIds == null) return;
      if (since != null) fault("since", "goes without eventIds");
      if (until != null) fault("until", "goes without eventIds");
      if (states != null) fault("states", "goes without eventIds");
    })
    .meta({
      description:
        "Delivers events once more, delivered ones too: same ids and bytes, 10 a second.",
      examples: [
        { webhookId: "whk_…", eventIds: ["evt_…"] },
        { webhookId: "whk_…", since: "2026-11-01T00:00:00Z", states: ["exhausted", "cancelled"] },
      ],
    }),
  backlog: z
    .strictObject({
      workspaceId: WorkspaceId.nullish().describe("all, when left out"),
      database: Binding.nullish().describe("of one database: its binding"),
    })
    .meta({
      description: "Counts what waits to be delivered; cheaper than the ledger.",
      examples: [{}, { workspaceId: "wks_…" }],
    }),
  enableWebhook: z
    .strictObject({
      webhookId: WebhookId,
      redeliverSince: RedeliverableSince.nullish().describe(
        "also delivers what was missed since then, 30 days back at the most",
      ),
    })
    .meta({
      description:
        "Makes a disabled subscription active again; gives how many events it will be sent again.",
      examples: [{ webhookId: "whk_…" }],
    }),
  sendTestEvent: z.strictObject({ webhookId: WebhookId, type: WebhookEvent }).meta({
    description: "Posts a labelled sample now, once, and says what the server answered.",
    examples: [{ webhookId: "whk_…", type: "lead.created" }],
  }),
  disableWebhook: z.strictObject({ webhookId: WebhookId }).meta({
    description: "Disables a subscription; what it is still owed is cancelled.",
    examples: [{ webhookId: "whk_…" }],
  }),
  deleteWebhook: z.strictObject({ webhookId: WebhookId }).meta({
    description:
      "Deletes a subscription; what it is still owed is cancelled. An unknown id is no error.",
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
        .describe("how long the old one signs too; 24 h when left out; 0 ends it at once"),
    })
    .meta({
      description:
        "Gives a subscription a new secret and shows it this once; both sign for a time.",
      examples: [{ webhookId: "whk_…" }, { webhookId: "whk_…", overlapSeconds: 3600 }],
    }),
  resealSecrets: z.strictObject({}).meta({
    description: "Seals up to 100 webhook secrets under the first encryption key.",
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

/** What a call that records gives. */
export interface Recorded {
  /** Identifiers of its records, in the order of the input. */
  ids: string[];
  /**
   * How many of them are new: inserted by this call. Where the service had to commit the call twice,
   * because D1 lost the reply to the first try, those of the first try are not counted.
   */
  created: number;
}

/** When a call is recorded, in Unix milliseconds. */
export interface Moment {
  /** When it was sent, of one that may have waited in a queue since; `null`: just now. */
  sentAt: number | null;
  now: number;
}

/** The input of a method, as its caller writes it. */
export type PlatformInput<M extends PlatformMethod> = z.input<(typeof PLATFORM_INPUTS)[M]>;

/** One item of the array `K` of a method's input, once it has been read. */
export type PlatformRecord<
  M extends PlatformMethod,
  K extends keyof z.output<(typeof PLATFORM_INPUTS)[M]>,
> = z.output<(typeof PLATFORM_INPUTS)[M]>[K] extends (infer Item)[] ? Item : never;

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

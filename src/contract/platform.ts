import { z } from "zod";
import {
  RECORD_MAX_BYTES,
  RECORD_MAX_QUOTED_BYTES,
  RECORDS_MAX,
  REDELIVERY_MAX_AGE_MS,
} from "./limits.ts";
import { AutomationReport, EXAMPLES, Id, Instant, LeadReport, Name, RunReport } from "./reports.ts";

const WorkspaceId = Id.describe("wks_…");

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

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** What each method of the Platform door takes; the sentences and examples are those of its help. */
export const PLATFORM_INPUTS = {
  createWorkspace: z
    .strictObject({
      name: Name.describe("administrators read it in e-mails"),
      adminEmails: z
        .array(z.email())
        .max(50)
        .nullish()
        .describe("who is told when a subscription fails for long, and when it is disabled"),
    })
    .meta({
      description: "Creates a workspace that has access to the service.",
      examples: [{ name: "Agence Lumière", adminEmails: ["admin@example.com"] }],
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
  createApiKey: z
    .strictObject({
      workspaceId: WorkspaceId,
      requestsPerWindow: z
        .int()
        .min(1)
        .max(1_000_000)
        .nullish()
        .describe("the key's own quota; QUOTA_REQUESTS when left out"),
    })
    .meta({
      description: "Creates an API key of a workspace and shows it this once.",
      examples: [{ workspaceId: "wks_…" }, { workspaceId: "wks_…", requestsPerWindow: 6000 }],
    }),
  revokeApiKey: z.strictObject({ keyId: Id.describe("key_…") }).meta({
    description: "Revokes an API key for good, at once.",
    examples: [{ keyId: "key_…" }],
  }),
  recordAutomations: z
    .strictObject({ workspaceId: WorkspaceId, automations: records(AutomationReport) })
    .meta({
      description:
        "Inserts automations or brings them up to date; announces activations and pauses.",
      examples: [{ workspaceId: "wks_…", automations: [EXAMPLES.automation] }],
    }),
  removeAutomations: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: z.array(Id).min(1).max(RECORDS_MAX).describe("aut_…"),
    })
    .meta({
      description: "Removes automations, and their runs, from the API.",
      examples: [{ workspaceId: "wks_…", ids: ["aut_…"] }],
    }),
  recordLeads: z.strictObject({ workspaceId: WorkspaceId, leads: records(LeadReport) }).meta({
    description: "Inserts leads and announces them; a known reference changes nothing.",
    examples: [{ workspaceId: "wks_…", leads: [EXAMPLES.lead] }],
  }),
  recordRuns: z.strictObject({ workspaceId: WorkspaceId, runs: records(RunReport) }).meta({
    description: "Inserts finished runs and announces them; a known reference changes nothing.",
    examples: [{ workspaceId: "wks_…", runs: [EXAMPLES.run] }],
  }),
  ledger: z
    .strictObject({ workspaceId: WorkspaceId.nullish().describe("all, when left out") })
    .meta({
      description: "Counts the deliveries by state.",
      examples: [{}, { workspaceId: "wks_…" }],
    }),
  enableWebhook: z
    .strictObject({
      webhookId: Id.describe("whk_…"),
      redeliverSince: Instant.refine(
        (since) => since >= Date.now() - REDELIVERY_MAX_AGE_MS,
        "must be at most 30 days ago: older events are deleted",
      )
        .nullish()
        .describe("also delivers what was missed since then, 30 days back at the most"),
    })
    .meta({
      description: "Makes a disabled subscription active again.",
      examples: [{ webhookId: "whk_…" }],
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

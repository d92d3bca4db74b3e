import { z } from "@hono/zod-openapi";
import {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
} from "../../contract/enumerations.ts";
import { AutomationId, LeadId, several, WorkspaceId } from "../../contract/fields.ts";
import { RECORD_MAX_BYTES } from "../../contract/limits.ts";
import { Instant, Name, Reference, text } from "../../primitives/text.ts";
import { REPORTED_PERSON } from "../person.ts";

const now = "default: now";

const Agent = z
  .strictObject({
    reference: Reference.describe("your own id"),
    name: Name.describe("as the app shows it"),
  })
  .describe("the agent it belongs to");

const AutomationReport = z
  .strictObject({
    reference: Reference.describe("your own id; reporting it again updates the automation"),
    type: AutomationType,
    provider: Name.describe("the connector, such as facebook"),
    agent: Agent,
    name: Name.nullish().describe("for crm_source only; social automations get a composed name"),
    status: AutomationStatus,
    updatedAt: Instant.nullish().describe(now),
  })
  .refine(({ type, name }) => type !== "crm_source" || name, {
    path: ["name"],
    message: "required for a crm_source automation",
  });

const recordedOnce = Reference.describe("your own id; a known one changes nothing");

const LeadReport = z.strictObject({
  reference: recordedOnce,
  source: LeadSource,
  agent: Agent,
  ...REPORTED_PERSON,
  createdAt: Instant.nullish().describe(now),
});

const RunReport = z.strictObject({
  reference: recordedOnce,
  automationId: AutomationId.describe("aut_…, of this workspace"),
  status: RunStatus,
  triggerType: TriggerType,
  occurredAt: Instant.nullish().describe(now),
  actions: z
    .array(z.strictObject({ type: text(200).optional(), status: text(200).optional() }))
    .max(100)
    .nullish(),
  leadId: LeadId.nullish().describe("lea_…, of this workspace"),
});

function records<T extends z.ZodType>(item: T) {
  return several(
    item.refine(
      (value) => new TextEncoder().encode(JSON.stringify(value)).length <= RECORD_MAX_BYTES,
      `must be at most ${RECORD_MAX_BYTES} bytes of JSON`,
    ),
  );
}

/** The input of each method that records what the platform produces. */
export const RECORDING_INPUTS = {
  recordAutomations: z.strictObject({
    workspaceId: WorkspaceId,
    automations: records(AutomationReport),
  }),
  removeAutomations: z.strictObject({
    workspaceId: WorkspaceId,
    ids: several(AutomationId).describe("aut_…"),
  }),
  recordLeads: z.strictObject({ workspaceId: WorkspaceId, leads: records(LeadReport) }),
  recordRuns: z.strictObject({ workspaceId: WorkspaceId, runs: records(RunReport) }),
};

export type RecordingMethod = keyof typeof RECORDING_INPUTS;
/** The parsed input of a recording method. */
export type RecordingInput<M extends RecordingMethod> = z.output<(typeof RECORDING_INPUTS)[M]>;
export type AutomationReport = z.output<typeof AutomationReport>;
export type LeadReport = z.output<typeof LeadReport>;
export type RunReport = z.output<typeof RunReport>;

import { z } from "@hono/zod-openapi";
import { sendWakeUps } from "../delivery/messages.ts";
import { CONFLICT_TRIES } from "../recording/automation-changes.ts";
import {
  AutomationRecording,
  AutomationRemoval,
  planAutomations,
  planRemoval,
} from "../recording/automation-recording.ts";
import { LeadRecording, planLeads } from "../recording/lead-recording.ts";
import { type CallContext, type RecordingPlan, record } from "../recording/record.ts";
import { planRuns, RunRecording } from "../recording/run-recording.ts";
import { type Call, operation } from "./operation.ts";

const workspaceId = "wks_…";
const agent = { reference: "lyon", name: "Agence Lumière Lyon" };

const Recorded = z.object({
  ids: z.array(z.string()).describe("ids of the records, in input order"),
  created: z.int().describe("number of new records; too low if the reply to a first try was lost"),
});

export const recordAutomations = operation({
  about: "Inserts or updates automations and announces activations and pauses.",
  input: AutomationRecording,
  output: Recorded,
  examples: [
    {
      workspaceId,
      automations: [
        {
          reference: "page-7",
          type: "social_comments",
          provider: "facebook",
          agent,
          status: "active",
        },
      ],
    },
  ],
  skipsAuditTrail: true,
  async run(call, input) {
    for (let tries = 0; tries < CONFLICT_TRIES; tries++) {
      const { ids, changed } = await recordAndWake(call, planAutomations, input);
      if (changed !== "conflict") return { ids, created: changed };
    }
    throw new Error("other calls changed the automations during every try");
  },
});

export const removeAutomations = operation({
  about: "Removes automations and their runs from the API.",
  input: AutomationRemoval,
  output: z.object({ removed: z.int() }),
  examples: [{ workspaceId, ids: ["aut_…"] }],
  async run(call, input) {
    const { changed } = await recordAndWake(call, planRemoval, input);
    return { removed: changed };
  },
});

export const recordLeads = operation({
  about: "Inserts leads and announces them; a known reference changes nothing.",
  input: LeadRecording,
  output: Recorded,
  examples: [
    { workspaceId, leads: [{ reference: "crm-1", source: "crm", agent, name: "Camille Durand" }] },
  ],
  skipsAuditTrail: true,
  async run(call, input) {
    const { ids, changed } = await recordAndWake(call, planLeads, input);
    return { ids, created: changed };
  },
});

export const recordRuns = operation({
  about: "Inserts finished runs and announces them; a known reference changes nothing.",
  input: RunRecording,
  output: Recorded,
  examples: [
    {
      workspaceId,
      runs: [
        {
          reference: "run-1",
          automationId: "aut_…",
          status: "success",
          triggerType: "comment",
          leadId: "lea_…",
        },
      ],
    },
  ],
  skipsAuditTrail: true,
  async run(call, input) {
    const { ids, changed } = await recordAndWake(call, planRuns, input);
    return { ids, created: changed };
  },
});

/**
 * Records a call. Wakes all subscriptions of the workspace that need it, such as those that get the call's events,
 * without making the caller wait.
 */
async function recordAndWake<Input extends { workspaceId: string }, Changed>(
  { env, ctx }: Call,
  plan: (input: Input, context: CallContext) => Promise<RecordingPlan<Changed>>,
  input: Input,
): Promise<{ ids: string[]; changed: Changed }> {
  const { ids, changed, database, wakeUps } = await record(env, plan, input, Date.now());
  ctx.waitUntil(sendWakeUps(env, database, wakeUps));
  return { ids, changed };
}

import { z } from "@hono/zod-openapi";
import { sendWakeUps } from "../delivery/messages.ts";
import {
  RECORDING_INPUTS,
  type RecordingInput,
  type RecordingMethod,
} from "../records/recording/inputs.ts";
import { record } from "../records/recording/record.ts";
import { type Call, operation } from "./operation.ts";

const workspaceId = "wks_…";
const agent = { reference: "lyon", name: "Agence Lumière Lyon" };

const Recorded = z.object({
  ids: z.array(z.string()).describe("ids of the records, in input order"),
  created: z.int().describe("number of new records; too low if the reply to a first try was lost"),
});

export const recordAutomations = operation({
  about: "Inserts or updates automations and announces activations and pauses.",
  input: RECORDING_INPUTS.recordAutomations,
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
  run: async (call, input) => toRecorded(await recordAndWake(call, "recordAutomations", input)),
});

export const removeAutomations = operation({
  about: "Removes automations and their runs from the API.",
  input: RECORDING_INPUTS.removeAutomations,
  output: z.object({ removed: z.int() }),
  examples: [{ workspaceId, ids: ["aut_…"] }],
  async run(call, input) {
    return { removed: (await recordAndWake(call, "removeAutomations", input)).changed };
  },
});

export const recordLeads = operation({
  about: "Inserts leads and announces them; a known reference changes nothing.",
  input: RECORDING_INPUTS.recordLeads,
  output: Recorded,
  examples: [
    { workspaceId, leads: [{ reference: "crm-1", source: "crm", agent, name: "Camille Durand" }] },
  ],
  run: async (call, input) => toRecorded(await recordAndWake(call, "recordLeads", input)),
});

export const recordRuns = operation({
  about: "Inserts finished runs and announces them; a known reference changes nothing.",
  input: RECORDING_INPUTS.recordRuns,
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
  run: async (call, input) => toRecorded(await recordAndWake(call, "recordRuns", input)),
});

/**
 * Records a call. Wakes all subscriptions of the workspace that have something due, such as its events, without making
 * the caller wait.
 */
async function recordAndWake<M extends RecordingMethod>(
  { env, ctx }: Call,
  method: M,
  input: RecordingInput<M>,
): Promise<{ ids: string[]; changed: number }> {
  const { ids, changed, database, wakeUps } = await record(env, method, input, Date.now());
  ctx.waitUntil(sendWakeUps(env, database, wakeUps));
  return { ids, changed };
}

function toRecorded({ ids, changed }: { ids: string[]; changed: number }) {
  return { ids, created: changed };
}

import { z } from "@hono/zod-openapi";
import { Budget } from "../db/budget.ts";
import { openDatabase } from "../db/databases.ts";
import { TemporaryError } from "../db/errors.ts";
import { CONFLICT_TRIES } from "../recording/automation-changes.ts";
import {
  AutomationRecording,
  AutomationRemoval,
  planAutomations,
  planRemoval,
} from "../recording/automation-recording.ts";
import { LeadRecording, planLeads } from "../recording/lead-recording.ts";
import { record } from "../recording/record.ts";
import { planRuns, RunRecording } from "../recording/run-recording.ts";
import { deleteRemovedRuns } from "../records/removals.ts";
import { operation } from "./operation.ts";

/** How long one call of `removeAutomations` deletes runs. */
const REMOVAL_MAX_MS = 20_000;

const workspaceId = "wks_…";
const agent = { reference: "lyon", name: "Agence Lumière Lyon" };

const Recorded = z.object({
  ids: z.array(z.string()).describe("ids of the records, in input order"),
  created: z.int().describe("number of new records; too low if the reply to a first try was lost"),
});

export const recordAutomations = operation({
  about: "Inserts or updates automations, and emits an event for each activation and pause.",
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
      const { ids, changed } = await record(call, planAutomations, input);
      if (changed !== "conflict") return { ids, created: changed };
    }
    throw new TemporaryError("other calls changed the automations during every try");
  },
});

export const removeAutomations = operation({
  about:
    "Removes automations, and deletes their runs. The automations are gone from the API with the first call, their runs piece by piece: call it until it is done, as the command in a terminal does. Events that were recorded before are sent.",
  input: AutomationRemoval,
  output: z.object({ done: z.boolean().describe("no run of them is left") }),
  examples: [{ workspaceId, ids: ["aut_…"] }],
  async run(call, input) {
    const budget = new Budget(REMOVAL_MAX_MS);
    const env = budget.meter(call.env);
    const { ids, database } = await record({ ...call, env }, planRemoval, input);
    const db = openDatabase(env, database);
    const hasMore = () => budget.hasMore();
    return { done: await deleteRemovedRuns(db, input.workspaceId, ids, hasMore) };
  },
});

export const recordLeads = operation({
  about: "Inserts leads, and emits an event for each; a known reference changes nothing.",
  input: LeadRecording,
  output: Recorded,
  examples: [
    { workspaceId, leads: [{ reference: "crm-1", source: "crm", agent, name: "Camille Durand" }] },
  ],
  skipsAuditTrail: true,
  async run(call, input) {
    const { ids, changed } = await record(call, planLeads, input);
    return { ids, created: changed };
  },
});

export const recordRuns = operation({
  about: "Inserts finished runs, and emits an event for each; a known reference changes nothing.",
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
    const { ids, changed } = await record(call, planRuns, input);
    return { ids, created: changed };
  },
});

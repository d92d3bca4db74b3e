import { parseInput } from "../../src/contract/input.ts";
import type { WakeUpMessage } from "../../src/delivery/wake.ts";
import type { PlatformInput } from "../../src/platform/operations.ts";
import {
  AutomationRecording,
  AutomationRemoval,
  planAutomations,
  planRemoval,
} from "../../src/recording/automation-recording.ts";
import { LeadRecording, planLeads } from "../../src/recording/lead-recording.ts";
import { record as recordParsed } from "../../src/recording/record.ts";
import { planRuns, RunRecording } from "../../src/recording/run-recording.ts";
import { WORKSPACE_DB } from "./placement.ts";

const RECORDINGS = {
  recordAutomations: { input: AutomationRecording, plan: planAutomations },
  removeAutomations: { input: AutomationRemoval, plan: planRemoval },
  recordLeads: { input: LeadRecording, plan: planLeads },
  recordRuns: { input: RunRecording, plan: planRuns },
};

/**
 * Records a call as the Platform API would, at a time that the test chooses. It is not planned again after a conflict, and
 * its wake-up messages are returned rather than sent.
 */
export async function record<M extends keyof typeof RECORDINGS>(
  env: Env,
  method: M,
  input: PlatformInput<M>,
  now: number,
) {
  const { input: schema, plan } = RECORDINGS[method];
  const parsed = parseInput(schema as typeof LeadRecording, input, method);
  const wakeUps: WakeUpMessage[] = [];
  const queue = {
    sendBatch: async (messages: MessageSendRequest<WakeUpMessage>[]) =>
      void wakeUps.push(...messages.map(({ body }) => body)),
  } as unknown as Queue;
  const background: Promise<unknown>[] = [];
  const call = {
    env: { ...env, DELIVERIES: queue, SLOW_DELIVERIES: queue },
    ctx: { waitUntil: (work: Promise<unknown>) => void background.push(work) },
  };
  const recorded = await recordParsed(call, plan as typeof planLeads, parsed, now);
  await Promise.all(background);
  return { ...recorded, wakeUps };
}

/** Damages the stored personal data of a lead, so that no key decrypts it. */
export async function damageLead(id = ""): Promise<void> {
  // The row is replaced, because a lead cannot be updated.
  await WORKSPACE_DB.prepare(`
    INSERT OR REPLACE INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
    SELECT id, workspace_id, reference, source, agent_id, zeroblob(60), created_at, event_id FROM leads WHERE id = ?`)
    .bind(id)
    .run();
}

/** Inserts leads that no event announced and no key decrypts, newer than all others. */
export async function fillLeads(workspaceId: string, count: number, bytes = 1): Promise<void> {
  await WORKSPACE_DB.prepare(`
    INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
    SELECT 'lea_' || ?1 || n, ?1, n, 'crm', 'agt_1', zeroblob(?3), 9e12 + n, '' FROM numbers`)
    .bind(workspaceId, count, bytes)
    .run();
}

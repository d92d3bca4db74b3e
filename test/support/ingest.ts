import { createExecutionContext, createMessageBatch, getQueueResult } from "cloudflare:test";
import { expect, vi } from "vitest";
import type { PlatformInput } from "../../src/platform/operations.ts";
import { ingest } from "../../src/records/ingest/consumer.ts";
import type { Lead } from "../../src/records/leads.ts";
import type { RecordingMethod } from "../../src/records/recording/inputs.ts";
import type { Run } from "../../src/records/runs.ts";
import { eventsOf, leadReport, openListeningWorkspace, runReport } from "./api.ts";
import { isolated } from "./deliveries.ts";

/** What the consumer of the dead-letter queue would get. */
export interface DeadLetter {
  reason: string;
  method?: string;
  message: unknown;
}

/** The body of a message of `platform-records`. */
export function call<M extends RecordingMethod>(method: M, input: PlatformInput<M>) {
  return { method, input };
}

/** The deployment with a dead-letter queue that keeps what it is given. */
export function deployment(overrides: Partial<Env> = {}) {
  const dead: DeadLetter[] = [];
  const DEAD_RECORDS = {
    send: async (body: DeadLetter) => void dead.push(JSON.parse(JSON.stringify(body))),
  } as unknown as Queue;
  return { dead, ...isolated({ DEAD_RECORDS, ...overrides }) };
}

/**
 * Passes a batch to the ingest queue, its messages numbered from 0. Returns those that were
 * acknowledged, and the seconds until the others come back.
 */
export async function ingestBodies(
  bodies: unknown[],
  bindings: Env,
  attempts = 1,
  sentAt = new Date(),
) {
  const messages = bodies.map((body, i) => ({
    id: String(i),
    timestamp: sentAt,
    attempts,
    body,
  }));
  const batch = createMessageBatch("platform-records", messages);
  const waits = batch.messages.map((message) => vi.spyOn(message, "retry"));
  await ingest(batch.messages, bindings);
  const { outcome, ackAll, retryBatch, explicitAcks, retryMessages } = await getQueueResult(
    batch,
    createExecutionContext(),
  );
  expect({ outcome, ackAll, retryBatch }).toEqual(EXPLICIT);
  const retried = retryMessages.map(({ msgId }: { msgId: string }) => Number(msgId));
  return {
    acknowledged: explicitAcks.map(Number),
    retried: Object.fromEntries(
      retried.map((i: number) => [i, waits[i]?.mock.calls[0]?.[0]?.delaySeconds]),
    ) as Record<number, number>,
  };
}

/** Each message gets its own verdict. */
const EXPLICIT = { outcome: "ok", ackAll: false, retryBatch: { retry: false } };

/** A workspace, what it shows, and messages that record in it. */
export async function openSource() {
  const { workspaceId, api } = await openListeningWorkspace();
  return {
    workspaceId,
    api,
    lead: (reference: string) =>
      call("recordLeads", { workspaceId, leads: [leadReport(reference)] }),
    run: (reference: string, automationId: string) =>
      call("recordRuns", { workspaceId, runs: [runReport(reference, automationId)] }),
    leads: async () => (await api.get<{ data: Lead[] }>("/v1/leads?limit=100")).body.data,
    runs: async () => (await api.get<{ data: Run[] }>("/v1/runs?limit=100")).body.data,
    /** The kinds of its events. */
    announced: async () => (await eventsOf(workspaceId)).map(({ type }) => type),
  };
}

import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import type { Meters } from "./worker.ts";

/** The cost of delivering in billed units, for one shape of traffic. */
export interface Cost {
  events: number;
  deliveries: number;
  batches: number;
  /** D1 round trips of the consumer, per invocation: claim and settle. */
  roundTripsPerBatch: number;
  /** All of the following: from the record to the settled delivery, per delivery. */
  roundTripsPerDelivery: number;
  rowsReadPerDelivery: number;
  rowsWrittenPerDelivery: number;
  /** Writes, reads and deletes of messages. */
  queueOperationsPerDelivery: number;
}

/**
 * Meters events from their record to their settled deliveries.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 * @param calls number of calls that record `leads` leads each.
 */
export async function measureCost(
  runtime: Runtime,
  shape: { subscriptions: number; calls: number; leads: number },
): Promise<Cost> {
  const receiver = await startReceiver();
  const urls = Array.from({ length: shape.subscriptions }, (_, i) => `${receiver.url}/${i}`);
  const { workspaceId } = await openWorkspace(runtime, urls);
  const events = shape.calls * shape.leads;
  const deliveries = events * shape.subscriptions;
  await fetch(new URL("/bench/reset", runtime.url));
  for (let i = 0; i < shape.calls; i++) await recordLeads(runtime, workspaceId, shape.leads);
  await until(() => receiver.posts.length >= deliveries, 300_000);
  // Not metered: looking is not part of the work.
  const pending = runtime.env.DB.prepare(
    "SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1",
  );
  await until(async () => (await pending.all()).results.length === 0, 30_000);
  const answer = await fetch(new URL("/bench/meters", runtime.url));
  const meters = (await answer.json()) as Meters;
  await receiver.close();
  // Recording is one round trip; the rest are the consumer's.
  const work = meters.d1RoundTrips - shape.calls;
  const per = (total: number) => total / deliveries;
  return {
    events,
    deliveries,
    batches: meters.queueBatches,
    roundTripsPerBatch: work / meters.queueBatches,
    roundTripsPerDelivery: per(meters.d1RoundTrips),
    rowsReadPerDelivery: per(meters.rowsRead),
    rowsWrittenPerDelivery: per(meters.rowsWritten),
    queueOperationsPerDelivery: per(3 * meters.queueMessages),
  };
}

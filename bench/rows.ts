import { type Answer, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Samples } from "./figures.ts";
import { measureLife } from "./life.ts";
import { call, type Extent, meter, openWorkspace, recordLeads, start } from "./setting.ts";

const EXTENTS = {
  full: { rounds: 3, hundred: 100, events: 100 },
  quick: { rounds: 3, hundred: 100, events: 50 },
  smoke: { rounds: 1, hundred: 10, events: 2 },
};

/**
 * Measures the rows that a delivery writes, by D1's own count. With receivers that fail, days pass at once:
 * the Worker's clock is set to when its next message is due.
 */
export async function measureRows(extent: Extent): Promise<Samples> {
  const { rounds, hundred, events } = EXTENTS[extent];
  const runtime = await start("worker");
  const open = async (answer: () => Answer) => {
    const receiver = await startReceiver(answer);
    return { receiver, ...(await openWorkspace(runtime, [receiver.url])) };
  };
  type World = Awaited<ReturnType<typeof open>>;
  const pending = runtime.env.DB.prepare(
    "SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1",
  );

  /** Meters `count` events, `size` in a call, from their record to their settled deliveries. */
  const deliver = ({ workspaceId }: World, count: number, size = hundred) =>
    meter(runtime, async () => {
      for (let sent = 0; sent < count; sent += size)
        await recordLeads(runtime, workspaceId, Math.min(size, count - sent));
      // This query is not metered, because it is not part of the work.
      await until(async () => (await pending.all()).results.length === 0, 60_000);
    });
  const healthy = await open(() => 204);
  await deliver(healthy, hundred);
  const alone: number[] = [];
  const together: number[] = [];
  for (let i = 0; i < rounds; i++) {
    alone.push((await deliver(healthy, events, 1)).rowsWritten / events);
    together.push((await deliver(healthy, hundred)).rowsWritten / hundred);
  }
  const once = await deliver(healthy, hundred);
  const more = await deliver(healthy, hundred + 10 * events);

  await call(runtime, "/bench/hold?on=true");
  /** The same from the record on, until the last delivery has succeeded or its subscription is disabled. */
  const settle = async ({ workspaceId }: World) => {
    await recordLeads(runtime, workspaceId, events);
    const drain = () => call(runtime, "/bench/drain?consumers=1&leap=true");
    return (await meter(runtime, drain)).rowsWritten / events;
  };
  let requests = 0;
  const busy = await open(() => (++requests % 2 === 0 ? 429 : 204));
  const half429 = await settle(busy);
  const dead = await open(() => 500);
  const untilDisabled = await settle(dead);
  const list = (await (await call(runtime, "/v1/webhooks", dead)).json()) as {
    data: { disabled_at: string | null }[];
  };
  if (!list.data[0]?.disabled_at) throw new Error("the dead subscription was not disabled");

  await Promise.all([healthy, busy, dead].map(({ receiver }) => receiver.close()));
  await runtime.stop();
  // The bench of a month measures the same life, and a smoke run makes both.
  const life = extent === "smoke" ? null : await measureLife(extent);
  return {
    ...(life && {
      rows_written_life: [life.together.rowsWritten],
      rows_written_life_alone: [life.alone.rowsWritten],
    }),
    rows_written_per_delivery: together,
    rows_written_alone: alone,
    rows_written_half_429: [half429],
    rows_written_dead: [untilDisabled],
    trips_per_further_hundred: [(more.d1RoundTrips - once.d1RoundTrips) / (events / 10)],
  };
}

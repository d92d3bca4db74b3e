import { startRuntime } from "../scripts/shared/runtime.ts";
import type { Beside } from "./beside.ts";
import { measureBursts } from "./burst.ts";
import { measureCost } from "./cost.ts";
import type { Figures } from "./figures.ts";
import { measureFilling } from "./filling.ts";
import { measureLargePages } from "./large-pages.ts";
import { measureManners, measurePostsAtOnce } from "./manners.ts";
import { type Durations, measureNeighbours, type Sample } from "./neighbours.ts";
import { measurePortal } from "./portal.ts";
import { measureDelivering } from "./recording.ts";
import { measureRetention } from "./retention.ts";
import { measureWrites } from "./writes.ts";

/** A table for `console.table`, and its title. */
interface Table {
  title: string;
  rows: Record<string, string | number | undefined>[];
}

/** The bundles to run, and a callback for progress. */
interface Setting {
  shipped: string;
  metered: string;
  vars: Record<string, string | number>;
  quick: boolean;
  step(name: string): void;
}

function besideTable(title: string, { quiet, beside, p99Ratio }: Beside): Table {
  return {
    title,
    rows: [
      { reads: "alone", "p50, ms": quiet.readP50Ms, "p99, ms": quiet.readP99Ms },
      {
        ...{ reads: "beside", "p50, ms": beside.readP50Ms, "p99, ms": beside.readP99Ms },
        ratio: p99Ratio,
      },
    ],
  };
}

/** `max_concurrency` of the queue `webhook-deliveries` in wrangler.toml. */
const CONSUMERS = 10;
const FULL: Durations = {
  warmUpSeconds: 30,
  rounds: 4,
  steadySeconds: 10,
  bursts: 2,
  patienceSeconds: 10,
};
const QUICK: Durations = { ...FULL, warmUpSeconds: 10, rounds: 1 };

/**
 * Measures the delivery engine with receivers that are slow, hang, fail or refuse, and what it
 * writes.
 */
export async function measureHostile({ shipped, metered, vars, quick, step }: Setting) {
  const runtime = await startRuntime({ bundle: metered, vars });
  step("delivering");
  const delivering = await measureDelivering(runtime, quick ? 1 : 5, quick ? 1_000 : 3_000);
  step("rows written");
  const cost = await measureCost(runtime, { subscriptions: 1, calls: 50, leads: 1 });
  const writes = await measureWrites(runtime, quick ? 20 : 100);
  step("concurrent posts to one subscription");
  const postsAtOnce = await measurePostsAtOnce(runtime);
  step("reads during a burst");
  const beside = await measureBursts(runtime, [CONSUMERS, 50], {
    rounds: quick ? 1 : 3,
    deliveries: 5_000,
  });
  step("reads beside large pages");
  const largePages = await measureLargePages(runtime, quick ? 1 : 3);
  step("reads beside a hostile portal");
  const portal = await measurePortal(runtime, quick ? 1 : 5, quick ? 50_000 : 200_000);
  step("filling");
  const bytesPerChange = await measureFilling(runtime, quick ? 50 : 500);
  step("retention");
  const retention = await measureRetention(runtime, quick ? 2_000 : 20_000);
  await runtime.stop();
  step("overloaded receivers");
  const manners = await measureManners({ bundle: shipped, vars });
  step("a fast subscriber next to hostile ones");
  const { steady, burst } = await measureNeighbours(
    () => startRuntime({ bundle: shipped, vars }),
    quick ? QUICK : FULL,
  );

  const figures: Figures = {
    hostile_p99_ratio: Math.max(steady.ratio, burst.ratio),
    hostile_steady_p99_ratio: steady.ratio,
    hostile_burst_p99_ratio: burst.ratio,
    hostile_p50_ratio: Math.max(
      steady.hostile.p50Ms / steady.alone.p50Ms,
      burst.hostile.p50Ms / burst.alone.p50Ms,
    ),
    hostile_received:
      (steady.hostile.got + burst.hostile.got) / (steady.hostile.of + burst.hostile.of),
    delivering_ratio: delivering.deliveriesPerSecond / delivering.postsPerSecond,
    trips_per_further_hundred: writes.tripsPerFurtherHundred,
    rows_written_per_delivery: cost.rowsWrittenPerDelivery,
    rows_written_stage: writes.single,
    rows_written_stage_hundred: writes.hundred,
    rows_written_half_429: writes.half429,
    rows_written_dead: writes.dead,
    dead_posts_45s: manners.deadPosts,
    retry_after_posts_12s: manners.retryAfterPosts,
    posts_after_delete: manners.afterDelete,
    posts_after_access: manners.afterAccess,
    posts_at_once: postsAtOnce,
    bytes_per_status_change: bytesPerChange,
    portal_read_p99_ratio: portal.p99Ratio,
    burst_read_p99_ratio: beside.bursts[0]?.p99Ratio ?? Number.NaN,
    burst_read_p99_ratio_50_consumers: beside.bursts[1]?.p99Ratio ?? Number.NaN,
    large_pages_read_p99_ratio: largePages.p99Ratio,
    retention_events_per_second: retention.eventsPerSecond,
    retention_events_per_run: retention.eventsPerRun,
  };
  const row = (load: string, world: string, { p50Ms, p99Ms, got, of }: Sample, ratio?: number) => ({
    load,
    world,
    "p50, ms": p50Ms,
    "p99, ms": p99Ms,
    got: `${got} of ${of}`,
    ratio,
  });
  const tables: Table[] = [
    {
      title: "A fast subscriber alone, and next to 28 slow ones and 6 that hang",
      rows: [
        row("steady", "alone", steady.alone),
        row("steady", "hostile", steady.hostile, steady.ratio),
        row("bursts", "alone", burst.alone),
        row("bursts", "hostile", burst.hostile, burst.ratio),
      ],
    },
    {
      title: "Rows written for one event and one subscription, at the record and after it",
      rows: [
        { receiver: "any: its record", rows: writes.record },
        { receiver: "healthy, single events", rows: writes.single },
        { receiver: "healthy, a hundred at once", rows: writes.hundred },
        { receiver: "429 to every second", rows: writes.half429, posts: writes.half429Posts },
        {
          receiver: "dead until disabled",
          rows: writes.dead,
          posts: writes.deadPosts,
          hours: writes.deadHours,
        },
      ],
    },
    {
      title: "Posts that overloaded receivers see",
      rows: [
        { receiver: "dead, 300 pending, in 45 s", posts: manners.deadPosts },
        { receiver: "Retry-After: 15, 50 pending, in 12 s", posts: manners.retryAfterPosts },
        { receiver: "2 s after DELETE", posts: manners.afterDelete },
        { receiver: "2 s after access was withdrawn", posts: manners.afterAccess },
        { receiver: "at once, eight consumers", posts: postsAtOnce },
      ],
    },
    {
      title: "GET /v1/leads during 5,000 deliveries, by number of concurrent consumers",
      rows: [
        { consumers: 0, "p50, ms": beside.quiet.readP50Ms, "p99, ms": beside.quiet.readP99Ms },
        ...beside.bursts.map((burst) => ({
          consumers: burst.consumers,
          "p50, ms": burst.readP50Ms,
          "p99, ms": burst.readP99Ms,
          ratio: burst.p99Ratio,
          "deliveries / s": burst.deliveriesPerSecond,
          "D1 trips / s": burst.roundTripsPerSecond,
        })),
      ],
    },
    besideTable(
      "GET /v1/leads while a key of another workspace reads the largest leads, ten pages a second",
      largePages,
    ),
    besideTable(
      "GET /v1/leads while a portal link of another workspace does what costs most, five times a second",
      portal,
    ),
    {
      title: "Delivering, and deleting expired events",
      rows: [
        {
          "deliveries / s": delivering.deliveriesPerSecond,
          "bare posts / s": delivering.postsPerSecond,
          "D1 trips / further hundred": writes.tripsPerFurtherHundred,
          "events deleted / s": retention.eventsPerSecond,
          "events deleted / sweep": retention.eventsPerRun,
        },
      ],
    },
  ];
  return { figures, tables };
}

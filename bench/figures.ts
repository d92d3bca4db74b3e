import { align } from "../scripts/shared/table.ts";
import { median } from "./statistics.ts";

/** Every figure by its name in `--json`: its unit, what is measured, and what it is compared with. */
export const FIGURES = {
  hot_read_hops: ["hops", "a read with a key that the isolate knows", "1, the fewest possible"],
  cold_read_hops: ["hops", "a read with a key that it does not know", "naive_read_hops"],
  naive_read_hops: ["hops", "key, quota and data in sequence", "3, one for each"],
  flood_hops: ["hops", "a request over a quota that is known to be used up", "0"],
  rows_read_over_limit: ["rows", "read by the most expensive page beyond its items", "1"],
  deep_page_ratio: ["×", "time of the deepest page", "time of the first page"],
  hostile_request_ratio: [
    "×",
    "time of the most expensive request of 16 KB",
    "a plain one of its route and size",
  ],
  framework_ratio: ["×", "reads per second of the shipped Worker", "a bare handler, same query"],
  recording_ratio: ["×", "leads recorded per second, 100 per call", "raw inserts in D1 batches"],
  leads_per_second: ["leads / s", "recorded, 100 per call", "raw inserts: recording_ratio"],
  delivering_ratio: [
    "×",
    "deliveries per second to one fast receiver",
    "bare posts, six at a time",
  ],
  deliveries_per_second: ["1 / s", "to one fast receiver", "bare posts: delivering_ratio"],
  receipt_p50_ms: ["ms", "from the record to its receipt, median", "0"],
  receipt_p99_ms: ["ms", "from the record to its receipt, 99th percentile", "receipt_p50_ms"],
  isolation_ratio: ["×", "p99 of nine receivers next to one that hangs", "their p99 without it"],
  isolation_waiting_ratio: [
    "×",
    "the same if consumers wait for background work",
    "isolation_ratio",
  ],
  by_hand_deliveries_ratio: ["×", "events recorded and delivered per second", "a minimal Worker"],
  by_hand_reads_ratio: ["×", "reads per second over ten connections", "the same Worker"],
  by_hand_receipt_p99_ratio: ["×", "p99 from record to receipt, single events", "the same Worker"],
  by_hand_isolation_ms: ["ms", "p99 of its nine receivers next to one that hangs", "isolation_ms"],
  isolation_ms: ["ms", "the same for the shipped Worker", "by_hand_isolation_ms"],
  rows_written_life: [
    "rows",
    "an event with three subscriptions, recorded in batches of 100, from its record to its expiry",
    "12: its lead, its event and three deliveries, each made and deleted or updated once",
  ],
  rows_written_life_alone: ["rows", "the same, recorded in a call of its own", "rows_written_life"],
  rows_written_per_delivery: [
    "rows",
    "an event with one delivery, recorded in batches of 100, record included",
    "3: each row once",
  ],
  rows_written_alone: [
    "rows",
    "the same for one that is recorded in a call of its own",
    "rows_written_per_delivery",
  ],
  rows_written_half_429: [
    "rows",
    "after the record, every second response a 429",
    "1: its outcome",
  ],
  rows_written_dead: ["rows", "after the record, dead until it is disabled", "1: its outcome"],
  trips_per_further_hundred: ["trips", "to D1 for each further hundred deliveries", "1"],
  hostile_p99_ratio: ["×", "p99 of a receiver next to 34 hostile ones", "its p99 alone"],
  hostile_received: ["×", "events that it got in time", "events that were recorded for it"],
  dead_posts_45s: [
    "requests",
    "to a dead receiver with 300 pending, in 45 s",
    "16: five, and then spaced",
  ],
  retry_after_posts_12s: ["requests", "in 12 s to one that requests 15 s", "1, the first"],
  posts_after_delete: ["requests", "that start later than 2 s after DELETE", "0"],
  posts_after_access: ["requests", "the same after access was withdrawn", "0"],
  burst_read_p99_ratio: ["×", "p99 of a read during a burst of deliveries", "its p99 without one"],
  retention_events_per_second: ["events / s", "expired and deleted", "deliveries_per_second"],
  retention_events_per_run: ["events", "deleted by one sweep", "all that had expired"],
  move_rows_per_second: ["rows / s", "copied to another database", "leads_per_second"],
  move_10k_ms: ["ms", "a move of 10,000 rows, most of it without writes", "move_rows_per_second"],
  move_100k_ms: ["ms", "the same for 100,000 rows", "move_rows_per_second"],
  month_rows_read_alone: ["rows", "of an event with three subscriptions, expiry included", "0"],
  month_messages_alone: ["messages", "the same", "3: one for each subscription"],
  month_lines_alone: ["lines", "that it logs", "3: one for each subscription"],
  month_rows_read_together: [
    "rows",
    "the same, recorded in batches of 100",
    "month_rows_read_alone",
  ],
  month_messages_together: ["messages", "the same", "month_messages_alone"],
  month_lines_together: ["lines", "the same", "month_lines_alone"],
  month_rows_read_page: ["rows", "by a page of 25 leads", "25"],
  month_lines_page: ["lines", "that it logs", "1"],
  month_rows_read_sweep: ["rows", "by a sweep that finds nothing to do", "0"],
  month_rows_written_sweep: ["rows", "the same", "0"],
  month_lines_sweep: ["lines", "that it logs", "1"],
} satisfies Record<string, [unit: string, about: string, comparedWith: string]>;

/** The measured samples, one for each round. A figure that is not described does not compile. */
export type Samples = { [name in keyof typeof FIGURES]?: number[] };

/** A line for each figure: the median of its rounds, and the lowest and highest of several. */
export function describeFigures(samples: Samples): string[] {
  const rows = Object.entries(samples).map(([name, values]) => {
    const [unit, about, comparedWith] = FIGURES[name as keyof Samples];
    const spread = `${toText(Math.min(...values))} to ${toText(Math.max(...values))}`;
    const of = [unit, about, comparedWith];
    return [name, toText(median(values)), values.length > 1 ? spread : "one round", ...of];
  });
  return align([["figure", "median", "rounds", "unit", "of", "compared with"], ...rows]);
}

function toText(value: number): string {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

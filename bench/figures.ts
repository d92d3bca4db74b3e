import { align } from "../scripts/shared/table.ts";

interface Meaning {
  /** The unit; `×` is a ratio. */
  unit: string;
  /** What is measured. */
  about: string;
  /** What it is compared with: the counterpart of a ratio, or the best value. */
  comparedWith: string;
}

/** Every figure that `--json` writes, by name. */
export const FIGURES = {
  hot_read_hops: {
    unit: "round trips",
    about: "a read with a key that the isolate knows",
    comparedWith: "1, the fewest possible; naive_read_hops",
  },
  cold_read_hops: {
    unit: "round trips",
    about: "a read with a key that it does not know",
    comparedWith: "naive_read_hops",
  },
  naive_read_hops: {
    unit: "round trips",
    about: "key, quota and data in sequence",
    comparedWith: "3, one for each",
  },
  flood_hops: {
    unit: "round trips",
    about: "a request over a quota that is known to be used up",
    comparedWith: "0: the isolate answers on its own",
  },
  rows_read_over_limit: {
    unit: "rows",
    about: "read by the most expensive page of 25 in addition to its items",
    comparedWith: "1, which shows whether there is more",
  },
  deep_page_ratio: {
    unit: "×",
    about: "time of the deepest page",
    comparedWith: "time of the first page",
  },
  framework_ratio: {
    unit: "×",
    about: "requests per second of the shipped Worker",
    comparedWith: "a bare handler with the same gate and query",
  },
  cpu_ms_per_request: {
    unit: "ms CPU",
    about: "per request, including runtime and database",
    comparedWith: "bare_cpu_ms_per_request",
  },
  bare_cpu_ms_per_request: {
    unit: "ms CPU",
    about: "the same for the bare handler",
    comparedWith: "the baseline of cpu_ms_per_request",
  },
  leads_per_second: {
    unit: "leads / s",
    about: "recorded, 100 per call",
    comparedWith: "raw inserts: recording_ratio",
  },
  single_leads_per_second: {
    unit: "leads / s",
    about: "recorded one by one",
    comparedWith: "raw inserts one by one, in the table above",
  },
  recording_ratio: {
    unit: "×",
    about: "leads recorded per second, 100 per call",
    comparedWith: "raw inserts per second in D1 batches",
  },
  deliveries_per_second: {
    unit: "deliveries / s",
    about: "to one fast receiver",
    comparedWith: "bare posts: delivering_ratio",
  },
  delivering_ratio: {
    unit: "×",
    about: "deliveries per second to one fast receiver",
    comparedWith: "bare posts per second, six at a time",
  },
  receipt_p50_ms: {
    unit: "ms",
    about: "from the record to its receipt, median",
    comparedWith: "0",
  },
  receipt_p99_ms: {
    unit: "ms",
    about: "from the record to its receipt, 99th percentile",
    comparedWith: "receipt_p50_ms",
  },
  by_hand_deliveries_ratio: {
    unit: "×",
    about: "events recorded and delivered per second to one fast receiver",
    comparedWith: "a Worker written by hand from the platform's guides",
  },
  by_hand_reads_ratio: {
    unit: "×",
    about: "requests per second, GET /v1/automations over ten connections",
    comparedWith: "the same Worker",
  },
  by_hand_receipt_p99_ratio: {
    unit: "×",
    about: "p99 from the record to its receipt, events one at a time",
    comparedWith: "the same Worker",
  },
  by_hand_isolation_ms: {
    unit: "ms",
    about: "p99 of nine healthy subscribers next to one that hangs, of that Worker",
    comparedWith: "the shipped Worker, in the table above",
  },
  isolation_ratio: {
    unit: "×",
    about: "p99 of nine healthy subscribers next to one that hangs",
    comparedWith: "their p99 without it",
  },
  batches_behind_a_burst: {
    unit: "batches",
    about: "that a single event waits for behind a burst",
    comparedWith: "0: it does not wait",
  },
  flooded_p99_ratio: {
    unit: "×",
    about: "p99 of a well-behaved client in a flood of bad requests",
    comparedWith: "its p99 alone",
  },
  d1_round_trips_per_batch: {
    unit: "round trips",
    about: "to D1 for a batch of the consumer",
    comparedWith: "the other shapes, in the table above",
  },
  bundle_gzip_bytes: {
    unit: "bytes",
    about: "the bundle, gzipped",
    comparedWith: "a Hono hello world, in the table above",
  },
  startup_cpu_ms: {
    unit: "ms CPU",
    about: "starting the Worker",
    comparedWith: "a Hono hello world, in the table above",
  },
  hostile_p99_ratio: {
    unit: "×",
    about: "p99 of a fast subscriber next to slow and hanging ones, the worse of both loads",
    comparedWith: "its p99 alone",
  },
  hostile_steady_p99_ratio: {
    unit: "×",
    about: "the same for a steady stream",
    comparedWith: "its p99 alone",
  },
  hostile_burst_p99_ratio: {
    unit: "×",
    about: "the same for bursts",
    comparedWith: "its p99 alone",
  },
  hostile_p50_ratio: {
    unit: "×",
    about: "the same by the median, the worse of both loads",
    comparedWith: "its median alone",
  },
  hostile_received: {
    unit: "×",
    about: "events that the fast subscriber got in time",
    comparedWith: "events that it was owed",
  },
  trips_per_further_hundred: {
    unit: "round trips",
    about: "to D1 for each further hundred deliveries",
    comparedWith: "1, the fewest possible",
  },
  rows_written_per_delivery: {
    unit: "rows",
    about: "an event with one delivery, from record to settlement",
    comparedWith: "rows_written_stage, the part after the record",
  },
  rows_written_stage: {
    unit: "rows",
    about: "per delivery after its record, single events",
    comparedWith: "rows_written_stage_hundred",
  },
  rows_written_stage_hundred: {
    unit: "rows",
    about: "per delivery after its record, a hundred at once",
    comparedWith: "1: its outcome",
  },
  rows_written_half_429: {
    unit: "rows",
    about: "per delivery after its record, every second answer a 429",
    comparedWith: "rows_written_stage",
  },
  rows_written_dead: {
    unit: "rows",
    about: "per delivery to a dead receiver until it is disabled",
    comparedWith: "rows_written_stage",
  },
  dead_posts_45s: {
    unit: "posts",
    about: "to a dead receiver with 300 pending, in 45 s",
    comparedWith: "2: one, and one probe after 10 s",
  },
  retry_after_posts_12s: {
    unit: "posts",
    about: "to one that asks for 15 s, 50 pending, in 12 s",
    comparedWith: "1: the one that it answered",
  },
  posts_after_delete: {
    unit: "posts",
    about: "that start later than 2 s after DELETE",
    comparedWith: "0",
  },
  posts_after_access: {
    unit: "posts",
    about: "that start later than 2 s after access was revoked",
    comparedWith: "0",
  },
  posts_at_once: {
    unit: "posts",
    about: "at the same time to one subscription, eight consumers",
    comparedWith: "6, the connections of an invocation",
  },
  bytes_per_status_change: {
    unit: "bytes",
    about: "added to the database by a pause or activation",
    comparedWith: "0",
  },
  large_pages_read_p99_ratio: {
    unit: "×",
    about: "p99 of reads while a key of another workspace reads the largest leads",
    comparedWith: "its p99 alone",
  },
  portal_read_p99_ratio: {
    unit: "×",
    about: "p99 of reads while a portal link of another workspace does what costs most",
    comparedWith: "its p99 alone",
  },
  burst_read_p99_ratio: {
    unit: "×",
    about: "p99 of a read during a burst, with as many consumers as wrangler.toml allows",
    comparedWith: "its p99 without a burst",
  },
  burst_read_p99_ratio_50_consumers: {
    unit: "×",
    about: "the same with 50 consumers",
    comparedWith: "its p99 without a burst",
  },
  databases_recording_ratio: {
    unit: "×",
    about: "leads recorded a second for four workspaces in four databases",
    comparedWith: "the same in one; local databases share a thread",
  },
  databases_delivering_ratio: {
    unit: "×",
    about: "events recorded and delivered a second for them",
    comparedWith: "the same in one; local databases share a thread",
  },
  busy_neighbour_p99_ratio: {
    unit: "×",
    about: "p99 of a read while another database records without a pause",
    comparedWith: "its p99 while its own database does",
  },
  move_rows_per_second: {
    unit: "rows / s",
    about: "copied to another database, while the workspace is read and recorded to",
    comparedWith: "leads_per_second",
  },
  move_closed_ms: {
    unit: "ms",
    about: "in which writes wait for the switch",
    comparedWith: "move_longest_write_ms, the longest wait of a caller",
  },
  move_longest_write_ms: {
    unit: "ms",
    about: "a call that records one lead during the move",
    comparedWith: "move_closed_ms",
  },
  move_longest_read_ms: {
    unit: "ms",
    about: "GET /v1/leads during the move",
    comparedWith: "move_longest_write_ms: reads do not wait for the switch",
  },
  bytes_per_lead: {
    unit: "bytes",
    about: "kept for a lead, with its share of every index",
    comparedWith: "bytes_per_lead_and_event",
  },
  bytes_per_lead_event: {
    unit: "bytes",
    about: "kept for its settled event with one delivery",
    comparedWith: "bytes_per_run_event, which has a body of its own",
  },
  bytes_per_lead_and_event: {
    unit: "bytes",
    about: "both together",
    comparedWith: "1,232, when the event stored the lead once more",
  },
  bytes_per_run: {
    unit: "bytes",
    about: "kept for a run, with its share of every index",
    comparedWith: "bytes_per_lead",
  },
  bytes_per_run_event: {
    unit: "bytes",
    about: "kept for its settled event with one delivery",
    comparedWith: "bytes_per_lead_event",
  },
  retention_events_per_second: {
    unit: "events / s",
    about: "expired and deleted",
    comparedWith: "deliveries_per_second: faster than they arrive",
  },
  retention_events_per_run: {
    unit: "events",
    about: "deleted by one sweep",
    comparedWith: "all that had expired",
  },
} satisfies Record<string, Meaning>;

/** The measured figures; a figure without a description above does not compile. */
export type Figures = { [name in keyof typeof FIGURES]?: number };

/** A line for each figure: its name in `--json`, value and unit, and what it is compared with. */
export function describeFigures(figures: Figures): string[] {
  const rows = Object.entries(figures).map(([name, value]) => {
    const { unit, about, comparedWith } = FIGURES[name as keyof Figures];
    const text = value.toLocaleString("en-US", { maximumFractionDigits: 3 });
    return [name, text, unit, about, comparedWith];
  });
  return align([["figure", "value", "unit", "of", "compared with"], ...rows]);
}

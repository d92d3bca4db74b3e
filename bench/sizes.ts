import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type Runtime, type RuntimeOptions, startRuntime } from "../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../src/contract/enumerations.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Figures } from "./figures.ts";
import { openWorkspace } from "./isolation.ts";

/** Several workspaces, which record in turn, so that none always writes to the end of a table. */
const WORKSPACES = 4;
const AT_ONCE = 100;
const AGENT = { reference: "agence-lumiere", name: "Agence Lumière" };

/** The size of a table or index per record, in bytes of its pages. */
interface Size {
  name: string;
  table: string;
  bytes: number;
}

/**
 * Measures the bytes that a lead and a run take in the database, and a settled event of each with one
 * delivery: the average over many, in the pages of all tables and indexes. They are recorded and
 * delivered as in production.
 */
export async function measureSizes(options: SizesOptions) {
  const leads = await measureOf("lead.created", options);
  const runs = await measureOf("run.completed", options);
  const lead = bytesOf(leads, ["leads"]);
  const event = bytesOf(leads, OF_EVENTS);
  const figures: Figures = {
    bytes_per_lead: lead,
    bytes_per_lead_event: event,
    bytes_per_lead_and_event: lead + event,
    bytes_per_run: bytesOf(runs, ["runs"]),
    bytes_per_run_event: bytesOf(runs, OF_EVENTS),
  };
  const rowsOf = (sizes: Size[], tables: string[], of: string) =>
    sizes
      // The indexes of pending deliveries are empty except for one page.
      .filter(({ table, bytes }) => tables.includes(table) && bytes >= 5)
      .map(({ name, bytes }) => ({ of, "table or index": name, bytes }));
  const rows = [
    ...rowsOf(leads, ["leads"], "a lead"),
    ...rowsOf(leads, OF_EVENTS, "its settled event"),
    ...rowsOf(runs, ["runs"], "a run"),
    ...rowsOf(runs, OF_EVENTS, "its settled event"),
  ];
  return { figures, tables: [{ title: "Bytes in the database", rows }] };
}

interface SizesOptions extends Pick<RuntimeOptions, "bundle" | "vars"> {
  quick: boolean;
}

const OF_EVENTS = ["events", "deliveries", "attempts"];

function bytesOf(sizes: Size[], tables: string[]): number {
  const own = sizes.filter(({ table }) => tables.includes(table));
  return own.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The sizes in a database whose events are all of one kind. */
async function measureOf(kind: WebhookEvent, { quick, ...options }: SizesOptions): Promise<Size[]> {
  const count = quick ? 2_000 : 20_000;
  const persist = mkdtempSync(join(tmpdir(), "bench-sizes-"));
  try {
    const runtime = await startRuntime({ ...options, persist });
    await recordAll(runtime, kind, count);
    await runtime.stop();
    return readSizes(persist, count);
  } finally {
    rmSync(persist, { recursive: true });
  }
}

/** Records leads and a run for each; the events of one kind are delivered and settled. */
async function recordAll(runtime: Runtime, kind: WebhookEvent, count: number): Promise<void> {
  const { PLATFORM } = runtime.env;
  const receiver = await startReceiver();
  const workspaces = [];
  for (let i = 0; i < WORKSPACES; i++) {
    const { workspaceId } = await openWorkspace(runtime, [receiver.url], "DB", kind);
    const { ids } = await PLATFORM.recordAutomations({ workspaceId, automations: [AUTOMATION] });
    workspaces.push({ workspaceId, automationId: String(ids[0]) });
  }
  for (let at = 0; at < count; at += AT_ONCE) {
    const { workspaceId, automationId } = workspaces[
      (at / AT_ONCE) % WORKSPACES
    ] as (typeof workspaces)[0];
    const leads = Array.from({ length: AT_ONCE }, (_, i) => leadOf(at + i));
    const { ids } = await PLATFORM.recordLeads({ workspaceId, leads });
    const runs = ids.map((leadId, i) => runOf(at + i, automationId, String(leadId)));
    await PLATFORM.recordRuns({ workspaceId, runs });
  }
  await until(async () => (await PLATFORM.ledger({})).pending === 0, 120_000);
  await receiver.close();
}

const AUTOMATION = {
  reference: "automation",
  type: "lead_ads" as const,
  provider: "facebook",
  agent: AGENT,
  status: "active" as const,
};

/** A name, an e-mail address, a phone number and two custom fields. */
function leadOf(number: number) {
  const digits = String(number).padStart(8, "0");
  return {
    reference: `lead-${digits}`,
    source: "lead_ads" as const,
    agent: AGENT,
    name: "Camille Durand",
    email: `camille.durand.${digits}@example.com`,
    phone: `+336${digits}`,
    customFields: { budget: "250000", ville: "Bordeaux" },
  };
}

function runOf(number: number, automationId: string, leadId: string) {
  return {
    reference: `run-${String(number).padStart(8, "0")}`,
    automationId,
    status: "success" as const,
    triggerType: "lead_ads" as const,
    actions: [{ type: "send_message", status: "success" }],
    leadId,
  };
}

/** The size of each table and index, divided by `count` records. */
function readSizes(persist: string, count: number): Size[] {
  const files = readdirSync(persist, { recursive: true, encoding: "utf8" });
  for (const file of files.filter((name) => name.endsWith(".sqlite"))) {
    const database = new DatabaseSync(join(persist, file), { readOnly: true });
    try {
      const sizes = database
        .prepare(
          `SELECT s.name AS name, coalesce(m.tbl_name, '') AS "table", sum(s.pgsize) / ? AS bytes
            FROM dbstat AS s LEFT JOIN sqlite_schema AS m ON m.name = s.name
            GROUP BY s.name ORDER BY bytes DESC`,
        )
        .all(count) as unknown as Size[];
      if (sizes.some(({ name }) => name === "leads")) return sizes;
    } finally {
      database.close();
    }
  }
  throw new Error(`no database with leads in ${persist}`);
}

import type { Ledger } from "../../../src/webhooks/ledger.ts";
import type { Post, Receiver } from "../../node/support/receiver.ts";

/** The final contents of the database. */
export interface Stored {
  events: { id: string; type: string; body: string }[];
  deliveries: { event_id: string; url: string; state: string; settled_at: number | null }[];
  ledger: Ledger;
}

/** What was done, according to those who did it. */
export interface Done {
  /** The ids of the recorded leads. */
  leads: Set<string>;
  leadsWanted: number;
  /** How often the automation was paused or activated. */
  changes: number;
  receivers: Receiver[];
}

/** Compares what was done with what is stored, and that with what receivers got. */
export function audit({ events, deliveries, ledger }: Stored, done: Done) {
  const failures: string[] = [];
  const { leads, leadsWanted, changes, receivers } = done;
  const ofLeads = events.filter(({ type }) => type === "lead.created");
  const told = new Map(ofLeads.map(({ body }) => [JSON.parse(body).data.id as string, body]));
  for (const id of leads) if (!told.has(id)) failures.push(`${id} was recorded, but has no event`);
  if (told.size !== ofLeads.length) failures.push("two events tell of one lead");
  for (const [id, body] of told)
    if (body.includes("Refusé")) failures.push(`${id} was refused, but has an event`);
  if (leads.size !== leadsWanted || ofLeads.length !== leads.size)
    failures.push(`${leads.size} leads and ${ofLeads.length} events of ${leadsWanted}`);
  if (events.length - ofLeads.length !== changes)
    failures.push(`${events.length - ofLeads.length} events of ${changes} pauses and activations`);
  if (deliveries.length !== events.length * receivers.length)
    failures.push(`${deliveries.length} deliveries for ${events.length} events`);
  if (!ledger.addsUp || ledger.pending > 0) failures.push(`the ledger: ${JSON.stringify(ledger)}`);

  let lost = 0;
  const bodies = new Map(events.map(({ id, body }) => [id, body]));
  const settledAt = new Map(
    deliveries.map((row) => [`${row.event_id} ${row.url}`, row.settled_at]),
  );
  for (const { url, posts: got } of receivers) {
    const byEvent = Map.groupBy(got, ({ headers }: Post) => String(headers["webhook-id"]));
    for (const id of bodies.keys()) if (!byEvent.has(id)) lost++;
    for (const { headers, body, at } of got) {
      const id = String(headers["webhook-id"]);
      if (bodies.get(id) !== body.toString())
        failures.push(`${id} reached ${url} with other bytes`);
      const settled = settledAt.get(`${id} ${url}`);
      if (settled != null && at > settled)
        failures.push(`${id} reached ${url} after it was settled`);
    }
  }
  return { failures, lost };
}

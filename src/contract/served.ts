/** The parts of the contract that a deployment serves or not (`SERVED_ROUTES`). */
export type Part =
  | "automations"
  | "automations.patch"
  | "automations.crm_source"
  | "leads"
  | "runs"
  | "webhooks";

let read = { list: "", parts: new Set<string>() };

/** Whether `part` stands in a `SERVED_ROUTES` list, comma separated. */
export function isServed(servedRoutes: string, part: Part): boolean {
  // A deployment has one list: it is taken apart once.
  if (read.list !== servedRoutes) {
    const parts = servedRoutes.split(",").map((name) => name.trim());
    read = { list: servedRoutes, parts: new Set(parts) };
  }
  return read.parts.has(part);
}

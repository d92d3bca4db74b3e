/** The parts of the contract that a deployment may serve or not (`SERVED_ROUTES`). */
export type Part =
  | "automations"
  | "automations.patch"
  | "automations.crm_source"
  | "leads"
  | "runs"
  | "webhooks";

let read = { list: "", parts: new Set<string>() };

/** Whether `part` is in a comma-separated `SERVED_ROUTES` list. */
export function isServed(servedRoutes: string, part: Part): boolean {
  // Cached: a deployment has only one list.
  if (read.list !== servedRoutes) {
    const parts = servedRoutes.split(",").map((name) => name.trim());
    read = { list: servedRoutes, parts: new Set(parts) };
  }
  return read.parts.has(part);
}

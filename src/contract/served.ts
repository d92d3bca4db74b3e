/** The parts of the contract that a deployment serves or not (`SERVED_ROUTES`). */
export type Part =
  | "automations"
  | "automations.patch"
  | "automations.crm_source"
  | "leads"
  | "runs"
  | "webhooks";

/** Whether `part` stands in a `SERVED_ROUTES` list, comma separated. */
export function isServed(servedRoutes: string, part: Part): boolean {
  return servedRoutes.split(",").some((name) => name.trim() === part);
}

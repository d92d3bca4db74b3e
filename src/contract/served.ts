/** The parts of the contract that a deployment may serve or not (`SERVED_ROUTES`). */
export type Part =
  | "automations"
  | "automations.patch"
  | "automations.crm_source"
  | "leads"
  | "runs"
  | "webhooks";

/** Whether `part` is in a comma-separated `SERVED_ROUTES` list. */
export function isServed(servedRoutes: string, part: Part): boolean {
  return servedRoutes.split(",").some((name) => name.trim() === part);
}

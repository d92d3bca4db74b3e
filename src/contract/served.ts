/** The features of the contract that a deployment may serve or not (`SERVED_ROUTES`). */
export type Feature =
  | "automations"
  | "automations.patch"
  | "automations.crm_source"
  | "leads"
  | "runs"
  | "webhooks";

/** Whether a feature is in a comma-separated `SERVED_ROUTES` list. */
export function isServed(servedRoutes: string, feature: Feature): boolean {
  return servedRoutes.split(",").some((name) => name.trim() === feature);
}

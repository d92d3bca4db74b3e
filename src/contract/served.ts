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

/**
 * Whether automations of type `crm_source` are served. If not, neither they nor their runs are shown, and nothing is
 * announced or sent about them.
 */
export function servesCrmSources(env: Pick<Env, "SERVED_ROUTES">): boolean {
  return isServed(env.SERVED_ROUTES, "automations.crm_source");
}

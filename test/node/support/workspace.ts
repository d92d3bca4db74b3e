import { openApi } from "../../../scripts/shared/local-api.ts";
import type { Runtime } from "../../../scripts/shared/runtime.ts";
import type { AutomationStatus } from "../../../src/contract/enumerations.ts";

/** The texts of the first numbers. */
export const numbered = (count: number, from = 1) =>
  Array.from({ length: count }, (_, i) => String(from + i));

/** A new workspace of a running Worker, its key, the API as used with that key, and what it records. */
export async function openWorkspace(
  { env: { PLATFORM }, url }: Runtime,
  {
    requestsPerWindow,
    agentName = "Agence Lumière Lyon",
    ...fields
  }: {
    adminEmails?: string[];
    database?: string;
    requestsPerWindow?: number | undefined;
    /** Of all that is recorded. */
    agentName?: string;
  } = {},
) {
  const agent = { reference: "lyon", name: agentName };
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence", ...fields });
  const { apiKey, keyId } = await PLATFORM.createApiKey({ workspaceId, requestsPerWindow });
  const api = openApi(url.origin, String(apiKey));

  /** Records one item for each reference, a hundred per call. @returns their ids. */
  const record = async (
    references: string[],
    call: (some: string[]) => PromiseLike<{ ids: Iterable<unknown> }>,
  ) => {
    const ids: string[] = [];
    for (let at = 0; at < references.length; at += 100)
      ids.push(...[...(await call(references.slice(at, at + 100))).ids].map(String));
    return ids;
  };

  return {
    workspaceId: String(workspaceId),
    apiKey: String(apiKey),
    keyId: String(keyId),
    api,
    subscribe: (target: string, events = ["lead.created"]) =>
      api<{ id: string; secret: string }>("POST", "/v1/webhooks", { url: target, events }),
    recordLeads: (references: string[], more: (reference: string) => object = () => ({})) =>
      record(references, (some) => {
        const own = { source: "crm" as const, agent };
        const leads = some.map((reference) => ({ reference, ...own, ...more(reference) }));
        return PLATFORM.recordLeads({ workspaceId, leads });
      }),
    recordAutomations: (references: string[], status: AutomationStatus = "active") =>
      record(references, (some) => {
        const own = { type: "lead_ads", provider: "facebook", agent, status } as const;
        const automations = some.map((reference) => ({ reference, ...own }));
        return PLATFORM.recordAutomations({ workspaceId, automations });
      }),
    recordRuns: (
      automationId: string,
      references: string[],
      status: "success" | "partial" = "success",
    ) =>
      record(references, (some) => {
        const own = { automationId, status, triggerType: "lead_ads" } as const;
        return PLATFORM.recordRuns({
          workspaceId,
          runs: some.map((reference) => ({ reference, ...own })),
        });
      }),
  };
}

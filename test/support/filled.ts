import { automationReport, leadReport, openWorkspace, runReport, setUp } from "./api.ts";
import type { Operation } from "./document.ts";

/** A workspace with several records of each kind. */
export async function openFilledWorkspace(webhooks = 3) {
  const workspace = await openWorkspace();
  const { workspaceId, api } = workspace;
  const letters = ["a", "b", "c"];
  const agent = { reference: "agent", name: `Canari ${workspaceId}` };
  const automations = await setUp.recordAutomations({
    workspaceId,
    automations: [
      ...letters.map((reference) => automationReport(reference, { agent })),
      automationReport("crm", { agent, type: "crm_source", name: "CRM" }),
    ],
  });
  const leads = await setUp.recordLeads({
    workspaceId,
    leads: letters.map((reference) => leadReport(reference, { name: `Canari ${workspaceId}` })),
  });
  const runs = await setUp.recordRuns({
    workspaceId,
    runs: automations.ids.flatMap((id) => ["1", "2"].map((n) => runReport(id + n, id))),
  });
  const created: string[] = [];
  for (let i = 0; i < webhooks; i++) {
    const { body } = await api.post<{ id: string }>("/v1/webhooks", {
      url: `https://ok-${i}.example/${workspaceId}`,
      events: ["lead.created", "run.completed", "automation.status_changed"],
    });
    created.push(body.id);
  }
  const ids = [...automations.ids, ...leads.ids, ...runs.ids, ...created];
  return { ...workspace, ids };
}

/** An id of the workspace's, of the kind that the operation's path takes; "" if it takes none. */
export function idFor({ path, parameters }: Operation, ids: string[]): string {
  if (!path.includes("{")) return "";
  const example = parameters.find((one) => one.in === "path")?.example;
  const found = ids.find((id) => id.slice(0, 4) === String(example).slice(0, 4));
  if (!found) throw new Error(`${path}: no record has an id like ${example}`);
  return found;
}

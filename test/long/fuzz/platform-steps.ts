import { setTimeout } from "node:timers/promises";
import fc from "fast-check";
import { expect } from "vitest";
import type { AutomationStatus, RunStatus } from "../../../src/contract/enumerations.ts";
import { showPerson } from "../../../src/records/person.ts";
import { type Item, type Key, type Model, newKey } from "./model.ts";
import { between, pick, some, someWorkspace, step, workspaceOf } from "./step.ts";

const FIRST_MS = Date.parse("2026-01-01T00:00:00.000Z");
const AGENT = { reference: "agent", name: "Agence Lumière" };
const AGENT_ID = expect.stringMatching(/^agt_/);

/** Few times, so that many items share one. */
const someTime = fc.nat(8).map((ms) => new Date(FIRST_MS + ms).toISOString());

/** Few references, so that the same one is recorded again. */
const someReference = fc.nat(40).map(String);

const someAutomation = fc.record({
  reference: fc.nat(4).map(String),
  crm: fc.boolean(),
  status: fc.constantFrom<AutomationStatus>("active", "paused", "draft", "error"),
  updatedAt: fc.option(someTime),
});

const recordAutomations = step(
  "recordAutomations",
  fc.record({
    of: someWorkspace,
    reports: fc.array(someAutomation, { minLength: 1, maxLength: 3 }),
  }),
  async (model, service, { of, reports }) => {
    const workspace = workspaceOf(model, of);
    const automations = reports.map(({ crm, ...report }) => ({
      ...report,
      ...(crm
        ? { type: "crm_source" as const, name: "Relance" }
        : { type: "social_comments" as const, name: null }),
      provider: "instagram",
      agent: AGENT,
    }));
    // At a different time than the previous call, so that their order is known.
    await setTimeout(2);
    const from = Date.now();
    const { workspaceId } = workspace;
    const { ids } = await service.platform.recordAutomations({ workspaceId, automations });
    const now = between(from, Date.now());
    model.clock++;
    // Of several reports of one automation in a call, the newest counts; with equal times, the
    // last.
    const inTime = automations
      .map((report, i) => ({ id: String(ids[i]), report, at: asOf(report.updatedAt) }))
      .toSorted((a, b) => Number(a.at > b.at) - Number(a.at < b.at));
    for (const [id, report] of new Map(inTime.map(({ id, report }) => [id, report]))) {
      const { reference, type, name, status, updatedAt } = report;
      const known = workspace.automations.find((item) => item.id === id);
      if (known && asOf(updatedAt) < asOf(known.shown.updated_at)) continue;
      const shown = {
        id,
        name: name ?? `Réponse aux commentaires – ${AGENT.name}`,
        type,
        provider: "instagram",
        agent_id: AGENT_ID,
        agent_name: AGENT.name,
        status,
      };
      const same = known?.shown.type === type && known.shown.status === status;
      const updated_at = updatedAt ?? (same ? known.shown.updated_at : now);
      const item = { at: model.clock, id, reference, shown: { ...shown, updated_at } };
      if (known) known.shown = item.shown;
      else workspace.automations.push(item);
    }
  },
);

/**
 * The expected time: the one the platform gave or, later than all of these, that of its arrival.
 */
function asOf(time: unknown): number {
  return typeof time === "string" ? Date.parse(time) : Number.POSITIVE_INFINITY;
}

const removeAutomations = step(
  "removeAutomations",
  fc.record({ of: someWorkspace, whose: someWorkspace, which: some }),
  async (model, service, { of, whose, which }) => {
    const workspace = workspaceOf(model, of);
    const { id } = pick(workspaceOf(model, whose).automations, which);
    const { workspaceId } = workspace;
    await service.platform.removeAutomations({ workspaceId, ids: [id, "aut_unknown"] });
    if (of !== whose) return;
    const isGone = (item: Item) => item.id === id || item.shown.automation_id === id;
    const gone = [...workspace.automations, ...workspace.runs].filter(isGone);
    model.forget(new Set(gone.map((item) => item.id)));
    workspace.automations = workspace.automations.filter((item) => !isGone(item));
    workspace.runs = workspace.runs.filter((item) => !isGone(item));
  },
  (model, { whose }) => workspaceOf(model, whose).automations.length > 0,
);

const someLead = fc.record({
  reference: someReference,
  createdAt: someTime,
  source: fc.constantFrom("widget" as const, "crm" as const),
  name: fc.constantFrom(null, "Zoë", "💥 '; --"),
  customFields: fc.constantFrom({}, { étage: 3 }, { liste: ["é", null, { x: 1.5 }] }),
});

const recordLeads = step(
  "recordLeads",
  fc.record({ of: someWorkspace, reports: fc.array(someLead, { minLength: 1, maxLength: 8 }) }),
  async (model, service, { of, reports }) => {
    const workspace = workspaceOf(model, of);
    const leads = reports.map((report) => ({ ...report, agent: AGENT }));
    const { workspaceId } = workspace;
    const { ids } = await service.platform.recordLeads({ workspaceId, leads });
    for (const [i, { reference, createdAt, source, name, customFields }] of reports.entries()) {
      const id = String(ids[i]);
      const shown = {
        ...{ id, source, agent_id: AGENT_ID },
        ...showPerson({ name, customFields }),
        created_at: createdAt,
      };
      keepFirst(workspace.leads, { at: Date.parse(createdAt), id, reference, shown });
    }
  },
);

const someRun = fc.record({
  reference: someReference,
  occurredAt: someTime,
  status: fc.constantFrom<RunStatus>("success", "partial", "failed"),
  automation: some,
  lead: fc.option(some),
});

const recordRuns = step(
  "recordRuns",
  fc.record({ of: someWorkspace, reports: fc.array(someRun, { minLength: 1, maxLength: 8 }) }),
  async (model, service, { of, reports }) => {
    const workspace = workspaceOf(model, of);
    const runs = reports.map(({ automation, lead, ...report }) => ({
      ...report,
      triggerType: "comment" as const,
      automationId: pick(workspace.automations, automation).id,
      leadId: lead === null || workspace.leads.length === 0 ? null : pick(workspace.leads, lead).id,
    }));
    const { workspaceId } = workspace;
    const { ids } = await service.platform.recordRuns({ workspaceId, runs });
    for (const [i, { reference, occurredAt, ...run }] of runs.entries()) {
      const id = String(ids[i]);
      const shown = {
        ...{ id, automation_id: run.automationId, status: run.status, trigger_type: "comment" },
        ...{ occurred_at: occurredAt, actions: [], lead_id: run.leadId },
      };
      keepFirst(workspace.runs, { at: Date.parse(occurredAt), id, reference, shown });
    }
  },
  (model, { of }) => workspaceOf(model, of).automations.length > 0,
);

/** What is recorded again stays unchanged, with the same id. */
function keepFirst(items: Item[], item: Item): void {
  const known = items.find(({ reference }) => reference === item.reference);
  if (known) expect(item.id).toBe(known.id);
  else items.push(item);
}

const createApiKey = step(
  "createApiKey",
  fc.record({ of: someWorkspace, requests: fc.constantFrom(1, 2, 1_000_000) }),
  async (model, service, { of, requests }) => {
    const workspace = workspaceOf(model, of);
    const { keyId, apiKey } = await service.platform.createApiKey({
      workspaceId: workspace.workspaceId,
      requestsPerWindow: requests,
    });
    const key = { keyId: String(keyId), apiKey: String(apiKey) };
    model.keys.push(newKey(workspace, key, requests));
  },
);

/** Revokes one of the later keys: the first ones keep the sequence going. */
const revokeApiKey = step(
  "revokeApiKey",
  fc.record({ which: some, byItself: fc.boolean() }),
  async (model, service, { which, byItself }) => {
    const key = pick(model.keys.slice(3), which);
    const { keyId, apiKey } = key;
    await service.platform.revokeApiKey(byItself ? { apiKey } : { keyId });
    key.revoked = true;
  },
  (model) => model.keys.length > 3,
);

/** Changes the quota of one of the later keys that are not revoked; its usage stays. */
const updateApiKey = step(
  "updateApiKey",
  fc.record({ which: some, requests: fc.constantFrom(1, 3, 1_000_000) }),
  async (model, service, { which, requests }) => {
    const { keyId, window } = pick(changeableKeys(model), which);
    await service.platform.updateApiKey({ keyId, requestsPerWindow: requests });
    window.limit = requests;
  },
  (model) => changeableKeys(model).length > 0,
);

function changeableKeys(model: Model): Key[] {
  return model.keys.slice(3).filter(({ revoked }) => !revoked);
}

const setWorkspaceAccess = step(
  "setWorkspaceAccess",
  fc.record({ of: someWorkspace, granted: fc.constantFrom(true, true, true, true, false) }),
  async (model, service, { of, granted }) => {
    const workspace = workspaceOf(model, of);
    const { workspaceId } = workspace;
    await service.platform.setWorkspaceAccess({ workspaceId, granted });
    workspace.granted = granted;
  },
);

/** What the platform does. */
export const PLATFORM_STEPS = [
  ...[recordAutomations, recordAutomations, removeAutomations],
  ...[recordLeads, recordLeads, recordRuns, recordRuns],
  ...[createApiKey, updateApiKey, revokeApiKey, setWorkspaceAccess],
];

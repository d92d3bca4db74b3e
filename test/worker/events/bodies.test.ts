import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { encryptJson } from "../../../src/encryption/seal.ts";
import { makeBody, UnreadableEvent } from "../../../src/events/bodies.ts";
import { showPerson } from "../../../src/records/person.ts";
import { createDataKey, openDataKey, openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import {
  type LeadReport,
  leadReport,
  listAll,
  openWorkspace,
  platformOf,
} from "../../support/api.ts";
import { consumeFor, isolated, receivedBy, subscribe } from "../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { record } from "../../support/record.ts";

const platform = platformOf(env);
const KEYS = env.ENCRYPTION_KEYS;

/** A subscription that is owed events about recorded leads. */
async function owedLeads(references: string[], differences: Partial<LeadReport> = {}) {
  const { workspaceId, api } = await openWorkspace();
  const subscription = await subscribe(workspaceId);
  const leads = references.map((one) => leadReport(one, differences));
  const { ids } = await record(env, "recordLeads", { workspaceId, leads }, Date.now());
  return { workspaceId, api, ...subscription, ids };
}

describe("the body of lead.created", () => {
  test("cannot change, because its lead's row cannot be updated", async () => {
    const { ids } = await owedLeads(["constant"]);
    const update = "UPDATE leads SET agent_id = 'agt_other' WHERE id = ?";
    const updating = WORKSPACE_DB.prepare(update).bind(ids[0]).run();
    await expect(updating).rejects.toThrow("a lead never changes");
  });

  test("shows the lead exactly as GET /v1/leads and an export do", async () => {
    const name = 'Zoë \u2028 "🌻" \\ \n';
    const customFields = { 2: "b", 1: -0, list: [1e15, 0.1, null, [{}]], 'é"': { true: false } };
    const { workspaceId, api, ...webhook } = await owedLeads(["odd", "same"], {
      ...{ name, customFields },
    });
    const { id: webhookId, url } = webhook;
    openedDataKeys.clear();
    await consumeFor([webhookId], isolated().env);
    openedDataKeys.clear();
    const exported = await platform.exportWorkspace({ workspaceId });
    const lead = { kind: "lead", name, customFields: JSON.parse(JSON.stringify(customFields)) };
    expect(exported.items.filter(({ kind }) => kind === "lead")).toMatchObject([lead, lead]);
    openedDataKeys.clear();
    const shown = await listAll<{ id: string }>(api, "leads");
    expect(shown).toHaveLength(2);
    const received = await receivedBy({ url });
    expect(received).toHaveLength(2);
    for (const { body } of received) {
      openedDataKeys.clear();
      const { id, created_at, data: posted } = JSON.parse(body);
      const data = shown.find((lead) => lead.id === posted.id);
      expect(body).toBe(JSON.stringify({ id, type: "lead.created", created_at, data }));
      expect(await platform.readDelivery({ webhookId, eventId: id })).toMatchObject({ body });
    }
    const stored = WORKSPACE_DB.prepare("SELECT DISTINCT body FROM events WHERE workspace_id = ?");
    const { results } = await stored.bind(workspaceId).all();
    expect(results).toEqual([{ body: "" }]);
  });

  test("has exactly these bytes, so that a replayed event has the same body", async () => {
    const owner = { workspaceId: "wks_1", sealedDataKey: await createDataKey(KEYS, "wks_1") };
    const key = (await openDataKey(KEYS, "wks_1", owner.sealedDataKey)) as CryptoKey;
    const person = { name: "Zoë", phone: "+33600000000", customFields: { budget: 1 } };
    const lead = JSON.stringify({
      ...{ id: "lea_1", source: "crm", agentId: "agt_1", createdAt: 1_700_000_000_000 },
      sealed: await encryptJson(key, "lea_1", person),
    });
    const event = {
      ...{ eventId: "evt_1", type: "lead.created" as const, leadId: "lea_1" },
      createdAt: 1_700_000_000_001,
    };
    expect(await makeBody(KEYS, owner, { ...event, storedBody: "", lead })).toBe(
      '{"id":"evt_1","type":"lead.created","created_at":"2023-11-14T22:13:20.001Z","data":' +
        '{"id":"lea_1","source":"crm","agent_id":"agt_1",' +
        JSON.stringify(showPerson(person)).slice(1, -1) +
        ',"created_at":"2023-11-14T22:13:20.000Z"}}',
    );
    const withoutLead = makeBody(KEYS, owner, { ...event, storedBody: "", lead: null });
    await expect(withoutLead).rejects.toThrow(UnreadableEvent);
    const other = { ...event, type: "run.completed" as const, storedBody: "", lead };
    expect(JSON.parse(await makeBody(KEYS, owner, other))).toMatchObject({ type: "run.completed" });
  });
});

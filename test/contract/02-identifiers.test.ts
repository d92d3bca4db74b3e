import { beforeAll, describe, expect, test } from "vitest";
import {
  type Automation,
  idOf,
  type Lead,
  openReceiver,
  openWorkspace,
  type Page,
  type Run,
  subscribe,
} from "./support.ts";

/** A workspace with one of each resource, and a delivery. */
async function readOneOfEach() {
  const { api, recordAutomation, recordLead, recordRun } = await openWorkspace();
  const receiver = openReceiver();
  const webhook = await subscribe(api, receiver.url, ["lead.created"]);
  await recordRun(await recordAutomation());
  await recordLead();
  const firstOf = async <Item>(path: string) => {
    const { body } = await api.get<Page<Item>>(path);
    return body.data[0] as Item;
  };
  const automation = await firstOf<Automation>("/automations");
  const lead = await firstOf<Lead>("/leads");
  const run = await firstOf<Run>("/runs");
  const [received] = await receiver.waitFor(1);
  return {
    aut_: automation.id,
    agt_: automation.agent_id,
    run_: run.id,
    lea_: lead.id,
    whk_: webhook.id,
    evt_: received?.delivery.id ?? "",
  };
}

describe("Identifiers", () => {
  let ids: Awaited<ReturnType<typeof readOneOfEach>>;
  beforeAll(async () => {
    ids = await readOneOfEach();
  });

  test.each([
    ["aut_", "an automation"],
    ["agt_", "an agent"],
    ["run_", "a run"],
    ["lea_", "a lead"],
    ["whk_", "a webhook subscription"],
    ["evt_", "an event"],
  ] as const)("`%s` is the prefix of %s", (prefix, _) => {
    expect(ids[prefix]).toEqual(idOf(prefix.slice(0, -1)));
  });

  test("Identifiers are not UUIDs", () => {
    const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
    const all = Object.values(ids);
    expect(all).toHaveLength(6);
    for (const id of all) {
      expect(id).not.toMatch(uuid);
      expect(id.slice(4)).not.toMatch(uuid);
    }
  });

  test("An event has one `evt_` identifier for all its subscriptions", async () => {
    const { api, recordLead } = await openWorkspace();
    const receivers = [openReceiver(), openReceiver()];
    for (const { url } of receivers) await subscribe(api, url);
    await recordLead();
    const received = await Promise.all(receivers.map((receiver) => receiver.waitFor(1)));
    expect(new Set(received.flat().map(({ delivery }) => delivery.id)).size).toBe(1);
  });

  test("Two events have two `evt_` identifiers", async () => {
    const { api, recordLead } = await openWorkspace();
    const receiver = openReceiver();
    await subscribe(api, receiver.url);
    await recordLead();
    await recordLead();
    const received = await receiver.waitFor(2);
    expect(new Set(received.map(({ delivery }) => delivery.id)).size).toBe(2);
  });
});

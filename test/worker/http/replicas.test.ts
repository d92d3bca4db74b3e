import { evictDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Page } from "../../../src/http/paging.ts";
import { hashApiKey } from "../../../src/quota/api-key.ts";
import { knownKeys } from "../../../src/quota/memory.ts";
import type { Lead } from "../../../src/records/leads.ts";
import {
  deployedWith,
  leadReport,
  openApi,
  openWorkspace,
  recordAutomation,
} from "../../support/api.ts";
import { answered, consumeFor, isolated, subscribe } from "../../support/deliveries.ts";
import { countHops } from "../../support/hops.ts";
import { laggingReplica } from "../../support/lagging-replica.ts";
import { DATABASE } from "../../support/placement.ts";

/** A workspace with reads served by a replica, as seen by an isolate that knows the key. */
async function openReplicated() {
  const replica = laggingReplica();
  const far = countHops(replica.DB);
  const workspace = await openWorkspace();
  const id = await recordAutomation(workspace.workspaceId, { status: "active" });
  // Afterwards, this isolate knows the workspace's data key, and reads of leads no longer ask for it.
  const { ids } = await exports.Platform.recordLeads({
    workspaceId: workspace.workspaceId,
    leads: [leadReport("0")],
  });
  const [leadId = ""] = ids;
  const api = openApi(workspace.apiKey, deployedWith(far.overrides));
  const path = `/v1/automations/${id}`;
  await api.get(path);
  await api.get("/v1/leads");
  await api.get("/v1/webhooks");
  const keyHash = await hashApiKey(workspace.apiKey);
  const before = knownKeys.get(keyHash);
  await replica.stop();
  return {
    ...workspace,
    leadId,
    replica,
    api,
    path,
    hops: far.taken,
    /** The memory of an isolate that has seen nothing since the replica stopped. */
    moveElsewhere: () => before && knownKeys.set(keyHash, before),
  };
}

describe("a replica that lags behind", () => {
  test("shows what it has to a client that has changed nothing", async () => {
    const { api, path, workspaceId, leadId, replica, hops } = await openReplicated();
    await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    hops();
    expect((await api.get<Page<Lead>>("/v1/leads")).body.data).toMatchObject([{ id: leadId }]);
    expect((await api.get(path)).body).toMatchObject({ status: "active" });
    expect([replica.staleReads(), hops()]).toEqual([2, 2]);
  });

  test.each([
    ["the isolate that wrote", false],
    ["an isolate that does not know of the write", true],
  ])("is not used by %s once a client has written", async (_, elsewhere) => {
    const { api, path, moveElsewhere, replica, hops } = await openReplicated();
    expect((await api.patch(path, { status: "paused" })).status).toBe(200);
    if (elsewhere) moveElsewhere();
    hops();
    expect((await api.get(path)).body).toMatchObject({ status: "paused" });
    // Elsewhere, the first read is stale and is repeated; after that, the isolate knows.
    expect([hops(), replica.staleReads()]).toEqual(elsewhere ? [2, 1] : [1, 0]);
    expect((await api.get(path)).body).toMatchObject({ status: "paused" });
    expect([hops(), replica.staleReads()]).toEqual(elsewhere ? [1, 1] : [1, 0]);
  });

  test("is not used for a list after a subscription was created or deleted", async () => {
    const { api, moveElsewhere } = await openReplicated();
    const url = "https://hooks.example/in";
    const { body } = await api.post<{ id: string }>("/v1/webhooks", {
      url,
      events: ["lead.created"],
    });
    moveElsewhere();
    expect((await api.get<Page<{ id: string }>>("/v1/webhooks")).body.data).toMatchObject([
      { id: body.id },
    ]);
    expect((await api.delete(`/v1/webhooks/${body.id}`)).status).toBe(204);
    moveElsewhere();
    expect((await api.get<Page<{ id: string }>>("/v1/webhooks")).body.data).toEqual([]);
  });

  test("hides nothing from a subscriber that asks for the lead it has just been sent", async () => {
    const { api, workspaceId, leadId, replica } = await openReplicated();
    const { id } = await subscribe(workspaceId);
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    const found: string[][] = [];
    await consumeFor([id], isolated().env, async () => {
      const { body } = await api.get<Page<Lead>>("/v1/leads");
      found.push(body.data.map((lead) => lead.id));
      return answered(200);
    });
    expect(found).toEqual([[...ids, leadId]]);
    expect(replica.staleReads()).toBe(1);
  });

  test("hides nothing from a key that was created after the lead", async () => {
    const { workspaceId, leadId, replica } = await openReplicated();
    const { id } = await subscribe(workspaceId);
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
    const { apiKey } = await exports.Platform.createApiKey({ workspaceId });
    const api = openApi(apiKey, deployedWith({ DB: replica.DB }));
    await consumeFor([id], isolated().env, async () => answered(200));
    const { body } = await api.get<Page<Lead>>("/v1/leads");
    expect(body.data.map((lead) => lead.id)).toEqual([...ids, leadId]);
  });
});

test("a gate that cannot be told of a bookmark delays no delivery", async () => {
  const { workspaceId } = await openWorkspace();
  const { id } = await subscribe(workspaceId);
  await exports.Platform.recordLeads({ workspaceId, leads: [leadReport("1")] });
  const unreachable = { advance: () => Promise.reject(new Error("no such object")) };
  const KEY_GATE = { getByName: () => unreachable } as unknown as Env["KEY_GATE"];
  let posts = 0;
  await consumeFor([id], isolated({ KEY_GATE }).env, async () => {
    posts++;
    return answered(200);
  });
  expect(posts).toBe(1);
});

test("an evicted gate returns with its bookmark", async () => {
  const { apiKey } = await openWorkspace();
  const keyHash = await hashApiKey(apiKey);
  const bookmark = "ffffffff-00000000-00000000-00000000000000000000000000000000";
  await env.KEY_GATE.getByName(keyHash).admit(keyHash);
  await env.KEY_GATE.getByName(keyHash).advance(bookmark, DATABASE);
  await env.KEY_GATE.getByName(keyHash).advance(
    "00000000-00000000-00000000-00000000000000000000000000000000",
    DATABASE,
  );
  await evictDurableObject(env.KEY_GATE.getByName(keyHash));
  expect(await env.KEY_GATE.getByName(keyHash).admit(keyHash)).toMatchObject({ bookmark });
});

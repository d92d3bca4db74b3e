import { describe, expect, test } from "vitest";
import type { PageBody } from "../../../src/http/paging.ts";
import { knownKeys } from "../../../src/rate-limit/isolate-cache.ts";
import { hashApiKey } from "../../../src/rate-limit/key-text.ts";
import {
  deployedWith,
  openApi,
  openWorkspace,
  recordAutomation,
  recordLead,
} from "../../support/api.ts";
import { BROKEN } from "../../support/deliveries.ts";
import { countHops } from "../../support/hops.ts";
import { interposed } from "../../support/interposed.ts";
import { laggingReplica } from "../../support/lagging-replica.ts";

/** A workspace with reads served by a replica, as seen by an isolate that knows the key. */
async function openReplicated() {
  const replica = laggingReplica();
  const far = countHops(replica.DB);
  const workspace = await openWorkspace();
  const { workspaceId, apiKey } = workspace;
  const path = `/v1/automations/${await recordAutomation(workspaceId)}`;
  // Afterwards, this isolate knows the workspace's data key, and reads of leads no longer ask for it.
  const leadId = await recordLead(workspaceId);
  const api = openApi(apiKey, deployedWith(far.overrides));
  for (const each of [path, "/v1/leads", "/v1/webhooks"]) await api.get(each);
  const keyHash = await hashApiKey(apiKey);
  const before = knownKeys.get(keyHash);
  await replica.stop();
  return {
    ...workspace,
    leadId,
    replica,
    api,
    path,
    list: (list: string) => idsOf(api, list),
    hops: far.taken,
    /** The memory of an isolate that has seen nothing since the replica stopped. */
    moveElsewhere: () => before && knownKeys.set(keyHash, before),
  };
}

async function idsOf(api: ReturnType<typeof openApi>, list: string) {
  const { body } = await api.get<PageBody<{ id: string }>>(`/v1/${list}`);
  return body.data.map(({ id }) => id);
}

describe("a replica that lags behind", () => {
  test("shows what it has to a client that has changed nothing", async () => {
    const { api, list, path, workspaceId, leadId, replica, hops } = await openReplicated();
    await recordLead(workspaceId);
    hops();
    expect(await list("leads")).toEqual([leadId]);
    expect((await api.get(path)).body).toMatchObject({ status: "active" });
    expect([replica.staleReads(), hops()]).toEqual([2, 2]);
  });

  test("leaves the isolate's memory of how recent reads were, if a request reads nothing", async () => {
    const { api, apiKey } = await openReplicated();
    const keyHash = await hashApiKey(apiKey);
    const before = knownKeys.get(keyHash);
    expect(before?.bookmark).toEqual(expect.any(String));
    expect((await api.get("/v1/leads?limit=0")).status).toBe(400);
    expect(knownKeys.get(keyHash)).toEqual(before);
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

  test("is not used once a write has failed that may have been committed", async () => {
    const { api, apiKey, path, replica } = await openReplicated();
    const DB = interposed(replica.DB, async ({ texts, go }) => {
      const found = await go();
      if (texts.some((text) => /insert into "automations"/i.test(text))) throw BROKEN;
      return found;
    });
    const failing = openApi(apiKey, deployedWith({ DB }));
    expect((await failing.patch(path, { status: "paused" })).status).toBe(500);
    expect((await api.get(path)).body).toMatchObject({ status: "paused" });
  });

  test("is not used for a list after a subscription was created or deleted", async () => {
    const { api, list, moveElsewhere } = await openReplicated();
    const creation = { url: "https://hooks.example/in", events: ["lead.created"] };
    const { id } = (await api.post<{ id: string }>("/v1/webhooks", creation)).body;
    moveElsewhere();
    expect(await list("webhooks")).toEqual([id]);
    expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
    moveElsewhere();
    expect(await list("webhooks")).toEqual([]);
  });
});

import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test } from "vitest";
import { openedDataKeys } from "../../../../src/encryption/personal-data.ts";
import { leadReport, openWorkspace } from "../../../support/api.ts";
import {
  consumeFor,
  isolated,
  observedDatabase,
  receivedBy,
  statesOf,
  subscribe,
} from "../../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";
import { record } from "../../../support/record.ts";

beforeEach(() => openedDataKeys.clear());

describe("recording leads", () => {
  test("looks up the data key once in each isolate", async () => {
    const { workspaceId } = await openWorkspace();
    const { DB, trips } = observedDatabase();
    for (const [i, made] of [2, 3, 5].entries()) {
      if (i === 2) openedDataKeys.clear();
      const leads = [leadReport(String(i))];
      await record({ ...env, DB }, "recordLeads", { workspaceId, leads }, Date.now());
      expect(trips).toHaveLength(made);
    }
  });

  test("fails if its workspace's data key cannot be decrypted, and records nothing", async () => {
    const { workspaceId, api } = await openWorkspace();
    const breaking = "UPDATE workspaces SET data_key = 'lost.AAAA' WHERE id = ?";
    await WORKSPACE_DB.prepare(breaking).bind(workspaceId).run();
    const report = { workspaceId, leads: [leadReport("1")] };
    await expect(record(env, "recordLeads", report, Date.now())).rejects.toThrow(
      "no encryption key",
    );
    expect((await api.get("/v1/leads")).body).toMatchObject({ data: [] });
  });
});

describe("recorded leads", () => {
  test("are not shown without their personal data if their data key is gone, and other workspaces are served", async () => {
    const [broken, fine] = [await openWorkspace(), await openWorkspace()];
    const subscriptions = [await subscribe(broken.workspaceId), await subscribe(fine.workspaceId)];
    for (const { workspaceId } of [broken, fine])
      await record(env, "recordLeads", { workspaceId, leads: [leadReport("1")] }, Date.now());
    const lose = WORKSPACE_DB.prepare("UPDATE workspaces SET data_key = NULL WHERE id = ?");
    await lose.bind(broken.workspaceId).run();
    openedDataKeys.clear();
    expect((await broken.api.get("/v1/leads")).status).toBe(500);
    const ids = subscriptions.map(({ id }) => id);
    await consumeFor(ids, isolated().env);
    const received = await Promise.all(subscriptions.map(receivedBy));
    expect(received.map((posts) => posts.length)).toEqual([0, 1]);
    expect(await Promise.all(ids.map(statesOf))).toEqual([{ pending: 1 }, { delivered: 1 }]);
  });
});

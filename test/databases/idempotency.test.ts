import { expect, test } from "vitest";
import { openWorkspace, recordLead } from "../support/api.ts";
import { rowsIn } from "../support/databases.ts";
import { copyAll, moved, placementOf } from "../support/moves.ts";

type Created = { id: string; secret: string };

function creator({ api }: Awaited<ReturnType<typeof openWorkspace>>) {
  return () =>
    api.send<Created>("/v1/webhooks", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Idempotency-Key": "k" },
      body: JSON.stringify({ url: "https://ok-webhooks.example/h", events: ["lead.created"] }),
    });
}

test("a key of a subscription that is deleted during a move can be used again meanwhile", async () => {
  const workspace = await openWorkspace();
  const create = creator(workspace);
  const { workspaceId, api } = workspace;
  const first = await create();
  await copyAll(workspaceId);
  expect((await api.delete(`/v1/webhooks/${first.body.id}`)).status).toBe(204);
  const second = await create();
  expect(second.body.id).not.toBe(first.body.id);
  await moved(workspaceId, "DB_3");
  expect(await placementOf(workspaceId)).toBe("DB_3");
  expect((await create()).body).toEqual(second.body);
});

// Ids are random: the new one comes first in half of these.
test.each([1, 2, 3, 4, 5])(
  "and if deliveries to the deleted one are still in progress: %i",
  async () => {
    const workspace = await openWorkspace();
    const create = creator(workspace);
    const { workspaceId, api } = workspace;
    const first = await create();
    await copyAll(workspaceId);
    const hold = "UPDATE subscriptions SET held_by = 'x', held_until = ? WHERE id = ?";
    await rowsIn("DB_2", hold, Date.now() + 3_000, first.body.id);
    await recordLead(workspaceId);
    expect((await api.delete(`/v1/webhooks/${first.body.id}`)).status).toBe(204);
    const second = await create();
    await moved(workspaceId, "DB_3");
    expect(await placementOf(workspaceId)).toBe("DB_3");
    expect((await create()).body).toEqual(second.body);
  },
);

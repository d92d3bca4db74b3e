import { expect, test } from "vitest";
import { invalid, openApi, openWorkspace, Platform } from "../../../support/api.ts";

const creation = { url: "https://ok-idempotent.example/", events: ["lead.created"] };
type Created = { id: string; url: string; secret: string };

test("an Idempotency-Key gets the same subscription after its URL was changed", async () => {
  const { api } = await openWorkspace();
  const send = (body: object) =>
    api.post<Created>("/v1/webhooks", body, { "Idempotency-Key": "k1" });
  const first = await send(creation);
  const url = "https://ok-other.example/";
  await Platform.updateWebhook({ webhookId: first.body.id, url });
  const second = await send(creation);
  expect(second.status).toBe(201);
  expect(second.body).toEqual(first.body);
  expect(await send({ ...creation, url })).toEqual(
    invalid("idempotency-key", "idempotency_key_reused"),
  );
});

test("an Idempotency-Key belongs to its API key: another one creates its own subscription", async () => {
  const { workspaceId, api } = await openWorkspace();
  const other = openApi((await Platform.createApiKey({ workspaceId })).apiKey);
  const key = { "Idempotency-Key": "k1" };
  const first = await api.post<Created>("/v1/webhooks", creation, key);
  const second = await other.post<Created>("/v1/webhooks", creation, key);
  const third = await other.post<Created>(
    "/v1/webhooks",
    { ...creation, events: ["run.completed"] },
    { "Idempotency-Key": "k2" },
  );
  expect([first.status, second.status, third.status]).toEqual([201, 201, 201]);
  expect(second.body.id).not.toBe(first.body.id);
  expect(second.body.secret).not.toBe(first.body.secret);
  expect((await other.post<Created>("/v1/webhooks", creation, key)).body).toEqual(second.body);
});

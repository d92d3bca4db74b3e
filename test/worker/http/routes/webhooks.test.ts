import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import type { PageBody } from "../../../../src/http/paging.ts";
import type { Webhook } from "../../../../src/subscriptions/subscriptions.ts";
import {
  type Answer,
  deployedWith,
  EMPTY_PAGE,
  EVERY_ANSWER,
  invalid,
  openApi,
  openWorkspace,
  Platform,
  refusal,
  SOME_TIME,
  success,
} from "../../../support/api.ts";
import { subscriptionRow } from "../../../support/deliveries.ts";
import { interposed } from "../../../support/interposed.ts";
import { lossyDatabase } from "../../../support/lost-reply.ts";
import { useThreeDatabases, WORKSPACE_DB } from "../../../support/placement.ts";
import { insertDeliveries } from "../../../support/rows.ts";

useThreeDatabases();

type Api = Awaited<ReturnType<typeof openWorkspace>>["api"];

const KINDS = WebhookEvent.options;
const BODY = { url: "https://ok-webhooks.example/hook?a=1", events: KINDS.slice(0, 2) };
const NOT_FOUND = refusal(404, "webhook_not_found");

const create = (api: Api, differences: object = {}, headers?: Record<string, string>) =>
  api.post<Webhook & { secret: string }>("/v1/webhooks", { ...BODY, ...differences }, headers);
const list = async (api: Api) =>
  (await api.get<PageBody<Webhook>>("/v1/webhooks?limit=100")).body.data;
/** Changes what is stored of a subscription. */
const set = (id: string, changes: string) =>
  WORKSPACE_DB.prepare(`UPDATE subscriptions SET ${changes} WHERE id = ?`).bind(id).run();

describe("POST /webhooks", () => {
  test("returns 201 with the subscription and its secret, which is not stored in plain text", async () => {
    const { api } = await openWorkspace();
    const startedAt = new Date().toISOString();
    const answer = await create(api, { events: KINDS });
    const { id, secret, created_at } = answer.body;
    const shown = { id, url: BODY.url, events: KINDS, created_at: SOME_TIME, disabled_at: null };
    expect(answer).toEqual(success(201, { ...shown, secret }));
    expect(id).toMatch(/^whk_[0-9a-z]+$/);
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect((await create(api)).body.secret).not.toBe(secret);
    expect(created_at >= startedAt && created_at <= new Date().toISOString()).toBe(true);
    const row = WORKSPACE_DB.prepare("SELECT * FROM subscriptions WHERE id = ?").bind(id);
    const stored = JSON.stringify(await row.first());
    expect(stored).toContain(id);
    expect(stored).not.toContain(secret.slice("whsec_".length, -1));
  });

  const [run, lead] = KINDS;
  const longest = `https://a.example/${"a".repeat(2_000)}`;
  test.each([
    [{ events: [run, lead, run] }, { events: [run, lead] }],
    [{ url: "HTTPS://Hooks.Example.COM/%7Ea" }, { url: "HTTPS://Hooks.Example.COM/%7Ea" }],
    [{ url: "https://bücher.example/a b" }, { url: "https://xn--bcher-kva.example/a%20b" }],
    [{ url: longest }, { url: longest }],
  ])("collapses duplicate events and keeps a URI unchanged (%#)", async (given, shown) => {
    const { api } = await openWorkspace();
    expect(await create(api, given)).toMatchObject({ status: 201, body: shown });
  });

  const unknownKind = (i: number) => invalid(`events.${i}`, "unknown_value", { allowed: KINDS });
  test.each<[object, Answer]>([
    [{ url: undefined }, invalid("url", "required")],
    [{ url: null }, invalid("url", "invalid_type")],
    [{ url: 1 }, invalid("url", "invalid_type")],
    [{ events: undefined }, invalid("events", "required")],
    [{ events: null }, invalid("events", "invalid_type")],
    [{ events: "lead.created" }, invalid("events", "invalid_type")],
    [{ events: { 0: "lead.created" } }, invalid("events", "invalid_type")],
    [{ events: [] }, invalid("events", "out_of_range", { min: 1 })],
    [{ events: ["lead.created", "lead.invented"] }, unknownKind(1)],
    [{ events: ["LEAD.CREATED"] }, unknownKind(0)],
    [{ events: [null] }, invalid("events.0", "invalid_type")],
    [{ secret: "whsec_x" }, invalid("secret", "unknown_property")],
    [{ id: "whk_1" }, invalid("id", "unknown_property")],
    // One URL of each reason; test/worker/subscriptions/target.test.ts has all of them.
    [{ url: "example" }, invalid("url", "invalid_url")],
    [{ url: "http://example.com/" }, invalid("url", "https_required")],
    [{ url: "https://user:password@example.com/" }, invalid("url", "credentials_not_allowed")],
    [{ url: "https://10.0.0.1/" }, invalid("url", "private_address")],
  ])("rejects a body with a 400 that names the parameter: %j", async (differences, expected) => {
    const { api } = await openWorkspace();
    expect(await create(api, differences)).toEqual(expected);
    expect(await api.get("/v1/webhooks")).toEqual(success(200, EMPTY_PAGE));
  });

  const allowed: Answer = expect.objectContaining({ status: 201 });
  const isPrivate = invalid("url", "private_address");
  test.each<[url: string, value: string, Answer]>([
    ["http://localhost:9000/hook", "true", allowed],
    ["ftp://localhost/", "true", invalid("url", "https_required")],
    ["https://localhost/", "false", isPrivate],
    ["https://localhost/", "TRUE", isPrivate],
  ])("judges %s by ALLOW_LOCAL_WEBHOOKS: %s", async (url, ALLOW_LOCAL_WEBHOOKS, expected) => {
    const { apiKey } = await openWorkspace();
    const api = openApi(apiKey, deployedWith({ ALLOW_LOCAL_WEBHOOKS }));
    expect(await create(api, { url })).toEqual(expected);
  });
});

describe("an Idempotency-Key", () => {
  const createAs = (api: Api, key: string, differences?: object) =>
    create(api, differences, { "Idempotency-Key": key });

  test("gives the same response again, secret included, even at once", async () => {
    const { api } = await openWorkspace();
    const answers = await Promise.all([1, 2, 3].map(() => createAs(api, "a")));
    const { secret, ...shown } = (await createAs(api, "a")).body;
    for (const answer of answers) expect(answer).toEqual(success(201, { ...shown, secret }));
    const otherOrder = { events: [...KINDS.slice(0, 2).toReversed(), KINDS[0]] };
    expect((await createAs(api, "a", otherOrder)).body).toEqual({ ...shown, secret });
    for (const other of [{ url: `${BODY.url}&b=2` }, { events: ["lead.created"] }])
      expect(await createAs(api, "a", other)).toEqual(
        invalid("idempotency-key", "idempotency_key_reused"),
      );
    expect(await list(api)).toEqual([shown]);
    expect((await createAs(api, "b")).body.id).not.toBe(shown.id);
  });

  test("gives the same response to a request that another one overtakes", async () => {
    const { api, apiKey } = await openWorkspace();
    let overtaking: ReturnType<typeof create> | undefined;
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      if (!overtaking && texts.some((text) => /^insert into "subscriptions"/i.test(text.trim()))) {
        overtaking = createAs(api, "a");
        await overtaking;
      }
      return go();
    });
    const overtaken = await createAs(openApi(apiKey, deployedWith({ DB })), "a");
    expect(overtaken.body).toEqual((await overtaking)?.body);
    expect(await list(api)).toHaveLength(1);
  });

  test("gives the same response at the limit, and though its host no longer qualifies", async () => {
    const { workspaceId, api, apiKey } = await openWorkspace();
    const gone = { url: "https://nxdomain.example/" };
    const first = await createAs(api, "a", gone);
    await Platform.updateWorkspace({ workspaceId, webhooksMax: 1 });
    const DNS_OVER_HTTPS_URL = "https://dns.example/dns-query";
    const resolving = openApi(apiKey, deployedWith({ DNS_OVER_HTTPS_URL }));
    expect(await createAs(resolving, "a", gone)).toEqual(success(201, first.body));
    expect((await createAs(api, "another")).status).toBe(400);
  });

  test("gives the same response after the URL was changed", async () => {
    const { api } = await openWorkspace();
    const first = await createAs(api, "a");
    const url = "https://ok-other.example/";
    await Platform.updateWebhook({ webhookId: first.body.id, url, events: ["run.completed"] });
    expect(await createAs(api, "a")).toEqual(success(201, first.body));
    expect(await createAs(api, "a", { url })).toEqual(
      invalid("idempotency-key", "idempotency_key_reused"),
    );
  });

  test("belongs to its API key: with another one, it creates another subscription", async () => {
    const { workspaceId, api } = await openWorkspace();
    const other = openApi((await Platform.createApiKey({ workspaceId })).apiKey);
    const [first, second] = [await createAs(api, "a"), await createAs(other, "a")];
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.body.id).not.toBe(first.body.id);
    expect(second.body.secret).not.toBe(first.body.secret);
    expect(await createAs(other, "a")).toEqual(success(201, second.body));
  });

  test("is forgotten after 24 hours, when the secret is rotated or the subscription is deleted", async () => {
    const { api } = await openWorkspace();
    const seen: string[] = [];
    const next = async (isNew: boolean) => {
      const { status, body } = await createAs(api, "a");
      expect([status, seen.includes(body.id)]).toEqual([201, !isNew]);
      seen.push(body.id);
      return body.id;
    };
    const first = await next(true);
    await set(first, `created_at = ${Date.now() - 24 * 3_600_000 + 60_000}`);
    await next(false);
    await set(first, `created_at = ${Date.now() - 24 * 3_600_000}`);
    await Platform.rotateWebhookSecret({ webhookId: await next(true) });
    expect((await api.delete(`/v1/webhooks/${await next(true)}`)).status).toBe(204);
    await next(true);
  });

  test.each([
    ["the first and the last visible ASCII character", "!~"],
    ["255 characters", "a".repeat(255)],
  ])("may have %s", async (_, key) => {
    const { api } = await openWorkspace();
    expect((await createAs(api, key)).status).toBe(201);
  });

  test.each([" ", "a b", "é", "a".repeat(256), ""])("is not %j", async (key) => {
    const { api } = await openWorkspace();
    const range = invalid("idempotency-key", "out_of_range", { min: 1, max: 255 });
    expect(await createAs(api, key)).toEqual(range);
    expect(await list(api)).toEqual([]);
  });
});

describe("the subscription limit", () => {
  const reached = (max: number) =>
    refusal(400, "invalid_request", { reason: "subscription_limit_reached", max });

  test("is 20 per workspace or what is agreed, exact under concurrent requests", async () => {
    const { workspaceId, api } = await openWorkspace();
    const created: string[] = [];
    for (const max of [20, 22]) {
      const answers = await Promise.all(
        Array.from({ length: max + 5 - created.length }, () => create(api)),
      );
      for (const answer of answers)
        if (answer.status === 201) created.push(answer.body.id);
        else expect(answer).toEqual(reached(max));
      expect((await list(api)).map(({ id }) => id).toSorted()).toEqual(created.toSorted());
      expect(created).toHaveLength(max);
      await Platform.updateWorkspace({ workspaceId, webhooksMax: 22 });
    }
  });

  test("lowered below the current number rejects new subscriptions until there is room", async () => {
    const { workspaceId, api } = await openWorkspace();
    await create((await openWorkspace()).api);
    for (let i = 0; i < 3; i++) await create(api);
    await Platform.updateWorkspace({ workspaceId, webhooksMax: 2 });
    const [first, ...others] = await list(api);
    expect(others).toHaveLength(2);
    expect(await create(api)).toEqual(reached(2));
    for (const { id } of others) {
      expect(await create(api)).toEqual(reached(2));
      expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
    }
    expect((await create(api)).status).toBe(201);
    expect(await create(api)).toEqual(reached(2));
    await set(first?.id ?? "", "deleted_at = 1, has_to_end = 1");
    expect((await create(api)).status).toBe(201);
    expect((await create(api)).status).toBe(400);
  });
});

test("GET /webhooks returns subscriptions newest first, with disabled_at and without secrets", async () => {
  const { api } = await openWorkspace();
  const disabled_at = "2026-03-14T09:26:53.589Z";
  const newestFirst: Webhook[] = [];
  for (let i = 0; i < 5; i++) {
    const { secret: _, ...subscription } = (await create(api)).body;
    newestFirst.unshift({ ...subscription, ...(i === 0 && { disabled_at }) });
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await set(newestFirst[4]?.id ?? "", `disabled_at = ${Date.parse(disabled_at)}`);
  const first = await api.get<PageBody<Webhook>>("/v1/webhooks?limit=3");
  const { next_cursor } = first.body;
  expect(first).toEqual(
    success(200, { data: newestFirst.slice(0, 3), has_more: true, next_cursor }),
  );
  expect(await api.get(`/v1/webhooks?limit=3&cursor=${next_cursor}`)).toEqual(
    success(200, { ...EMPTY_PAGE, data: newestFirst.slice(3) }),
  );
});

describe("DELETE /webhooks/{id}", () => {
  test("returns 204 to one of several clients, and 404 to the others", async () => {
    const { api } = await openWorkspace();
    const [gone, { secret: _, ...kept }] = [(await create(api)).body, (await create(api)).body];
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => api.delete(`/v1/webhooks/${gone.id}`)),
    );
    expect(answers.toSorted((a, b) => a.status - b.status)).toEqual([
      { status: 204, headers: EVERY_ANSWER, body: null },
      ...Array(3).fill(NOT_FOUND),
    ]);
    expect(await list(api)).toEqual([kept]);
  });

  test("responds with 404 the second time, and changes nothing, even while a dispatch sends to it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = (await create(api)).body;
    await set(id, "leased_by = 'a dispatch', leased_until = 9e15");
    await insertDeliveries([{ subscriptionId: id, eventId: "evt", workspaceId }]);
    expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
    const deleted = await subscriptionRow(id);
    expect(await api.delete(`/v1/webhooks/${id}`)).toEqual(NOT_FOUND);
    expect(await subscriptionRow(id)).toEqual(deleted);
  });

  test("is not tried again if the database's reply is lost: the second try would respond with 404", async () => {
    const { api, apiKey } = await openWorkspace();
    const { id } = (await create(api)).body;
    const lossy = openApi(apiKey, deployedWith({ DB: lossyDatabase("reply") }));
    expect((await lossy.delete(`/v1/webhooks/${id}`)).status).toBe(500);
    expect(await api.delete(`/v1/webhooks/${id}`)).toEqual(NOT_FOUND);
  });
});

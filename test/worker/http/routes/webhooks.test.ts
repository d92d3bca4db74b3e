import { exports } from "cloudflare:workers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Reason } from "../../../../src/contract/errors.ts";
import type { Webhook } from "../../../../src/webhooks/subscriptions.ts";
import {
  deployedWith,
  EMPTY_PAGE,
  EVERY_ANSWER,
  invalid,
  openApi,
  openWorkspace,
  refusal,
  success,
} from "../../../support/api.ts";
import { lossyDatabase } from "../../../support/lost-reply.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";

type Created = Webhook & { secret: string };
type Api = Awaited<ReturnType<typeof openWorkspace>>["api"];

const URL_OF_OURS = "https://ok-webhooks.example/hook?a=1";
const KINDS = ["run.completed", "lead.created", "automation.status_changed"];
const NOT_FOUND = refusal(404, "webhook_not_found");

/** Creates a subscription. */
async function create(api: Api, events = ["lead.created"]): Promise<Created> {
  return (await api.post<Created>("/v1/webhooks", { url: URL_OF_OURS, events })).body;
}

describe("POST /webhooks", () => {
  let refused: Api;
  beforeAll(async () => {
    refused = (await openWorkspace()).api;
  });
  afterAll(async () => {
    expect(await refused.get("/v1/webhooks")).toEqual(success(200, EMPTY_PAGE));
  });

  test("returns 201 with the subscription and its secret", async () => {
    const { api } = await openWorkspace();
    const startedAt = new Date().toISOString();
    const answer = await api.post<Created>("/v1/webhooks", {
      url: URL_OF_OURS,
      events: ["run.completed", "lead.created", "automation.status_changed"],
    });
    expect(answer).toEqual(
      success(201, {
        id: expect.stringMatching(/^whk_[0-9a-z]+$/),
        url: URL_OF_OURS,
        events: ["run.completed", "lead.created", "automation.status_changed"],
        created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        disabled_at: null,
        secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
      }),
    );
    expect(atob(answer.body.secret.slice("whsec_".length))).toHaveLength(32);
    expect(answer.body.created_at >= startedAt).toBe(true);
    expect(answer.body.created_at <= new Date().toISOString()).toBe(true);
  });

  describe("with an Idempotency-Key", () => {
    const BODY = { url: URL_OF_OURS, events: ["lead.created", "run.completed"] };
    const createAs = (api: Api, key: string, body: object = BODY) =>
      api.send<Created>("/v1/webhooks", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: JSON.stringify(body),
      });
    const reused = invalid("idempotency-key", "idempotency_key_reused");

    test("gives the same answer again, secret included, and creates one", async () => {
      const { api } = await openWorkspace();
      const first = await createAs(api, "a");
      expect(first.status).toBe(201);
      expect(await createAs(api, "a")).toEqual(success(201, first.body));
      const otherOrder = { ...BODY, events: ["run.completed", "lead.created", "lead.created"] };
      expect((await createAs(api, "a", otherOrder)).body).toEqual(first.body);
      const { secret, ...shown } = first.body;
      expect((await api.get<{ data: Webhook[] }>("/v1/webhooks")).body.data).toEqual([shown]);
      expect((await createAs(api, "b")).body.id).not.toBe(first.body.id);
    });

    test("creates one of two at once", async () => {
      const { api } = await openWorkspace();
      const answers = await Promise.all([1, 2, 3].map(() => createAs(api, "at-once")));
      expect(new Set(answers.map(({ body }) => body.secret)).size).toBe(1);
      expect((await api.get<{ data: Webhook[] }>("/v1/webhooks")).body.data).toHaveLength(1);
    });

    test("refuses another body", async () => {
      const { api } = await openWorkspace();
      await createAs(api, "c");
      expect(await createAs(api, "c", { ...BODY, url: `${URL_OF_OURS}&b=2` })).toEqual(reused);
      expect(await createAs(api, "c", { ...BODY, events: ["lead.created"] })).toEqual(reused);
    });

    test("gives the same answer at the limit, and though the URL no longer qualifies", async () => {
      const { api, apiKey } = await openWorkspace();
      const local = { url: "http://127.0.0.1/", events: ["lead.created"] };
      const lenient = openApi(apiKey, deployedWith({ ALLOW_LOCAL_WEBHOOKS: "true" }));
      const first = await createAs(lenient, "d", local);
      for (let i = 1; i < 20; i++) await api.post("/v1/webhooks", BODY);
      expect(await createAs(api, "d", local)).toEqual(success(201, first.body));
      expect((await createAs(api, "another")).status).toBe(400);
    });

    test("belongs to its workspace, and to a subscription that exists", async () => {
      const [one, other] = [await openWorkspace(), await openWorkspace()];
      const first = await createAs(one.api, "e");
      expect((await createAs(other.api, "e")).body.id).not.toBe(first.body.id);
      await one.api.send(`/v1/webhooks/${first.body.id}`, { method: "DELETE" });
      expect((await createAs(one.api, "e")).body.id).not.toBe(first.body.id);
    });

    test("is forgotten after 24 hours, when the secret is rotated or the events are changed", async () => {
      const { api } = await openWorkspace();
      const first = await createAs(api, "f");
      const age = (ms: number) =>
        WORKSPACE_DB.prepare("UPDATE subscriptions SET created_at = ? WHERE id = ?")
          .bind(Date.now() - ms, first.body.id)
          .run();
      await age(24 * 3_600_000 - 60_000);
      expect((await createAs(api, "f")).body.id).toBe(first.body.id);
      await age(24 * 3_600_000);
      const second = await createAs(api, "f", { ...BODY, events: ["lead.created"] });
      expect(second.status).toBe(201);
      expect(second.body.id).not.toBe(first.body.id);
      await exports.Platform.rotateWebhookSecret({ webhookId: second.body.id });
      const third = await createAs(api, "f", { ...BODY, events: ["lead.created"] });
      expect([first.body.id, second.body.id]).not.toContain(third.body.id);
      await exports.Platform.updateWebhook({ webhookId: third.body.id, events: ["run.completed"] });
      const fourth = await createAs(api, "f");
      expect([third.body.id, undefined]).not.toContain(fourth.body.id);
      const [webhookId, events] = [fourth.body.id, ["run.completed", "lead.created"] as const];
      await exports.Platform.updateWebhook({ webhookId, events: [...events], description: "x" });
      expect((await createAs(api, "f")).body.id).toBe(fourth.body.id);
    });

    test.each([" ", "a b", "é", "a".repeat(256), ""])("refuses the key %j", async (key) => {
      const range = invalid("idempotency-key", "out_of_range", { min: 1, max: 255 });
      expect(await createAs(refused, key)).toEqual(range);
    });
  });

  test("ignores duplicate event kinds, and accepts each on its own", async () => {
    const { api } = await openWorkspace();
    const [run, lead, automation] = KINDS as [string, string, string];
    for (const [given, collapsed] of [
      [[lead, lead], [lead]],
      [
        [run, lead, run],
        [run, lead],
      ],
      [[automation], [automation]],
    ] as const)
      expect((await create(api, [...given])).events).toEqual(collapsed);
  });

  test("never stores the secret in plain text", async () => {
    const { api } = await openWorkspace();
    const body = await create(api);
    const row = await WORKSPACE_DB.prepare("SELECT * FROM subscriptions WHERE id = ?")
      .bind(body.id)
      .first();
    expect(row).not.toBeNull();
    expect(JSON.stringify(row)).not.toContain(body.secret.slice("whsec_".length, -1));
  });

  const events = ["lead.created"];
  const unknownKind = (i: number) => invalid(`events.${i}`, "unknown_value", { allowed: KINDS });
  test.each([
    [{ url: undefined }, invalid("url", "required")],
    [{ url: null }, invalid("url", "invalid_type")],
    [{ url: 1 }, invalid("url", "invalid_type")],
    [{ events: undefined }, invalid("events", "required")],
    [{ events: null }, invalid("events", "invalid_type")],
    [{ events: "lead.created" }, invalid("events", "invalid_type")],
    [{ events: { 0: "lead.created" } }, invalid("events", "invalid_type")],
    [{ events: [] }, invalid("events", "out_of_range", { min: 1 })],
    [{ events: ["lead.created", "lead.deleted"] }, unknownKind(1)],
    [{ events: ["LEAD.CREATED"] }, unknownKind(0)],
    [{ events: [null] }, invalid("events.0", "invalid_type")],
    [{ secret: "whsec_x" }, invalid("secret", "unknown_property")],
    [{ id: "whk_1" }, invalid("id", "unknown_property")],
  ])("rejects a body with a 400 that names the parameter: %j", async (differences, expected) => {
    const body = { url: URL_OF_OURS, events, ...differences };
    expect(await refused.post("/v1/webhooks", body)).toEqual(expected);
  });

  // One of each reason; test/worker/webhooks/target.test.ts has all of them.
  test.each<[url: string, reason: Reason]>([
    ["example", "invalid_url"],
    ["https://example.com/\ud800", "invalid_url"],
    ["http://example.com/", "https_required"],
    ["https://user:password@example.com/", "credentials_not_allowed"],
    ["https://localhost/", "private_address"],
    ["https://10.0.0.1/", "private_address"],
    ["https://[::ffff:127.0.0.1]/", "private_address"],
  ])("rejects %j: %s", async (url, reason) => {
    expect(await refused.post("/v1/webhooks", { url, events })).toEqual(invalid("url", reason));
  });

  test("accepts any public HTTPS URL, and returns a URI unchanged, any other as its URI", async () => {
    const { api } = await openWorkspace();
    const uris = [
      "https://hooks.example.com",
      "https://hooks.example.com:8443/a/b?token=x#part",
      "HTTPS://Hooks.Example.COM/%7Ea",
      "https://93.184.216.34/",
      "https://[2606:2800:220:1:248:1893:25c8:1946]/",
      `https://example.com/${"a".repeat(2_000)}`,
    ];
    for (const [url, uri] of [
      ...uris.map((uri) => [uri, uri]),
      ["https://bücher.example/a hook", "https://xn--bcher-kva.example/a%20hook"],
    ]) {
      const { status, body } = await api.post<Created>("/v1/webhooks", { url, events });
      expect([status, body.url]).toEqual([201, uri]);
    }
  });

  test("accepts http and private addresses in local development only", async () => {
    const { apiKey } = await openWorkspace();
    const local = openApi(apiKey, deployedWith({ ALLOW_LOCAL_WEBHOOKS: "true" }));
    for (const url of ["http://localhost:9000/hook", "http://127.0.0.1:9000/"])
      expect((await local.post("/v1/webhooks", { url, events })).status).toBe(201);
    const ftp = await local.post("/v1/webhooks", { url: "ftp://localhost/", events });
    expect(ftp).toEqual(invalid("url", "https_required"));
    for (const value of ["false", "1", "TRUE"]) {
      const api = openApi(apiKey, deployedWith({ ALLOW_LOCAL_WEBHOOKS: value }));
      const refusal = await api.post("/v1/webhooks", { url: "https://localhost/", events });
      expect(refusal).toEqual(invalid("url", "private_address"));
    }
  });
});

describe("the subscription limit", () => {
  const body = { url: URL_OF_OURS, events: ["lead.created"] };
  const reached = (max: number) =>
    refusal(400, "invalid_request", { reason: "subscription_limit_reached", max });

  test.each([
    [20, undefined],
    [45, 45],
  ])(
    "is %i per workspace if %s is agreed, exact under 60 concurrent requests",
    async (max, webhooksMax) => {
      const { workspaceId, api } = await openWorkspace();
      await exports.Platform.updateWorkspace({ workspaceId, webhooksMax });
      const answers = await Promise.all(
        Array.from({ length: 60 }, () => api.post<Created>("/v1/webhooks", body)),
      );
      const created = answers.filter(({ status }) => status === 201);
      const refused = answers.filter(({ status }) => status !== 201);
      expect([created.length, refused.length]).toEqual([max, 60 - max]);
      for (const answer of refused) expect(answer).toEqual(reached(max));
      const page = await api.get<{ data: Webhook[] }>("/v1/webhooks?limit=100");
      expect(page.body.data.map(({ id }) => id).toSorted()).toEqual(
        created.map((answer) => answer.body.id).toSorted(),
      );
    },
  );

  test("lowered below the current number removes nothing and refuses new ones until there is room", async () => {
    const { workspaceId, api } = await openWorkspace();
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push((await create(api)).id);
    await exports.Platform.updateWorkspace({ workspaceId, webhooksMax: 2 });
    expect(await api.post("/v1/webhooks", body)).toEqual(reached(2));
    const page = await api.get<{ data: Webhook[] }>("/v1/webhooks");
    expect(page.body.data).toHaveLength(3);
    await api.delete(`/v1/webhooks/${ids[0]}`);
    expect(await api.post("/v1/webhooks", body)).toEqual(reached(2));
    await api.delete(`/v1/webhooks/${ids[1]}`);
    expect((await api.post("/v1/webhooks", body)).status).toBe(201);
    await exports.Platform.updateWorkspace({ workspaceId, webhooksMax: 3 });
    expect((await api.post("/v1/webhooks", body)).status).toBe(201);
  });

  test("does not count a deleted subscription that is kept until its deliveries are cancelled, nor another workspace's", async () => {
    const { workspaceId, api } = await openWorkspace();
    await create((await openWorkspace()).api);
    await exports.Platform.updateWorkspace({ workspaceId, webhooksMax: 1 });
    const { id } = await create(api);
    await WORKSPACE_DB.prepare(
      "UPDATE subscriptions SET deleted_at = 1, cancelling = 1 WHERE id = ?",
    )
      .bind(id)
      .run();
    expect((await api.post("/v1/webhooks", body)).status).toBe(201);
    expect((await api.post("/v1/webhooks", body)).status).toBe(400);
  });
});

describe("GET /webhooks", () => {
  test("returns the subscriptions without their secrets, newest first, page by page", async () => {
    const { api } = await openWorkspace();
    const created: Webhook[] = [];
    for (let i = 0; i < 7; i++) {
      const { secret, ...subscription } = await create(api);
      expect(secret).toMatch(/^whsec_/);
      created.push(subscription);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    const newestFirst = created.toReversed();
    const first = await api.get<{ next_cursor: string }>("/v1/webhooks?limit=4");
    expect(first).toEqual(
      success(200, {
        data: newestFirst.slice(0, 4),
        has_more: true,
        next_cursor: expect.any(String),
      }),
    );
    expect(await api.get(`/v1/webhooks?limit=4&cursor=${first.body.next_cursor}`)).toEqual(
      success(200, { data: newestFirst.slice(4), has_more: false, next_cursor: null }),
    );
    expect(await api.get("/v1/webhooks")).toEqual(
      success(200, { data: newestFirst, has_more: false, next_cursor: null }),
    );
  });

  test("shows when a subscription was disabled", async () => {
    const { api } = await openWorkspace();
    const { secret: _, ...subscription } = await create(api);
    await WORKSPACE_DB.prepare("UPDATE subscriptions SET disabled_at = ? WHERE id = ?")
      .bind(Date.parse("2026-03-14T09:26:53.589Z"), subscription.id)
      .run();
    const disabled = { ...subscription, disabled_at: "2026-03-14T09:26:53.589Z" };
    expect(await api.get("/v1/webhooks")).toEqual(
      success(200, { ...EMPTY_PAGE, data: [disabled] }),
    );
    await exports.Platform.enableWebhook({ webhookId: subscription.id });
    expect(await api.get("/v1/webhooks")).toEqual(
      success(200, { ...EMPTY_PAGE, data: [subscription] }),
    );
  });
});

describe("DELETE /webhooks/{id}", () => {
  test("returns 204 without a body, then 404: it is not idempotent", async () => {
    const { api } = await openWorkspace();
    const [gone, { secret: _, ...kept }] = [await create(api), await create(api)];
    expect(await api.delete(`/v1/webhooks/${gone.id}`)).toEqual({
      status: 204,
      headers: EVERY_ANSWER,
      body: null,
    });
    expect(await api.delete(`/v1/webhooks/${gone.id}`)).toEqual(NOT_FOUND);
    expect(await api.get("/v1/webhooks")).toEqual(success(200, { ...EMPTY_PAGE, data: [kept] }));
  });

  test("answers 404 the second time, even while a dispatch still posts to it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const { id } = await create(api);
    const lease = "UPDATE subscriptions SET held_by = 'a dispatch', held_until = 9e15 WHERE id = ?";
    const owe =
      "INSERT INTO deliveries (subscription_id, event_id, workspace_id, state, due_at) VALUES (?, 'evt', ?, 'pending', 0)";
    await WORKSPACE_DB.batch([
      WORKSPACE_DB.prepare(lease).bind(id),
      WORKSPACE_DB.prepare(owe).bind(id, workspaceId),
    ]);
    expect((await api.delete(`/v1/webhooks/${id}`)).status).toBe(204);
    expect(await api.delete(`/v1/webhooks/${id}`)).toEqual(NOT_FOUND);
  });

  test("is not tried again if the database's reply is lost: the second try would answer 404", async () => {
    const { api, apiKey } = await openWorkspace();
    const { id } = await create(api);
    const lossy = openApi(apiKey, deployedWith({ DB: lossyDatabase("reply") }));
    expect((await lossy.delete(`/v1/webhooks/${id}`)).status).toBe(500);
    expect(await api.delete(`/v1/webhooks/${id}`)).toEqual(NOT_FOUND);
  });

  test("succeeds for one of several concurrent clients, and the others get 404", async () => {
    const { api } = await openWorkspace();
    const { id } = await create(api);
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => api.delete(`/v1/webhooks/${id}`)),
    );
    expect(answers.map(({ status }) => status).toSorted()).toEqual([204, ...Array(9).fill(404)]);
  });
});

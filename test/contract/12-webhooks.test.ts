import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  A_WEBHOOK,
  type Api,
  anError,
  isAuthentic,
  openReceiver,
  openWorkspace,
  type Page,
  type Received,
  SUCCESS,
  subscribe,
  type Webhook,
} from "./support.ts";

const BODY = { url: "https://hooks.example.com/automations", events: ["lead.created"] };

/** The API of a workspace that gets no subscription. */
let empty: Api;
beforeAll(async () => {
  empty = (await openWorkspace()).api;
});
// Whatever was refused.
afterAll(async () => {
  expect((await empty.get<Page>("/webhooks")).body.data).toEqual([]);
});

/** Expects that this cannot be subscribed to, because of the named property. */
async function expectRefused(body: unknown, parameter?: string) {
  const answer = await empty.post("/webhooks", body);
  expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
  if (parameter) expect(answer.body.error.details.parameter).toMatch(parameter);
}

describe("`POST /webhooks`", () => {
  test("The response is 201 with a `Webhook` and its `secret`", async () => {
    const { api } = await openWorkspace();
    const { status, body } = await api.post("/webhooks", BODY);
    expect(status).toBe(201);
    expect(body).toEqual({ ...A_WEBHOOK, ...BODY, secret: expect.stringMatching(/./) });
  });

  test("`url` is required", () => expectRefused({ events: BODY.events }, "url"));
  test("`events` is required", () => expectRefused({ url: BODY.url }, "events"));

  test.each(["http://hooks.example.com/", "ftp://hooks.example.com/", "hooks.example.com"])(
    "`url` must be HTTPS: %s is refused with 400",
    (url) => expectRefused({ ...BODY, url }, "url"),
  );

  test.each([
    ["10.1.2.3"],
    ["172.16.0.1"],
    ["192.168.1.1"],
    ["127.0.0.1"],
    ["169.254.169.254"],
    ["0.0.0.0"],
    ["100.64.0.1"],
    ["2130706433"],
    ["0x7f.1"],
    ["[::1]"],
    ["[fe80::1]"],
    ["[fd00::1]"],
    ["[::ffff:10.0.0.1]"],
    ["localhost"],
    ["a.localhost"],
    ["printer.local"],
  ])("`url` must be no private or local address: %s is rejected with 400", (host) =>
    expectRefused({ ...BODY, url: `https://${host}/` }, "url"),
  );

  test.each(["https://user:password@hooks.example.com/", "https://user@hooks.example.com/"])(
    "`url` must contain no credentials: %s is refused with 400",
    (url) => expectRefused({ ...BODY, url }, "url"),
  );

  test.each(["", "https://", "https://exa mple.com/", 1, null])(
    "`url` must be a URI: %j is refused with 400",
    (url) => expectRefused({ ...BODY, url }, "url"),
  );

  test.each(["lead.created", null, [1], ["lead.deleted"], { 0: "lead.created" }])(
    "`events` must be an array of `WebhookEvent`: %j is refused with 400",
    (events) => expectRefused({ ...BODY, events }, "events"),
  );

  test.each(["", "{", "[]", "null", "text"])("The body %j is refused with 400", (body) =>
    expectRefused(body),
  );

  test("`secret` differs for each subscription", async () => {
    const { api } = await openWorkspace();
    const [first, second] = [await subscribe(api, BODY.url), await subscribe(api, BODY.url)];
    expect(first.secret).not.toBe(second.secret);
  });

  test("`secret` verifies delivery signatures, and that of another subscription does not", async () => {
    const { api, recordLead } = await openWorkspace();
    const receiver = openReceiver();
    const { secret } = await subscribe(api, receiver.url);
    const other = await subscribe(api, openReceiver().url);
    await recordLead();
    const [received] = (await receiver.waitFor(1)) as [Received];
    expect(isAuthentic(secret, received, received.at)).toBe(true);
    expect(isAuthentic(other.secret, received, received.at)).toBe(false);
  });
});

describe("`GET /webhooks`", () => {
  test("The response's `data` are the subscriptions of the workspace", async () => {
    const { api } = await openWorkspace();
    await subscribe((await openWorkspace()).api, BODY.url);
    const ids = [(await subscribe(api, BODY.url)).id, (await subscribe(api, BODY.url)).id];
    const { status, body } = await api.get<Page<Webhook>>("/webhooks");
    expect(status).toBe(200);
    expect(body.data).toEqual([A_WEBHOOK, A_WEBHOOK]);
    expect(body.data.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  });

  test("No item has a `secret`", async () => {
    const { api } = await openWorkspace();
    const { id, secret } = await subscribe(api, BODY.url);
    const { status, body } = await api.get("/webhooks");
    expect([status, JSON.stringify(body)]).toEqual([200, expect.stringContaining(id)]);
    expect(JSON.stringify(body)).not.toContain("secret");
    expect(JSON.stringify(body)).not.toContain(secret);
  });
});

describe("`DELETE /webhooks/{id}`", () => {
  const NOT_FOUND = { status: 404, body: anError("webhook_not_found") };

  test("The subscription is deleted", async () => {
    const { api } = await openWorkspace();
    const [kept, deleted] = [await subscribe(api, BODY.url), await subscribe(api, BODY.url)];
    expect((await api.delete(`/webhooks/${deleted.id}`)).status).toEqual(SUCCESS);
    const { body } = await api.get<Page>("/webhooks");
    expect(body.data.map(({ id }) => id)).toEqual([kept.id]);
  });

  test("A deleted subscription receives nothing", async () => {
    const { api, recordLead } = await openWorkspace();
    const [deleted, kept] = [openReceiver(), openReceiver()];
    const { id } = await subscribe(api, deleted.url);
    await subscribe(api, kept.url);
    expect((await api.delete(`/webhooks/${id}`)).status).toEqual(SUCCESS);
    // A request for the first lead would have come before the one for the second.
    for (const count of [1, 2]) {
      await recordLead();
      await kept.waitFor(count);
    }
    expect(await deleted.read()).toEqual([]);
  });

  test("An unknown subscription gives 404 `webhook_not_found`", async () => {
    for (const id of ["whk_0", "unknown", "aut_0"])
      expect(await empty.delete(`/webhooks/${id}`)).toMatchObject(NOT_FOUND);
  });

  test("A subscription of another workspace gives 404 `webhook_not_found`, and is not deleted", async () => {
    const { api } = await openWorkspace();
    const { id } = await subscribe(api, BODY.url);
    expect(await empty.delete(`/webhooks/${id}`)).toMatchObject(NOT_FOUND);
    expect((await api.get<Page>("/webhooks")).body.data).toHaveLength(1);
  });

  test("An already deleted subscription gives 404 `webhook_not_found`", async () => {
    const { api } = await openWorkspace();
    const { id } = await subscribe(api, BODY.url);
    expect((await api.delete(`/webhooks/${id}`)).status).toEqual(SUCCESS);
    expect(await api.delete(`/webhooks/${id}`)).toMatchObject(NOT_FOUND);
  });
});

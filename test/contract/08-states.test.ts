import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  type Automation,
  anError,
  controls,
  DATE_TIME,
  openDisabledByFailures,
  openListening,
  openReceiver,
  openWorkspace,
  type Page,
  platform,
  readEmails,
  SUCCESS,
  subscribe,
  type Webhook,
} from "./support.ts";

/** An automation in a state, and what subscribers are told of it from then on. */
async function openAutomation(status: string) {
  const workspace = await openListening();
  const report = (newStatus: string) =>
    workspace.recordAutomation({ reference: "a", status: newStatus });
  const path = `/automations/${await report(status)}`;
  const read = async () => (await workspace.api.get<Automation>(path)).body;
  return { ...workspace, path, report, read };
}

const changed = (status: string) => [
  expect.objectContaining({
    type: "automation.status_changed",
    data: expect.objectContaining({ status }),
  }),
];

describe("Automation `status`", () => {
  test("`paused` from the application is announced by `automation.status_changed`", async () => {
    const { report, read, events } = await openAutomation("active");
    await report("paused");
    expect((await read()).status).toBe("paused");
    expect(await events(1)).toEqual(changed("paused"));
  });

  test("`paused` through `PATCH` is announced by `automation.status_changed`", async () => {
    const { api, path, read, events } = await openAutomation("active");
    expect((await api.patch(path, { status: "paused" })).status).toEqual(SUCCESS);
    expect((await read()).status).toBe("paused");
    expect(await events(1)).toEqual(changed("paused"));
  });

  test("`active` through the API is announced by `automation.status_changed`", async () => {
    const { api, path, read, events } = await openAutomation("paused");
    expect((await api.patch(path, { status: "active" })).status).toEqual(SUCCESS);
    expect((await read()).status).toBe("active");
    expect(await events(1)).toEqual(changed("active"));
  });

  test.each(["active", "paused"])(
    "`PATCH` accepts the status that it has: `%s`",
    async (status) => {
      const { api, path, read } = await openAutomation(status);
      expect((await api.patch(path, { status })).status).toEqual(SUCCESS);
      expect((await read()).status).toBe(status);
    },
  );

  describe.each([
    ["draft", "active"],
    ["draft", "paused"],
    ["error", "active"],
    ["error", "paused"],
  ])("from `%s` to `%s` through the API", (from, to) => {
    let automation: Awaited<ReturnType<typeof openAutomation>>;
    let before: Automation;
    let answer: Answer;
    beforeAll(async () => {
      automation = await openAutomation(from);
      before = await automation.read();
      answer = await automation.api.patch(automation.path, { status: to });
    });

    test("The move is rejected with 422 `automation_not_controllable`", () => {
      expect(answer).toMatchObject({ status: 422, body: anError("automation_not_controllable") });
    });

    test("The automation stays unchanged", async () => {
      expect(await automation.read()).toEqual(before);
    });

    test("No event is emitted", async () => {
      expect(await automation.events(0)).toEqual([]);
    });
  });

  test.each(["active", "paused", "draft"])(
    "`%s` becomes `error` when the automation stops on an account or token error",
    async (from) => {
      const { report, read } = await openAutomation(from);
      await report("error");
      expect((await read()).status).toBe("error");
    },
  );
});

describe("Webhook subscription", () => {
  const onlyWebhook = async (api: Awaited<ReturnType<typeof openWorkspace>>["api"]) =>
    (await api.get<Page<Webhook>>("/webhooks")).body.data[0];

  test("A subscription is active, with `disabled_at` null, once created by `POST /webhooks`", async () => {
    const { api } = await openWorkspace();
    expect((await subscribe(api, openReceiver().url)).disabled_at).toBeNull();
    expect((await onlyWebhook(api))?.disabled_at).toBeNull();
  });

  // An operator disables it here, because failures take days.
  test("A disabled subscription has its `disabled_at` set", async () => {
    const { api } = await openWorkspace();
    const { id } = await subscribe(api, openReceiver().url);
    await platform("disableWebhook", { webhookId: id });
    expect((await onlyWebhook(api))?.disabled_at).toEqual(DATE_TIME);
  });

  test("A disabled subscription receives nothing", async () => {
    const { api, recordLead } = await openWorkspace();
    const [disabled, active] = [openReceiver(), openReceiver()];
    const { id } = await subscribe(api, disabled.url);
    await subscribe(api, active.url);
    await platform("disableWebhook", { webhookId: id });
    // A request for the first lead would have come before the one for the second.
    for (const count of [1, 2]) {
      await recordLead();
      await active.waitFor(count);
    }
    expect(await disabled.read()).toEqual([]);
  });

  test("A disabled subscription can be removed by `DELETE /webhooks/{id}`", async () => {
    const { api } = await openWorkspace();
    const { id } = await subscribe(api, openReceiver().url);
    await platform("disableWebhook", { webhookId: id });
    expect((await onlyWebhook(api))?.disabled_at).toEqual(DATE_TIME);
    expect((await api.delete(`/webhooks/${id}`)).status).toEqual(SUCCESS);
    expect(await onlyWebhook(api)).toBeUndefined();
  });

  describe.skipIf(!controls)("after prolonged delivery failures", () => {
    let disabled: Awaited<ReturnType<typeof openDisabledByFailures>>;
    beforeAll(async () => {
      disabled = await openDisabledByFailures();
    });

    test("The subscription is disabled, with its `disabled_at` set", () => {
      expect(disabled.webhook.disabled_at).toEqual(DATE_TIME);
    });

    test("The administrators of the workspace are notified", async () => {
      for (const address of disabled.adminEmails) expect(await readEmails(address)).not.toEqual([]);
    });

    test("No event is emitted for it", async () => {
      await disabled.recordLead();
      const received = await disabled.listener.waitFor(3);
      const types = received.map(({ delivery }) => delivery.type);
      expect(types).toEqual(["lead.created", "lead.created", "lead.created"]);
    });
  });
});

// The values of a run's `status` are in 05-run.test.ts.

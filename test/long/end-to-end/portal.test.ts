import { createHmac } from "node:crypto";
import type { Locator, Page } from "playwright-core";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { findBrowser, type Visit } from "../../node/support/browser.ts";
import { type Stage, setStage } from "../../node/support/portal.ts";
import type { Post } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

const executablePath = findBrowser();
/** How the console reports a response that rejects a form's input. */
const REFUSED = expect.stringContaining("status of 400");

describe.skipIf(!executablePath)("the portal in a browser", { timeout: 300_000 }, () => {
  let stage: Stage;
  let visit: Visit;
  let page: Page;
  let workspaceId: string;

  beforeAll(async () => {
    stage = await setStage(String(executablePath));
    return () => stage.stop();
  }, 300_000);

  beforeEach(async () => {
    stage.answerWith(204);
    stage.receiver.posts.length = 0;
    workspaceId = await stage.makeWorkspace();
    return async () => {
      const faults = await visit.faults();
      await visit.close();
      expect(faults).toEqual([]);
    };
  });

  /** Opens the portal, at `webhookId` if given. */
  async function open(webhookId?: string): Promise<void> {
    visit = await stage.open(workspaceId);
    page = visit.page;
    if (webhookId === undefined) return;
    await page.getByRole("link", { name: "/in" }).click();
    await page.getByRole("heading", { name: "Deliveries", exact: true }).waitFor();
  }

  const button = (name: string | RegExp, within: Page | Locator = page) =>
    within.getByRole("button", { name });
  const rows = () => page.locator("tbody tr:has(.badge)");

  test("a workspace without a subscription is told how to start, and does", async () => {
    await open();
    await page.getByText("No subscriptions yet").waitFor();
    await page.getByRole("link", { name: "Add a subscription" }).click();
    await page.getByText("On this local service, http://").waitFor();
    await page.getByLabel("URL of your server").fill(`${stage.receiver.url}/in`);
    await page.getByLabel("Run completed").uncheck();
    await button("Subscribe").click();
    const secret = await page.getByLabel("Signing secret").inputValue();
    expect(secret).toMatch(/^whsec_/);
    await button("I have stored it").click();
    await page.getByText("No deliveries yet").waitFor();
    expect(await page.locator(".chart").count()).toBe(0);
    await page.getByText("Waiting for the first event").waitFor();
    expect(await page.content()).not.toContain(secret);

    await stage.recordLeads(workspaceId);
    await until(() => stage.receiver.posts.length === 1);
    expect(isSigned(stage.receiver.posts[0], secret)).toBe(true);
    const { items } = await stage.runtime.env.PLATFORM.listWebhooks({ workspaceId });
    expect(items.map(({ events }) => events)).toEqual([
      ["lead.created", "automation.status_changed"],
    ]);
    // By itself, the next time it looks.
    await page.getByRole("link", { name: "New lead" }).waitFor();
    await page.getByText("Healthy").waitFor();
  });

  test("a secret can be copied, and leaving it before it is stored asks first", async () => {
    await open();
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("link", { name: "Add a subscription" }).click();
    await page.getByLabel("URL of your server").fill(`${stage.receiver.url}/in`);
    await button("Subscribe").click();
    const field = page.getByLabel("Signing secret");
    const secret = await field.inputValue();
    await button("Copy").click();
    await button("Copied").waitFor();
    expect(await page.evaluate("navigator.clipboard.readText()")).toBe(secret);
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.type());
      void dialog.dismiss();
    });
    await page.getByRole("link", { name: "Usage" }).click();
    await page.close({ runBeforeUnload: true });
    await until(() => asked.length === 2);
    expect(asked).toEqual(["confirm", "beforeunload"]);
    expect(await field.inputValue()).toBe(secret);
    expect(page.url()).toContain("#/subscribe");
    await button("I have stored it").click();
    await page.getByText("No deliveries yet").waitFor();
    await page.reload();
    await page.getByText("No deliveries yet").waitFor();
    expect(asked).toHaveLength(2);
  });

  test("an error in a subscription is shown next to its field", async () => {
    await open();
    await page.getByRole("link", { name: "Add a subscription" }).click();
    const url = page.getByLabel("URL of your server");
    await url.waitFor();
    for (const kind of ["New lead", "Run completed", "Automation status changed"])
      await page.getByLabel(kind).uncheck();
    await button("Subscribe").click();
    await page.getByText("Enter the URL of your server.").waitFor();
    await page.getByText("Choose at least one event.").waitFor();
    expect(await url.evaluate((field) => field === document.activeElement)).toBe(true);
    await page.getByLabel("New lead").check();
    for (const [value, told] of [
      ["nonsense", "This is not a valid URL."],
      ["https://ann:secret@hooks.example.com/", "must not contain a user name or password"],
    ] as const) {
      await url.fill(value);
      await button("Subscribe").click();
      await page.getByText(told).waitFor();
      const description = String(await url.getAttribute("aria-describedby"));
      expect(await page.locator(`[id="${description}"]`).innerText()).toContain(told);
      expect(await url.getAttribute("aria-invalid")).toBe("true");
    }
    expect((await visit.faults()).splice(0)).toEqual([REFUSED, REFUSED]);
    await visit.close();
    await open();
  });

  test("a delivery shows its attempts and its exact body, and is redelivered", async () => {
    const id = await stage.subscribe(workspaceId);
    await stage.recordLeads(workspaceId);
    await until(() => stage.receiver.posts.length === 1);
    await open(id);
    await page.getByRole("link", { name: "New lead" }).click();
    await page.getByRole("listitem").filter({ hasText: "Answered 204" }).waitFor();
    const body = String(stage.receiver.posts[0]?.body);
    const shown = page.locator(".body pre");
    expect(await shown.innerText()).toBe(JSON.stringify(JSON.parse(body), null, 2));
    await button("Exact").click();
    expect(await shown.innerText()).toBe(body);

    await button("Send again").click();
    await page.getByText("It will be sent in a moment.").waitFor();
    await until(() => stage.receiver.posts.length === 2);
    await page.getByRole("link", { name: "All deliveries" }).click();
    await button(/^Send again: New lead/).click();
    await until(() => stage.receiver.posts.length === 3);
    expect(new Set(stage.receiver.posts.map((post) => String(post.body)))).toEqual(new Set([body]));
  });

  test("a pending delivery is sent immediately when its receiver has been fixed", async () => {
    const id = await stage.subscribe(workspaceId);
    stage.answerWith(503);
    await stage.recordLeads(workspaceId);
    await until(() => stage.receiver.posts.length === 1);
    // Its next attempt is hours away.
    const hours = Date.now() + 5 * 3_600_000;
    const { DB, PLATFORM } = stage.runtime.env;
    const listed = () => PLATFORM.listWebhooks({ workspaceId });
    await until(async () => (await listed()).items[0]?.state === "failing");
    await DB.prepare("UPDATE subscriptions SET next_at = ? WHERE id = ?").bind(hours, id).run();
    await DB.prepare("UPDATE deliveries SET due_at = ? WHERE subscription_id = ?")
      .bind(hours, id)
      .run();
    stage.answerWith(204);
    await open(id);
    await page.getByRole("link", { name: "New lead" }).click();
    await button("Send now").click();
    await page.getByText("It will be sent in a moment.").waitFor();
    await until(() => stage.receiver.posts.length === 2);
  });

  test("deliveries are filtered by state and kind, and paginated", async () => {
    const id = await stage.subscribe(workspaceId);
    await stage.recordLeads(workspaceId, 30);
    await until(() => stage.receiver.posts.length === 30);
    await open(id);
    await expect.poll(() => rows().count()).toBe(25);
    const newest = await rows().locator("th .small").allTextContents();
    await page.getByRole("link", { name: "Older" }).click();
    await expect.poll(() => rows().count()).toBe(5);
    const older = await rows().locator("th .small").allTextContents();
    expect(new Set([...newest, ...older]).size).toBe(30);
    await page.reload();
    await expect.poll(() => rows().count()).toBe(5);
    await page.getByRole("link", { name: "Newer" }).click();
    await expect.poll(() => rows().count()).toBe(25);

    await page.getByLabel("State").selectOption("Failed");
    await page.getByText("No deliveries match these filters").waitFor();
    expect(page.url()).toContain("state=exhausted");
    await page.getByLabel("State").selectOption("Delivered");
    await expect.poll(() => rows().count()).toBe(25);
    await page.getByLabel("Event").selectOption("Run completed");
    await page.getByRole("link", { name: "Show all deliveries" }).click();
    await expect.poll(() => rows().count()).toBe(25);
    expect(await page.getByLabel("State").inputValue()).toBe("");
  });

  test("a test event shows the receiver's answer", async () => {
    const id = await stage.subscribe(workspaceId);
    stage.answerWith(503);
    await open(id);
    await button("Send a test event…").click();
    const dialog = page.getByRole("dialog", { name: "Send a test event" });
    await dialog.getByLabel("Event").selectOption("run.completed");
    await button("Send", dialog).click();
    await dialog.getByText("Answered 503").waitFor();
    await dialog.getByText("Your server did not accept it").waitFor();
    stage.answerWith(204);
    await button("Send another", dialog).click();
    await dialog.getByText("Answered 204").waitFor();
    await dialog.getByText("Your server accepted it.").waitFor();
    const [first] = stage.receiver.posts;
    expect(first?.headers["x-service-test"]).toBe("true");
    expect(JSON.parse(String(first?.body))).toMatchObject({ type: "run.completed" });
    await button("Close", dialog).click();
    expect(await button("Send a test event…").evaluate((b) => b === document.activeElement)).toBe(
      true,
    );
    await rows().last().getByRole("link", { name: "Run completed" }).click();
    await page.getByText("A test event is posted once").waitFor();
    await page.getByText("Answered 503").waitFor();
    await page.getByText("Headers sent").click();
    await page.getByText("X-Service-Test: true").waitFor();
    await button("Exact").click();
    expect(await page.locator(".body code").textContent()).toBe(String(first?.body));
    expect(await button("Send again").count()).toBe(0);
  });

  test("a subscription is described, and gets other events", async () => {
    const webhookId = await stage.subscribe(workspaceId);
    await open(webhookId);
    const dialog = page.getByRole("dialog", { name: "Edit the subscription" });
    await button("Edit…").click();
    await dialog.getByLabel("Description").fill("CRM <b>");
    for (const box of await dialog.getByRole("checkbox").all()) await box.uncheck();
    await button("Save", dialog).click();
    await dialog.getByText("Choose at least one event.").waitFor();
    await dialog.getByLabel("Run completed").check();
    await button("Save", dialog).click();
    await page.locator(".lead", { hasText: "CRM <b>" }).waitFor();
    const { events } = await stage.runtime.env.PLATFORM.readWebhook({ webhookId });
    expect(events).toEqual(["run.completed"]);
  });

  test("a subscription is disabled after confirmation, which Enter does not give", async () => {
    const id = await stage.subscribe(workspaceId);
    await open(id);
    const dialog = page.getByRole("dialog", { name: "Disable this subscription?" });
    await button("Disable…").click();
    await dialog.waitFor();
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "hidden" });
    const { PLATFORM } = stage.runtime.env;
    const stateOf = async () => (await PLATFORM.readWebhook({ webhookId: id })).state;
    expect(await stateOf()).toBe("healthy");
    await button("Disable…").click();
    await button("Disable", dialog).click();
    await page.getByText("The subscription is disabled.").waitFor();
    await button("Enable…").waitFor();
    expect(await stateOf()).toBe("disabled");
  });

  test("a disabled subscription is re-enabled, and only gets what it has missed if requested", async () => {
    const id = await stage.subscribe(workspaceId);
    const disable = () => stage.runtime.env.PLATFORM.disableWebhook({ webhookId: id });
    await disable();
    await stage.recordLeads(workspaceId);
    await open(id);
    await page.getByText("Nothing is sent until you enable it.").waitFor();
    expect(await button("Send failed again…").count()).toBe(0);
    await button("Enable…").click();
    await page.getByLabel("Also send what was missed").uncheck();
    await button("Enable", page.getByRole("dialog")).click();
    await page.getByText("The subscription is enabled.").waitFor();
    await page.getByText("Waiting for the first event").waitFor();
    expect(stage.receiver.posts).toEqual([]);

    await disable();
    await page.reload();
    await button("Enable…").click();
    const since = page.getByLabel("Since");
    const suggested = since.locator("option:checked");
    expect(await suggested.textContent()).toContain("An hour before it was disabled");
    await since.selectOption("One hour ago");
    await button("Enable", page.getByRole("dialog")).click();
    await page.getByText("1 missed event will be sent.").waitFor();
    await until(() => stage.receiver.posts.length === 1);
  });

  test("everything that failed since a time is redelivered", async () => {
    const id = await stage.subscribe(workspaceId);
    stage.answerWith(500);
    await stage.recordLeads(workspaceId, 3);
    await until(() => stage.receiver.posts.length > 0);
    await open(id);
    await page.getByText("Failing", { exact: true }).waitFor();
    await page.getByText("in a row since").waitFor();
    const { PLATFORM } = stage.runtime.env;
    await PLATFORM.disableWebhook({ webhookId: id });
    await PLATFORM.enableWebhook({ webhookId: id });
    stage.answerWith(204);
    stage.receiver.posts.length = 0;
    await page.reload();
    await button("Send failed again…").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Since").selectOption("Another time…");
    await button("Send again", dialog).click();
    await dialog.getByText("Choose a time in the last 30 days.").waitFor();
    await dialog.getByLabel("Since").selectOption("24 hours ago");
    await button("Send again", dialog).click();
    await page.getByText("3 deliveries will be sent again.").waitFor();
    await until(() => stage.receiver.posts.length === 3);
  });

  test("a new secret signs alone if no overlap is wanted, and a key press does not close its dialog", async () => {
    const id = await stage.subscribe(workspaceId);
    await open(id);
    await button("New secret…").click();
    const dialog = page.getByRole("dialog", { name: "Create a new secret" });
    await dialog.getByLabel("Not at all").check();
    await button("Create a new secret", dialog).click();
    const secret = await dialog.getByLabel("Signing secret").inputValue();
    await dialog.getByText("The previous secret no longer signs.").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    expect(await dialog.isVisible()).toBe(true);
    await button("I have stored it", dialog).click();
    await dialog.waitFor({ state: "hidden" });
    await stage.recordLeads(workspaceId);
    await until(() => stage.receiver.posts.length === 1);
    expect(isSigned(stage.receiver.posts[0], secret)).toBe(true);
    expect(String(stage.receiver.posts[0]?.headers["x-service-signature"])).toMatch(
      /^t=\d+,v1=[0-9a-f]{64}$/,
    );
  });

  test("a subscription is deleted after confirmation", async () => {
    const id = await stage.subscribe(workspaceId);
    await open(id);
    await button("Delete…").click();
    await button("Cancel").click();
    await button("Delete…").click();
    await button("Delete", page.getByRole("dialog")).click();
    await page.getByText("The subscription is deleted.").waitFor();
    await page.getByText("No subscriptions yet").waitFor();
    const { items } = await stage.runtime.env.PLATFORM.listWebhooks({ workspaceId });
    expect(items).toEqual([]);
  });

  test("the last days and the use of keys are also shown as numbers", async () => {
    const id = await stage.subscribe(workspaceId);
    await stage.recordLeads(workspaceId, 4);
    await until(() => stage.receiver.posts.length === 4);
    await open(id);
    await page.getByRole("img", { name: /Deliveries by day: 4 delivered, 0 failed/ }).waitFor();
    await page.getByText("Show as a table").first().click();
    const today = page.getByRole("table", { name: "Deliveries by day" }).locator("tr").last();
    expect(await today.locator("td").allTextContents()).toEqual(["4", "0"]);
    await page.getByRole("link", { name: "Usage" }).click();
    await page.getByText("600 requests per minute").waitFor();
    await page.getByText("Active").waitFor();
  });

  test("more keys than fit on a page are on the next ones", async () => {
    const { PLATFORM } = stage.runtime.env;
    for (let i = 0; i < 20; i++) await PLATFORM.createApiKey({ workspaceId });
    await open();
    await page.getByRole("link", { name: "Usage" }).click();
    await page.locator(".key").nth(19).waitFor();
    await page.getByRole("link", { name: "Older" }).click();
    await page.locator(".key").nth(1).waitFor({ state: "detached" });
    expect(await page.locator(".key").count()).toBe(1);
    await page.getByRole("link", { name: "Newer" }).click();
    await page.locator(".key").nth(19).waitFor();
  });
});

/** Whether one of a post's signatures is that of `secret`. */
function isSigned(post: Post | undefined, secret: string): boolean {
  const header = String(post?.headers["x-service-signature"]);
  const time = /t=(\d+)/.exec(header)?.[1];
  const digest = createHmac("sha256", secret)
    .update(`${time}.`)
    .update(post?.body ?? "");
  return header.includes(`v1=${digest.digest("hex")}`);
}

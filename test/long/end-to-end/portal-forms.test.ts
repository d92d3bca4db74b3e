import type { Locator, Page } from "playwright-core";
import { beforeEach, expect, test } from "vitest";
import { signatureFault } from "../../../scripts/shared/receiver.ts";
import { en } from "../../../site/portal/texts/en.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { see, type Visit } from "../../node/support/browser.ts";
import { heading, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

const stage = await setStage();
const { PLATFORM } = stage.runtime.env;
let visit: Visit;
let page: Page;
let workspaceId: string;
let webhookId: string;
/** Whether the next test needs another page. */
let isSpent: boolean;

beforeEach(async () => {
  stage.answerWith(204);
  stage.receiver.posts.length = 0;
  workspaceId = await stage.shareWorkspace();
  webhookId = await stage.subscribe(workspaceId);
  visit = await stage.takePage();
  page = visit.page;
  isSpent = false;
  return async () => {
    await stage.returnPage(isSpent);
    const { items } = await PLATFORM.listWebhooks({ workspaceId });
    for (const { webhookId } of items) await PLATFORM.deleteWebhook({ webhookId });
  };
});

/** Opens the portal at a place. */
const open = (place = "webhooks") => stage.show(visit, workspaceId, place);
const go = (place: string) => page.evaluate(`location.hash = "#/${place}"`);
const press = (name: string | RegExp, within: Page | Locator = page) =>
  within.getByRole("button", { name, exact: typeof name === "string" }).click();
const dialogOf = (name: string) => page.getByRole("dialog", { name });
const secretIn = (dialog: Locator) => dialog.getByLabel("Signing secret").inputValue();
/** Waits for the next request to the page's API that matches, and holds it until `let` is called. */
async function hold(glob: string) {
  const held = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  await page.route(glob, async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    arrived.resolve();
    await held.promise;
    await route.continue();
  });
  return { arrived: arrived.promise, let: held.resolve };
}
/** Ends the session, which the page notices with its next request. */
async function endSession(): Promise<void> {
  await PLATFORM.endPortalSessions({ workspaceId });
  await page.evaluate("dispatchEvent(new Event('online'))");
  await heading(page, "Your session has ended").waitFor();
}

test("A rotation shows its secret even after its form was left, or says that nobody has seen it", async () => {
  await open(`webhooks/${webhookId}/settings`);
  await page.route("**/secret", (route) => route.abort(), { times: 1 });
  await press("Create and copy a new secret");
  await see(page, "It may have created a secret that nobody has seen: create another one");

  await page.getByLabel("No, revoke it immediately").check();
  const request = await hold("**/secret");
  await press("Create and copy a new secret");
  await request.arrived;
  await go("webhooks");
  await heading(page, "Your webhook is working").waitFor();
  request.let();
  const dialog = dialogOf("New secret");
  await see(
    dialog,
    "was replaced after you had left the form",
    "The previous secret no longer signs.",
  );
  const secret = await secretIn(dialog);
  // It stays when the session ends.
  await endSession();
  await page.keyboard.press("Escape");
  expect(await secretIn(dialog)).toBe(secret);
  await press("I have stored it", dialog);
  await dialog.waitFor({ state: "hidden" });
  await stage.recordLeads(workspaceId);
  await until(() => stage.receiver.posts.length > 0);
  const [post] = stage.receiver.posts;
  const { headers, body } = post ?? expect.unreachable();
  const signature = headers["x-service-signature"];
  expect(signatureFault(secret, signature, body, Date.now())).toBe(null);
  expect(signature).toMatch(/^t=\d+,v1=[0-9a-f]{64}$/);
});

test("A webhook is added once after a lost response, and shows its secret after its form was left", async () => {
  await open("subscribe");
  await page.getByLabel("URL of your server").fill(`${stage.receiver.url}/late`);
  await page.route(
    "**/portal/api/webhooks",
    async (route) => {
      await route.fetch();
      await route.abort();
    },
    { times: 1 },
  );
  await press("Add the webhook");
  await see(page, "The server cannot be reached.");
  const request = await hold("**/portal/api/webhooks");
  await press("Add the webhook");
  await request.arrived;
  await page.getByRole("link", { name: "Cancel" }).click();
  await see(page, "Both webhooks are working");
  request.let();
  const dialog = dialogOf("Webhook added");
  await see(dialog, `${stage.receiver.url}/late`, "It was added after you had left the form.");
  expect(await secretIn(dialog)).toMatch(/^whsec_/);
  await press("I have stored it", dialog);
  await page.getByRole("heading", { level: 1, name: /late$/ }).waitFor();
  expect((await PLATFORM.listWebhooks({ workspaceId })).items).toHaveLength(2);
});

test("Escape asks before it discards what was typed, and only then", async () => {
  await open(`webhooks/${webhookId}/settings`);
  const dialog = dialogOf("Edit the webhook");
  const edit = async () => {
    await press("Edit…", page.locator(".settings"));
    await dialog.waitFor();
  };
  await edit();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  await edit();
  const field = dialog.getByLabel("Description");
  await field.fill("CRM of the north");
  for (const _ of [1, 2, 3]) await page.keyboard.press("Escape");
  await see(dialog, "Discard what you have typed?");
  await press("Keep it", dialog);
  expect(await field.evaluate((one) => one === document.activeElement)).toBe(true);
  // Also if the question is answered before it is painted.
  const isFocused = await field.evaluate(async (one) => {
    one.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    await new Promise<void>((resolve) => setTimeout(resolve));
    const keep = document.querySelector<HTMLElement>(".discard button");
    keep?.focus();
    keep?.click();
    await new Promise<void>((resolve) => setTimeout(resolve, 500));
    return keep !== null && one === document.activeElement;
  });
  expect(isFocused).toBe(true);
  expect(await field.inputValue()).toBe("CRM of the north");
  await page.keyboard.press("Escape");
  await press("Discard it", dialog);
  await dialog.waitFor({ state: "hidden" });
  expect((await PLATFORM.readWebhook({ webhookId })).description).toBe(null);
});

test("A form that was being filled in when its session ended is there again after a new link", async () => {
  await open("subscribe");
  await page.getByLabel("URL of your server").fill("https://hooks.example.com/typed");
  await page.getByLabel("Run completed").uncheck();
  await press("Add a header");
  await page.getByLabel("Name", { exact: true }).fill("Authorization");
  await page.getByLabel("Value", { exact: true }).fill("Bearer typed");
  await endSession();
  await see(page, "What you had typed is kept in this tab for 15 minutes");
  expect(await page.content()).not.toContain("typed/");
  // As the app does: the page is left, and a link opens it again.
  await page.goto("about:blank");
  await page.goto(await stage.makeLink(workspaceId));
  await until(async () => (await page.getByLabel("URL of your server").inputValue()) !== "");
  expect(await page.getByLabel("URL of your server").inputValue()).toBe(
    "https://hooks.example.com/typed",
  );
  expect(await page.getByLabel("Run completed").isChecked()).toBe(false);
  expect(await page.getByLabel("New lead").isChecked()).toBe(true);
  expect(await page.getByLabel("Name", { exact: true }).inputValue()).toBe("Authorization");
  expect(await page.getByLabel("Value", { exact: true }).inputValue()).toBe("Bearer typed");
  expect(await page.evaluate("Object.keys(sessionStorage).join()")).toBe("portal-session");

  // In a dialog, which opens again; another workspace does not get it.
  await go(`webhooks/${webhookId}`);
  await press("Edit…");
  await dialogOf("Edit the webhook").getByLabel("Description").fill("Typed");
  await endSession();
  const follow = (link: string) => page.evaluate((to) => location.assign(to), link);
  await follow(await stage.makeLink(workspaceId));
  const field = dialogOf("Edit the webhook").getByLabel("Description");
  await field.waitFor();
  expect(await field.inputValue()).toBe("Typed");
  await endSession();
  await follow(await stage.makeLink(await stage.makeWorkspace("Lyon")));
  await see(page, "No webhooks yet");
  expect(await page.evaluate("Object.keys(sessionStorage).join()")).toBe("portal-session");
});

test("A session's end is announced two minutes before, in dialogs, too, and a link in another tab goes on", async () => {
  const { url } = await PLATFORM.createPortalLink({ workspaceId, validMinutes: 3, actor: "Zoë" });
  await stage.takeEmptyPage();
  // The page has this clock from now on.
  await page.clock.install();
  isSpent = true;
  await page.goto(
    new URL(new URL(String(url)).pathname + new URL(String(url)).hash, stage.runtime.url).href,
  );
  await see(page, "Your webhook is working");
  await go(`webhooks/${webhookId}`);
  await press("Edit…");
  const dialog = dialogOf("Edit the webhook");
  await dialog.getByLabel("Description").fill("Typed");
  expect(await page.getByText("This session ends at").count()).toBe(0);
  await page.clock.fastForward(75_000);
  await see(dialog, "This session ends at");

  const tab = await page.context().newPage();
  await tab.goto(await stage.makeLink(workspaceId, { actor: "Zoë" }));
  await tab.getByRole("heading", { level: 1 }).waitFor();
  await page.clock.fastForward(10_000);
  await dialog.getByText("This session ends at").waitFor({ state: "hidden" });
  expect(await dialog.getByLabel("Description").inputValue()).toBe("Typed");
  await press("Save", dialog);
  await see(page, "The changes are saved.");
});

/** Counts the clicks of the reader from now on, each choice of a period or an action included. */
async function countClicks(): Promise<() => Promise<number>> {
  // What a label passes on to its field is no second click.
  await page.evaluate(`
    if (!("clicks" in globalThis))
      addEventListener("click", ({ isTrusted, detail }) => { if (isTrusted && detail) clicks++; });
    globalThis.clicks = 0;
  `);
  return () => page.evaluate("clicks");
}

test("A secret is rotated in four clicks, and the earlier one signs, too, until that is ended", async () => {
  const overlaps = async () => (await PLATFORM.readWebhook({ webhookId })).overlapEndsAt !== null;
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await open();
  const clicks = await countClicks();
  await page.getByRole("link", { name: "/in" }).click();
  await page.getByRole("link", { name: "Settings" }).click();
  await press("Create and copy a new secret");
  const dialog = dialogOf("New secret");
  const isSigned = "Deliveries are also signed with earlier secrets, until";
  await see(dialog, "is in your clipboard", isSigned);
  const secret = await secretIn(dialog);
  expect(await page.evaluate("navigator.clipboard.readText()")).toBe(secret);
  await press("I have stored it", dialog);
  await see(page.locator(".settings"), isSigned);
  expect(await clicks()).toBe(4);

  const question = dialogOf("Sign with the current secret only?");
  await press("Stop using the earlier secrets…");
  await press("Cancel", question);
  expect(await overlaps()).toBe(true);
  await press("Stop using the earlier secrets…");
  await press("Stop using them", question);
  await see(page, "Only the current secret signs from now on.");
  expect(await overlaps()).toBe(false);
  // The page loads the webhook again beside this sentence.
  await expect.poll(() => page.getByText(isSigned).count()).toBe(0);
});

test("Yesterday, a day of the reader's time zone, is replayed in four clicks", async () => {
  stage.answerWith(400);
  await stage.recordLeads(workspaceId, 3);
  await until(async () => (await PLATFORM.readWebhook({ webhookId })).retrying === 3);
  await stage.postpone(webhookId);
  stage.answerWith(204);
  const there = await stage.open(workspaceId, { timezoneId: "Pacific/Auckland" });
  page = there.page;
  await see(page, "Times and filters are in the time zone Pacific/Auckland");
  // One day later, the deliveries are those of yesterday.
  await page.clock.setSystemTime(Date.now() + DAY_MS);
  const clicks = await countClicks();
  await page.getByRole("link", { name: "/in" }).click();
  await press("Replay…");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Yesterday").click();
  const request = page.waitForRequest("**/redeliver");
  await press("Replay 3 deliveries", dialog);
  const { since, until: end } = (await request).postDataJSON();
  const inAuckland = new Intl.DateTimeFormat("en-GB", {
    ...{ timeZone: "Pacific/Auckland", timeStyle: "medium" },
  });
  expect([since, end].map((time) => inAuckland.format(new Date(time)))).toEqual([
    "00:00:00",
    "00:00:00",
  ]);
  await see(page, "The replay has begun.");
  expect(await clicks()).toBe(4);
  await until(async () => (await PLATFORM.readWebhook({ webhookId })).retrying === 0);
  await go(`webhooks/${webhookId}/history`);
  await see(page.locator(".changes"), "Done. 3 delivered.");
  await there.close();
});

test("A second URL with two headers takes five clicks", async () => {
  await open();
  const clicks = await countClicks();
  await page.getByRole("link", { name: "Add a webhook" }).click();
  await page.getByLabel("URL of your server").fill(`${stage.receiver.url}/second`);
  await page.getByLabel("Description").fill("CRM of the north");
  for (const [row, [name, value]] of [
    ["Authorization", "Bearer a:b"],
    ["X-Team", "7"],
  ].entries()) {
    await press("Add a header");
    await page.getByLabel("Name", { exact: true }).nth(row).fill(String(name));
    await page.getByLabel("Value", { exact: true }).nth(row).fill(String(value));
  }
  await press("Add the webhook");
  await press("I have stored it");
  await heading(page, "CRM of the north").waitFor();
  expect(await clicks()).toBe(5);
  await stage.recordLeads(workspaceId);
  await until(() => stage.receiver.posts.some(({ path }) => path === "/second"));
  const post = stage.receiver.posts.find(({ path }) => path === "/second");
  expect(post?.headers).toMatchObject({ authorization: "Bearer a:b", "x-team": "7" });
});

test("An error in a new webhook is explained beside its field, which gets the focus", async () => {
  await open("subscribe");
  const url = page.getByLabel("URL of your server");
  const submit = () => press("Add the webhook");
  const names = page.getByLabel("Name", { exact: true });
  for (const type of Object.values(en.types)) await page.getByLabel(type).uncheck();
  // An empty row counts for nothing.
  await press("Add a header");
  await press("Add a header");
  await names.nth(1).fill("Host");
  await submit();
  await see(page, "Enter the URL of your server.", "Choose at least one event type.");
  await see(page, "Enter a name and a value, and each name once.");
  await until(() => url.evaluate((field) => field === document.activeElement));

  await page.getByLabel("New lead").check();
  await page.getByLabel("Value", { exact: true }).nth(1).fill("x");
  await url.fill(`${stage.receiver.url}/second`);
  await submit();
  await see(page, "Names such as Host");
  await page.getByRole("button", { name: "Remove" }).nth(1).click();
  for (const [value, told] of [
    ["nonsense", "This is not a valid URL."],
    ["https://ann:secret@hooks.example.com/", "must not contain a user name or password"],
  ] as const) {
    await url.fill(value);
    await submit();
    await see(page, told);
    const description = String(await url.getAttribute("aria-describedby"));
    expect(await page.locator(`[id="${description}"]`).innerText()).toContain(told);
    expect(await url.getAttribute("aria-invalid")).toBe("true");
  }
  // How the console reports a response that rejects a form's input.
  const refused = expect.stringContaining("status of 400");
  expect(await visit.faults()).toEqual([refused, refused, refused]);
});

/** Replaces each text as Chrome's translation does, now and when the page changes. */
const TRANSLATION = `(() => {
  const translate = (root) => {
    const texts = [];
    for (let walk = document.createTreeWalker(root, 4); walk.nextNode(); ) texts.push(walk.currentNode);
    for (const text of texts) {
      if (!text.data.trim() || text.parentNode.closest("font, textarea, script, option")) continue;
      const font = document.createElement("font");
      font.append(Object.assign(document.createElement("font"), { textContent: "«" + text.data + "»" }));
      text.replaceWith(font);
    }
  };
  translate(document.body);
  new MutationObserver((changes) => changes.forEach(({ addedNodes }) =>
    addedNodes.forEach((node) => translate(node.nodeType === 1 ? node : node.parentNode ?? document.createElement("p"))),
  )).observe(document.body, { childList: true, subtree: true });
})()`;

test("A page that the browser translates goes on showing the current state", async () => {
  stage.answerWith(500);
  await stage.recordLeads(workspaceId, 2);
  await until(async () => (await PLATFORM.readWebhook({ webhookId })).state === "failing");
  await open(`webhooks/${webhookId}`);
  const badge = page.locator(".titled .badge");
  await expect.poll(() => badge.innerText()).toBe("Failing");
  await page.locator(".rows tbody tr").nth(1).waitFor();
  await page.evaluate(TRANSLATION);
  await expect.poll(() => badge.innerText()).toBe("«Failing»");
  stage.answerWith(204);
  const since = new Date(Date.now() - 3_600_000).toISOString();
  await PLATFORM.redeliver({ webhookId, since, states: ["retrying"] });
  await until(async () => (await PLATFORM.readWebhook({ webhookId })).state === "healthy");
  await page.evaluate("dispatchEvent(new Event('online'))");
  await expect.poll(() => badge.innerText()).toBe("«Healthy»");
  await expect.poll(() => page.locator("main").innerText()).not.toMatch(/Failing|Response 500/);
  expect(await visit.faults()).toEqual([]);
});

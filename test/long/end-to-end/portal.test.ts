import { execFileSync } from "node:child_process";
import type { Locator, Page } from "playwright-core";
import { beforeEach, expect, test } from "vitest";
import { signatureFault } from "../../../scripts/shared/receiver.ts";
import { encodeCursor } from "../../../src/contract/cursor.ts";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { eventIdAt } from "../../../src/contract/ids.ts";
import { DISABLE_AFTER_MS, RESPONSES_PER_DAY } from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import { PHONE_WIDTH, resize, see, type Visit } from "../../node/support/browser.ts";
import { type LinkOptions, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

const stage = await setStage();
const { DB, PLATFORM } = stage.runtime.env;
const { posts } = stage.receiver;
let visit: Visit;
let page: Page;
/** Whether the next test needs another page. */
let isSpent: boolean;
let workspaceId: string;

beforeEach(async () => {
  stage.answerWith(204);
  posts.length = 0;
  workspaceId = await stage.shareWorkspace();
  visit = await stage.takePage();
  page = visit.page;
  isSpent = false;
  return async () => {
    const faults = await visit.faults();
    await stage.returnPage(isSpent);
    // What still waits would be sent during the next test.
    const { items } = await PLATFORM.listWebhooks({ workspaceId });
    for (const { webhookId } of items) await PLATFORM.deleteWebhook({ webhookId });
    expect(faults).toEqual([]);
  };
});

/** Gives the test a workspace in which there is nothing but what it makes. */
async function haveOwnWorkspace(): Promise<void> {
  workspaceId = await stage.makeWorkspace();
}
/** Opens the portal. */
const open = (options?: LinkOptions) => stage.enter(visit, workspaceId, options);

/** Subscribes, does something with the id, and opens the webhook. @returns the id. */
async function openSubscribed(first: (id: string) => unknown = () => {}): Promise<string> {
  const id = await stage.subscribe(workspaceId);
  await first(id);
  await stage.show(visit, workspaceId, `webhooks/${id}`);
  await page.getByRole("heading", { name: /^(Latest|Failed) deliveries$/ }).waitFor();
  return id;
}

/** Opens a tab of the webhook. */
const openTab = (name: "Overview" | "Deliveries" | "Settings" | "History") =>
  page
    .getByRole("navigation", { name: "Parts of the webhook" })
    .getByRole("link", { name })
    .click();
/** Chooses an action among the settings of the webhook. */
async function choose(name: string): Promise<void> {
  await openTab("Settings");
  await press(name, page.locator(".settings"));
}

/** Records leads, and waits until they were posted, and answered. */
async function deliver(count: number): Promise<void> {
  await stage.recordLeads(workspaceId, count);
  await posted(count);
  const untried = `SELECT count(*) AS n FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id
    WHERE s.workspace_id = ? AND s.deleted_at IS NULL AND d.attempts_made = 0`;
  await until(async () => !(await DB.prepare(untried).bind(workspaceId).first<number>("n")));
}
/** Records leads that the server rejects, and makes their deliveries wait for hours. */
async function fail(id: string, answer: Parameters<typeof stage.answerWith>[0], count = 1) {
  const before = posts.length;
  stage.answerWith(answer);
  await stage.recordLeads(workspaceId, count);
  await posted(before + count);
  await until(async () => (await failed(id)) === count);
  await stage.postpone(id);
}

/** Whether the first post is signed with `secret`. */
const isSigned = (secret: string) => {
  const { headers, body } = posts[0] ?? expect.unreachable("nothing was posted");
  return signatureFault(secret, headers["x-service-signature"], body, Date.now()) === null;
};

/** How many deliveries of a webhook have failed. */
const failed = (id: string) =>
  DB.prepare(
    "SELECT count(*) AS n FROM deliveries WHERE subscription_id = ? AND attempts_made > 0 AND state <> 'delivered'",
  )
    .bind(id)
    .first<number>("n");
const stateOf = async (webhookId: string) => (await PLATFORM.readWebhook({ webhookId })).state;
const follow = (name: string) => page.getByRole("link", { name }).click();
const button = (name: string | RegExp, within: Page | Locator = page) =>
  within.getByRole("button", { name });
const press = (name: string | RegExp, within?: Locator) => button(name, within).click();
const dialogOf = (name: string) => page.getByRole("dialog", { name });
const rows = () => page.locator("tbody tr:has(.badge)");
const detail = () => page.getByRole("region", { name: "Delivery" });
const posted = (count: number) => until(() => posts.length >= count);
const shows = (count: number) => expect.poll(() => rows().count()).toBe(count);
/** The ids of the events in the list. */
const shownIds = () =>
  rows()
    .getByRole("link")
    .evaluateAll<string[], HTMLElement>((links) =>
      links.map(({ dataset }) => String(dataset.event)),
    );
const isFocused = (locator: Locator) =>
  locator.evaluate((element) => element === document.activeElement);

test("a workspace without a webhook is told how to start, and does", async () => {
  await haveOwnWorkspace();
  await open();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await see(page, "No webhooks yet");
  await follow("Add a webhook");
  await see(page, "Locally, http://");
  await page.getByLabel("URL of your server").fill(`${stage.receiver.url}/in`);
  await page.getByLabel("Run completed").uncheck();
  await press("Add the webhook");
  const field = page.getByLabel("Signing secret");
  const secret = await field.inputValue();
  expect(secret).toMatch(/^whsec_/);
  // The page behind the dialog has a button to copy the URL.
  await see(page, "No deliveries yet");
  const dialog = page.getByRole("dialog");
  await press("Copy", dialog);
  await button("Copied").waitFor();
  expect(await page.evaluate("navigator.clipboard.readText()")).toBe(secret);

  // Leaving it before it is stored asks first, and only then.
  const asked: string[] = [];
  page.on("dialog", (dialog) => {
    asked.push(dialog.type());
    void dialog.dismiss();
  });
  await page.close({ runBeforeUnload: true });
  await until(() => asked.length === 1);
  expect(asked).toEqual(["beforeunload"]);
  expect(await field.inputValue()).toBe(secret);
  await press("I have stored it");
  await dialog.waitFor({ state: "detached" });
  // The page asks no more from its next frame on, which would not come with the clock that it has after that.
  const leaves = "dispatchEvent(new Event('beforeunload', { cancelable: true }))";
  await until(() => page.evaluate<boolean>(leaves));
  await page.clock.install();
  isSpent = true;
  await page.reload();
  await see(page, "No deliveries yet", "Waiting for the first event");
  expect(asked).toHaveLength(1);
  expect(await page.locator(".chart").count()).toBe(0);
  expect(await page.content()).not.toContain(secret);

  await deliver(1);
  expect(isSigned(secret)).toBe(true);
  const { items } = await PLATFORM.listWebhooks({ workspaceId });
  expect(items).toMatchObject([
    { events: WebhookEvent.options.filter((type) => type !== "run.completed") },
  ]);
  // By itself, the next time it looks.
  await page.clock.fastForward(15_000);
  await page.getByRole("link", { name: "New lead" }).waitFor();
  await see(page, "Healthy");
});

test("the home page says first which webhooks fail, and why, and resends what failed in one click", async () => {
  await haveOwnWorkspace();
  const [failing, , disabled] = await Promise.all([
    stage.subscribe(workspaceId, ["lead.created"], "/a"),
    stage.subscribe(workspaceId, ["run.completed"], "/b"),
    stage.subscribe(workspaceId, ["run.completed"], "/c"),
  ]);
  await open();
  await page.getByRole("heading", { name: "All 3 webhooks are working" }).waitFor();
  stage.answerWith({ status: 500, body: "no database" });
  await stage.recordLeads(workspaceId);
  await until(async () => (await stateOf(failing)) === "failing");
  const now = Date.now();
  await DB.prepare(
    "UPDATE subscriptions SET disabled_at = ?1, failing_since = ?2, failures = 20 WHERE id = ?3",
  )
    .bind(now, now - 4 * DAY_MS, disabled)
    .run();
  await page.evaluate("dispatchEvent(new Event('online'))");
  await page.getByRole("heading", { name: "2 of 3 webhooks need attention" }).waitFor();
  const listed = page.locator(".webhooks tbody tr");
  expect(await listed.nth(0).innerText()).toMatch(/\/a\s+New lead\s+Failing\s+0%\s+Response 500/);
  expect(await listed.nth(1).innerText()).toMatch(/\/c\s+Run completed\s+Disabled after failing/);
  await openCircuit(failing);
  const failures = page.getByRole("region", { name: "Failed deliveries" });
  await press(/^Resend: New lead/, failures);
  await see(failures, "Sent: Response 500");
  // All that failed is being replayed, and the webhook still says why it fails.
  const since = new Date(Date.now() - HOUR_MS).toISOString();
  await PLATFORM.redeliver({ webhookId: failing, since, states: ["retrying"] });
  await page.reload();
  await see(page.locator(".webhooks tbody"), "Response 500", "Your server failed.");
});

test("a delivery shows its attempts and its exact body, and is resent", async () => {
  const webhookId = await openSubscribed(() => deliver(1));
  await follow("New lead");
  await detail().locator("summary", { hasText: "Response 204" }).waitFor();
  const body = String(posts[0]?.body);
  const shown = page.locator(".body pre");
  expect(await shown.innerText()).toBe(JSON.stringify(JSON.parse(body), null, 2));
  await press("Raw");
  expect(await shown.innerText()).toBe(body);

  // A shell runs it with the same arguments, whatever the body contains.
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByText("Headers sent").click();
  await press("Copy as curl");
  await button("Copied").waitFor();
  const command = await page.evaluate<string>("navigator.clipboard.readText()");
  const shell = ["-c", `curl() { printf '%s\\0' "$@"; }; ${command}`];
  const sent = execFileSync("sh", shell, { encoding: "utf8" }).split("\0");
  const signature = posts[0]?.headers["x-service-signature"];
  expect(sent[0]).toBe(`${stage.receiver.url}/in`);
  expect(sent).toContain(`X-Service-Signature: ${signature}`);
  expect(sent.slice(-3)).toEqual(["--data-raw", body, ""]);

  await press("Resend", detail());
  await see(detail(), "Sent: Response 204");
  await posted(2);
  await follow("All deliveries");
  await press(/^Resend: New lead/);
  await see(rows(), "Sent: Response 204");
  await posted(3);
  expect(new Set(posts.map((post) => String(post.body)))).toEqual(new Set([body]));

  // Nothing offers what would be refused.
  await PLATFORM.disableWebhook({ webhookId });
  await follow("New lead");
  await see(page, "Nothing is sent while the webhook is disabled.");
  expect(await button(/^Resend/, detail()).count()).toBe(0);
});

test("a delivery that waits says until when and why", async () => {
  await openSubscribed(async (id) => {
    await fail(id, 503);
    // No circuit lets it through before.
    await DB.prepare(
      "UPDATE subscriptions SET circuits = json_set(circuits, '$.\"lead.created\".probeAt', ?) WHERE id = ?",
    )
      .bind(Date.now() + 5 * HOUR_MS, id)
      .run();
  });
  await see(rows(), "Failing, will be retried");
  await expect
    .poll(() => rows().innerText())
    .toMatch(/Next (on \d+ \w+ )?at \d\d:\d\d: your server failed\./);
  await follow("New lead");
  // The cause is said once.
  const note = detail().locator(".note");
  expect(await note.innerText()).toMatch(
    /Your server failed[\s\S]*Next (on \d+ \w+ )?at \d\d:\d\d$/,
  );
  stage.answerWith(204);
  await press("Send now", detail());
  await see(detail(), "Sent: Response 204");
});

test("an overview counts failures exactly", async () => {
  const now = Date.now();
  const at = now - 9 * HOUR_MS;
  await openSubscribed((id) =>
    DB.batch([
      DB.prepare(
        `UPDATE subscriptions SET failing_since = ?1, failures = 15, pending_exhausted_at = ?1,
          daily_counts = json_object(date(), json(?3)) WHERE id = ?2`,
      ).bind(at, id, JSON.stringify({ "lead.created failed": 15, responses: RESPONSES_PER_DAY })),
      DB.prepare(
        `INSERT INTO deliveries (subscription_id, event_id, workspace_id, type, state, priority, due_at)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1458)
        SELECT ?1, 'evt_' || i, ?2, 'lead.created', 'pending', iif(i <= 309, 2, 1), ?3 FROM n`,
      ).bind(id, workspaceId, now + 9 * HOUR_MS),
    ]),
  );
  await see(page, "1,458, of which 309 have failed before");
  const disabledFrom = new Date(at + DISABLE_AFTER_MS);
  await see(
    page,
    `the webhook will be disabled on ${disabledFrom.toLocaleDateString("en-GB", { dateStyle: "medium" })}`,
  );
  await openTab("Overview");
  expect(await page.locator(".tabs").innerText()).toContain("1,458 waiting");
  await see(page, "1,458 deliveries are waiting.");
  await see(page, "the oldest have failed for good", "The responses to 500 failed attempts");
  await choose("Disable…");
  await see(page.getByRole("dialog"), "Deliveries that are waiting will be cancelled: 1,458.");
});

test("deliveries are paginated, and Back returns to the place in the list", async () => {
  await openSubscribed(() => deliver(30));
  await openTab("Deliveries");
  await shows(25);
  const newest = await shownIds();
  await follow("Older");
  await shows(5);
  expect(new Set([...newest, ...(await shownIds())]).size).toBe(30);
  await follow("Newer");
  await shows(25);
  await resize(page, PHONE_WIDTH, 800);
  await rows().nth(20).scrollIntoViewIfNeeded();
  const top = await page.evaluate<number>("scrollY");
  expect(top).toBeGreaterThan(500);
  await rows().nth(20).getByRole("link").click();
  await detail().locator(".body").waitFor();
  expect(await rows().first().isVisible()).toBe(false);
  await until(() => page.evaluate("scrollY === 0"));
  await page.goBack();
  await expect.poll(() => page.evaluate("scrollY")).toBe(top);
  await until(() => isFocused(rows().nth(20).getByRole("link")));

  // A failure to resend it is shown there, too, and not only at the top of the list.
  await page.route("**/redeliver", (route) => route.abort());
  await press("Resend", rows().nth(20));
  const fault = await page.getByText("The server cannot be reached.").boundingBox();
  expect(fault?.y).toBeGreaterThan(0);
  expect(fault?.y).toBeLessThan(800);
  await until(() => isFocused(button("Resend", rows().nth(20))));
  expect(await visit.faults()).toEqual([expect.stringContaining("net::ERR_FAILED")]);
});

test("deliveries are filtered by state, day, type and response, and found by id or the lead's name", async () => {
  await openSubscribed(() => deliver(3));
  await openTab("Deliveries");
  await shows(3);
  const filters = [
    ["State", "Failed for good", "Delivered"],
    ["When", "Yesterday", "Today"],
    ["Event type", "Run completed", "New lead"],
    ["Last response", "No response", "2xx"],
  ] as const;
  const choose = (label: string, option: string) =>
    page.getByRole("combobox", { name: label, exact: true }).selectOption(option);
  for (const [label, others, own] of filters) {
    await choose(label, others);
    await see(page, "No deliveries match these filters");
    await choose(label, own);
    await shows(3);
  }
  await choose("When", "From … to …");
  await shows(3);
  await page.getByLabel("To", { exact: true }).fill("2026-01-01T00:00");
  await page.keyboard.press("Tab");
  await see(page, "“To” must be later than “From”.");
  await follow("Show all deliveries");
  await shows(3);
  expect(await page.getByLabel("State").inputValue()).toBe("");

  const find = async (text: string) => {
    await page.getByLabel("Find").fill(text);
    await page.getByLabel("Find").press("Enter");
  };
  const { id: eventId, data } = JSON.parse(String(posts[1]?.body));
  for (const [parameter, text] of [
    ["eventId", eventId],
    ["leadId", data.id],
    ["lead", `zoe ${/\d+/.exec(data.name)}`],
  ]) {
    await find(text);
    await page.waitForURL(`**?${new URLSearchParams({ [parameter]: text })}`);
    await expect.poll(shownIds).toEqual([eventId]);
    // Otherwise the next list would look like this one, and the field might still change after it was filled in.
    await find("");
    await shows(3);
  }
  await find("Zorro");
  await see(page, "No lead here has “Zorro” in its name");
  await shows(0);
  await find("");
  await shows(3);
});

test("a filter looks on among older deliveries until something matches, or it is stopped", async () => {
  await openSubscribed(() => deliver(1));
  const cursorAt = (hours: number) =>
    encodeCursor("deliveries", { at: 0, id: eventIdAt(Date.now() - hours * HOUR_MS) });
  const end = cursorAt(99);
  await openTab("Deliveries");
  const asked: (string | null)[] = [];
  await page.route("**/deliveries?*state=*", async (route) => {
    const cursor = new URL(route.request().url()).searchParams.get("cursor");
    asked.push(cursor);
    if (cursor === end) return route.fulfill({ json: { items: [], nextCursor: null } });
    if (asked.length > 4) {
      const response = await route.fetch({ url: route.request().url().replace(/\?.*/, "") });
      return route.fulfill({ response, json: { ...(await response.json()), nextCursor: end } });
    }
    const json = { items: [], nextCursor: cursorAt(asked.length) };
    // The third one waits until the reader has lost patience.
    if (asked.length === 3) await button("Stop").waitFor({ state: "hidden" });
    await route.fulfill({ json });
  });
  await page.getByLabel("State").selectOption("Failed for good");
  await page.getByRole("progressbar", { name: "Looking through older deliveries." }).waitFor();
  await until(() => asked.length === 3);
  await press("Stop");
  await see(page, "No match so far", "Looked back to");
  expect(asked).toEqual([null, cursorAt(1), cursorAt(2)].map((each) => each && expect.any(String)));
  const stoppedAt = asked[2];
  await press("Continue");
  await expect.poll(() => rows().count()).toBe(1);
  // It goes on from where it was stopped, and keeps what it has found.
  expect(asked[4]).not.toBe(null);
  expect(asked[4]).not.toBe(stoppedAt);
  expect(await page.getByRole("progressbar").count()).toBe(0);
  // What was looked through ended there: there may be older ones, or none.
  await follow("Look for older ones");
  await see(page, "No older deliveries match these filters");
});

test("a test event shows the response of the server", async () => {
  await openSubscribed(() => stage.answerWith(503));
  await press("Send a test event…");
  const dialog = dialogOf("Send a test event");
  await dialog.getByLabel("Event type").selectOption("run.completed");
  await press("Send", dialog);
  await see(dialog, "Response 503", "Your server failed.");
  await until(() => isFocused(button("Send another", dialog)));
  stage.answerWith(204);
  await press("Send another", dialog);
  await see(dialog, "Response 204", "Your server accepted it.");
  const [first] = posts;
  expect(first?.headers["x-service-test"]).toBe("true");
  expect(JSON.parse(String(first?.body))).toMatchObject({ type: "run.completed" });
  await press("Close", dialog);
  await until(() => isFocused(button("Send a test event…")));
  await page.locator(".badge.exhausted", { hasText: "Test" }).waitFor();
  await press("Send a test event…");
  stage.answerWith(503);
  await press("Send", dialog);
  await dialog.getByRole("link").click();
  await dialog.waitFor({ state: "hidden" });
  await see(detail(), "A test event is sent once");
  await detail().locator(".note", { hasText: "Response 503" }).waitFor();
  await page.getByText("Headers sent").click();
  await see(page, "X-Service-Test: true");
  await press("Raw");
  expect(await page.locator(".body code").textContent()).toBe(String(posts.at(-1)?.body));
  expect(await button("Resend", detail()).count()).toBe(0);
});

test("a redirect shows where it leads, and the webhook can follow it", async () => {
  const webhookId = await openSubscribed((id) => fail(id, 308));
  await rows().first().getByRole("link", { name: "New lead" }).click();
  const target = `${stage.receiver.url}/elsewhere`;
  const attempt = page.locator(".exchange", { hasText: "Your server redirects" });
  await see(attempt, target);
  stage.answerWith(204);
  await button("Use this URL…", attempt).click();
  const dialog = dialogOf("Send to this URL from now on?");
  await see(dialog, target);
  const url = `${stage.receiver.url}/in`;
  expect(await PLATFORM.readWebhook({ webhookId })).toMatchObject({ url });
  await press("Use this URL", dialog);
  await see(page, "The webhook now sends to this URL.");
  expect(await PLATFORM.readWebhook({ webhookId })).toMatchObject({ url: target });
  // Without being asked: what failed at the former URL is due at once.
  await until(() => posts.some(({ path }) => path === "/elsewhere"));
  // Once it is delivered, nothing calls for another URL.
  await PLATFORM.updateWebhook({ webhookId, url });
  await page.reload();
  await see(detail(), "Delivered");
  await detail().locator(".attempts-log summary", { hasText: "Response 308" }).first().click();
  await see(detail(), target);
  expect(await button("Use this URL…").count()).toBe(0);
});

test("custom headers are added, replaced and removed one by one", async () => {
  const webhookId = await openSubscribed();
  await openTab("Settings");
  const add = async (name: string, value: string) => {
    await press("Add a header…");
    const dialog = dialogOf("Add a header");
    await dialog.getByLabel("Name").fill(name);
    await dialog.getByLabel("Value").fill(value);
    await press("Add", dialog);
  };
  await add("Host", "x");
  await see(dialogOf("Add a header"), "Names such as Host");
  await press("Cancel", dialogOf("Add a header"));
  await add("Authorization", "Bearer a:b");
  await see(page, "The headers are saved.");
  await button("Replace… Authorization").waitFor();
  await add("X-Team", "7");
  await press("Replace… X-Team");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Value").fill("8");
  await press("Replace", dialog);
  // The announcement may still be that of adding it.
  await dialog.waitFor({ state: "hidden" });
  await deliver(1);
  const headers = { authorization: "Bearer a:b", "x-team": "8", "x-service-webhook": webhookId };
  expect(posts[0]).toMatchObject({ headers });
  await press("Remove… X-Team");
  await press("Remove", dialog);
  await button("Remove… X-Team").waitFor({ state: "detached" });
  expect(await PLATFORM.readWebhook({ webhookId })).toMatchObject({ headers: ["Authorization"] });
  expect(await page.content()).not.toContain("a:b");
  expect(await visit.faults()).toEqual([expect.stringContaining("status of 400")]);
});

test("a read-only session shows everything and changes nothing", async () => {
  await haveOwnWorkspace();
  const webhookId = await stage.subscribe(workspaceId);
  await deliver(1);
  const returnUrl = "https://app.example/settings";
  await open({ readOnly: true, returnUrl });
  await see(page, "this session is read-only", "Your webhook is working");
  const app = page.getByRole("link", { name: "Groupe Horizon" });
  expect(await app.getAttribute("href")).toBe(returnUrl);
  expect(await page.getByRole("link", { name: "Add a webhook" }).count()).toBe(0);
  await follow("/in");
  for (const tab of ["Settings", "History", "Deliveries"] as const) {
    await openTab(tab);
    await page.locator(".setting, .empty, .changes, .list tbody").first().waitFor();
    const names = await page.getByRole("button").allInnerTexts();
    expect(names.filter((name) => name.includes("…"))).toEqual([]);
  }
  await rows().first().getByRole("link").click();
  await detail().locator(".body").waitFor();
  expect(await button(/^Resend/).count()).toBe(0);
  // Its session has ended: there is a way back.
  await PLATFORM.endPortalSessions({ workspaceId });
  await page.reload();
  await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
  expect(await page.evaluate("Object.keys(sessionStorage).join()")).toBe("");
  expect(await page.getByRole("link", { name: "Go to the app" }).getAttribute("href")).toBe(
    returnUrl,
  );
  expect(await stateOf(webhookId)).toBe("healthy");
  expect(await visit.faults()).toContainEqual(expect.stringContaining("status of 401"));
});

test("an edit of a webhook sends only what was changed, unless another administrator has changed it, too", async () => {
  const webhookId = await openSubscribed();
  const dialog = dialogOf("Edit the webhook");
  await press("Edit…");
  const field = dialog.getByLabel("URL of your server");
  await field.fill("nonsense");
  await dialog.getByLabel("Description").fill("CRM <b>");
  for (const box of await dialog.getByRole("checkbox").all()) await box.uncheck();
  await press("Save", dialog);
  await see(dialog, "Choose at least one event type.");
  await dialog.getByLabel("Run completed").check();
  await press("Save", dialog);
  await see(dialog, "This is not a valid URL.");
  const url = `${stage.receiver.url}/new`;
  await field.fill(url);
  await press("Save", dialog);
  await see(page, "The changes are saved.");
  await page.getByRole("heading", { level: 1, name: "CRM <b>" }).waitFor();
  const events = ["run.completed" as const];
  expect(await PLATFORM.readWebhook({ webhookId })).toMatchObject({ url, events });

  await press("Edit…");
  await dialog.getByLabel("Description").fill("Mine");
  const theirs = { url: `${stage.receiver.url}/theirs`, events: ["lead.created" as const] };
  await PLATFORM.updateWebhook({ webhookId, ...theirs });
  await press("Save", dialog);
  await dialog.waitFor({ state: "hidden" });
  const both = { ...theirs, description: "Mine" };
  expect(await PLATFORM.readWebhook({ webhookId })).toMatchObject(both);
  await press("Edit…");
  await dialog.getByLabel("Description").fill("Mine again");
  await PLATFORM.updateWebhook({ webhookId, description: "Theirs" });
  await press("Save", dialog);
  await see(dialog, "Someone else has changed this in the meantime.");
  const { description } = await PLATFORM.readWebhook({ webhookId });
  expect(description).toBe("Theirs");
  const refused = expect.stringContaining("status of 400");
  expect(await visit.faults()).toEqual([refused, refused]);
});

test("a replay sends the events of a period or of the list, in parts, and says their number before", async () => {
  await openSubscribed(async (id) => {
    await deliver(1);
    await fail(id, 400, 3);
  });
  stage.answerWith(204);
  posts.length = 0;
  const dialog = page.getByRole("dialog");
  await press("Replay…");
  await dialog.getByLabel("From … to …").check();
  await press("Replay", dialog);
  await see(dialog, "Choose a time in the last 30 days.");
  await dialog.getByLabel("24 hours ago").check();
  // Those that were delivered are not sent again unless that is requested.
  await button("Replay 3 deliveries", dialog).waitFor();
  await press("Cancel", dialog);

  await openTab("Deliveries");
  await page.getByLabel("When").selectOption("Today");
  await shows(4);
  await press("Replay these…");
  await button("Replay 4 deliveries").waitFor();
  await press("Cancel", dialog);
  await page.getByLabel("State").selectOption("Failing, will be retried");
  await shows(3);
  // The first part is as if there were more; the others go on behind the reader's back.
  const asked: unknown[] = [];
  await page.route("**/redeliver", async (route) => {
    const { cursor, dryRun } = route.request().postDataJSON();
    if (dryRun) return route.fulfill({ json: { count: 2_003, nextCursor: null } });
    asked.push(cursor);
    if (asked.length === 1) return route.fulfill({ json: { count: 1_000, nextCursor: "next" } });
    await route.continue({ postData: { ...route.request().postDataJSON(), cursor: null } });
  });
  await press("Replay these…");
  await see(dialog, "Failing, will be retried");
  await press("Replay 2,003 deliveries", dialog);
  await see(page, "The replay has begun.", "Done. 3 delivered.");
  expect(asked).toEqual([null, "next"]);
  expect(posts).toHaveLength(3);
});

/** Opens the circuit of new leads, so that nothing is sent but what is resent by itself. */
const openCircuit = (id: string) => {
  const probeAt = Date.now() + 5 * HOUR_MS;
  const circuit = { rejected: [], step: 3, probeAt, since: Date.now(), outcome: "timed_out" };
  return DB.prepare("UPDATE subscriptions SET circuits = ?, failing_since = ? WHERE id = ?")
    .bind(JSON.stringify({ "lead.created": { ...circuit, status: null } }), Date.now(), id)
    .run();
};

test("a replay is followed and stopped on any device, and stands in the history", async () => {
  await haveOwnWorkspace();
  const id = await stage.subscribe(workspaceId);
  await deliver(3);
  await openCircuit(id);
  await open({ actor: "Zoë Martin" });
  await follow("/in");
  await press("Replay…");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Today").check();
  await dialog.getByLabel("Delivered").check();
  await press("Replay 3 deliveries", dialog);
  const running = page.getByRole("region", { name: "Replay" });
  await see(running, "0 of 3 sent.", "waits until it does");
  await see(page, "Those that failed are waiting to be sent again.");
  // What was delivered before is not new.
  await openTab("Deliveries");
  await see(rows().first(), "Will be resent");
  // Another administrator, in a browser that has never been here.
  await visit.empty();
  await open({ actor: "Hugo" });
  await follow("/in");
  await see(running, "0 of 3 sent.");
  await press("Stop", running);
  await see(page.locator(".replays"), "Stopped. 0 delivered. 3 not sent.");
  await openTab("History");
  const entry = page.locator(".changes li", { hasText: "Stopped. 0 delivered." });
  await see(entry, "Zoë Martin", "State: ");
  // Each delivery is as it was.
  await openTab("Deliveries");
  await expect.poll(() => rows().getByText("Delivered", { exact: true }).count()).toBe(3);
  expect(posts).toHaveLength(3);
});

test("a lead that failed at several webhooks is one failure, found by name and resent to all of them", async () => {
  await haveOwnWorkspace();
  const paths = ["/a", "/b", "/c"];
  const ids = await Promise.all(
    paths.map((path) => stage.subscribe(workspaceId, ["lead.created"], path)),
  );
  stage.answerWith(400);
  await stage.recordLeads(workspaceId);
  await until(async () => (await Promise.all(ids.map(failed))).every((count) => count === 1));
  for (const id of ids) await stage.postpone(id);
  const { data } = JSON.parse(String(posts[0]?.body));
  await open();
  const badge = page.getByRole("link", { name: "Failures 3" });
  await badge.click();
  await shows(1);
  await see(page, "3 failing, will be retried", "3 webhooks");
  await page.getByLabel("State").selectOption("Failed for good");
  await see(page, "No deliveries match these filters");
  await page.getByLabel("State").selectOption("Failing, will be retried");
  const { host } = new URL(stage.receiver.url);
  await page.getByRole("combobox", { name: "Webhook" }).selectOption(`${host}/b`);
  await see(page, "1 failing, will be retried");
  await page.getByLabel("Find").fill(data.name);
  await page.getByLabel("Find").press("Enter");
  await shows(1);
  stage.answerWith(204);
  posts.length = 0;
  await press(/^Resend: New lead/);
  await expect.poll(() => rows().getByText("Sent: Response 204").count()).toBe(3);
  expect(posts.map(({ path }) => path).toSorted()).toEqual(paths);
});

test("the page of a failing webhook shows the server's own words, and the action that fits them", async () => {
  const webhookId = await openSubscribed(async (id) => {
    await fail(id, { status: 401, body: "send your token in X-Gateway" });
  });
  const note = page.locator(".note.bad");
  await see(note, "Failing since", "requires other credentials", "send your token in X-Gateway");
  // Without a click, and below it the deliveries that failed.
  await see(rows(), "Failing, will be retried");
  await press("Edit headers…", note);
  await press("Add a header…", dialogOf("Custom headers"));
  await press("Cancel", dialogOf("Add a header"));
  await press("Close", dialogOf("Custom headers"));

  stage.answerWith(204);
  await press("Send a test event", note);
  await see(note, "Response 204", "Your server accepted it.");

  stage.answerWith(404);
  await press(/^Send now: New lead/);
  await press("Change the URL…", note);
  // Otherwise its retry might be accepted at the former URL.
  await stage.postpone(webhookId);
  const field = page.getByLabel("URL of your server");
  await until(() => isFocused(field));
  await field.fill(`${stage.receiver.url}/new`);
  stage.answerWith(204);
  await press("Save", page.getByRole("dialog"));
  // What waits goes there at once, which is the check.
  await see(page, "Healthy");
  expect(posts.at(-1)?.path).toBe("/new");
});

test("a webhook is disabled and deleted after confirmation only, and its history says who did what", async () => {
  await haveOwnWorkspace();
  const webhookId = await stage.subscribe(workspaceId);
  await open({ actor: "Zoë Martin" });
  await follow("/in");
  const dialog = dialogOf("Disable this webhook?");
  await choose("Disable…");
  await dialog.waitFor();
  // The first button has the focus, which does nothing.
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "hidden" });
  expect(await stateOf(webhookId)).toBe("healthy");
  await choose("Disable…");
  await press("Disable", dialog);
  await see(page, "The webhook is disabled.");
  expect(await stateOf(webhookId)).toBe("disabled");
  await PLATFORM.updateWebhook({ webhookId, description: "CRM" });
  await openTab("Overview");
  await button("Enable…").waitFor();
  // Nothing that looks like the reason.
  expect(await page.locator(".note-title").innerText()).toMatch(
    /^Disabled .* Nothing is sent until you enable it\.$/,
  );
  await follow("See who disabled it");
  const entries = page.locator(".changes li");
  const disabling = entries.filter({ hasText: "Disabled the webhook" });
  await see(disabling, "Zoë Martin · in the portal");
  await see(entries.filter({ hasText: "Edited the webhook" }), "in the app");
  await see(entries.first(), "CRM");
  expect(await entries.first().locator("del").innerText()).toBe("nothing");

  // After a change, the page soon asks again, perhaps for what has just been deleted.
  await page.reload();
  await choose("Delete…");
  await see(page.getByRole("dialog"), "CRM sends nothing more.");
  await press("Delete", page.getByRole("dialog"));
  await see(page, "The webhook is deleted.", "No webhooks yet");
  expect((await PLATFORM.listWebhooks({ workspaceId })).items).toEqual([]);
});

test("a disabled webhook is enabled, and gets what it has missed or what failed before only if requested", async () => {
  const disable = (webhookId: string) => PLATFORM.disableWebhook({ webhookId });
  const id = await openSubscribed(async (id) => {
    await disable(id);
    await stage.recordLeads(workspaceId);
  });
  await see(page, "Nothing is sent until you enable it.");
  expect(await button("Replay…").count()).toBe(0);
  await press("Enable…");
  await page.getByLabel("Also send the events that were missed").uncheck();
  await press("Enable", page.getByRole("dialog"));
  await see(page, "The webhook is enabled.", "Waiting for the first event");
  await until(() => isFocused(page.getByRole("heading", { level: 1 })));
  expect(posts).toEqual([]);

  // Rejected, because a probe of an outage may be underway when the webhook is disabled.
  await fail(id, 400);
  await disable(id);
  await stage.recordLeads(workspaceId);
  stage.answerWith(204);
  posts.length = 0;
  await page.reload();
  await press("Enable…");
  expect(await page.getByLabel("First undelivered").isChecked()).toBe(true);
  await press("Enable", page.getByRole("dialog"));
  await see(page, "3 missed events will be sent.");
  await posted(3);
});

test("the last days are shown as a chart and as numbers, and each leads to its deliveries", async () => {
  await openSubscribed(() => deliver(4));
  const outcomes = "Delivered 4, Failed, will be retried 0, Failed for good 0";
  await page.getByRole("img", { name: `Delivery attempts by day (UTC). ${outcomes}` }).waitFor();
  await page.getByText("Show as a table").first().click();
  const today = page.getByRole("table", { name: "Delivery attempts" }).locator("tr").last();
  expect((await today.locator("td").allTextContents()).slice(0, 3)).toEqual(["4", "0", "0"]);
  await see(page, "100%");
  const date = new Date().toISOString().slice(0, 10);
  await page.locator(".chart g.choice").last().click();
  await shows(4);
  expect(decodeURIComponent(page.url())).toContain(`deliveries?since=${date}T00:00:00.000Z`);
  await page.goBack();
  await page.locator(".ticks a").first().click();
  await see(page, "No deliveries match these filters");
});

test("API keys are shown with their rate limits, page by page", async () => {
  await haveOwnWorkspace();
  for (let i = 0; i < 20; i++) await PLATFORM.createApiKey({ workspaceId });
  await open();
  await follow("API keys");
  await see(page.locator(".key").first(), "600 requests per minute", "Active");
  const shows = (count: number) => expect.poll(() => page.locator(".key").count()).toBe(count);
  await shows(20);
  await follow("Older");
  await shows(1);
  await follow("Newer");
  await shows(20);
});

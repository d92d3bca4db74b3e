import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test } from "vitest";
import { EMAIL_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { enqueueEmails } from "../../../src/email/queue.ts";
import { deleteSubscription } from "../../../src/subscriptions/subscriptions.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import { Platform } from "../../support/api.ts";
import {
  announceLeads,
  BROKEN,
  consumeBodies,
  createWorkspace,
  HOUR_MS,
  isolated,
  observedDatabase,
  setSubscription,
  subscribe,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { clearMail, type Email, mailbox } from "../../support/mailbox.ts";
import { db, inDatabase } from "../../support/placement.ts";
import { shortenTimers } from "../../support/timers.ts";

const T0 = Date.UTC(2026, 0, 5, 12, 34);
const NOW = T0 + 80 * HOUR_MS;
const [ADMIN, CHEF] = ["admin@example.com", "chef@example.com"];
const ADMINS = [ADMIN, CHEF];

const lines = keepLog();
afterEach(clearMail);

/** A subscription that was disabled by failures, whose administrators are owed an e-mail. */
async function disabled(adminEmails: Parameters<typeof createWorkspace>[0] = [ADMIN]) {
  const workspaceId = await createWorkspace(adminEmails);
  const { id } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, T0);
  await setSubscription(id, {
    failingSince: T0,
    disabledAt: NOW,
    disabledByFailures: true,
    lastAttempt: { at: NOW, outcome: "answered", status: 503, durationMs: 1 },
  });
  return { id, workspaceId };
}

/** Passes e-mails on to the runtime's mail service, which throws at one that lacks something. */
const acceptedBy = (service: SendEmail) => async (email: Email) => {
  await service.send(email);
  return false;
};

/** The events that were logged about e-mails. */
function eventsLogged(): string[] {
  const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line).event);
  return events.filter((event) => event.startsWith("email"));
}

describe("the administrators of a workspace", () => {
  test("get one e-mail each, in French, from the address that is configured", async () => {
    await disabled(ADMINS);
    const { sweepAt, sent } = mailbox(acceptedBy(env.EMAIL));
    await sweepAt(NOW);
    const subject = expect.stringContaining("Webhook désactivé");
    expect(sent).toMatchObject(ADMINS.map((to) => ({ to, from: env.EMAIL_FROM, subject })));
  });

  test("get it in their own language, if the platform gives one", async () => {
    const { workspaceId } = await disabled([{ email: ADMIN, language: "en" }]);
    await Platform.updateWorkspace({
      workspaceId,
      adminEmails: [
        { email: ADMIN, language: "en" },
        { email: CHEF, language: "fr" },
      ],
    });
    const { sweepAt, sent } = mailbox();
    await sweepAt(NOW);
    expect(sent.map(({ to, text }) => [to, text.split("\n")[0]])).toEqual([
      [ADMIN, "Hello,"],
      [CHEF, "Bonjour,"],
    ]);
  });

  test("see the platform's name as the sender, if it has one", async () => {
    await disabled();
    const { env: bindings, sent, sweepAt } = mailbox(acceptedBy(env.EMAIL));
    bindings.PORTAL_NAME = "Plateforme";
    await sweepAt(NOW);
    expect(sent).toMatchObject([{ from: { email: env.EMAIL_FROM, name: "Plateforme" } }]);
  });
});

describe("an e-mail whose turn comes is not sent", () => {
  test.each<[string, (about: { id: string; workspaceId: string }) => Promise<unknown>]>([
    ["if its subscription was enabled", ({ id }) => setSubscription(id, { disabledAt: null })],
    [
      "if its subscription was deleted",
      ({ id, workspaceId }) => commit(db, deleteSubscription(workspaceId, id, NOW)),
    ],
    [
      "if its workspace lost access",
      ({ workspaceId }) => commit(db, updateAccess(workspaceId, false)),
    ],
    [
      "to a former administrator",
      ({ workspaceId }) => Platform.updateWorkspace({ workspaceId, adminEmails: [CHEF] }),
    ],
  ])("%s", async (_, happen) => {
    const about = await disabled();
    const { sweepAt, consumeAt, tried } = mailbox(() => tried.length === 1);
    await sweepAt(NOW);
    await happen(about);
    await consumeAt(NOW + HOUR_MS);
    expect(tried).toHaveLength(1);
    expect(eventsLogged()).toEqual(["email_failed"]);
  });

  test("about another workspace's subscription", async () => {
    const [own, other] = [await disabled(), await disabled()];
    const mail = mailbox();
    await mail.sweepAt(NOW);
    const { body } = {
      body: {
        workspaceId: own.workspaceId,
        kind: "disabled",
        subscriptionIds: [other.id],
        isReminder: false,
        to: ADMIN,
      },
    } as const;
    mail.held.push({
      body: { ...body, subscriptionIds: [...body.subscriptionIds] },
      attempts: 0,
      dueAt: 0,
    });
    await mail.consumeAt(NOW);
    expect(mail.sent).toHaveLength(2);
  });
});

describe("an administrator who cannot be reached", () => {
  const isChef = ({ to }: Email) => to === CHEF;

  test.each([
    ...[true, "E_INTERNAL_SERVER_ERROR", "E_RECIPIENT_NOT_ALLOWED"],
    ...[`${CHEF} is full`, `E_FULL ${CHEF}`],
  ])("does not keep others from being told, and is told later: code %j", async (code) => {
    const { id, workspaceId } = await disabled(ADMINS);
    let isDown = true;
    const { sweepAt, consumeAt, sent } = mailbox((email) => isDown && isChef(email) && code);
    await sweepAt(NOW);
    expect(sent.map(({ to }) => to)).toEqual([ADMIN]);
    const failed = lines.find((line) => line.includes("email_failed")) ?? "{}";
    const shown = typeof code === "string" && /^E_\w+$/.test(code) ? code : null;
    expect(JSON.parse(failed)).toMatchObject({
      ...{ webhookId: id, workspaceId, kind: "disabled", attempts: 1, subscriptions: 1 },
      ...{ code: shown, delaySeconds: EMAIL_WAITS_SECONDS[0] },
    });
    isDown = false;
    await consumeAt(NOW + 1000 * EMAIL_WAITS_SECONDS[0]);
    expect(sent.map(({ to }) => to)).toEqual(ADMINS);
    expect(lines.join()).not.toContain(CHEF);
  });

  test("is given up after ten tries over two days, which is logged once and without the address", async () => {
    await disabled([CHEF]);
    const { sweepAt, consumeAt, tried, held } = mailbox(isChef);
    let now = NOW;
    await sweepAt(now);
    for (const [i, waitSeconds] of EMAIL_WAITS_SECONDS.entries()) {
      await consumeAt(now + waitSeconds * 1000 - 1);
      expect(tried).toHaveLength(i + 1);
      now += waitSeconds * 1000;
      await consumeAt(now);
    }
    expect(tried).toHaveLength(10);
    expect(held).toEqual([]);
    expect(eventsLogged()).toEqual([...Array(9).fill("email_failed"), "email_given_up"]);
    expect(now - NOW).toBeGreaterThan(47 * HOUR_MS);
    expect(now - NOW).toBeLessThanOrEqual(48 * HOUR_MS);
    expect(lines.join()).toContain("the mail service does not serve");
    expect(lines.join()).not.toContain(CHEF);
  });

  test("because the mail service never responds is tried again after ten seconds", async () => {
    await disabled(ADMINS);
    shortenTimers(10_000);
    const { sweepAt, sent, held } = mailbox(
      ({ to }) => to === CHEF && new Promise<boolean>(() => {}),
    );
    await sweepAt(NOW);
    expect(sent.map(({ to }) => to)).toEqual([ADMIN]);
    expect(held).toMatchObject([{ body: { to: CHEF }, attempts: 1 }]);
  });
});

test("an e-mail whose database fails is tried again later", async () => {
  await disabled();
  const mail = mailbox();
  const { DB } = observedDatabase({
    before: () => {
      throw BROKEN;
    },
  });
  await mail.sweepAt(NOW, () => true);
  expect(mail.sent).toHaveLength(1);
  const broken = mailbox();
  Object.assign(broken.env, inDatabase({ DB }));
  broken.held.push({ body: sentBody(), attempts: 0, dueAt: 0 });
  await broken.consumeAt(NOW);
  expect(broken.held).toMatchObject([{ attempts: 1, dueAt: NOW + 1000 * EMAIL_WAITS_SECONDS[0] }]);
  function sentBody() {
    return {
      workspaceId: "wks_1",
      kind: "disabled" as const,
      subscriptionIds: ["whk_1"],
      isReminder: false,
      to: ADMIN,
    };
  }
});

test("the Worker's consumer sends what the queue holds, and drops what is no e-mail", async () => {
  await disabled();
  const { env: bindings, emails } = isolated();
  const { announceProblems } = await import("../../../src/email/announce.ts");
  await announceProblems(db as never, bindings, NOW);
  const { sent, env: mailing } = mailbox();
  const [body] = emails;
  expect(body).toMatchObject({ to: ADMIN, kind: "disabled" });
  const result = await consumeBodies([body, { ...body, extra: 1 }, { to: ADMIN }], mailing);
  expect(result).toMatchObject({ outcome: "ok", retryMessages: [] });
  expect(sent).toHaveLength(1);
});

test("the queue gets at most 100 e-mails at a time, as Queues requires", async () => {
  const batches: number[] = [];
  const sendBatch = async (messages: unknown[]) => void batches.push(messages.length);
  const about = { kind: "failing", workspaceId: "wks_1", isReminder: false } as const;
  const message = { ...about, subscriptionIds: ["whk_1"], to: ADMIN };
  const messages = Array.from({ length: 201 }, () => message);
  await enqueueEmails({ ...env, EMAILS: { sendBatch } as unknown as Queue }, messages);
  expect(batches).toEqual([100, 100, 1]);
});

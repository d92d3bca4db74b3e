import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, test } from "vitest";
import { EMAIL_WAITS_SECONDS, WORKSPACE_EMAILS_PER_DAY } from "../../../src/contract/limits.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { NOTICE_TAKEN_MS } from "../../../src/email/notices.ts";
import { RECIPIENTS_AT_ONCE, sendNotices } from "../../../src/email/notify.ts";
import {
  announceLeads,
  createWorkspace,
  db,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  noticesOf,
  observedDatabase,
  setSubscription,
  subscribe,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { clearMail, type Email, mailbox } from "../../support/mailbox.ts";
import { shortenTimers } from "../../support/timers.ts";

const { Platform } = exports;
const T0 = Date.UTC(2026, 0, 5, 12, 34);
const NOW = T0 + 80 * HOUR_MS;
const [ADMIN, CHEF] = ["admin@example.com", "chef@example.com"];
const ADMINS = [ADMIN, CHEF];

const lines = keepLog();
afterEach(clearMail);

/** A newly disabled subscription, whose administrators are owed an e-mail. */
async function disabled(adminEmails = [ADMIN]) {
  const workspaceId = await createWorkspace(adminEmails);
  return { id: await disableOne(workspaceId), workspaceId };
}

/** A subscription of the workspace that is disabled. */
async function disableOne(workspaceId: string): Promise<string> {
  const { id } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, T0);
  await setSubscription(id, { failures: 9, failingSince: T0, failedEvents: ["evt_1"] });
  await failAt(id, [T0 + 73 * HOUR_MS]);
  return id;
}

/** A mail service that fails as `fails` says, and the sweeps that use it. */
function service(fails?: Parameters<typeof mailbox>[0]) {
  const mail = mailbox(fails);
  return {
    ...mail,
    sweepAt: (now: number, hasTime?: () => boolean) => sendNotices(db, mail.env, now, hasTime),
    triedFor: () => mail.tried.map(({ to }) => to),
    sentTo: () => mail.sent.map(({ to }) => to),
  };
}

function eventsLogged(): string[] {
  const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line).event);
  return events.filter((event) => event.startsWith("notice"));
}

/** Who is still to be told that a subscription was disabled, and after how many failed tries. */
async function leftOf(id: string) {
  const [notice] = await noticesOf(id);
  return notice && { recipients: notice.recipients, tries: notice.tries };
}

/** A notice of which nobody is left to be told for now. */
const TOLD = { recipients: null, tries: 0 };

describe("the administrators of a workspace", () => {
  test("get one e-mail each when a subscription is disabled, and are forgotten then", async () => {
    const { id } = await disabled(ADMINS);
    const { sweepAt, sent } = service();
    await sweepAt(NOW);
    await sweepAt(NOW + MINUTE_MS);
    const subject = expect.stringContaining("Abonnement webhook désactivé");
    expect(sent).toMatchObject(ADMINS.map((to) => ({ to, from: env.EMAIL_FROM, subject })));
    expect(await noticesOf(id)).toMatchObject([{ ...TOLD, sentAt: NOW, sent: 2 }]);
    expect(JSON.stringify(await noticesOf(id))).not.toContain("@");
  });

  test("see the platform's name as the sender, if it has one", async () => {
    await disabled();
    const { env: bindings, tried } = mailbox(() => true);
    await sendNotices(db, { ...bindings, PORTAL_NAME: "Plateforme" }, NOW);
    expect(tried).toMatchObject([{ from: { email: env.EMAIL_FROM, name: "Plateforme" } }]);
  });

  test.each([
    ["no e-mail if there are none", [], []],
    ["one e-mail each, even if they are listed twice", [...ADMINS, ...ADMINS], ADMINS],
  ])("get %s, though two sweeps overlap", async (_, listed, told) => {
    const { id } = await disabled(listed);
    const { sweepAt, triedFor } = service();
    await Promise.all([sweepAt(NOW), sweepAt(NOW)]);
    expect(triedFor().sort()).toEqual(told);
    expect(await leftOf(id)).toEqual(TOLD);
  });
});

describe("administrators who change while a notice is owed", () => {
  test("are told instead of former ones, who are forgotten, once each", async () => {
    const { id, workspaceId } = await disabled(["typo@example.com", ...ADMINS]);
    await service(({ to }) => to !== ADMIN && "E_INTERNAL").sweepAt(NOW);
    const adminEmails = ["new@example.com", ...ADMINS];
    for (let i = 0; i < 2; i++) await Platform.updateWorkspace({ workspaceId, adminEmails });
    expect(await leftOf(id)).toEqual({ recipients: ["new@example.com", CHEF], tries: 1 });
    const { sweepAt, triedFor } = service();
    await sweepAt(NOW + HOUR_MS);
    expect(triedFor().toSorted()).toEqual([CHEF, "new@example.com"]);
    // Of what everyone has been sent, nobody else is told.
    await Platform.updateWorkspace({ workspaceId, adminEmails: ["newer@example.com"] });
    await sweepAt(NOW + 2 * HOUR_MS);
    expect(triedFor()).toHaveLength(2);
  });

  test("of another workspace change nothing, and neither does a new name", async () => {
    const [own, other] = [await disabled(ADMINS), await disabled(ADMINS)];
    await service(() => "E_INTERNAL").sweepAt(NOW);
    await Platform.updateWorkspace({ workspaceId: other.workspaceId, adminEmails: [] });
    await Platform.updateWorkspace({ workspaceId: own.workspaceId, name: "Agence" });
    expect(await leftOf(own.id)).toEqual({ recipients: ADMINS, tries: 1 });
    expect(await leftOf(other.id)).toEqual({ recipients: [], tries: 1 });
  });
});

describe("an administrator who cannot be reached", () => {
  const isChef = ({ to }: Email) => to === CHEF;

  test.each([true, "E_INTERNAL_SERVER_ERROR", "E_RECIPIENT_NOT_ALLOWED", `${CHEF} is full`])(
    "for now (%s) gets it later, and the others do not get it again",
    async (code) => {
      const { id } = await disabled(ADMINS);
      let down = true;
      const { sweepAt, sentTo } = service((email) => isChef(email) && down && code);
      await sweepAt(NOW);
      const owed = { recipients: [CHEF], tries: 1, dueAt: NOW + 5 * MINUTE_MS };
      expect(await noticesOf(id)).toMatchObject([owed]);
      down = false;
      await sweepAt(NOW + 4 * MINUTE_MS);
      expect(sentTo()).toEqual([ADMIN]);
      for (const minutes of [5, 60]) await sweepAt(NOW + minutes * MINUTE_MS);
      expect(sentTo()).toEqual(ADMINS);
      expect(await leftOf(id)).toEqual(TOLD);
      expect(lines.join("\n")).not.toContain(CHEF);
    },
  );

  test("is given up after ten tries over two days, which is logged once and without the address", async () => {
    const { id } = await disabled([CHEF]);
    const { sweepAt, tried } = service(isChef);
    let now = NOW;
    for (const waitSeconds of EMAIL_WAITS_SECONDS) {
      await sweepAt(now);
      await sweepAt(now + waitSeconds * 1000 - 1);
      now += waitSeconds * 1000;
    }
    expect(tried).toHaveLength(9);
    for (const laterMs of [0, 100 * HOUR_MS]) await sweepAt(now + laterMs);
    expect(tried).toHaveLength(10);
    expect(await leftOf(id)).toEqual(TOLD);
    expect(eventsLogged()).toEqual([...Array(9).fill("notice_failed"), "notice_given_up"]);
    expect(now - NOW).toBeGreaterThan(47 * HOUR_MS);
    expect(now - NOW).toBeLessThanOrEqual(48 * HOUR_MS);
    expect(lines.join()).toContain("the mail service does not serve");
    expect(lines.join()).not.toContain(CHEF);
  });

  test("does not keep the others waiting: they come first the next time", async () => {
    const many = Array.from({ length: RECIPIENTS_AT_ONCE }, (_, i) => `bad-${i}@example.com`);
    const { id } = await disabled([...many, ADMIN]);
    const { sweepAt, sentTo } = service(({ to }) => to.startsWith("bad-"));
    for (const minutes of [0, 5]) await sweepAt(NOW + minutes * MINUTE_MS);
    expect(sentTo()).toEqual([ADMIN]);
    expect((await leftOf(id))?.recipients).toHaveLength(many.length);
  });
});

describe("the e-mails of one workspace", () => {
  /** A workspace with 50 administrators and so many disabled subscriptions. */
  async function greedy(subscriptions: number, administrators = 50) {
    const emails = Array.from({ length: administrators }, (_, i) => `a${i}@greedy.example`);
    const first = await disabled(emails);
    for (let i = 1; i < subscriptions; i++) await disableOne(first.workspaceId);
  }
  const others = (tried: Email[]) => tried.filter(({ to }) => !to.endsWith("greedy.example"));

  test("do not delay those of others: each has a turn in every sweep", async () => {
    await greedy(3);
    await disabled();
    const { sweepAt, tried } = service();
    await sweepAt(NOW);
    expect(tried).toHaveLength(RECIPIENTS_AT_ONCE + 1);
    expect(others(tried)).toHaveLength(1);
  });

  test("have a daily maximum, after which the rest follow", async () => {
    // The maximum is reached in the midst of a turn.
    await greedy(9, 23);
    const { sweepAt, tried } = service();
    const sweeps = 9 * Math.ceil(23 / RECIPIENTS_AT_ONCE);
    for (let i = 0; i < sweeps; i++) await sweepAt(NOW + i * MINUTE_MS);
    expect(tried).toHaveLength(WORKSPACE_EMAILS_PER_DAY);
    for (let i = 0; i < sweeps; i++) await sweepAt(NOW + 26 * HOUR_MS + i * MINUTE_MS);
    expect(tried).toHaveLength(9 * 23);
  });
});

describe("a sweep that is interrupted", () => {
  const GONE = new Error("the isolate is gone");

  test("by its budget leaves the other notices to a later one", async () => {
    await disabled();
    await disabled();
    const { sweepAt, tried } = service();
    await sweepAt(NOW, () => tried.length === 0);
    expect(tried).toHaveLength(1);
    await sweepAt(NOW + NOTICE_TAKEN_MS);
    expect(tried).toHaveLength(2);
  });

  test("for so long that another one tries does not change when that one's next try is", async () => {
    const { id } = await disabled();
    const newer = service(() => "E_INTERNAL");
    const late = service(async () => {
      await newer.sweepAt(NOW + NOTICE_TAKEN_MS);
      return "E_INTERNAL";
    });
    await late.sweepAt(NOW);
    const dueAt = NOW + NOTICE_TAKEN_MS + EMAIL_WAITS_SECONDS[0] * 1000;
    expect(await noticesOf(id)).toMatchObject([{ recipients: [ADMIN], tries: 1, dueAt }]);
  });

  test("between sending and recording sends those of this turn again, but none of the others", async () => {
    const { id } = await disabled(ADMINS);
    const other = await disabled();
    const { sweepAt, sentTo, env } = service();
    let isGone = false;
    const { DB } = observedDatabase({
      before: (_, [text = "", ...others]) => {
        const records = /set .*"sent_at" = /i.test(text) && others.length === 0;
        if (!records || isGone || !sentTo().includes(CHEF)) return;
        isGone = true;
        throw GONE;
      },
    });
    await expect(sendNotices(openDatabase(DB), env, NOW)).rejects.toThrow("is gone");
    for (const n of [1, 10]) await sweepAt(NOW + n * NOTICE_TAKEN_MS);
    expect(sentTo().toSorted()).toEqual([ADMIN, ADMIN, ADMIN, CHEF, CHEF]);
    for (const one of [id, other.id]) expect(await leftOf(one)).toEqual(TOLD);
  });

  test("is not caused by a mail service that never answers: the next e-mail is sent after ten seconds", async () => {
    const { id } = await disabled(ADMINS);
    shortenTimers(10_000);
    await service(({ to }) => to === ADMIN && new Promise<boolean>(() => {})).sweepAt(NOW);
    expect(await leftOf(id)).toEqual({ recipients: [ADMIN], tries: 1 });
  });
});

import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { EMAIL_WAITS_SECONDS } from "../../../../src/contract/limits.ts";
import { openDatabase } from "../../../../src/db/client.ts";
import { EMAIL_TIMEOUT_MS } from "../../../../src/webhooks/notices/mail.ts";
import {
  EMAIL_TAKEN_MS,
  EMAILS_MAX,
  takeDueEmails,
} from "../../../../src/webhooks/notices/notices.ts";
import { sendNotices } from "../../../../src/webhooks/notices/notify.ts";
import {
  announceLeads,
  createWorkspace,
  db,
  failAt,
  failAtTrip,
  HOUR_MS,
  MINUTE_MS,
  noticesOf,
  observedDatabase,
  setSubscription,
  subscribe,
} from "../../../support/deliveries.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { clearMail, type Email, emailsAbout, mailbox } from "../../../support/mailbox.ts";

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
  const { id } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, T0);
  await setSubscription(id, { failures: 9, failingSince: T0, backoff: 9 });
  await failAt(id, [T0 + 73 * HOUR_MS]);
  return { id, workspaceId };
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

/** What became of the e-mails about a subscription, by recipient, and after how many tries. */
async function outcomesOf(id: string) {
  return (await emailsAbout(id)).map(({ state, tries }) => `${state} ${tries}`);
}

function eventsLogged(): string[] {
  const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line).event);
  return events.filter((event) => event.startsWith("notice"));
}

describe("the administrators of a workspace", () => {
  test("get one e-mail each when a subscription is disabled, and the outcome is stored", async () => {
    const { id } = await disabled(ADMINS);
    const { sweepAt, sent } = service();
    await sweepAt(NOW);
    await sweepAt(NOW + MINUTE_MS);
    const subject = expect.stringContaining("Abonnement webhook désactivé");
    expect(sent).toMatchObject(ADMINS.map((to) => ({ to, from: env.EMAIL_FROM, subject })));
    const settled = { state: "sent", tries: 1, settledAt: NOW };
    const expected = ADMINS.map((recipient) => ({ recipient, ...settled }));
    expect(await emailsAbout(id)).toMatchObject(expected);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });

  test.each([
    ["no e-mail if there are none", [], []],
    ["one e-mail each, even if they are listed twice", [...ADMINS, ...ADMINS], ADMINS],
  ])("get %s, though two sweeps overlap", async (_, listed, told) => {
    const { id } = await disabled(listed);
    const { sweepAt, triedFor } = service();
    await Promise.all([sweepAt(NOW), sweepAt(NOW)]);
    expect(triedFor().sort()).toEqual(told);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });
});

describe("administrators who change while e-mails are owed", () => {
  const later = () => Math.max(NOW + HOUR_MS, Date.now());

  test("are told instead of former ones, once each", async () => {
    const { id, workspaceId } = await disabled(["typo@example.com", ...ADMINS]);
    await service(({ to }) => to !== ADMIN && "E_INTERNAL").sweepAt(NOW);
    const adminEmails = ["new@example.com", ...ADMINS];
    for (let i = 0; i < 2; i++) await Platform.updateWorkspace({ workspaceId, adminEmails });
    const { sweepAt, triedFor } = service();
    await sweepAt(later());
    expect(triedFor().toSorted()).toEqual([CHEF, "new@example.com"]);
    // In the order of the recipients: admin, chef, new, typo.
    expect(await outcomesOf(id)).toEqual(["sent 1", "sent 2", "sent 1", "dropped 1"]);
    // Of what everyone has been sent, nobody else is told.
    await Platform.updateWorkspace({ workspaceId, adminEmails: ["newer@example.com"] });
    await sweepAt(later() + HOUR_MS);
    expect(triedFor()).toHaveLength(2);
  });

  test("of another workspace change nothing, and neither does a new name", async () => {
    const [own, other] = [await disabled(ADMINS), await disabled(ADMINS)];
    await service(() => "E_INTERNAL").sweepAt(NOW);
    await Platform.updateWorkspace({ workspaceId: other.workspaceId, adminEmails: [] });
    await Platform.updateWorkspace({ workspaceId: own.workspaceId, name: "Agence" });
    expect(await outcomesOf(own.id)).toEqual(Array(2).fill("owed 1"));
    expect(await outcomesOf(other.id)).toEqual(Array(2).fill("dropped 1"));
  });
});

describe("an administrator who cannot be reached", () => {
  const isChef = ({ to }: Email) => to === CHEF;

  test("permanently gets no further e-mail, and does not affect the others", async () => {
    const { id } = await disabled(ADMINS);
    const { sweepAt, tried } = service((email) => isChef(email) && "E_RECIPIENT_SUPPRESSED");
    for (const hours of [0, 1, 100]) await sweepAt(NOW + hours * HOUR_MS);
    expect(tried).toHaveLength(2);
    const refused = { state: "refused", tries: 1, settledAt: NOW };
    expect(await emailsAbout(id)).toMatchObject([{ state: "sent" }, refused]);
    expect(eventsLogged()).toEqual(["notice_sent", "notice_refused"]);
  });

  test.each([true, "E_INTERNAL_SERVER_ERROR", "E_RECIPIENT_NOT_ALLOWED", `${CHEF} is full`])(
    "for now (%s) gets it later, and the others do not get it again",
    async (code) => {
      const { id } = await disabled(ADMINS);
      let down = true;
      const { sweepAt, sentTo } = service((email) => isChef(email) && down && code);
      await sweepAt(NOW);
      const owed = { state: "owed", tries: 1, dueAt: NOW + 5 * MINUTE_MS };
      expect(await emailsAbout(id)).toMatchObject([{ state: "sent" }, owed]);
      down = false;
      await sweepAt(NOW + 4 * MINUTE_MS);
      expect(sentTo()).toEqual([ADMIN]);
      for (const minutes of [5, 60]) await sweepAt(NOW + minutes * MINUTE_MS);
      expect(sentTo()).toEqual(ADMINS);
      expect(await outcomesOf(id)).toEqual(["sent 1", "sent 2"]);
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
    expect(await emailsAbout(id)).toMatchObject([{ state: "given_up", tries: 10, settledAt: now }]);
    expect(eventsLogged()).toEqual([...Array(9).fill("notice_failed"), "notice_given_up"]);
    expect(now - NOW).toBeGreaterThan(47 * HOUR_MS);
    expect(now - NOW).toBeLessThanOrEqual(48 * HOUR_MS);
    expect(lines.join()).toContain("the mail service does not serve");
    expect(lines.join()).not.toContain(CHEF);
  });

  test("is not given up earlier because crashed sweeps have counted tries that nobody made", async () => {
    const { id } = await disabled([CHEF]);
    const { sweepAt, tried } = service(isChef);
    let now = NOW;
    for (let crashes = 0; crashes < 10; crashes++, now += EMAIL_TAKEN_MS)
      await takeDueEmails(db, now);
    for (const state of ["owed", "owed", "owed", "given_up"]) {
      await sweepAt(now);
      expect(await emailsAbout(id)).toMatchObject([{ state }]);
      now += 20 * HOUR_MS;
    }
    expect(tried).toHaveLength(4);
  });

  test("comes after one that has been due for longer", async () => {
    const admins = Array.from({ length: EMAILS_MAX + 1 }, (_, i) => `a-${10 + i}@example.com`);
    await disabled(admins);
    expect(await takeDueEmails(db, NOW)).toHaveLength(EMAILS_MAX);
    const [first] = await takeDueEmails(db, NOW + EMAIL_TAKEN_MS);
    expect(first?.recipient).toBe(admins.at(-1));
  });

  test("does not delay new e-mails for long, even if more fail than a sweep can try", async () => {
    await disabled(Array.from({ length: 50 }, (_, i) => `bad-${i}@example.com`));
    const { sweepAt, tried } = service(({ to }) => to.startsWith("bad-"));
    const fresh = await disabled();
    for (const minutes of [0, 1, 2]) await sweepAt(NOW + minutes * MINUTE_MS);
    expect(tried.length).toBeLessThanOrEqual(3 * EMAILS_MAX);
    expect(await outcomesOf(fresh.id)).toEqual(["sent 1"]);
  });
});

test.each([
  ["E_DAILY_LIMIT_EXCEEDED", HOUR_MS],
  ["E_RATE_LIMIT_EXCEEDED", 5 * MINUTE_MS],
])("a mail service that answers %s is left alone for a while, uncounted", async (code, pauseMs) => {
  const { id } = await disabled(["a@example.com", "b@example.com", "c@example.com"]);
  let spent = true;
  const { sweepAt, triedFor, sent } = service(({ to }) => spent && to !== "a@example.com" && code);
  await sweepAt(NOW);
  expect(triedFor()).toEqual(["a@example.com", "b@example.com"]);
  const other = await disabled();
  await sweepAt(NOW + pauseMs - 1);
  expect(triedFor()).toHaveLength(2);
  expect(await outcomesOf(id)).toEqual(["sent 1", "owed 0", "owed 0"]);
  expect(eventsLogged()).toEqual(["notice_sent", "notices_paused"]);
  spent = false;
  await sweepAt(NOW + pauseMs);
  expect(sent).toHaveLength(4);
  expect(await outcomesOf(other.id)).toEqual(["sent 1"]);
});

describe("a sweep that is interrupted", () => {
  const GONE = new Error("the isolate is gone");

  test("by its time limit returns what it has not tried", async () => {
    const { id } = await disabled(ADMINS);
    const { sweepAt, tried, sentTo } = service();
    await sweepAt(NOW, () => tried.length === 0);
    const owed = { state: "owed", tries: 0, dueAt: NOW };
    expect(await emailsAbout(id)).toMatchObject([{ state: "sent" }, owed]);
    await sweepAt(NOW + 1);
    expect(sentTo()).toEqual(ADMINS);
  });

  test("before sending loses nothing: a later one sends it once nobody else can be sending it", async () => {
    const { id } = await disabled();
    const { DB } = observedDatabase({ after: failAtTrip(2, GONE) });
    const { sweepAt, tried, env } = service();
    await expect(sendNotices(openDatabase(DB), env, NOW)).rejects.toThrow();
    await sweepAt(NOW + EMAIL_TAKEN_MS - 1);
    expect(tried).toEqual([]);
    await sweepAt(NOW + EMAIL_TAKEN_MS);
    expect(await outcomesOf(id)).toEqual(["sent 2"]);
  });

  test("for so long that another one tries does not change when that one's next try is", async () => {
    const { id } = await disabled();
    const newer = service(() => "E_INTERNAL");
    const late = service(async () => {
      await newer.sweepAt(NOW + EMAIL_TAKEN_MS);
      return "E_INTERNAL";
    });
    await late.sweepAt(NOW);
    const dueAt = NOW + EMAIL_TAKEN_MS + EMAIL_WAITS_SECONDS[1] * 1000;
    expect(await emailsAbout(id)).toMatchObject([{ state: "owed", tries: 2, dueAt }]);
  });

  test("between sending and recording sends this one again, but none of the others", async () => {
    const { id } = await disabled(ADMINS);
    const { sweepAt, sentTo, env } = service();
    const { DB } = observedDatabase({
      before: (_, [text = "", ...others]) => {
        const records = /set "state" = /i.test(text) && others.length === 0;
        if (records && sentTo().length === 2) throw GONE;
      },
    });
    await expect(sendNotices(openDatabase(DB), env, NOW)).rejects.toThrow("is gone");
    await sweepAt(NOW + EMAIL_TAKEN_MS);
    await sweepAt(NOW + 10 * EMAIL_TAKEN_MS);
    expect(sentTo()).toEqual([...ADMINS, CHEF]);
    expect(await outcomesOf(id)).toEqual(["sent 1", "sent 2"]);
  });

  test("is not caused by a mail service that never answers: the next e-mail is sent after ten seconds", async () => {
    const { id } = await disabled(ADMINS);
    const real = globalThis.setTimeout;
    vi.spyOn(globalThis, "setTimeout").mockImplementation(((run: () => void, ms: number) =>
      real(run, ms === EMAIL_TIMEOUT_MS ? 50 : ms)) as typeof setTimeout);
    await service(({ to }) => to === ADMIN && new Promise<boolean>(() => {})).sweepAt(NOW);
    expect(await outcomesOf(id)).toEqual(["owed 1", "sent 1"]);
    expect(EMAIL_TIMEOUT_MS).toBe(10_000);
  });
});

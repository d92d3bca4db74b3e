import { env, exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { EMAIL_WAITS_SECONDS } from "../../../../src/contract/limits.ts";
import { openDatabase } from "../../../../src/db/client.ts";
import { EMAIL_TIMEOUT_MS } from "../../../../src/webhooks/notices/mail.ts";
import {
  EMAIL_TAKEN_MS,
  EMAILS_MAX,
  takeOwedEmails,
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
import { lossyDatabase } from "../../../support/lost-reply.ts";
import { clearMail, type Email, emailsAbout, mailbox } from "../../../support/mailbox.ts";

const T0 = Date.UTC(2026, 0, 5, 12, 34);
const NOW = T0 + 80 * HOUR_MS;
const ADMINS = ["admin@example.com", "chef@example.com"];

/** A newly disabled subscription, whose administrators are owed an e-mail. */
async function disabled(adminEmails = ["admin@example.com"]) {
  const workspaceId = await createWorkspace(adminEmails);
  const { id } = await subscribe(workspaceId);
  await announceLeads(workspaceId, 1, T0);
  await setSubscription(id, { failures: 9, failingSince: T0, backoff: 9 });
  await failAt(id, [T0 + 73 * HOUR_MS]);
  return { id, workspaceId };
}

const lines = keepLog();

afterEach(clearMail);

function eventsLogged(): string[] {
  const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line).event);
  return events.filter((event) => event.startsWith("notice"));
}

/** To whom e-mails went, in order. */
const recipients = (list: Email[]) => list.map(({ to }) => to);

describe("the administrators of a workspace", () => {
  test("get one e-mail each when a subscription is disabled, and the outcome is stored", async () => {
    const { id } = await disabled(ADMINS);
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    await sendNotices(db, mail.env, NOW + MINUTE_MS);
    expect(recipients(mail.tried)).toEqual(ADMINS);
    for (const { from, subject } of mail.sent) {
      expect(from).toBe(env.EMAIL_FROM);
      expect(subject).toContain("Abonnement webhook désactivé");
    }
    const sent = { state: "sent", tries: 1, settledAt: NOW };
    expect(await emailsAbout(id)).toMatchObject(
      ADMINS.map((recipient) => ({ recipient, ...sent })),
    );
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });

  test("get no e-mail if there are none", async () => {
    const { id } = await disabled([]);
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    expect(mail.tried).toEqual([]);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });

  test("get it once, even if they are listed twice and two sweeps overlap", async () => {
    await disabled([...ADMINS, ...ADMINS]);
    const mail = mailbox();
    await Promise.all([sendNotices(db, mail.env, NOW), sendNotices(db, mail.env, NOW + 1)]);
    expect(recipients(mail.tried).sort()).toEqual(ADMINS);
  });
});

describe("administrators who change while e-mails are owed", () => {
  const { Platform } = exports;
  const later = NOW + HOUR_MS;

  test("are told instead of former ones, once each", async () => {
    const { id, workspaceId } = await disabled(["typo@example.com", ...ADMINS]);
    const fails = ({ to }: Email) => (to === "admin@example.com" ? false : "E_INTERNAL");
    await sendNotices(db, mailbox(fails).env, NOW);
    const adminEmails = ["new@example.com", ...ADMINS];
    await Platform.updateWorkspace({ workspaceId, adminEmails });
    await Platform.updateWorkspace({ workspaceId, adminEmails });
    const mail = mailbox();
    await sendNotices(db, mail.env, Math.max(later, Date.now()));
    expect(recipients(mail.tried).toSorted()).toEqual(["chef@example.com", "new@example.com"]);
    const about = await emailsAbout(id);
    expect(about.map(({ recipient, state, tries }) => [recipient, state, tries])).toEqual([
      ["admin@example.com", "sent", 1],
      ["chef@example.com", "sent", 2],
      ["new@example.com", "sent", 1],
      ["typo@example.com", "dropped", 1],
    ]);
  });

  test("are not sent a notice that everyone else has been sent", async () => {
    const { workspaceId } = await disabled(ADMINS);
    await sendNotices(db, mailbox().env, NOW);
    await Platform.updateWorkspace({ workspaceId, adminEmails: ["new@example.com"] });
    const mail = mailbox();
    await sendNotices(db, mail.env, Math.max(later, Date.now()));
    expect(mail.tried).toEqual([]);
  });

  test("of another workspace change nothing, and neither does a new name", async () => {
    const { id, workspaceId } = await disabled(ADMINS);
    const other = await disabled(ADMINS);
    await sendNotices(db, mailbox(() => "E_INTERNAL").env, NOW);
    await Platform.updateWorkspace({ workspaceId: other.workspaceId, adminEmails: [] });
    await Platform.updateWorkspace({ workspaceId, name: "Agence" });
    expect((await emailsAbout(id)).map(({ state }) => state)).toEqual(["owed", "owed"]);
    expect((await emailsAbout(other.id)).map(({ state }) => state)).toEqual(["dropped", "dropped"]);
  });
});

describe("an administrator who cannot be reached", () => {
  const isChef = ({ to }: Email) => to === "chef@example.com";

  test("permanently gets no further e-mail, and does not affect the others", async () => {
    const { id } = await disabled(ADMINS);
    const mail = mailbox((email) => isChef(email) && "E_RECIPIENT_SUPPRESSED");
    for (const hours of [0, 1, 100]) await sendNotices(db, mail.env, NOW + hours * HOUR_MS);
    expect(mail.tried).toHaveLength(2);
    expect(await emailsAbout(id)).toMatchObject([
      { recipient: "admin@example.com", state: "sent" },
      { recipient: "chef@example.com", state: "refused", tries: 1, settledAt: NOW },
    ]);
    expect(eventsLogged()).toEqual(["notice_sent", "notice_refused"]);
  });

  const UNKNOWN = "chef@example.com is full";
  test.each([true, "E_INTERNAL_SERVER_ERROR", "E_RECIPIENT_NOT_ALLOWED", UNKNOWN])(
    "for now (%s) gets it later, and the others do not get it again",
    async (code) => {
      const { id } = await disabled(ADMINS);
      let down = true;
      const mail = mailbox((email) => isChef(email) && down && code);
      await sendNotices(db, mail.env, NOW);
      const owed = { state: "owed", tries: 1, dueAt: NOW + 5 * MINUTE_MS };
      expect(await emailsAbout(id)).toMatchObject([{ state: "sent" }, owed]);
      down = false;
      await sendNotices(db, mail.env, NOW + 4 * MINUTE_MS);
      expect(mail.sent).toHaveLength(1);
      await sendNotices(db, mail.env, NOW + 5 * MINUTE_MS);
      await sendNotices(db, mail.env, NOW + HOUR_MS);
      expect(recipients(mail.sent)).toEqual(ADMINS);
      expect(await emailsAbout(id)).toMatchObject([{ tries: 1 }, { state: "sent", tries: 2 }]);
      expect(lines.join("\n")).not.toContain("chef@example.com");
    },
  );

  test("is given up after ten tries over two days, which is logged once and without the address", async () => {
    const { id } = await disabled(["chef@example.com"]);
    const mail = mailbox(isChef);
    let now = NOW;
    for (const waitSeconds of EMAIL_WAITS_SECONDS) {
      await sendNotices(db, mail.env, now);
      await sendNotices(db, mail.env, now + waitSeconds * 1000 - 1);
      now += waitSeconds * 1000;
    }
    expect(mail.tried).toHaveLength(9);
    expect(eventsLogged()).toEqual(Array(9).fill("notice_failed"));
    await sendNotices(db, mail.env, now);
    await sendNotices(db, mail.env, now + 100 * HOUR_MS);
    expect(mail.tried).toHaveLength(10);
    expect(await emailsAbout(id)).toMatchObject([{ state: "given_up", tries: 10, settledAt: now }]);
    expect(eventsLogged().slice(9)).toEqual(["notice_given_up"]);
    expect(now - NOW).toBeGreaterThan(47 * HOUR_MS);
    expect(now - NOW).toBeLessThanOrEqual(48 * HOUR_MS);
    expect(lines.join("\n")).toContain("the mail service does not serve");
    expect(lines.join("\n")).not.toContain("chef@example.com");
  });

  test("is not given up earlier because crashed sweeps have counted tries that nobody made", async () => {
    const { id } = await disabled(["chef@example.com"]);
    const mail = mailbox(isChef);
    let now = NOW;
    for (let crashes = 0; crashes < 10; crashes++) {
      await takeOwedEmails(db, now);
      now += EMAIL_TAKEN_MS;
    }
    for (const state of ["owed", "owed", "owed", "given_up"]) {
      await sendNotices(db, mail.env, now);
      expect(await emailsAbout(id)).toMatchObject([{ state }]);
      now += 20 * HOUR_MS;
    }
    expect(mail.tried).toHaveLength(4);
  });

  test("does not delay new e-mails for long, even if more fail than a sweep can try", async () => {
    await disabled(Array.from({ length: 50 }, (_, i) => `bad-${i}@example.com`));
    const mail = mailbox(({ to }) => to.startsWith("bad-"));
    const fresh = await disabled();
    for (const minutes of [0, 1, 2]) await sendNotices(db, mail.env, NOW + minutes * MINUTE_MS);
    expect(mail.tried.length).toBeLessThanOrEqual(3 * EMAILS_MAX);
    expect(await emailsAbout(fresh.id)).toMatchObject([{ state: "sent" }]);
  });
});

describe("a mail service that accepts no more", () => {
  test.each([
    ["E_DAILY_LIMIT_EXCEEDED", HOUR_MS],
    ["E_RATE_LIMIT_EXCEEDED", 5 * MINUTE_MS],
  ])("is left alone for a while, without counting a try: %s", async (code, pauseMs) => {
    const { id } = await disabled(["a@example.com", "b@example.com", "c@example.com"]);
    let spent = true;
    const mail = mailbox(({ to }) => spent && to !== "a@example.com" && code);
    await sendNotices(db, mail.env, NOW);
    expect(recipients(mail.tried)).toEqual(["a@example.com", "b@example.com"]);
    const other = await disabled();
    await sendNotices(db, mail.env, NOW + pauseMs - 1);
    expect(mail.tried).toHaveLength(2);
    const owed = { state: "owed", tries: 0 };
    expect(await emailsAbout(id)).toMatchObject([{ state: "sent", tries: 1 }, owed, owed]);
    expect(eventsLogged()).toEqual(["notice_sent", "notices_paused"]);
    spent = false;
    await sendNotices(db, mail.env, NOW + pauseMs);
    expect(mail.sent).toHaveLength(4);
    expect(await emailsAbout(other.id)).toMatchObject([{ state: "sent", tries: 1 }]);
  });
});

describe("a sweep that is interrupted", () => {
  test("by its time limit returns what it has not tried", async () => {
    const { id } = await disabled(ADMINS);
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW, () => mail.tried.length === 0);
    const owed = { state: "owed", tries: 0, dueAt: NOW };
    expect(await emailsAbout(id)).toMatchObject([{ state: "sent" }, owed]);
    await sendNotices(db, mail.env, NOW + 1);
    expect(recipients(mail.sent)).toEqual(ADMINS);
  });

  test("before sending loses nothing: a later one sends it once nobody else can be sending it", async () => {
    const { id } = await disabled();
    const { DB } = observedDatabase({ after: failAtTrip(2, new Error("the isolate is gone")) });
    const mail = mailbox();
    await expect(sendNotices(openDatabase(DB), mail.env, NOW)).rejects.toThrow();
    await sendNotices(db, mail.env, NOW + EMAIL_TAKEN_MS - 1);
    expect(mail.tried).toEqual([]);
    await sendNotices(db, mail.env, NOW + EMAIL_TAKEN_MS);
    expect(await emailsAbout(id)).toMatchObject([{ state: "sent", tries: 2 }]);
  });

  test("by a network that loses its request sends them in the second try", async () => {
    await disabled(ADMINS);
    const mail = mailbox();
    await sendNotices(openDatabase(lossyDatabase("request")), mail.env, NOW);
    expect(recipients(mail.sent)).toEqual(ADMINS);
  });

  test("for so long that another one tries does not change when that one's next try is", async () => {
    const { id } = await disabled();
    const newer = mailbox(() => "E_INTERNAL");
    const late = mailbox(async () => {
      await sendNotices(db, newer.env, NOW + EMAIL_TAKEN_MS);
      return "E_INTERNAL";
    });
    await sendNotices(db, late.env, NOW);
    const dueAt = NOW + EMAIL_TAKEN_MS + EMAIL_WAITS_SECONDS[1] * 1000;
    expect(await emailsAbout(id)).toMatchObject([{ state: "owed", tries: 2, dueAt }]);
  });

  test("between sending and recording sends this one again, but none of the others", async () => {
    const { id } = await disabled(ADMINS);
    const mail = mailbox();
    const { DB } = observedDatabase({
      before: (_, [text = "", ...others]) => {
        const records = /set "state" = /i.test(text) && others.length === 0;
        if (records && mail.sent.length === 2) throw new Error("the isolate is gone");
      },
    });
    await expect(sendNotices(openDatabase(DB), mail.env, NOW)).rejects.toThrow("is gone");
    await sendNotices(db, mail.env, NOW + EMAIL_TAKEN_MS);
    await sendNotices(db, mail.env, NOW + 10 * EMAIL_TAKEN_MS);
    expect(recipients(mail.sent)).toEqual([...ADMINS, "chef@example.com"]);
    expect(await emailsAbout(id)).toMatchObject([{ tries: 1 }, { state: "sent", tries: 2 }]);
  });

  test("is not caused by a mail service that never answers: the next e-mail is sent after ten seconds", async () => {
    const { id } = await disabled(ADMINS);
    const real = globalThis.setTimeout;
    vi.spyOn(globalThis, "setTimeout").mockImplementation(((run: () => void, ms: number) =>
      real(run, ms === EMAIL_TIMEOUT_MS ? 50 : ms)) as typeof setTimeout);
    const mail = mailbox(({ to }) => to === "admin@example.com" && new Promise<boolean>(() => {}));
    await sendNotices(db, mail.env, NOW);
    expect(await emailsAbout(id)).toMatchObject([{ state: "owed", tries: 1 }, { state: "sent" }]);
    expect(EMAIL_TIMEOUT_MS).toBe(10_000);
  });
});

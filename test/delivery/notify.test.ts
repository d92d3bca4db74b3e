import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { afterEach, describe, expect, test, vi } from "vitest";
import { notices, subscriptions } from "../../src/db/schema.ts";
import { composeNotice, sendNotices } from "../../src/delivery/notify.ts";
import type { OwedNotice } from "../../src/model/notices.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  noticesOf,
  subscribe,
  subscriberUrl,
} from "../support/deliveries.ts";

const T0 = Date.UTC(2026, 0, 5, 12, 34);
const NOW = T0 + 80 * HOUR_MS;

interface Email {
  from: string;
  to: string[];
  subject: string;
  text: string;
}

/** The deployment's e-mail binding, which keeps what it sends, and fails when `fails` says so. */
function mailbox(fails: (email: Email) => boolean = () => false) {
  const sent: Email[] = [];
  const tried: Email[] = [];
  const send = async (email: Email) => {
    tried.push(email);
    if (fails(email)) throw new Error(`the mail server is busy with ${email.to}`);
    await env.EMAIL.send(email);
    sent.push(email);
  };
  const bindings: Env = { ...env, EMAIL: { send } as unknown as SendEmail };
  return { env: bindings, sent, tried };
}

/** A subscription that has just been disabled, and so owes its administrators an e-mail. */
async function disabled({ adminEmails = ["admin@example.com"], status = 503 } = {}) {
  const workspaceId = await createWorkspace(adminEmails);
  const url = subscriberUrl().replace("/hooks", ":8443/hooks");
  const { id } = await subscribe(workspaceId, { url, events: ["run.completed", "lead.created"] });
  await announceLeads(workspaceId, 10, T0);
  const failures = [...Array(9).keys()].map((i) => T0 + i * HOUR_MS);
  await failAt(id, [...failures, T0 + 73 * HOUR_MS], answered(status));
  return { id, url };
}

afterEach(async () => {
  await db.update(notices).set({ sentAt: T0 }).where(sql`sent_at IS NULL`);
  vi.restoreAllMocks();
});

describe("the administrators of a workspace", () => {
  test("get one e-mail when a subscription is disabled, and the row says when", async () => {
    const adminEmails = ["admin@example.com", "chef@example.com"];
    const { id } = await disabled({ adminEmails });
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    expect(mail.sent).toHaveLength(1);
    expect(mail.sent[0]).toMatchObject({ from: env.EMAIL_FROM, to: adminEmails });
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
    await sendNotices(db, mail.env, NOW + 60_000);
    expect(mail.sent).toHaveLength(1);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });

  test("read in French which host, which kinds, since when, the last status and what to do", async () => {
    const { id, url } = await disabled({ status: 410 });
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    const [{ subject, text }] = mail.sent as [Email];
    const { host } = new URL(url);
    expect(host).toMatch(/:8443$/);
    expect(subject).toContain("Abonnement webhook désactivé");
    expect(subject).toContain(host);
    for (const part of [
      host,
      id,
      "« Agence »",
      "run.completed, lead.created",
      "5 janvier 2026",
      "12:34",
      "UTC",
      "410",
      "Que faire",
      "2xx",
      "10 secondes",
      "POST /v1/webhooks",
    ])
      expect(text).toContain(part);
  });

  test("never read the URL's path or query, a secret or a lead's data", async () => {
    const { id, url } = await disabled();
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    const [{ subject, text }] = mail.sent as [Email];
    const { pathname, search } = new URL(url);
    const [row] = await db.select().from(subscriptions);
    for (const secret of [
      pathname,
      search,
      "t0ken",
      "https://",
      "whsec_",
      row?.sealedSecret,
      "Zoë",
    ])
      expect(subject + text).not.toContain(secret);
    expect(JSON.stringify(await noticesOf(id))).not.toContain("t0ken");
  });

  test("that are none are not written to, and the e-mail is not owed any longer", async () => {
    const { id } = await disabled({ adminEmails: [] });
    const mail = mailbox();
    await sendNotices(db, mail.env, NOW);
    expect(mail.tried).toEqual([]);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW }]);
  });
});

test("an e-mail is sent once, though two sweeps overlap", async () => {
  const { id } = await disabled();
  const mail = mailbox();
  await Promise.all([sendNotices(db, mail.env, NOW), sendNotices(db, mail.env, NOW + 1)]);
  expect(mail.sent).toHaveLength(1);
  expect((await noticesOf(id))[0]?.sentAt).not.toBeNull();
});

describe("an e-mail that cannot be sent", () => {
  test("stays owed, is sent by a later sweep, and then never again", async () => {
    const { id } = await disabled();
    let down = true;
    const mail = mailbox(() => down);
    for (const minutes of [0, 5, 10]) {
      const now = NOW + minutes * MINUTE_MS;
      await sendNotices(db, mail.env, now);
      expect(await noticesOf(id)).toMatchObject([{ sentAt: null, dueAt: now + 5 * MINUTE_MS }]);
    }
    down = false;
    for (let i = 0; i < 3; i++) await sendNotices(db, mail.env, NOW + HOUR_MS + i);
    expect(mail.sent).toHaveLength(1);
    expect(mail.tried).toHaveLength(4);
    expect(await noticesOf(id)).toMatchObject([{ sentAt: NOW + HOUR_MS }]);
  });

  test("holds up none of the others", async () => {
    const bad = ["bad@example.com"];
    await disabled({ adminEmails: bad });
    const good = await disabled();
    const mail = mailbox(({ to }) => `${to}` === `${bad}`);
    await sendNotices(db, mail.env, NOW);
    expect(mail.tried).toHaveLength(2);
    expect(await noticesOf(good.id)).toMatchObject([{ sentAt: NOW }]);
  });

  test("holds up no new one for long, though more fail than the sweeps can try", async () => {
    const bad = ["bad@example.com"];
    const first = await disabled({ adminEmails: bad });
    await env.DB.prepare(
      `INSERT INTO notices (workspace_id, subscription_id, host, events, failing_since, created_at, due_at)
        SELECT workspace_id, 'whk_other', host, events, failing_since, created_at, due_at
        FROM notices, json_each(?) WHERE subscription_id = ?`,
    )
      .bind(JSON.stringify(Array(300).fill(0)), first.id)
      .run();
    vi.spyOn(console, "error").mockImplementation(() => {});
    const mail = mailbox(({ to }) => `${to}` === `${bad}`);
    const sweepAfter = (minutes: number) => sendNotices(db, mail.env, NOW + minutes * MINUTE_MS);
    for (const minutes of [0, 1, 2, 3, 4]) await sweepAfter(minutes);
    const fresh = await disabled();
    for (const minutes of [5, 6, 7]) await sweepAfter(minutes);
    expect((await noticesOf(fresh.id))[0]?.sentAt).not.toBeNull();
    expect(mail.sent).toHaveLength(1);
    const others = await noticesOf("whk_other");
    expect(others.filter(({ sentAt }) => sentAt === null)).toHaveLength(300);
    for (const { dueAt } of others) expect(dueAt).toBeGreaterThan(NOW);
  });

  test("is logged without an address", async () => {
    const lines: string[] = [];
    for (const method of ["log", "error"] as const)
      vi.spyOn(console, method).mockImplementation((line: string) => void lines.push(line));
    await disabled({ adminEmails: ["chef@example.com"] });
    let down = true;
    const mail = mailbox(() => down);
    await sendNotices(db, mail.env, NOW);
    down = false;
    await sendNotices(db, mail.env, NOW + 5 * MINUTE_MS);
    const ours = lines.filter((line) => line.includes('"notice'));
    expect(ours.map((line) => JSON.parse(line).event)).toEqual(["notice_failed", "notice_sent"]);
    expect(ours.join()).toContain("the mail server is busy with");
    expect(ours.join()).not.toContain("chef@example.com");
  });
});

describe("the last result in an e-mail", () => {
  const notice: OwedNotice = {
    id: 1,
    workspaceName: "Agence",
    adminEmails: [],
    subscriptionId: "whk_1",
    host: "hooks.example.com",
    events: ["lead.created"],
    failingSince: T0,
    lastOutcome: "answered",
    lastStatus: 404,
  };
  test.each([
    ["answered", 404, "réponse HTTP 404"],
    ["timed_out", null, "aucune réponse en 10 secondes"],
    ["unreachable", null, "connexion impossible"],
    ["refused", null, "URL refusée par notre politique de sécurité"],
  ])("that was %s (%s) reads: %s", (lastOutcome, lastStatus, words) => {
    const { text } = composeNotice({ ...notice, lastOutcome, lastStatus });
    expect(text).toContain(`Dernier résultat : ${words}\n`);
  });
});

import { env } from "cloudflare:workers";
import { afterEach, describe, expect, test } from "vitest";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  TELL_AFTER_MS,
} from "../../../src/contract/limits.ts";
import { commit } from "../../../src/db/client.ts";
import { sendNotices } from "../../../src/email/notify.ts";
import {
  deleteSubscription,
  enableSubscription,
} from "../../../src/subscriptions/subscriptions.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import {
  announceLeads,
  answered,
  db,
  dispatchAt,
  endWait,
  failAt,
  HOUR_MS,
  noticesOf,
  owed,
  setDeliveries,
  setSubscription,
} from "../../support/deliveries.ts";
import { clearMail, mailbox } from "../../support/mailbox.ts";

const T0 = Date.UTC(2026, 0, 5, 12, 34);
/** When administrators are told. */
const DUE = T0 + TELL_AFTER_MS;

/** When a subscription fails: one more would be tried a minute before administrators are told. */
const PROBES = [0, 1, 5, 20, 24 - 1 / 60, 25, 30, 40, 60, 71, 72].map(
  (hour) => T0 + hour * HOUR_MS,
);
/** How many of them fail before administrators are told... */
const EARLY = PROBES.filter((at) => at < DUE).length;
const NEXT = PROBES[EARLY] as number;
/** ...and before the one that disables the subscription. */
const LASTING = PROBES.filter(
  (at, i) => at < T0 + DISABLE_AFTER_MS || i + 1 < DISABLE_AFTER_FAILURES,
).length;

/** A subscription that fails from `T0` on, until its n-th failure. */
async function failing(failures: number) {
  const about = await owed(2, T0);
  const url = about.url.replace("/hooks", ":8443/hooks");
  await setSubscription(about.id, { url });
  await failAt(about.id, PROBES.slice(0, failures));
  return { ...about, url };
}
type About = Awaited<ReturnType<typeof failing>>;

/** The e-mails that a sweep sends. */
async function sweepAt(now: number) {
  const mail = mailbox();
  await sendNotices(db, mail.env, now);
  return mail.sent;
}

afterEach(clearMail);

describe("administrators are told that a subscription is failing", () => {
  test("once it has failed for long enough, even if the next try is later, without secrets or personal data", async () => {
    const { id, url } = await failing(EARLY);
    expect(await sweepAt(DUE - 1)).toEqual([]);
    const [mail, ...others] = await sweepAt(DUE);
    expect(others).toEqual([]);
    const { subject = "", text = "" } = mail ?? {};
    const { host, pathname } = new URL(url);
    for (const part of ["Abonnement webhook en échec", host]) expect(subject).toContain(part);
    const stored = await noticesOf(id, "failing");
    expect(text).toContain("réponse HTTP 503");
    expect(stored).toMatchObject([{ since: T0, sentAt: DUE, dueAt: null, recipients: [] }]);
    for (const secret of [pathname, "t0ken", `https://${host}`, "whsec_", "Zoë"])
      expect(subject + text).not.toContain(secret);
    expect(JSON.stringify(stored)).not.toContain("t0ken");
  });

  test("again if it recovers and then fails for as long", async () => {
    const { id, workspaceId } = await failing(EARLY);
    expect(await sweepAt(DUE)).toHaveLength(1);
    await dispatchAt(NEXT, [id], answered(200));
    const again = NEXT + HOUR_MS;
    await announceLeads(workspaceId, 1, again);
    const probes = PROBES.slice(0, EARLY).map((time) => time - T0 + again);
    await failAt(id, probes);
    expect(await sweepAt(again + TELL_AFTER_MS)).toHaveLength(1);
    const series = (await noticesOf(id, "failing")).map(({ since }) => since);
    expect(series).toEqual([T0, again]);
  });

  test("by the first failure after that, if no earlier one could, which is an answer", async () => {
    const { id } = await failing(3);
    await endWait(id);
    await dispatchAt(DUE, [id], () => Promise.reject(new Error("no encryption key")));
    expect(await noticesOf(id, "failing")).toEqual([]);
    await failAt(id, [DUE + HOUR_MS]);
    const text = expect.stringContaining("réponse HTTP 503");
    expect(await sweepAt(DUE + HOUR_MS)).toMatchObject([{ text }]);
  });
});

describe("administrators are told that one kind of events is rejected", () => {
  const DAYS = [0, 1, 2, 3].map((n) => T0 + n * TELL_AFTER_MS);

  /** A subscription that accepts leads and has rejected runs since `T0`. */
  async function rejecting() {
    const about = await owed(1, T0);
    const rejections = {
      "run.completed": { since: T0, outcome: "answered", status: 422 },
    };
    await setSubscription(about.id, { events: ["lead.created", "run.completed"], rejections });
    return about;
  }

  test("after a day, once, with the kind and the status, though others succeed", async () => {
    const { id } = await rejecting();
    expect(await sweepAt(DUE - 1)).toEqual([]);
    const [mail, ...others] = await sweepAt(DUE);
    expect(others).toEqual([]);
    const { subject = "", text = "" } = mail ?? {};
    expect(subject).toContain("Événements refusés par un webhook");
    for (const part of ["Événements refusés\u00a0: Exécution terminée\n", "réponse HTTP 422", id])
      expect(text).toContain(part);
    for (const day of DAYS) expect(await sweepAt(DUE + day - T0)).toEqual([]);
  });

  test.each<[string, (about: { id: string }) => Promise<unknown>]>([
    ["is accepted again", ({ id }) => setSubscription(id, { rejections: {} })],
    ["is no longer subscribed", ({ id }) => setSubscription(id, { events: ["lead.created"] })],
    ["fails like all others", ({ id }) => setSubscription(id, { failingSince: T0 })],
    ["was disabled with the others", ({ id }) => setSubscription(id, { disabledAt: DUE })],
  ])("unless it %s", async (_, happen) => {
    const about = await rejecting();
    await happen(about);
    expect(await sweepAt(DUE)).toEqual([]);
  });
});

describe("administrators of a subscription that stays disabled, of which they are told when it is failing and when it is disabled,", () => {
  const WEEK_MS = REMINDER_WAIT_MS;

  async function disabled() {
    const about = await failing(LASTING);
    expect(await sweepAt(DUE)).toHaveLength(1);
    const at = PROBES[LASTING] as number;
    expect(await sweepAt(at - 1)).toEqual([]);
    await failAt(about.id, [at]);
    const [first] = await sweepAt(at);
    expect(first?.subject).toContain("désactivé");
    return { ...about, at, first };
  }

  test("are reminded once a week for four weeks, of what it has missed and until when that can be sent", async () => {
    const { workspaceId, at, first, id } = await disabled();
    const missed = "Événements manqués\u00a0: ";
    expect(first?.text).toContain(`${missed}2. `);
    await announceLeads(workspaceId, 2, at + HOUR_MS);
    // One of the first two was accepted after all.
    await env.DB.prepare(
      `UPDATE deliveries SET state = 'delivered' WHERE subscription_id = ?1
        AND event_id = (SELECT max(event_id) FROM deliveries WHERE subscription_id = ?1)`,
    )
      .bind(id)
      .run();
    expect(await sweepAt(at + WEEK_MS - 1)).toEqual([]);
    for (let week = 1; week <= REMINDERS_MAX; week++) {
      const [reminder, ...others] = await sweepAt(at + week * WEEK_MS);
      expect(others).toEqual([]);
      expect(reminder?.subject).toBe(`Rappel\u00a0: ${first?.subject}`);
      expect(reminder?.text.split("\n\n").slice(0, 4)).toEqual(
        first?.text.split("\n\n").slice(0, 4),
      );
      // The first of them is too old by then.
      if (week === 1) expect(reminder?.text).toContain(`${missed}3. `);
      if (week === 4) expect(reminder?.text).toContain(`${missed}2. `);
    }
    expect(await sweepAt(at + 20 * WEEK_MS)).toEqual([]);
    expect(await noticesOf(id)).toMatchObject([{ dueAt: null, recipients: [] }]);
  });

  test("are not, once it is enabled again", async () => {
    const { at, id } = await disabled();
    await commit(db, enableSubscription(id));
    expect(await sweepAt(at + WEEK_MS)).toEqual([]);
  });
});

describe("administrators are not told", () => {
  const failAgain = async ({ id, workspaceId }: About) => {
    await dispatchAt(DUE - 2, [id], answered(200));
    await announceLeads(workspaceId, 1, DUE - 1);
    await failAt(id, [DUE - 1]);
  };
  const recoverLate = async ({ id }: About) => {
    // The mail service is down.
    await sendNotices(db, mailbox(() => true).env, DUE);
    await dispatchAt(DUE, [id], answered(200));
  };
  test.each<[string, (about: About) => Promise<unknown>, tries: number]>([
    ["has succeeded", ({ id }) => dispatchAt(DUE - 1, [id], answered(200)), 0],
    ["has succeeded, and fails again", failAgain, 0],
    ["has succeeded after a first try to tell them", recoverLate, 1],
    [
      "was deleted",
      ({ id, workspaceId }) => commit(db, deleteSubscription(workspaceId, id, DUE)),
      0,
    ],
    ["lost access", ({ workspaceId }) => commit(db, updateAccess(workspaceId, false)), 0],
    ["was disabled", ({ id }) => setSubscription(id, { disabledAt: DUE }), 0],
  ])("of a subscription that %s", async (_, happen, tries) => {
    const about = await failing(EARLY);
    await endWait(about.id);
    await setDeliveries(about.id, { dueAt: T0 });
    await happen(about);
    expect(await sweepAt(DUE + tries * HOUR_MS)).toEqual([]);
    const ended = { dueAt: null, recipients: [], sent: 0, tries };
    expect(await noticesOf(about.id, "failing")).toMatchObject([ended]);
  });
});

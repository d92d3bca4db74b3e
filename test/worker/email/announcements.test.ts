import { env } from "cloudflare:workers";
import { eq, inArray } from "drizzle-orm";
import { afterEach, describe, expect, test } from "vitest";
import { randomId } from "../../../src/contract/ids.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  EMAIL_HOST_INTERVAL_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  TELL_AFTER_MS,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../../src/contract/limits.ts";
import { commit, connect } from "../../../src/db/client.ts";
import { events, subscriptions, workspaces } from "../../../src/db/schema.ts";
import { deleteEndedSubscriptions, noteOverflow } from "../../../src/delivery/ending.ts";
import { ANNOUNCING_MAX_MS, announceProblems } from "../../../src/email/announce.ts";
import { CANDIDATES_MAX } from "../../../src/email/announcements.ts";
import {
  deleteSubscription,
  disableSubscription,
  enableSubscription,
  updateSubscription,
} from "../../../src/subscriptions/subscriptions.ts";
import { updateAccess } from "../../../src/workspaces/workspaces.ts";
import {
  allowProbes,
  announcedOf,
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  dispatchAt,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";
import { clearMail, mailbox } from "../../support/mailbox.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db } from "../../support/placement.ts";
import { announcedEmail, insertSubscriptions } from "../../support/rows.ts";
import { storeEvents } from "../../support/stored-events.ts";

const T0 = Date.UTC(2026, 0, 5, 12, 34);
/** When administrators are told. */
const DUE = T0 + TELL_AFTER_MS;

/** When a subscription fails. */
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
async function failing(failures = 1) {
  const about = await owed(2, T0);
  const url = about.url.replace("/hooks", ":8443/hooks");
  await setSubscription(about.id, { url });
  await failAt(about.id, PROBES.slice(0, failures));
  return { ...about, url };
}
type About = Awaited<ReturnType<typeof failing>>;

/** Subscriptions of one workspace, by their URLs, that have failed since `T0`. */
async function failingAt(urls: string[], administrators = ["one@example.com"]) {
  const workspaceId = await createWorkspace(administrators);
  return { workspaceId, ids: await failIn(workspaceId, urls) };
}

/** Subscribes URLs, which have failed since T0. */
async function failIn(workspaceId: string, urls: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const url of urls) {
    const { id } = await subscribe(workspaceId, { url });
    await setSubscription(id, { failingSince: T0, lastAttempt: FAILED });
    ids.push(id);
  }
  await announceLeads(workspaceId, 1, T0);
  return ids;
}
const FAILED = { at: T0, outcome: "answered", status: 503, durationMs: 1 };

/** The e-mails that a sweep sends. */
async function sweepAt(now: number) {
  const mail = mailbox();
  await mail.sweepAt(now);
  return mail.sent;
}

/** How many e-mails a sweep passes to the queue. */
async function enqueuedAt(now: number): Promise<number> {
  const mail = mailbox();
  await announceProblems(db, mail.env, now);
  return mail.held.length;
}

afterEach(clearMail);

describe("administrators are notified that a subscription is failing", () => {
  test("once it has failed for a day, without secrets or personal data", async () => {
    const { id, url } = await failing(EARLY);
    expect(await sweepAt(DUE - 1)).toEqual([]);
    const [mail, ...others] = await sweepAt(DUE);
    expect(others).toEqual([]);
    const { subject = "", text = "" } = mail ?? {};
    const { host, pathname } = new URL(url);
    for (const part of ["Webhook en échec", host]) expect(subject).toContain(part);
    expect(text).toContain("réponse HTTP 503");
    const stored = await announcedOf(id, "failing");
    expect(stored).toEqual({ since: T0, announcedAt: DUE, host, reminders: 0, emails: 1 });
    for (const secret of [pathname, "t0ken", `https://${host}`, "whsec_", "Zoë"])
      expect(subject + text).not.toContain(secret);
    expect(JSON.stringify(stored)).not.toMatch(/t0ken|@/);
  });
});

describe("administrators are notified that a subscription has recovered", () => {
  test("once, if they were notified that it was failing", async () => {
    const { id } = await failing();
    expect(await sweepAt(DUE)).toHaveLength(1);
    await dispatchAt(NEXT, [id], answered(200));
    const [mail, ...others] = await sweepAt(NEXT + MINUTE_MS);
    expect(others).toEqual([]);
    expect(mail?.subject).toContain("Webhook rétabli");
    for (const hours of [0.1, 1, 100]) expect(await sweepAt(NEXT + hours * HOUR_MS)).toEqual([]);
    expect(await announcedOf(id, "failing")).toBeUndefined();
    expect(await announcedOf(id, "recovered")).toMatchObject({ since: NEXT });
  });

  test("after each failure, of which they are notified again", async () => {
    const { id, workspaceId } = await failing();
    for (const start of [T0, NEXT + HOUR_MS]) {
      if (start > T0) {
        await announceLeads(workspaceId, 1, start);
        await failAt(id, [start, start + HOUR_MS]);
      }
      const failed = { subject: expect.stringContaining("en échec") };
      expect(await sweepAt(start + TELL_AFTER_MS)).toMatchObject([failed]);
      expect(await announcedOf(id, "failing")).toMatchObject({ since: start });
      await allowProbes(id);
      await setDeliveries(id, { dueAt: T0 });
      await dispatchAt(start + TELL_AFTER_MS + HOUR_MS, [id], answered(200));
      const subject = expect.stringContaining("rétabli");
      const swept = await sweepAt(start + TELL_AFTER_MS + 2 * HOUR_MS);
      expect(swept).toMatchObject([{ subject }]);
    }
  });

  test.each<[string, (id: string) => Promise<unknown>]>([
    [
      "was enabled, but has not succeeded",
      async (id) => {
        await setSubscription(id, { disabledAt: DUE });
        await commit(db, { enabled: enableSubscription(id) });
      },
    ],
    [
      "has another URL, which has not succeeded",
      (id) =>
        commit(db, { updated: updateSubscription(id, { url: "https://new.example/" }, NEXT) }),
    ],
  ])("but not one that %s", async (_, happen) => {
    const { id } = await failing();
    expect(await sweepAt(DUE)).toHaveLength(1);
    await happen(id);
    expect(await sweepAt(NEXT + MINUTE_MS)).toEqual([]);
  });
});

describe("administrators are notified that an event type is rejected", () => {
  const circuit = (since: number, status: number) => ({
    rejected: [],
    step: 1,
    probeAt: since,
    since,
    outcome: "answered",
    status,
  });

  /** A subscription that accepts leads and has rejected runs since `T0`. */
  async function rejecting() {
    const about = await owed(1, T0);
    const circuits = { "run.completed": circuit(T0, 422) };
    await setSubscription(about.id, { events: ["lead.created", "run.completed"], circuits });
    return { ...about, circuits };
  }

  test("after a day, once, with the type and the status", async () => {
    const { id } = await rejecting();
    expect(await sweepAt(DUE - 1)).toEqual([]);
    const [mail, ...others] = await sweepAt(DUE);
    expect(others).toEqual([]);
    const { subject = "", text = "" } = mail ?? {};
    expect(subject).toContain("Votre serveur refuse certains événements");
    for (const part of ["concernés\u00a0: Exécution terminée\n", "réponse HTTP 422", id])
      expect(text).toContain(part);
    for (const days of [1, 2, 3]) expect(await sweepAt(DUE + days * 24 * HOUR_MS)).toEqual([]);
  });

  test("again when another type has been rejected for a day, with both", async () => {
    const { id, circuits } = await rejecting();
    expect(await sweepAt(DUE)).toHaveLength(1);
    const events = ["automation.status_changed", "lead.created", "run.completed"] as const;
    await setSubscription(id, {
      events: [...events],
      circuits: { ...circuits, "automation.status_changed": circuit(T0 + HOUR_MS, 410) },
    });
    expect(await sweepAt(DUE + HOUR_MS - 1)).toEqual([]);
    const [mail] = await sweepAt(DUE + HOUR_MS);
    for (const part of [
      "Changement d’état d’une automatisation, Exécution terminée\n",
      // Since when the first of them is rejected.
      "depuis le 5 janvier 2026 à 12:34",
    ])
      expect(mail?.text).toContain(part);
    expect(await sweepAt(DUE + 3 * HOUR_MS)).toEqual([]);
  });
});

describe("administrators are notified that a subscription has too many pending deliveries", () => {
  test("once for each time", async () => {
    const { id } = await owed(1, T0);
    await setSubscription(id, { pendingExhaustedAt: T0 });
    const subject = expect.stringContaining("Trop de livraisons en attente");
    expect(await sweepAt(T0 + MINUTE_MS)).toMatchObject([{ subject }]);
    expect(await sweepAt(T0 + 5 * HOUR_MS)).toEqual([]);
    await setSubscription(id, { pendingExhaustedAt: T0 + 6 * HOUR_MS });
    expect(await sweepAt(T0 + 6 * HOUR_MS)).toHaveLength(1);
  });

  test("although the endpoint accepts the others before the next run of the scheduled job", async () => {
    const { id } = await owed(1, T0);
    await commit(db, { noted: noteOverflow(id, T0) });
    await dispatchAt(T0 + 1_000, [id], answered(200));
    const subject = expect.stringContaining("Trop de livraisons en attente");
    expect(await sweepAt(T0 + MINUTE_MS)).toMatchObject([{ subject }]);
  });
});

describe("administrators of a subscription that stays disabled", () => {
  const WEEK_MS = REMINDER_WAIT_MS;

  const at = PROBES[LASTING] as number;

  /** A subscription whose last of many failures disables it. */
  async function disabled() {
    const about = await failing(2);
    await setSubscription(about.id, { failures: DISABLE_AFTER_FAILURES - 1 });
    await failAt(about.id, [at]);
    const [first] = await sweepAt(at);
    expect(first?.subject).toContain("désactivé");
    return { ...about, first };
  }

  test("are reminded once a week for four weeks, of what it has missed", async () => {
    const { workspaceId, first, id } = await disabled();
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
      expect(reminder?.text.split("\n\n").slice(0, 3)).toEqual(
        first?.text.split("\n\n").slice(0, 3),
      );
      // The first of them is too old by then.
      if (week === 1) expect(reminder?.text).toContain(`${missed}3. `);
      if (week === 4) expect(reminder?.text).toContain(`${missed}2. `);
    }
    expect(await sweepAt(at + 20 * WEEK_MS)).toEqual([]);
    expect(await announcedOf(id)).toMatchObject({ reminders: REMINDERS_MAX });
  });

  test.each([
    ["as long as it is stored", 7, "12 janvier"],
    ["for 30 days, even if it is stored for longer", 60, "4 février"],
  ])("are told that the oldest missed event can be sent %s", async (_, keptDays, until) => {
    const { id, workspaceId } = await failing();
    await setSubscription(id, { disabledAt: at, disabledByFailures: true });
    await announceLeads(workspaceId, 1, at);
    const mail = mailbox();
    mail.env.EVENTS_KEPT_DAYS = keptDays as never;
    await mail.sweepAt(at);
    expect(mail.sent[0]?.text).toContain(`jusqu’au ${until} 2026 à 12:34`);
  });

  test("are notified of no missed event that was delivered before it was sent again", async () => {
    const { id } = await disabled();
    const [first] = await deliveriesTo(id);
    await setDeliveries(id, { deliveredEarlier: true }, first?.eventId);
    const [reminder] = await sweepAt(at + WEEK_MS);
    expect(reminder?.text).toContain("Événements manqués\u00a0: 1. ");
  });

  test.each([
    ["was a test", { test: true }],
    ["is of a type that it does not list", { type: "run.completed" as const }],
  ])("are notified of no missed event that %s", async (_, event) => {
    const { id } = await disabled();
    const [first] = await deliveriesTo(id);
    await db
      .update(events)
      .set(event)
      .where(eq(events.id, first?.eventId ?? ""));
    const [reminder] = await sweepAt(at + WEEK_MS);
    expect(reminder?.text).toContain("Événements manqués\u00a0: 1. ");
  });

  test("are notified of missed events that another subscription has received", async () => {
    const { workspaceId } = await disabled();
    const other = await subscribe(workspaceId);
    await redeliver(other.id, { since: T0, until: null, states: ["missed"] }, at);
    await dispatchAt(at + MINUTE_MS, [other.id], answered(200));
    expect(await statesOf(other.id)).toEqual({ delivered: 2 });
    const [reminder] = await sweepAt(at + WEEK_MS);
    expect(reminder?.text).toContain("Événements manqués\u00a0: 2. ");
  });

  test("are not notified if a person disabled it, even if it was disabled by failures before", async () => {
    const { id } = await disabled();
    await commit(db, { enabled: enableSubscription(id) });
    await commit(db, disableSubscription(id, at + HOUR_MS));
    expect(await sweepAt(at + HOUR_MS)).toEqual([]);
  });
});

describe("administrators are not notified", () => {
  test.each<[string, (about: About) => Promise<unknown>]>([
    ["has nothing left to deliver", ({ id }) => setDeliveries(id, { state: "cancelled" })],
    ["was deleted", ({ id, workspaceId }) => commit(db, deleteSubscription(workspaceId, id, DUE))],
    ["lost access", ({ workspaceId }) => commit(db, updateAccess(workspaceId, false))],
    [
      "is moving with its workspace",
      ({ workspaceId: id }) =>
        db.update(workspaces).set({ writeLock: "draining" }).where(eq(workspaces.id, id)),
    ],
  ])("of a subscription that %s", async (_, happen) => {
    const about = await failing();
    await allowProbes(about.id);
    await setDeliveries(about.id, { dueAt: T0 });
    await happen(about);
    expect(await sweepAt(DUE)).toEqual([]);
    expect(await announcedOf(about.id, "failing")).toBeUndefined();
  });
});

describe("subscriptions of a workspace to one host", () => {
  const HOST = "https://hooks.agence.example/in";
  const many = (count: number) => Array.from({ length: count }, (_, i) => `${HOST}/${i}`);

  test("share one e-mail for each administrator, that names them all", async () => {
    const admins = ["one@example.com", "two@example.com"];
    const { ids } = await failingAt(many(20), admins);
    const sent = await sweepAt(DUE);
    expect(sent.map(({ to }) => to).toSorted()).toEqual(admins);
    for (const part of ["20 webhooks de", "concernés\u00a0: Nouveau lead\n"])
      expect(sent[0]?.text).toContain(part);
    for (const id of ids) expect(sent[0]?.text).toContain(id);
    const announced = await Promise.all(ids.map((id) => announcedOf(id, "failing")));
    const emails = announced.map((email) => email?.emails ?? 0);
    expect(emails.toSorted((a, b) => b - a)).toEqual([2, ...Array(19).fill(0)]);
  });

  test("are named if they still fail when the e-mail is sent", async () => {
    const [first = "", second = ""] = (await failingAt(many(2))).ids;
    const mail = mailbox(() => mail.tried.length === 1);
    await mail.sweepAt(DUE);
    await setSubscription(first, { failingSince: null });
    await mail.consumeAt(DUE + HOUR_MS);
    const named = mail.tried.map(({ text }) => [first, second].map((id) => text.includes(id)));
    expect(named).toEqual([
      [true, true],
      [false, true],
    ]);
  });

  test("are notified of the last attempt at any of them", async () => {
    const { ids } = await failingAt(["https://one.example/a", "https://one.example/b"]);
    const later = { ...FAILED, at: T0 + 1, status: 418 };
    await setSubscription(ids[1] ?? "", { lastAttempt: later });
    const [sent] = await sweepAt(DUE);
    expect(sent?.text).toContain("418");
  });

  test("are told since when the first of them fails", async () => {
    const { ids } = await failingAt(["https://one.example/a", "https://one.example/b"]);
    await setSubscription(ids[0] ?? "", { failingSince: T0 + MINUTE_MS });
    const [sent] = await sweepAt(DUE + MINUTE_MS);
    expect(sent?.text).toContain("depuis le 5 janvier 2026 à 12:34");
  });

  test("are told at least how many events they missed, if there are very many", async () => {
    const { workspaceId, ids } = await failingAt(many(20));
    await storeEvents(workspaceId, ids[0] ?? "", 250, T0 + 1, "missed");
    const disabledAt = T0 + DISABLE_AFTER_MS;
    for (const id of ids) {
      await setDeliveries(id, { state: "delivered" });
      await setSubscription(id, { disabledAt, disabledByFailures: true });
    }
    const [sent] = await sweepAt(disabledAt);
    expect(sent?.text).toContain("Événements manqués\u00a0: au moins 249. ");
  });

  test("are told of no event that one of them missed before it failed", async () => {
    const [first = "", second = ""] = (await failingAt(many(2))).ids;
    await setDeliveries(first, { state: "delivered" });
    await setDeliveries(second, { state: "exhausted" });
    const disabledAt = T0 + DISABLE_AFTER_MS;
    const disabled = { disabledAt, disabledByFailures: true };
    await setSubscription(first, disabled);
    await setSubscription(second, { ...disabled, failingSince: T0 + HOUR_MS });
    const [sent] = await sweepAt(disabledAt);
    expect(sent?.text).toContain("2 webhooks de");
    expect(sent?.text).not.toContain("Événements manqués");
    await setDeliveries(first, { state: "exhausted" });
    const [reminder] = await sweepAt(disabledAt + REMINDER_WAIT_MS);
    expect(reminder?.text).toContain("Événements manqués\u00a0: 1. ");
  });

  test("have no two e-mails of one kind in an hour: the others share the next one", async () => {
    const { ids } = await failingAt(many(3));
    for (const [i, id] of ids.entries())
      await setSubscription(id, { failingSince: T0 + i * MINUTE_MS });
    const counts: number[] = [];
    for (const minute of [0, 1, 2, EMAIL_HOST_INTERVAL_MS / MINUTE_MS]) {
      const sent = await sweepAt(DUE + minute * MINUTE_MS);
      counts.push(sent.length);
      if (minute > 2) expect(sent[0]?.text).toContain("2 webhooks de");
    }
    expect(counts).toEqual([1, 0, 0, 1]);
  });

  test("share none with another host, another workspace or another kind", async () => {
    await failingAt([`${HOST}/1`, "https://other.example/"]);
    const { ids } = await failingAt([`${HOST}/1`, `${HOST}/2`]);
    await setSubscription(String(ids[0]), { disabledAt: DUE, disabledByFailures: true });
    expect(await sweepAt(DUE)).toHaveLength(4);
  });
});

describe("the e-mails of a workspace", () => {
  const admins = Array.from({ length: 50 }, (_, i) => `a${i}@greedy.example`);
  const hosts = (count: number) =>
    Array.from({ length: count }, (_, i) => `https://host-${i}.example/`);

  test("have a daily maximum, after which the others follow", async () => {
    await failingAt(hosts(5), admins);
    const sent: number[] = [];
    for (const hours of [0, 1, 23, 24]) sent.push(await enqueuedAt(DUE + hours * HOUR_MS));
    expect(sent).toEqual([WORKSPACE_EMAILS_PER_DAY, 0, 0, 50]);
  });

  test("beyond it hide none of other workspaces, however many wait", async () => {
    const created = Array.from({ length: 7 }, () => createWorkspace(admins));
    // A sweep reads them in this order, so that the last one is on another page.
    const [last = "", ...greedy] = (await Promise.all(created)).toSorted().toReversed();
    for (const workspaceId of greedy) {
      const failed = { workspaceId, events: ["lead.created" as const], failingSince: T0 };
      const ids = Array.from({ length: CANDIDATES_MAX / 5 }, () => randomId("webhook"));
      await insertSubscriptions(ids.map((id) => ({ id, ...failed })));
      await announceLeads(workspaceId, 1, T0);
      const sent = { since: T0, announcedAt: DUE, emails: WORKSPACE_EMAILS_PER_DAY };
      await setSubscription(ids[0] ?? "", { announced: { failing: announcedEmail(sent) } });
    }
    const adminEmails = ["zoe@other.example"];
    await db.update(workspaces).set({ adminEmails }).where(eq(workspaces.id, last));
    await failIn(last, ["https://other.example/"]);
    const sent = await sweepAt(DUE + HOUR_MS);
    expect(sent.map(({ to }) => to)).toEqual(["zoe@other.example"]);
  });

  test("name all its subscriptions to a host, though another page begins among them", async () => {
    const count = CANDIDATES_MAX / 2 + 1;
    for (let i = 0; i < 2; i++) {
      const workspaceId = await createWorkspace(["one@example.com"]);
      const failed = { workspaceId, events: ["lead.created" as const], failingSince: T0 };
      const ids = Array.from({ length: count }, (_, n) => `whk_${workspaceId}${n}`);
      await insertSubscriptions(ids.map((id) => ({ id, ...failed })));
      await announceLeads(workspaceId, 1, T0);
    }
    const texts = (await sweepAt(DUE)).map(({ text }) => text);
    expect(texts).toEqual(Array(2).fill(expect.stringContaining(`${count} webhooks de`)));
  });

  test("count even if their subscription was deleted since", async () => {
    const { workspaceId, ids } = await failingAt(hosts(4), admins);
    expect(await enqueuedAt(DUE)).toBe(WORKSPACE_EMAILS_PER_DAY);
    for (const id of ids) {
      await commit(db, deleteSubscription(workspaceId, id, DUE));
      await setDeliveries(id, { state: "cancelled" });
    }
    await failIn(workspaceId, ["https://new.example/"]);
    await commit(db, deleteEndedSubscriptions(DUE + HOUR_MS));
    expect(await enqueuedAt(DUE + HOUR_MS)).toBe(0);
    await commit(db, deleteEndedSubscriptions(DUE + DAY_MS));
    expect(await enqueuedAt(DUE + DAY_MS)).toBe(admins.length);
    const rows = db.select({ id: subscriptions.id }).from(subscriptions);
    expect(await rows.where(inArray(subscriptions.id, ids))).toEqual([]);
  });
});

describe("a sweep", () => {
  /** Begins a sweep that dies once the queue has an e-mail. */
  async function sweepUntilDeath(mail: ReturnType<typeof mailbox>, now: number): Promise<void> {
    const { DB } = observedDatabase({
      before: () => {
        if (mail.held.length > 0) throw new Error("the isolate is gone");
      },
    });
    await expect(announceProblems(connect(DB), mail.env, now)).rejects.toThrow("is gone");
  }

  test("announces nothing twice, though another one overlaps", async () => {
    await failing();
    const mail = mailbox();
    await Promise.all([mail.sweepAt(DUE), mail.sweepAt(DUE), mail.sweepAt(DUE + MINUTE_MS)]);
    expect(mail.sent).toHaveLength(1);
  });

  test("that ends by its budget leaves other workspaces to the next one", async () => {
    await failing();
    await failing();
    const mail = mailbox();
    await mail.sweepAt(DUE, () => mail.held.length === 0);
    expect(mail.sent).toHaveLength(1);
    await mail.sweepAt(DUE + MINUTE_MS);
    expect(mail.sent).toHaveLength(2);
  });

  test("that dies between the queue and its record announces again, once others may", async () => {
    await failing();
    const mail = mailbox();
    await sweepUntilDeath(mail, DUE);
    expect(mail.held).toHaveLength(1);
    await mail.sweepAt(DUE + ANNOUNCING_MAX_MS - 1);
    await mail.sweepAt(DUE + ANNOUNCING_MAX_MS);
    await mail.sweepAt(DUE + HOUR_MS);
    expect(mail.sent).toHaveLength(2);
  });

  test("that died while its clock was ahead keeps none from announcing", async () => {
    await failing();
    const mail = mailbox();
    await sweepUntilDeath(mail, DUE + HOUR_MS);
    await mail.sweepAt(DUE);
    expect(mail.sent).toHaveLength(2);
  });

  test("commits nothing for a workspace whose administrators were notified before", async () => {
    await failing();
    expect(await sweepAt(DUE)).toHaveLength(1);
    const { DB, trips } = observedDatabase();
    await announceProblems(connect(DB), mailbox().env, DUE + HOUR_MS);
    expect(trips).toHaveLength(2);
  });

  test("that ends late leaves the lock to the one that has taken it since", async () => {
    await failing();
    const { env: bindings } = mailbox();
    /** Announces at `now`; `send` takes the place of the queue. */
    const announceAt = (now: number, send: () => unknown) => {
      const queue = { sendBatch: async () => void (await send()) } as unknown as Queue;
      return announceProblems(db as never, { ...bindings, EMAILS: queue }, now);
    };
    const [sending, sent] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let second: Promise<void> | undefined;
    await announceAt(DUE, () => {
      second = announceAt(DUE + ANNOUNCING_MAX_MS, () => {
        sending.resolve();
        return sent.promise;
      });
      return sending.promise;
    });
    await failing();
    let others = 0;
    await announceAt(DUE + ANNOUNCING_MAX_MS + 1, () => others++);
    sent.resolve();
    await second;
    expect(others).toBe(0);
    await announceAt(DUE + ANNOUNCING_MAX_MS + 2, () => others++);
    expect(others).toBe(1);
  });

  test("whose e-mails the queue rejects records nothing, so that the next one announces them", async () => {
    const { id } = await failing();
    await failing();
    const mail = mailbox();
    let refused = 0;
    const sendBatch = async (messages: MessageSendRequest<unknown>[]) => {
      if (refused++ === 0) throw new Error("Queue sendBatch failed: overloaded");
      await mail.env.EMAILS.sendBatch(messages as MessageSendRequest[]);
    };
    const refusing = { ...mail.env, EMAILS: { sendBatch } as unknown as Queue };
    await expect(announceProblems(db as never, refusing, DUE)).rejects.toThrow("overloaded");
    expect(mail.held).toHaveLength(1);
    await mail.sweepAt(DUE + MINUTE_MS);
    expect(mail.sent).toHaveLength(2);
    expect(await announcedOf(id, "failing")).toBeDefined();
  });

  test("records each of the e-mails that one subscription needs", async () => {
    const { id } = await failing();
    await setSubscription(id, { pendingExhaustedAt: DUE });
    expect(await sweepAt(DUE)).toHaveLength(2);
    for (const kind of ["failing", "overflow"] as const)
      expect(await announcedOf(id, kind)).toMatchObject({ announcedAt: DUE });
    expect(await sweepAt(DUE + 2 * EMAIL_HOST_INTERVAL_MS)).toEqual([]);
  });

  test("records nothing of a subscription that is deleted in the meantime", async () => {
    const { id } = await failing();
    const mail = mailbox();
    let sent = 0;
    const sendBatch = async () => {
      sent++;
      await env.DB.batch([
        env.DB.prepare("DELETE FROM deliveries WHERE subscription_id = ?").bind(id),
        env.DB.prepare("DELETE FROM subscriptions WHERE id = ?").bind(id),
      ]);
    };
    await announceProblems(db as never, { ...mail.env, EMAILS: { sendBatch } as never }, DUE);
    expect([sent, await announcedOf(id, "failing")]).toEqual([1, undefined]);
  });

  test("reads no further page once its budget has ended", async () => {
    for (let i = 0; i < 2; i++) {
      const failed = { workspaceId: await createWorkspace(), failingSince: T0 };
      await insertSubscriptions(
        Array.from({ length: CANDIDATES_MAX / 2 + 1 }, (_, n) => ({
          id: `whk_${i}_${n}`,
          ...failed,
        })),
      );
    }
    const { DB, trips } = observedDatabase();
    await announceProblems(connect(DB), mailbox().env, DUE, () => false);
    expect(trips).toHaveLength(2);
  });

  test("looks at no healthy subscription of other workspaces, however many there are", async () => {
    await failing();
    const workspaceId = await createWorkspace();
    await insertSubscriptions(
      Array.from({ length: 2_500 }, (_, i) => ({ id: `whk_healthy${i}`, workspaceId })),
    );
    const { DB, rows } = meteredDatabase();
    await announceProblems(connect(DB), mailbox().env, DUE);
    expect(rows.read).toBeLessThan(2_000);
    await env.DB.exec("DELETE FROM subscriptions WHERE id LIKE 'whk_healthy%'");
  });
});

import { describe, expect, test } from "vitest";
import {
  EMAIL_HOST_INTERVAL_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  TELL_AFTER_MS,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import { EMAIL_KINDS, type EmailKind } from "../../../src/db/schema.ts";
import { type Candidate, chooseAnnouncements } from "../../../src/email/announcements.ts";
import { trueSince } from "../../../src/email/facts.ts";
import { announcedEmail } from "../../support/rows.ts";

const NOW = Date.UTC(2026, 0, 10, 12);
const SUCCESS = { at: NOW - HOUR_MS, outcome: "answered", status: 204, durationMs: 5 };
const REJECTION = {
  rejected: [],
  step: 1,
  probeAt: NOW,
  since: NOW - TELL_AFTER_MS,
  outcome: "answered",
  status: 422,
};

/** A healthy subscription with one delivery pending, with some differences. */
function candidate(differences: Partial<Candidate> = {}): Candidate {
  return {
    workspaceId: "wks_1",
    administrators: ["one@example.com"],
    subscriptionId: "whk_1",
    url: "https://hooks.example/in",
    events: ["lead.created", "run.completed"],
    failingSince: null,
    circuits: {},
    disabledAt: null,
    disabledByFailures: false,
    pendingExhaustedAt: null,
    lastAttempt: SUCCESS,
    hasPending: true,
    announced: {},
    recent: [],
    ...differences,
  };
}
const FAILING = { failingSince: NOW - TELL_AFTER_MS };
const DISABLED = { disabledAt: NOW - HOUR_MS, disabledByFailures: true };
const announced = (since: number, announcedAt: number, reminders = 0, emails = 1) =>
  announcedEmail({ since, announcedAt, reminders, emails });

/** The kinds that are true of a subscription. */
const kindsOf = (differences: Partial<Candidate>) =>
  EMAIL_KINDS.filter((kind) => trueSince(kind, candidate(differences), NOW) !== null);

/** The kinds of e-mails that are chosen for a subscription. */
const chosen = (differences: Partial<Candidate>, now = NOW) =>
  chooseAnnouncements([candidate(differences)], now).map(({ kind }) => kind);

describe("of a subscription it is true", () => {
  test.each<[string, Partial<Candidate>, EmailKind[]]>([
    ["that it is failing, after a day", FAILING, ["failing"]],
    ["not yet, a millisecond earlier", { failingSince: NOW - TELL_AFTER_MS + 1 }, []],
    ["not, if nothing is left to deliver", { ...FAILING, hasPending: false }, []],
    [
      "that it was disabled, whatever else is",
      { ...FAILING, ...DISABLED, circuits: { "run.completed": REJECTION } },
      ["disabled"],
    ],
    ["not that a person disabled it", { disabledAt: NOW }, []],
    ["not that it is disabled once it is enabled", { disabledByFailures: true }, ["recovered"]],
    [
      "that it rejects a type, after a day",
      { circuits: { "run.completed": REJECTION } },
      ["recovered", "rejecting"],
    ],
    [
      "not, if all types fail",
      { ...FAILING, hasPending: false, circuits: { "run.completed": REJECTION } },
      [],
    ],
    [
      "not, if it does not list the type",
      { circuits: { "automation.status_changed": REJECTION } },
      ["recovered"],
    ],
    [
      "that it has too many pending deliveries",
      { pendingExhaustedAt: NOW },
      ["recovered", "overflow"],
    ],
    ["that it works, after a success", {}, ["recovered"]],
    ["not while it fails", { failingSince: NOW }, []],
    ["not after a rejection", { lastAttempt: { ...SUCCESS, status: 300 } }, []],
    ["not after an informational response", { lastAttempt: { ...SUCCESS, status: 199 } }, []],
    ["not without a response", { lastAttempt: { ...SUCCESS, outcome: "unreachable" } }, []],
    ["not without an attempt", { lastAttempt: null }, []],
  ])("%s", (_, differences, kinds) => {
    expect(kindsOf(differences)).toEqual(kinds);
  });

  test("since when it began", () => {
    const sinceOf = (kind: EmailKind, differences: Partial<Candidate>) =>
      trueSince(kind, candidate(differences), NOW);
    expect(sinceOf("failing", FAILING)).toBe(FAILING.failingSince);
    expect(sinceOf("disabled", DISABLED)).toBe(DISABLED.disabledAt);
    expect(sinceOf("overflow", { pendingExhaustedAt: 7 })).toBe(7);
    expect(sinceOf("recovered", {})).toBe(SUCCESS.at);
    const circuits = {
      "lead.created": { ...REJECTION, since: REJECTION.since - 9 },
      "run.completed": REJECTION,
    };
    expect(sinceOf("rejecting", { circuits })).toBe(REJECTION.since);
  });
});

describe("an e-mail is chosen", () => {
  const since = FAILING.failingSince;

  test.each<[string, Partial<Candidate>, EmailKind[]]>([
    ["about a new failure", FAILING, ["failing"]],
    ["not twice about one", { ...FAILING, announced: { failing: announced(since, NOW - 1) } }, []],
    [
      "about the next failure",
      { ...FAILING, announced: { failing: announced(since - 1, 0) } },
      ["failing"],
    ],
    ["about a recovery from it", { announced: { failing: announced(since, 0) } }, ["recovered"]],
    ["not about a recovery from nothing", {}, []],
    [
      "not about a success before the failure",
      { announced: { failing: announced(SUCCESS.at, 0) } },
      [],
    ],
    [
      "about the next recovery",
      { announced: { failing: announced(since, 0), recovered: announced(since - 1, 0) } },
      ["recovered"],
    ],
    ["about a subscription that was disabled", DISABLED, ["disabled"]],
    [
      "to remind of it after a week",
      {
        ...DISABLED,
        announced: { disabled: announced(DISABLED.disabledAt, NOW - REMINDER_WAIT_MS) },
      },
      ["disabled"],
    ],
    [
      "not earlier",
      {
        ...DISABLED,
        announced: { disabled: announced(DISABLED.disabledAt, NOW - REMINDER_WAIT_MS + 1) },
      },
      [],
    ],
    [
      "not after the last reminder",
      { ...DISABLED, announced: { disabled: announced(DISABLED.disabledAt, 0, REMINDERS_MAX) } },
      [],
    ],
    ["to remind of nothing else", { ...FAILING, announced: { failing: announced(since, 0) } }, []],
    ["to nobody", { ...FAILING, administrators: [] }, []],
  ])("%s", (_, differences, kinds) => {
    expect(chosen(differences)).toEqual(kinds);
  });

  test("with the entries that are recorded", () => {
    const { announcements, ...differences } = {
      ...DISABLED,
      announcements: { disabled: announced(DISABLED.disabledAt, NOW - REMINDER_WAIT_MS, 2, 9) },
    };
    const subscription = candidate({ ...differences, announced: announcements });
    expect(chooseAnnouncements([subscription], NOW)).toEqual([
      {
        workspaceId: "wks_1",
        kind: "disabled",
        isReminder: true,
        recipients: ["one@example.com"],
        entries: [
          {
            subscriptionId: "whk_1",
            host: "hooks.example",
            kind: "disabled",
            since: DISABLED.disabledAt,
            announcedAt: NOW,
            reminders: 3,
            emails: 1,
          },
        ],
      },
    ]);
  });

  test("that is no reminder, if it was disabled again after the last one", () => {
    const last = announced(DISABLED.disabledAt - 1, 0, REMINDERS_MAX);
    const administrators = ["one@example.com", "two@example.com"];
    const again = candidate({ ...DISABLED, administrators, announced: { disabled: last } });
    const [announcement] = chooseAnnouncements([again], NOW);
    expect(announcement).toMatchObject({
      isReminder: false,
      entries: [{ reminders: 0, emails: 2 }],
    });
  });

  test("for each address once, in whatever form it is given", () => {
    const administrators = [
      "one@example.com",
      { email: "one@example.com", language: "en" as const },
      "One@Example.com",
    ];
    const [announcement] = chooseAnnouncements([candidate({ ...FAILING, administrators })], NOW);
    expect(announcement?.recipients).toEqual(["one@example.com"]);
  });
});

describe("subscriptions of a workspace", () => {
  const to = (id: string, url: string, differences: Partial<Candidate> = FAILING) =>
    candidate({ subscriptionId: id, url, ...differences });

  test("share an e-mail, or a reminder, if their host and its kind are the same", () => {
    const reminded = { ...DISABLED, announced: { disabled: announced(DISABLED.disabledAt, 0) } };
    const found = chooseAnnouncements(
      [
        to("whk_1", "https://a.example/1"),
        to("whk_2", "https://a.example/2"),
        to("whk_3", "https://a.example:8443/"),
        to("whk_4", "https://a.example/4", DISABLED),
        to("whk_5", "https://a.example/5", reminded),
        to("whk_6", "https://a.example/6", reminded),
      ],
      NOW,
    );
    const shared = found.map(({ entries }) => entries.map(({ subscriptionId }) => subscriptionId));
    expect(shared).toEqual([["whk_1", "whk_2"], ["whk_3"], ["whk_4"], ["whk_5", "whk_6"]]);
    expect(found[0]?.entries.map(({ emails }) => emails)).toEqual([1, 0]);
  });

  test.each([
    [EMAIL_HOST_INTERVAL_MS - 1, "hooks.example", "failing", []],
    [EMAIL_HOST_INTERVAL_MS, "hooks.example", "failing", ["failing"]],
    [1, "other.example", "failing", ["failing"]],
    [1, "hooks.example", "disabled", ["failing"]],
  ] as const)("%i ms after an e-mail about %s (%s) get %j", (agoMs, host, kind, kinds) => {
    const recent = [{ ...announcedEmail({ host, announcedAt: NOW - agoMs }), kind }];
    expect(chosen({ ...FAILING, recent })).toEqual(kinds);
  });

  test.each([
    [WORKSPACE_EMAILS_PER_DAY - 1, ["failing"]],
    [WORKSPACE_EMAILS_PER_DAY, []],
  ])("after %i e-mails in a day get %j", (emails, kinds) => {
    const half = Math.floor(emails / 2);
    const recent = [half, emails - half].map((count) => ({
      ...announcedEmail({ host: "other.example", announcedAt: NOW, emails: count }),
      kind: "failing" as const,
    }));
    expect(chosen({ ...FAILING, recent })).toEqual(kinds);
  });

  test("get as many e-mails as their daily maximum leaves room for", () => {
    const emails = WORKSPACE_EMAILS_PER_DAY - 3;
    const recent = [{ ...announcedEmail({ announcedAt: NOW, emails }), kind: "disabled" as const }];
    const administrators = ["one@example.com", "two@example.com"];
    const many = ["a", "b", "c"].map((host) =>
      candidate({ ...FAILING, url: `https://${host}/`, recent, administrators }),
    );
    expect(chooseAnnouncements(many, NOW)).toHaveLength(1);
  });

  test.each([
    [DAY_MS - 1, 5],
    [DAY_MS, 1],
  ])(
    "count the e-mails of the entry that a newer one replaces, if it is %i ms old",
    (agoMs, emails) => {
      const last = announced(FAILING.failingSince - 1, NOW - agoMs, 0, 4);
      const [found] = chooseAnnouncements(
        [candidate({ ...FAILING, announced: { failing: last } })],
        NOW,
      );
      expect(found?.entries[0]?.emails).toBe(emails);
    },
  );

  test("count those of a failure with its recovery, whose entry replaces it", () => {
    const failing = announced(FAILING.failingSince, NOW - HOUR_MS, 0, 4);
    const recovered = announced(1, NOW - HOUR_MS, 0, 2);
    const [found] = chooseAnnouncements([candidate({ announced: { failing, recovered } })], NOW);
    expect(found?.entries[0]?.emails).toBe(7);
  });
});

test("nothing is chosen for no subscription", () => {
  expect(chooseAnnouncements([], NOW)).toEqual([]);
});

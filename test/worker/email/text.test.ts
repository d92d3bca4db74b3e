import { expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
import { EMAIL_KINDS, type EmailKind, type Language } from "../../../src/db/schema.ts";
import type { Notification } from "../../../src/email/notification.ts";
import { composeEmail } from "../../../src/email/text.ts";

const notification: Notification = {
  kind: "disabled",
  isReminder: false,
  workspaceName: "Agence",
  subscriptionIds: ["whk_1"],
  host: "hooks.example.com:8443",
  events: ["run.completed", "lead.created"],
  since: Date.UTC(2026, 0, 5, 12, 34),
  last: { outcome: "answered", status: 410 },
  missed: { count: 1_234, more: true, until: Date.UTC(2026, 1, 4, 8) },
};
const NO_PORTAL = { PORTAL: "on", PORTAL_ORIGIN: "", PORTAL_NAME: "" };
const compose = (
  changes: Partial<Notification> = {},
  branding = NO_PORTAL,
  language: Language = "fr",
) => composeEmail({ ...notification, ...changes }, language, branding);
const inEnglish = (changes: Partial<Notification> = {}, branding = NO_PORTAL) =>
  compose(changes, branding, "en");

const TIMEOUT = `${POST_TIMEOUT_MS / 1000}\u00a0secondes`;

/** The day on which a subscription that goes on failing is disabled. */
const disabledOn = (locale: string) =>
  new Date(notification.since + DISABLE_AFTER_MS).toLocaleDateString(locale, {
    dateStyle: "long",
    timeZone: "UTC",
  });

test.each([
  ["disabled", "désactivé", ["a été désactivé", "Réactivez ensuite", "ont été annulées"]],
  ["failing", "en échec", [`désactivé, au plus tôt le ${disabledOn("fr-FR")} à`]],
] as const)(
  "the e-mail about a %s subscription has the facts and what to do",
  (kind, how, more) => {
    const { subject, text } = compose({ kind });
    expect(subject).toBe(`Webhook ${how}\u00a0: hooks.example.com:8443`);
    const facts = ["Bonjour", "hooks.example.com:8443", "whk_1", "«\u00a0Agence\u00a0»", TIMEOUT];
    const times = ["Exécution terminée, Nouveau lead", "5 janvier 2026 à 12:34 (UTC)"];
    for (const part of [...facts, ...times, ...more]) expect(text).toContain(part);
    expect(text.includes("annulées")).toBe(kind === "disabled");
  },
);

test("an e-mail leads to the portal where there is one", () => {
  for (const kind of EMAIL_KINDS)
    for (const text of Object.values(compose({ kind }))) {
      expect(text).not.toMatch(/ [:;!?»]|« /);
      expect(text).not.toContain("https://");
    }
  const portal = { ...NO_PORTAL, PORTAL_ORIGIN: "https://api.example.com/" };
  const link = "Portail\u00a0: https://api.example.com/portal#/webhooks/whk_1\n";
  expect(compose({}, portal).text).toContain(link);
  const several = { subscriptionIds: ["whk_1", "whk_2"] };
  expect(compose(several, portal).text).toContain("https://api.example.com/portal\n");
  expect(compose({}, { ...portal, PORTAL: "off" }).text).not.toContain("https://");
});

test("an e-mail names an event type that this code does not know, as after a rollback", () => {
  const events = ["lead.merged" as WebhookEvent, "run.completed" as const];
  expect(compose({ events }).text).toContain("concernés\u00a0: lead.merged, Exécution terminée\n");
  expect(inEnglish({ events }).text).toContain("Event types: lead.merged, Run completed\n");
});

test("an e-mail about a disabled subscription says what can be replayed, and until when", () => {
  const until = "Le plus ancien peut être renvoyé jusqu’au 4 février 2026 à 08:00 (UTC).";
  expect(compose().text).toMatch(/Événements manqués\u00a0: au moins 1\s234\. /);
  expect(compose().text).toContain(until);
  const missed = { count: 0, more: false, until: null };
  expect(compose({ missed }).text).not.toContain("manqués\u00a0:");
  expect(inEnglish().text).toContain("Missed events: at least 1,234. ");
});

test.each([
  ["answered", 401, "réponse HTTP 401", "HTTP 401", "secret"],
  ["answered", 404, "réponse HTTP 404", "HTTP 404", "modifiez l’URL du webhook"],
  ["answered", 410, "réponse HTTP 410", "HTTP 410", "supprimez ce webhook"],
  ["answered", 308, "réponse HTTP 308", "HTTP 308", "l’URL finale"],
  ["answered", 429, "réponse HTTP 429", "HTTP 429", "cette limite"],
  ["answered", 500, "réponse HTTP 500", "HTTP 500", "journaux"],
  ["answered", 418, "réponse HTTP 418", "HTTP 418", "le corps a été modifié"],
  [
    "timed_out",
    null,
    `aucune réponse en ${TIMEOUT}`,
    `no response within ${POST_TIMEOUT_MS / 1000} seconds`,
    "Répondez dès que l’événement est enregistré",
  ],
  ["unreachable", null, "connexion impossible", "no connection", "certificat TLS"],
  [
    "unreachable",
    526,
    "connexion impossible (526)",
    "no connection (526)",
    "Installez un certificat",
  ],
  [
    "refused",
    null,
    "URL bloquée par nos règles de sécurité",
    "URL blocked by our security rules",
    "adresse publique",
  ],
])("a last result that was %s (%s) reads: %s or %s, with the advice: …%s…", (...row) => {
  const [outcome, status, words, english, advice] = row;
  for (const kind of ["disabled", "failing"] as const) {
    const { text } = compose({ kind, last: { outcome, status } });
    expect(text).toContain(`Dernier résultat\u00a0: ${words}. `);
    expect(text.split("Que faire\u00a0? ")[1]).toContain(advice);
    const translated = inEnglish({ kind, last: { outcome, status } });
    expect(translated.text).toContain(`Last result: ${english}. `);
  }
});

test("an e-mail says what to do right after the fact", () => {
  const portal = { PORTAL: "on", PORTAL_ORIGIN: "https://api.example.com", PORTAL_NAME: "Lumière" };
  const paragraphs = compose({ kind: "failing" }, portal).text.trimEnd().split("\n\n");
  for (const [i, start] of ["Bonjour,", "Le webhook", "Que faire", "Portail", "À défaut"].entries())
    expect(paragraphs[i]).toMatch(new RegExp(`^${start}`));
  expect(paragraphs.at(-1)).toBe("Cordialement,\nL’équipe Lumière");
  expect(inEnglish({}, portal).text).toMatch(/\n\nKind regards,\nThe Lumière team\n$/);
});

test("an e-mail of a platform without a name is from the technical team", () => {
  expect(compose().text).toMatch(/\n\nCordialement,\nL’équipe technique\n$/);
  expect(inEnglish().text).toMatch(/\n\nKind regards,\nThe technical team\n$/);
});

test.each(EMAIL_KINDS)("an e-mail of the kind %s is complete in English, too", (kind) => {
  const subscriptionIds = ["whk_1", "whk_2", "whk_3"];
  const [one, several] = [inEnglish({ kind }), inEnglish({ kind, subscriptionIds })];
  expect(one.subject).toMatch(/: hooks\.example\.com:8443$/);
  for (const part of [
    "whk_1",
    "“Agence”",
    "5 January 2026 at 12:34 (UTC)",
    "Run completed, New lead",
  ])
    expect(one.text).toContain(part);
  expect(several.text).toContain("3 webhooks of");
  expect(several.text).toContain("\nwhk_1\nwhk_2\nwhk_3\n");
  expect(several.text).not.toMatch(/the webhook (stays|will)|from the webhook/);
  const french = compose({ kind, subscriptionIds }).text;
  expect(french).not.toMatch(/le webhook (reste|sera)|retirez-les du webhook/);
  // Customers read "webhook"; "subscription" is the word of the code.
  for (const text of [one.text, several.text, french])
    expect(text).not.toMatch(/subscription|abonnement/i);
  for (const text of Object.values(one)) expect(text).not.toMatch(/[éèàç»«]/);
  if (kind === "failing")
    expect(one.text).toContain(`will be disabled on ${disabledOn("en-GB")} at`);
  expect(inEnglish({ kind, isReminder: true }).subject).toBe(`Reminder: ${one.subject}`);
});

test.each<[EmailKind, string, string, string, string]>([
  ["failing", "est", "sont", "is", "are"],
  ["recovered", "fonctionne", "fonctionnent", "works", "work"],
  ["disabled", "a été", "ont été", "was", "were"],
  ["rejecting", "voit", "voient", "has", "have"],
  ["overflow", "a", "ont", "has", "have"],
])("an e-mail of the kind %s is about one webhook, or about several", (kind, ...verbs) => {
  const several = { kind, subscriptionIds: ["whk_1", "whk_2"] };
  const texts = [compose({ kind }), compose(several), inEnglish({ kind }), inEnglish(several)];
  for (const [i, { text }] of texts.entries())
    expect(text).toContain(` hooks.example.com:8443 ${verbs[i]} `);
});

test("an e-mail about a recovery or an overflow names no failure", () => {
  const { subject, text } = compose({ kind: "recovered" });
  expect(subject).toContain("Webhook rétabli");
  const overflow = compose({ kind: "overflow" });
  for (const said of [text, overflow.text]) expect(said).not.toContain("Dernier résultat");
});

test("an e-mail about twenty subscriptions lists all, and no others", () => {
  const { text } = compose({ subscriptionIds: Array.from({ length: 20 }, (_, i) => `whk_${i}`) });
  expect(text).toContain("\nwhk_19\n\n");
});

test("an e-mail about very many subscriptions lists the first twenty", () => {
  const subscriptionIds = Array.from({ length: 100 }, (_, i) => `whk_${i}`);
  const { text } = compose({ subscriptionIds });
  expect(text).toContain("100 webhooks de");
  expect(text).toContain("\nwhk_19\n…\n");
  expect(text).not.toContain("whk_20");
});

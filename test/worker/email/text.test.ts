import { expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
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

/** The e-mails as they are read, the subject first. No-break spaces are spaces here. */
test.each<[EmailKind, Language, string]>([
  [
    "failing",
    "fr",
    `Webhook en échec : hooks.example.com:8443

Bonjour,

Le webhook whk_1 de l’espace de travail « Agence » vers hooks.example.com:8443 est en échec : aucune livraison n’a abouti depuis le 5 janvier 2026 à 12:34 (UTC).
Dernier résultat : réponse HTTP 500. Votre serveur a rencontré une erreur.

Que faire ? Consultez ses journaux d’erreurs. Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de 10 secondes. Une fois le problème corrigé, les livraisons en attente repartiront automatiquement.

À défaut, le webhook sera désactivé, au plus tôt le 8 janvier 2026 à 12:34 (UTC).

Types d’événements concernés : Exécution terminée, Nouveau lead

Cordialement,
L’équipe technique`,
  ],
  [
    "failing",
    "en",
    `Webhook failing: hooks.example.com:8443

Hello,

The webhook whk_1 of the workspace “Agence” to hooks.example.com:8443 is failing: no delivery has succeeded since 5 January 2026 at 12:34 (UTC).
Last result: HTTP 500. Your server failed.

What to do: Look in its error log. Your server must respond with a status between 200 and 299 within 10 seconds. Once the problem is fixed, pending deliveries are sent automatically.

Otherwise, the webhook will be disabled on 8 January 2026 at 12:34 (UTC) at the earliest.

Event types: Run completed, New lead

Kind regards,
The technical team`,
  ],
  [
    "recovered",
    "fr",
    `Webhook rétabli : hooks.example.com:8443

Bonjour,

Le webhook whk_1 de l’espace de travail « Agence » vers hooks.example.com:8443 fonctionne à nouveau : une livraison a abouti le 5 janvier 2026 à 12:34 (UTC).

Que faire ? Vous n’avez rien à faire : les livraisons en attente repartent automatiquement.

Types d’événements concernés : Exécution terminée, Nouveau lead

Cordialement,
L’équipe technique`,
  ],
  [
    "recovered",
    "en",
    `Webhook recovered: hooks.example.com:8443

Hello,

The webhook whk_1 of the workspace “Agence” to hooks.example.com:8443 works again: a delivery succeeded on 5 January 2026 at 12:34 (UTC).

What to do: There is nothing left for you to do: pending deliveries are sent automatically.

Event types: Run completed, New lead

Kind regards,
The technical team`,
  ],
  [
    "disabled",
    "fr",
    `Webhook désactivé : hooks.example.com:8443

Bonjour,

Le webhook whk_1 de l’espace de travail « Agence » vers hooks.example.com:8443 a été désactivé : toutes les livraisons échouent depuis le 5 janvier 2026 à 12:34 (UTC).
Dernier résultat : réponse HTTP 500. Votre serveur a rencontré une erreur.

Que faire ? Consultez ses journaux d’erreurs. Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de 10 secondes. Réactivez ensuite le webhook dans le portail ou demandez-le au support : les livraisons en attente ont été annulées, mais les événements manqués pourront alors être renvoyés. Un nouveau webhook ne recevrait que les événements à venir.

Événements manqués : au moins 1 234. Le plus ancien peut être renvoyé jusqu’au 4 février 2026 à 08:00 (UTC).

Types d’événements concernés : Exécution terminée, Nouveau lead

Cordialement,
L’équipe technique`,
  ],
  [
    "disabled",
    "en",
    `Webhook disabled: hooks.example.com:8443

Hello,

The webhook whk_1 of the workspace “Agence” to hooks.example.com:8443 was disabled: all deliveries have failed since 5 January 2026 at 12:34 (UTC).
Last result: HTTP 500. Your server failed.

What to do: Look in its error log. Your server must respond with a status between 200 and 299 within 10 seconds. Then enable the webhook in the portal, or ask support to do it. Pending deliveries were cancelled, but the events that you missed can be sent then. A new webhook would receive future events only.

Missed events: at least 1,234. The oldest can be sent until 4 February 2026 at 08:00 (UTC).

Event types: Run completed, New lead

Kind regards,
The technical team`,
  ],
  [
    "rejecting",
    "fr",
    `Votre serveur refuse certains événements : hooks.example.com:8443

Bonjour,

Le webhook whk_1 de l’espace de travail « Agence » vers hooks.example.com:8443 voit certains types d’événements refusés depuis le 5 janvier 2026 à 12:34 (UTC), alors que votre serveur en accepte d’autres.
Dernier résultat : réponse HTTP 500. Votre serveur a rencontré une erreur.

Que faire ? Consultez ses journaux d’erreurs. Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de 10 secondes. Les autres événements continuent d’être livrés, et le webhook reste actif. Si vous ne voulez plus recevoir ces types d’événements, retirez-les du webhook.

Types d’événements concernés : Exécution terminée, Nouveau lead

Cordialement,
L’équipe technique`,
  ],
  [
    "rejecting",
    "en",
    `Your server rejects some events: hooks.example.com:8443

Hello,

The webhook whk_1 of the workspace “Agence” to hooks.example.com:8443 has had some event types rejected since 5 January 2026 at 12:34 (UTC), while your server accepts others.
Last result: HTTP 500. Your server failed.

What to do: Look in its error log. Your server must respond with a status between 200 and 299 within 10 seconds. Other events are still delivered, and the webhook stays active. If you no longer want these event types, remove them from the webhook.

Event types: Run completed, New lead

Kind regards,
The technical team`,
  ],
  [
    "overflow",
    "fr",
    `Trop de livraisons en attente : hooks.example.com:8443

Bonjour,

Le webhook whk_1 de l’espace de travail « Agence » vers hooks.example.com:8443 a trop de livraisons en attente depuis le 5 janvier 2026 à 12:34 (UTC) : les plus anciennes sont en échec définitif.

Que faire ? Vérifiez que votre serveur répond, et qu’il répond assez vite pour le nombre d’événements de cet espace de travail. Vous pourrez ensuite renvoyer ces événements depuis le portail, tant qu’ils sont conservés.

Types d’événements concernés : Exécution terminée, Nouveau lead

Cordialement,
L’équipe technique`,
  ],
  [
    "overflow",
    "en",
    `Too many pending deliveries: hooks.example.com:8443

Hello,

The webhook whk_1 of the workspace “Agence” to hooks.example.com:8443 has had too many pending deliveries since 5 January 2026 at 12:34 (UTC): the oldest have failed for good.

What to do: Check that your server responds, and that it responds quickly enough for the number of events in this workspace. You can then resend these events from the portal, as long as they are stored.

Event types: Run completed, New lead

Kind regards,
The technical team`,
  ],
])(
  "the e-mail of the kind %s has this subject and text in the language %s",
  (kind, language, whole) => {
    const last = { outcome: "answered" as const, status: 500 };
    const { subject, text } = compose({ kind, last }, NO_PORTAL, language);
    expect(`${subject}\n\n${text}`.replaceAll(/[\u00a0\u202f]/g, " ")).toBe(`${whole}\n`);
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

test("an e-mail about a disabled subscription says how many events can be replayed, if any", () => {
  const missed = { count: 1, more: false, until: 1 };
  expect(compose({ missed }).text).toContain("Événements manqués\u00a0: 1. Le plus ancien");
  expect(inEnglish({ missed }).text).toContain("Missed events: 1. The oldest");
  const none = { count: 0, more: false, until: null };
  expect(compose({ missed: none }).text).not.toContain("manqués\u00a0:");
  expect(inEnglish({ missed: none }).text).not.toContain("Missed");
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

test.each(EMAIL_KINDS)("an English reminder of the kind %s says so in its subject", (kind) => {
  const { subject } = inEnglish({ kind });
  expect(inEnglish({ kind, isReminder: true }).subject).toBe(`Reminder: ${subject}`);
});

test.each(EMAIL_KINDS)(
  "an English e-mail of the kind %s about several webhooks lists them",
  (kind) => {
    const subscriptionIds = ["whk_1", "whk_2", "whk_3"];
    const [one, several] = [inEnglish({ kind }), inEnglish({ kind, subscriptionIds })];
    expect(several.text).toContain("3 webhooks of");
    expect(several.text).toContain("\nwhk_1\nwhk_2\nwhk_3\n");
    expect(several.text).not.toMatch(/the webhook (stays|will)|from the webhook/);
    const french = compose({ kind, subscriptionIds }).text;
    expect(french).not.toMatch(/le webhook (reste|sera)|retirez-les du webhook/);
    // Customers read "webhook"; "subscription" is the word of the code.
    for (const text of [one.text, several.text, french])
      expect(text).not.toMatch(/subscription|abonnement/i);
    for (const text of Object.values(one)) expect(text).not.toMatch(/[éèàç»«]/);
  },
);

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

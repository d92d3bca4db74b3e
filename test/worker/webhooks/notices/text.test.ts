import { expect, test } from "vitest";
import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../../../../src/contract/limits.ts";
import type { Notice } from "../../../../src/webhooks/notices/notices.ts";
import { composeNotice } from "../../../../src/webhooks/notices/text.ts";

const notice: Notice = {
  ...{ kind: "disabled", workspaceName: "Agence", subscriptionId: "whk_1" },
  ...{ host: "hooks.example.com:8443", events: ["run.completed", "lead.created"] },
  ...{ failingSince: Date.UTC(2026, 0, 5, 12, 34), lastOutcome: "answered", lastStatus: 410 },
};

const TIMEOUT = `${POST_TIMEOUT_MS / 1000} secondes`;

/** The day on which a subscription that goes on failing is disabled. */
const DISABLED_ON = new Date(notice.failingSince + DISABLE_AFTER_MS).toLocaleDateString("fr-FR", {
  dateStyle: "long",
  timeZone: "UTC",
});

test.each([
  ["disabled", "désactivé", ["a été désactivé", "réactivez l’abonnement", "ont été annulées"]],
  ["failing", "en échec", [`désactivé à partir du ${DISABLED_ON} à`]],
] as const)(
  "the e-mail about a %s subscription has the facts and what to do",
  (kind, how, more) => {
    const { subject, text } = composeNotice({ ...notice, kind });
    expect(subject).toBe(`Abonnement webhook ${how} : hooks.example.com:8443`);
    const facts = ["Bonjour", "hooks.example.com:8443", "whk_1", "« Agence »", "2xx", TIMEOUT];
    const times = ["run.completed, lead.created", "5 janvier 2026 à 12:34 (UTC)"];
    for (const part of [...facts, ...times, ...more]) expect(text).toContain(part);
    expect(text.includes("annulées")).toBe(kind === "disabled");
  },
);

test.each([
  ["answered", 401, "réponse HTTP 401", "secret"],
  ["answered", 404, "réponse HTTP 404", "modifiez l’URL de l’abonnement"],
  ["answered", 410, "réponse HTTP 410", "supprimez l’abonnement"],
  ["answered", 308, "réponse HTTP 308", "l’URL finale"],
  ["answered", 429, "réponse HTTP 429", "cette limite"],
  ["answered", 500, "réponse HTTP 500", "journaux"],
  ["answered", 418, "réponse HTTP 418", "corps modifié"],
  [
    "timed_out",
    null,
    `aucune réponse en ${TIMEOUT}`,
    "Répondez dès que l’événement est enregistré",
  ],
  ["unreachable", null, "connexion impossible", "certificat TLS"],
  ["unreachable", 526, "connexion impossible (526)", "Installez un certificat"],
  ["refused", null, "URL refusée par notre politique de sécurité", "adresse publique"],
])("a last result that was %s (%s) reads: %s, with the advice: …%s…", (...row) => {
  const [lastOutcome, lastStatus, words, advice] = row;
  for (const kind of ["disabled", "failing"] as const) {
    const { text } = composeNotice({ ...notice, kind, lastOutcome, lastStatus } as Notice);
    expect(text).toContain(`Dernier résultat : ${words}\n`);
    expect(text.split("Que faire ? ")[1]).toContain(advice);
  }
});

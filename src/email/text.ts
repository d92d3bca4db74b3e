import { EVENT_TYPES } from "../contract/event-types.ts";
import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../contract/limits.ts";
import { explainFailure } from "../history/failures.ts";
import type { Missed, Notice } from "./notice.ts";

const EXPECTED = `Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de ${POST_TIMEOUT_MS / 1000} secondes.`;

/** Composes the e-mail for a notice, in French. */
export function composeNotice(
  notice: Notice,
  { PORTAL, PORTAL_ORIGIN }: Pick<Env, "PORTAL" | "PORTAL_ORIGIN">,
): { subject: string; text: string } {
  const { host, subscriptionId, workspaceName, last, isReminder } = notice;
  const { means, todo } = explainFailure(last ?? { outcome: null, status: null }, "fr");
  const portal =
    PORTAL !== "off" && PORTAL_ORIGIN !== ""
      ? [`Portail : ${new URL(PORTAL_ORIGIN).origin}/portal#/webhooks/${subscriptionId}`]
      : [];
  const { subject, happened, kinds, advice, outlook } = TEXTS[notice.kind](notice);
  const paragraphs = [
    "Bonjour,",
    `L’abonnement webhook ${subscriptionId} de l’espace de travail « ${workspaceName} » vers ${host} ${happened}`,
    `${kinds} : ${notice.events.map((kind) => EVENT_TYPES[kind].french.name).join(", ")}
Dernier résultat : ${describeResult(notice)}`,
    means,
    `Que faire ? ${todo} ${advice}`,
    ...outlook,
    ...portal,
  ];
  return {
    subject: french(`${isReminder ? "Rappel : " : ""}${subject} : ${host}`),
    text: french(`${paragraphs.join("\n\n")}\n`),
  };
}

interface Parts {
  subject: string;
  /** The rest of a sentence about the subscription. */
  happened: string;
  kinds: string;
  advice: string;
  outlook: string[];
}

const TEXTS: Record<Notice["kind"], (notice: Notice) => Parts> = {
  failing: ({ since }) => ({
    subject: "Abonnement webhook en échec",
    happened: `est en échec : aucune livraison n’a abouti depuis le ${inFrench(since)}.`,
    kinds: "Événements concernés",
    advice: `${EXPECTED} Vous n’avez rien d’autre à faire : les livraisons en attente seront retentées automatiquement.`,
    outlook: [
      `Sans succès d’ici là, l’abonnement sera désactivé, au plus tôt le ${inFrench(since + DISABLE_AFTER_MS)}.`,
    ],
  }),
  disabled: ({ since, missed }) => ({
    subject: "Abonnement webhook désactivé",
    happened: `a été désactivé : toutes les livraisons échouent depuis le ${inFrench(since)}.`,
    kinds: "Événements concernés",
    advice: `${EXPECTED} Réactivez ensuite l’abonnement dans le portail ou demandez-le au support : les livraisons en attente ont été annulées, mais les événements manqués peuvent alors être renvoyés. Un nouvel abonnement ne recevrait que les événements à venir.`,
    outlook: missed ? describeMissed(missed) : [],
  }),
  rejecting: ({ since }) => ({
    subject: "Événements refusés par un webhook",
    happened: `refuse certains événements depuis le ${inFrench(since)}, alors qu’il en accepte d’autres.`,
    kinds: "Événements refusés",
    advice: `${EXPECTED} Les autres événements continuent d’être livrés, et l’abonnement reste actif. Si vous ne voulez plus recevoir ces événements, retirez-les de l’abonnement.`,
    outlook: [],
  }),
};

function describeMissed({ count, more, until }: Missed): string[] {
  if (until === null) return [];
  const number = count.toLocaleString("fr-FR");
  return [
    `Événements manqués : ${more ? `au moins ${number}` : number}. Le plus ancien peut être renvoyé jusqu’au ${inFrench(until)}.`,
  ];
}

/** A time with minute precision. */
function inFrench(time: number): string {
  const text = new Date(time).toLocaleString("fr-FR", {
    dateStyle: "long",
    timeStyle: "short",
    timeZone: "UTC",
  });
  return `${text} (UTC)`;
}

function describeResult({ last }: Notice): string {
  switch (last?.outcome) {
    case "answered":
      return `réponse HTTP ${last.status}`;
    case "timed_out":
      return `aucune réponse en ${POST_TIMEOUT_MS / 1000} secondes`;
    case "refused":
      return "URL refusée par notre politique de sécurité";
    default:
      return `connexion impossible${last?.status ? ` (${last.status})` : ""}`;
  }
}

/** Text in which no line break separates punctuation from its word, or a number from its unit. */
function french(text: string): string {
  return text.replaceAll(/ (?=[:;!?»])|(?<=«) |(?<=\d) (?=secondes)/g, "\u00a0");
}

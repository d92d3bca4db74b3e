import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../../contract/limits.ts";
import { explainFailure } from "../failures.ts";
import type { Notice } from "./notices.ts";

const TIMEOUT = `${POST_TIMEOUT_MS / 1000} secondes`;

/** Composes the e-mail for a notice, in French. */
export function composeNotice(notice: Notice): { subject: string; text: string } {
  const { kind, host, subscriptionId, workspaceName, failingSince, events } = notice;
  const subscription = `L’abonnement webhook ${subscriptionId} de l’espace de travail « ${workspaceName} » vers ${host}`;
  const facts = `Événements concernés : ${events.join(", ")}
Dernier résultat : ${describeResult(notice)}`;
  const why = explainFailure({ outcome: notice.lastOutcome, status: notice.lastStatus }, "fr");
  if (kind === "failing")
    return {
      subject: `Abonnement webhook en échec : ${host}`,
      text: `Bonjour,

${subscription} échoue : aucune livraison n’a abouti depuis le ${inFrench(failingSince)}.

${facts}

${why.means}

Que faire ? ${why.todo} Votre serveur doit répondre par un statut 2xx en moins de ${TIMEOUT}. Rien d’autre n’est à faire : les livraisons en attente continuent d’être tentées.

Sans livraison réussie, l’abonnement sera désactivé à partir du ${inFrench(failingSince + DISABLE_AFTER_MS)}.
`,
    };
  return {
    subject: `Abonnement webhook désactivé : ${host}`,
    text: `Bonjour,

${subscription} a été désactivé : toutes les livraisons échouent depuis le ${inFrench(failingSince)}.

${facts}

${why.means}

Que faire ? ${why.todo} Vérifiez que votre serveur répond par un statut 2xx en moins de ${TIMEOUT}, puis réactivez l’abonnement dans le portail ou demandez-le au support : les livraisons en attente ont été annulées, mais les événements manqués peuvent alors être renvoyés. Un nouvel abonnement ne recevrait que les événements à venir.
`,
  };
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

function describeResult({ lastOutcome, lastStatus }: Notice): string {
  switch (lastOutcome) {
    case "answered":
      return `réponse HTTP ${lastStatus}`;
    case "timed_out":
      return `aucune réponse en ${TIMEOUT}`;
    case "refused":
      return "URL refusée par notre politique de sécurité";
    default:
      return `connexion impossible${lastStatus === null ? "" : ` (${lastStatus})`}`;
  }
}

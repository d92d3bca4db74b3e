import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../../contract/limits.ts";
import type { Notice } from "./notices.ts";

const TIMEOUT = `${POST_TIMEOUT_MS / 1000} secondes`;

/** Composes the e-mail for a notice, in French. */
export function composeNotice(notice: Notice): { subject: string; text: string } {
  const { kind, host, subscriptionId, workspaceName, failingSince, events } = notice;
  const subscription = `L’abonnement webhook ${subscriptionId} de l’espace de travail « ${workspaceName} » vers ${host}`;
  const facts = `Événements concernés : ${events.join(", ")}
Dernier résultat : ${describeResult(notice)}`;
  if (kind === "failing")
    return {
      subject: `Abonnement webhook en échec : ${host}`,
      text: `Bonjour,

${subscription} échoue : aucune livraison n’a abouti depuis le ${inFrench(failingSince)}.

${facts}

Que faire : ${advise(notice)} Votre serveur doit répondre par un statut 2xx en moins de ${TIMEOUT}. Rien d’autre n’est à faire : les livraisons en attente continuent d’être tentées.

Sans livraison réussie, l’abonnement sera désactivé à partir du ${inFrench(failingSince + DISABLE_AFTER_MS)}.
`,
    };
  return {
    subject: `Abonnement webhook désactivé : ${host}`,
    text: `Bonjour,

${subscription} a été désactivé : toutes les livraisons échouent depuis le ${inFrench(failingSince)}.

${facts}

Que faire : ${advise(notice)} Vérifiez que votre serveur répond par un statut 2xx en moins de ${TIMEOUT}, puis réactivez l’abonnement dans le portail ou demandez-le au support : les livraisons en attente ont été annulées, mais les événements manqués peuvent alors être renvoyés. Un nouvel abonnement ne recevrait que les événements à venir.
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
      return "connexion impossible";
  }
}

/** What to check, judging by the last result. */
function advise({ lastOutcome, lastStatus }: Notice): string {
  if (lastOutcome === "timed_out")
    return "répondez dès que l’événement est enregistré et faites le reste du travail ensuite.";
  if (lastOutcome === "refused")
    return "l’URL doit mener à une adresse publique : vérifiez les enregistrements DNS de son nom.";
  if (lastOutcome !== "answered" || lastStatus === null)
    return "vérifiez que le serveur est joignable depuis Internet : DNS, certificat TLS, pare-feu.";
  if (lastStatus === 401 || lastStatus === 403)
    return "vérifiez que le secret de l’abonnement est celui qui sert à contrôler les signatures, et que ni un pare-feu ni une authentification ne bloque nos requêtes.";
  if (lastStatus === 404 || lastStatus === 410)
    return "vérifiez que l’URL de l’abonnement existe toujours.";
  if (lastStatus >= 300 && lastStatus < 400)
    return "nous ne suivons pas les redirections : abonnez l’URL finale.";
  if (lastStatus === 429) return "votre serveur limite nos requêtes : relevez cette limite.";
  if (lastStatus >= 500) return "consultez les journaux d’erreurs de votre serveur.";
  return "vérifiez ce que votre serveur refuse dans nos requêtes.";
}

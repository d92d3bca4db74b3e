import type { Database } from "../db/client.ts";
import { log, logError } from "../log.ts";
import { markSent, type OwedNotice, takeOwedNotices } from "../model/notices.ts";

/**
 * Sends the e-mails that are owed to administrators: their subscription was disabled. One that
 * cannot be sent is tried again in five minutes; only a crash between sending and recording can send one twice.
 */
export async function sendNotices(db: Database, env: Env, now: number): Promise<void> {
  for (const notice of await takeOwedNotices(db, now)) {
    try {
      if (notice.adminEmails.length > 0) {
        await env.EMAIL.send({
          from: env.EMAIL_FROM,
          to: notice.adminEmails,
          ...composeNotice(notice),
        });
      }
      await markSent(db, notice.id, now);
      log("notice_sent", { notice: notice.id, recipients: notice.adminEmails.length });
    } catch (error) {
      logError("notice_failed", error, { notice: notice.id });
    }
  }
}

/** The e-mail, in French: what happened, since when, the last answer, and what to do. */
export function composeNotice(notice: OwedNotice): { subject: string; text: string } {
  const since = new Date(notice.failingSince).toLocaleString("fr-FR", {
    dateStyle: "long",
    timeStyle: "short",
    timeZone: "UTC",
  });
  return {
    subject: `Abonnement webhook désactivé : ${notice.host}`,
    text: `Bonjour,

L’abonnement webhook ${notice.subscriptionId} de l’espace de travail « ${notice.workspaceName} » vers ${notice.host} a été désactivé : toutes les livraisons échouent depuis le ${since} (UTC).

Événements concernés : ${notice.events.join(", ")}
Dernier résultat : ${describeResult(notice)}

Que faire : vérifiez que votre serveur répond par un statut 2xx en moins de 10 secondes, puis créez un nouvel abonnement (POST /v1/webhooks) ou demandez au support de réactiver celui-ci. Les livraisons en attente ont été annulées ; l’API permet de relire les données manquées.
`,
  };
}

function describeResult({ lastOutcome, lastStatus }: OwedNotice): string {
  switch (lastOutcome) {
    case "answered":
      return `réponse HTTP ${lastStatus}`;
    case "timed_out":
      return "aucune réponse en 10 secondes";
    case "refused":
      return "URL refusée par notre politique de sécurité";
    default:
      return "connexion impossible";
  }
}

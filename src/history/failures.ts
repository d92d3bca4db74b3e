import { POST_TIMEOUT_MS } from "../contract/limits.ts";

/*
 * Explains why a delivery failed, in texts that the portal, the e-mails and the docs share. The portal's page is
 * compiled with them, so this file imports only numbers.
 */

const SECONDS = POST_TIMEOUT_MS / 1000;

type Language = "en" | "fr";

/** The end of an attempt: the kind of its outcome, and the status if there was a response. */
export interface Ended {
  outcome: string | null;
  status: number | null;
  /** When the attempt started, if that is known. */
  at?: string | null | undefined;
  /** The `Date` header of the response, if that is known. */
  date?: string | null | undefined;
}

type Entry = Record<Language, readonly [means: string, todo: string]>;

/**
 * Explanations by outcome, by status, by both, or by class of statuses. Cloudflare responds with 520 to 530 in place
 * of an endpoint that it cannot reach
 * (https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/).
 */
export const FAILURES = {
  timed_out: {
    en: [
      `Your server did not respond within ${SECONDS} seconds.`,
      "Respond as soon as the event is stored, and do the rest of the work afterwards.",
    ],
    fr: [
      `Votre serveur n’a pas répondu en ${SECONDS} secondes.`,
      "Répondez dès que l’événement est enregistré et faites le reste du travail ensuite.",
    ],
  },
  unreachable: {
    en: [
      "No connection to your server could be made, or it broke off.",
      "Check that the server is running and can be reached from the internet: DNS, port, TLS certificate, firewall.",
    ],
    fr: [
      "La connexion à votre serveur n’a pas pu être établie, ou elle a été interrompue.",
      "Vérifiez que le serveur fonctionne et qu’il est joignable depuis Internet : DNS, port, certificat TLS, pare-feu.",
    ],
  },
  520: {
    en: [
      "Your server closed the connection, or did not respond in HTTP.",
      "Look for a crash in its error log, and check that it speaks HTTPS on this port.",
    ],
    fr: [
      "Votre serveur a fermé la connexion, ou sa réponse n’est pas du HTTP valide.",
      "Cherchez la trace d’un plantage dans ses journaux d’erreurs, et vérifiez qu’il parle HTTPS sur ce port.",
    ],
  },
  521: {
    en: [
      "Your server refused the connection.",
      "Check that it is running, that it listens on the port of the URL, and that its firewall lets our requests through.",
    ],
    fr: [
      "Votre serveur a refusé la connexion.",
      "Vérifiez qu’il fonctionne, qu’il écoute sur le port de l’URL et que son pare-feu laisse passer nos requêtes.",
    ],
  },
  522: {
    en: [
      "Your server did not accept the connection in time.",
      "Check that the address is right, and that its firewall lets our requests through.",
    ],
    fr: [
      "Votre serveur n’a pas accepté la connexion à temps.",
      "Vérifiez son adresse, et que son pare-feu laisse passer nos requêtes.",
    ],
  },
  523: {
    en: [
      "The address of your server cannot be reached.",
      "Check the DNS records of its host name.",
    ],
    fr: [
      "L’adresse de votre serveur est inaccessible.",
      "Vérifiez les enregistrements DNS de son nom d’hôte.",
    ],
  },
  524: {
    en: [
      `Your server accepted the connection, but Cloudflare stopped waiting for its response, even before our limit of ${SECONDS} seconds.`,
      "Respond as soon as the event is stored, and do the rest of the work afterwards.",
    ],
    fr: [
      `Votre serveur a accepté la connexion, mais Cloudflare a cessé d’attendre sa réponse, avant même notre limite de ${SECONDS} secondes.`,
      "Répondez dès que l’événement est enregistré et faites le reste du travail ensuite.",
    ],
  },
  525: {
    en: [
      "The TLS handshake with your server failed.",
      "Check that it speaks HTTPS on this port, with TLS 1.2 or later and a certificate for the host name of the URL.",
    ],
    fr: [
      "La négociation TLS avec votre serveur a échoué.",
      "Vérifiez qu’il parle HTTPS sur ce port, avec TLS 1.2 ou plus récent et un certificat pour le nom d’hôte de l’URL.",
    ],
  },
  526: {
    en: [
      "The certificate of your server is not valid: it has expired, is self-signed, is for another name, or lacks its chain.",
      "Install a current certificate from a public authority, with its chain.",
    ],
    fr: [
      "Le certificat de votre serveur n’est pas valide : il a expiré, il est autosigné, il est émis pour un autre nom ou sa chaîne est incomplète.",
      "Installez un certificat en cours de validité, émis par une autorité publique, avec sa chaîne.",
    ],
  },
  530: {
    en: [
      "The host name of the URL cannot be resolved.",
      "Check that the name is spelled correctly and has public DNS records.",
    ],
    fr: [
      "Le nom d’hôte de l’URL est introuvable.",
      "Vérifiez son orthographe et ses enregistrements DNS publics.",
    ],
  },
  "unreachable 403": {
    en: [
      "Cloudflare responded in place of your server, and forwarded nothing. It does so for URLs with an IP address, and for host names whose Cloudflare settings block us.",
      "If the URL has an IP address, use a host name. Otherwise, allow our requests in the Cloudflare settings of its host name.",
    ],
    fr: [
      "Cloudflare a répondu à la place de votre serveur et n’a rien transmis. C’est le cas des URL qui contiennent une adresse IP, et des noms dont la configuration Cloudflare nous bloque.",
      "Mettez un nom d’hôte dans l’URL, et non une adresse IP. Si c’est déjà le cas, autorisez nos requêtes dans la configuration Cloudflare de ce nom.",
    ],
  },
  refused: {
    en: [
      "Nothing was sent: the URL does not lead to a public address.",
      "Use a public address: check the DNS records of the host name.",
    ],
    fr: [
      "Rien n’a été envoyé : l’URL ne mène pas à une adresse publique.",
      "L’URL doit mener à une adresse publique : vérifiez les enregistrements DNS de son nom d’hôte.",
    ],
  },
  unreadable: {
    en: [
      "Nothing was sent: the stored lead is damaged.",
      "Nothing is wrong with your server. Contact support.",
    ],
    fr: [
      "Rien n’a été envoyé : les données du lead sont endommagées.",
      "Votre serveur n’est pas en cause. Contactez le support.",
    ],
  },
  overflow: {
    en: [
      "The delivery has failed for good: too many deliveries to your server were waiting.",
      "Check that your server responds, and quickly enough for the number of events. Then resend what has failed for good.",
    ],
    fr: [
      "La livraison est en échec définitif : trop de livraisons attendaient votre serveur.",
      "Vérifiez que votre serveur répond, et assez vite pour le nombre d’événements. Renvoyez ensuite les livraisons en échec définitif.",
    ],
  },
  300: {
    en: [
      "Your server offers several addresses and accepts the delivery at none of them.",
      "Change the URL of the webhook to the one that accepts deliveries.",
    ],
    fr: [
      "Votre serveur propose plusieurs adresses et n’accepte la livraison à aucune.",
      "Remplacez l’URL du webhook par celle qui accepte les livraisons.",
    ],
  },
  304: {
    en: [
      "Your server responds that nothing has changed, as if we had requested a cached page.",
      "Exclude this path from caches, and respond with a status from 200 to 299.",
    ],
    fr: [
      "Votre serveur répond que rien n’a changé, comme si nous demandions une page mise en cache.",
      "Excluez ce chemin des caches, et répondez avec un statut compris entre 200 et 299.",
    ],
  },
  "3xx": {
    en: [
      "Your server redirects, and redirects are not followed.",
      "Change the URL of the webhook to the final one.",
    ],
    fr: [
      "Votre serveur redirige nos requêtes, et nous ne suivons pas les redirections.",
      "Remplacez l’URL du webhook par l’URL finale.",
    ],
  },
  401: {
    en: [
      "Your server, or something in front of it, requires other credentials.",
      "Check that it verifies signatures with the secret of this webhook, that its clock is right, and that nothing in front of it requires a login.",
    ],
    fr: [
      "Votre serveur, ou un équipement placé devant lui, exige une autre authentification.",
      "Vérifiez que votre serveur utilise bien le secret de ce webhook pour vérifier les signatures, que son horloge est à l’heure, et qu’aucune authentification ne bloque nos requêtes.",
    ],
  },
  403: {
    en: [
      "Your server, or something in front of it, rejects our requests.",
      "Check that it verifies signatures with the secret of this webhook, that its clock is right, and that no firewall or bot protection blocks our requests.",
    ],
    fr: [
      "Votre serveur, ou un équipement placé devant lui, refuse nos requêtes.",
      "Vérifiez que votre serveur utilise bien le secret de ce webhook pour vérifier les signatures, que son horloge est à l’heure, et qu’aucun pare-feu ne bloque nos requêtes.",
    ],
  },
  404: {
    en: [
      "Your server has nothing at this URL.",
      "Check the path, and change the URL of the webhook if your webhook handler has moved.",
    ],
    fr: [
      "Votre serveur ne trouve rien à cette URL.",
      "Vérifiez le chemin, et modifiez l’URL du webhook si elle a changé.",
    ],
  },
  405: {
    en: [
      "Your server does not accept POST at this URL.",
      "Check the path and the methods that it accepts.",
    ],
    fr: [
      "Votre serveur n’accepte pas la méthode POST à cette URL.",
      "Vérifiez le chemin et les méthodes acceptées.",
    ],
  },
  410: {
    en: [
      "Your server says that this URL is gone for good. Deliveries are retried as after any other failure.",
      "Change the URL of the webhook, or delete the webhook if you no longer want its events.",
    ],
    fr: [
      "Votre serveur indique que cette URL n’existe plus. Les livraisons sont retentées comme après tout autre échec.",
      "Modifiez l’URL du webhook, ou supprimez ce webhook si vous ne voulez plus de ses événements.",
    ],
  },
  413: {
    en: [
      "Your server, or something in front of it, rejects the body as too large.",
      "Accept bodies of up to 2 MB.",
    ],
    fr: [
      "Votre serveur, ou un équipement placé devant lui, juge le corps de la requête trop volumineux.",
      "Acceptez les corps de requête jusqu’à 2 Mo.",
    ],
  },
  429: {
    en: ["Your server limits our requests.", "Raise that limit for our requests."],
    fr: ["Votre serveur limite nos requêtes.", "Relevez cette limite pour nos requêtes."],
  },
  "4xx": {
    en: [
      "Your server rejected the delivery.",
      "Look in its log for the reason. Often, the body was changed before its signature was verified, or a wrong clock makes our timestamp look too old.",
    ],
    fr: [
      "Votre serveur a refusé la livraison.",
      "Cherchez-en la raison dans ses journaux : souvent, le corps a été modifié avant la vérification de la signature, ou une horloge déréglée fait paraître notre horodatage trop ancien.",
    ],
  },
  "5xx": {
    en: ["Your server failed.", "Look in its error log."],
    fr: ["Votre serveur a rencontré une erreur.", "Consultez ses journaux d’erreurs."],
  },
} satisfies Record<string, Entry>;

/** Webhook handlers reject a timestamp that differs from their clock by more than this. */
const CLOCK_TOLERANCE_MS = 5 * 60_000;

/** Statuses with which webhook handlers reject a timestamp. */
const REJECTED = [400, 401, 403, 422];

/** Returns by how many minutes the clock of a server that rejects us is fast: negative if slow, 0 if right. */
function minutesFast({ status, at, date }: Ended): number {
  if (status === null || !REJECTED.includes(status)) return 0;
  const fastMs = Date.parse(date ?? "") - Date.parse(at ?? "");
  return Math.abs(fastMs) > CLOCK_TOLERANCE_MS ? Math.round(fastMs / 60_000) : 0;
}

function explainClock(fast: number): Entry {
  const minutes = Math.abs(fast);
  return {
    en: [
      `Your server rejected the delivery, and its clock is ${minutes} minutes ${fast > 0 ? "fast" : "slow"}, so it probably rejects our timestamp.`,
      "Set its clock, and keep it right with NTP.",
    ],
    fr: [
      `Votre serveur a refusé la livraison, et son horloge ${fast > 0 ? "avance" : "retarde"} de ${minutes} minutes : il refuse sans doute notre horodatage.`,
      "Réglez son horloge et synchronisez-la par NTP.",
    ],
  };
}

/**
 * Explains a failed attempt in whole sentences: what it means, and what the owner of the endpoint should do. With
 * `at` and `date`, it also recognizes a server with a wrong clock.
 */
export function explainFailure(ended: Ended, language: Language): { means: string; todo: string } {
  const { outcome, status } = ended;
  const fast = outcome === "answered" ? minutesFast(ended) : 0;
  const known: Record<string, Entry> = FAILURES;
  const ofClass = outcome === "answered" ? `${Math.floor((status ?? 0) / 100)}xx` : (outcome ?? "");
  const byStatus =
    outcome === "unreachable" && (status ?? 0) < 500
      ? known[`unreachable ${status}`]
      : known[status ?? ""];
  const entry =
    fast === 0 ? (byStatus ?? known[ofClass] ?? FAILURES.unreachable) : explainClock(fast);
  const [means, todo] = entry[language];
  return { means, todo };
}

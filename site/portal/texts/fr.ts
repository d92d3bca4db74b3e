import { REASONS } from "../../../src/contract/errors.ts";
import { ofEachKind } from "../../../src/contract/event-types.ts";
import {
  DISABLE_AFTER_MS,
  POST_TIMEOUT_MS,
  REDELIVERY_MAX_AGE_MS,
  RETRY_AFTER_MAX_MULTIPLE,
} from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import { explainFailure } from "../../../src/history/failures.ts";
import { counter } from "./count.ts";
import type { Texts } from "./en.ts";

const count = counter("fr");

/** Every text of the portal in French. */
export const fr: Texts = {
  errors: {
    invalid_request: "La requête n’est pas valide.",
    invalid_api_key: "La session n’est plus valide.",
    workspace_access_denied: "L’espace de travail n’a pas accès à ce service.",
    webhook_not_found: "Cet abonnement n’existe pas dans l’espace de travail.",
    route_not_found: "Ce déploiement ne propose pas cette fonction.",
    rate_limited: "Trop de requêtes.",
    internal_error: "Une erreur est survenue de notre côté. Réessayez dans un instant.",
  },
  reasons: REASONS,
  kinds: ofEachKind(({ french }) => french.name),
  languageName: "Français",
  skip: "Aller au contenu",
  product: "API et webhooks",
  sections: "Rubriques",
  subscriptions: "Abonnements",
  usage: "Utilisation",
  docs: "Documentation",
  timeZone: (zone) =>
    `Les heures sont celles du fuseau horaire ${zone} ; les jours des graphiques sont en UTC.`,
  sessionUntil: (time) => `Cette session prend fin le ${time}`,
  loading: "Chargement…",
  never: "Jamais",
  none: "Aucune",
  orMore: (n) => `${n} ou plus`,
  at: (day, time) => `${day} à ${time}`,
  retry: "Réessayer",
  stop: "Arrêter",
  goOn: "Continuer",
  newer: "Plus récentes",
  older: "Plus anciennes",
  cancel: "Annuler",
  close: "Fermer",
  copy: "Copier",
  copied: "Copié",
  copyFailed: "Sélectionnez le texte et copiez-le",
  asTable: "Afficher sous forme de tableau",
  milliseconds: (n) => `${new Intl.NumberFormat("fr").format(n)} ms`,

  session: {
    missing: {
      title: "Ouvrez le portail à l’aide de son lien",
      text: "Cette page s’ouvre avec un lien personnel. Demandez-en un dans les paramètres de votre produit.",
    },
    outdated: {
      title: "Ce lien a expiré",
      text: "Un lien vers le portail doit être ouvert dans les deux minutes. Demandez un nouveau lien dans les paramètres de votre produit.",
    },
    ended: {
      title: "Votre session est terminée",
      text: "Le portail reste ouvert pendant une durée limitée. Demandez un nouveau lien dans les paramètres de votre produit.",
    },
    withdrawn: {
      title: "Cet espace de travail n’a pas accès au service",
      text: "L’accès à l’API et à ses webhooks a été retiré à cet espace de travail. Adressez-vous à la personne qui gère votre abonnement au produit, puis réessayez.",
    },
  },

  arrival: {
    title: (name) => `Ouvrir ${name} ?`,
    text: (name, current) =>
      `Le lien que vous avez suivi ouvre ${name}. Cet onglet affiche ${current}.`,
    accept: (name) => `Ouvrir ${name}`,
    stay: (current) => `Rester dans ${current}`,
    expired: {
      title: "Le lien a expiré",
      text: "Un lien vers le portail doit être ouvert dans les deux minutes. Demandez un nouveau lien dans les paramètres de votre produit.",
    },
    withdrawn: {
      title: "L’espace de travail du lien n’a pas accès au service",
      text: "L’accès à l’API et à ses webhooks a été retiré à cet espace de travail.",
    },
    still: (current) => `Cet onglet affiche toujours ${current}.`,
  },

  faults: {
    offline: "Le serveur est injoignable. Vérifiez votre connexion.",
    rateLimited: (seconds) =>
      `Trop de requêtes. Nouvel essai automatique dans ${count(seconds, "seconde", "secondes")}.`,
    waitBefore: (seconds) =>
      `Trop de requêtes. Réessayez dans ${count(seconds, "seconde", "secondes")}.`,
    stale: "Les données affichées ne sont peut-être plus à jour.",
    reference: (id) => `Référence : ${id}`,
    notFound: "Page introuvable",
    notFoundText: "L’élément a été supprimé, ou l’adresse est erronée.",
    toSubscriptions: "Voir les abonnements",
  },

  untried: "En attente d’un premier événement",
  retrying: "Sera retentée",
  states: {
    healthy: "Opérationnel",
    backlog: "En rattrapage",
    slow: "Lent",
    rejecting: "Refus partiels",
    failing: "En échec",
    disabled: "Désactivé",
  },
  deliveryStates: {
    pending: "En attente",
    delivered: "Réussie",
    exhausted: "Échouée",
    cancelled: "Annulée",
    test: "Test",
  },
  chartOutcomes: {
    delivered: "Livrées",
    failed: "En échec, à retenter",
    exhausted: "Échouées définitivement",
  },
  explain: (attempt) => explainFailure(attempt, "fr"),
  outcomes: {
    answered: (status) => `Réponse ${status}`,
    timed_out: "Délai de réponse dépassé",
    unreachable: "Injoignable",
    refused: "Rien n’a été envoyé : adresse refusée",
    unreadable: "Rien n’a été envoyé : les données du lead sont endommagées",
  },

  list: {
    lead: "Les événements de cet espace de travail sont envoyés à ces serveurs dès qu’ils se produisent.",
    full: (max) =>
      `Cet espace de travail a atteint le maximum de ${max} abonnements. Supprimez-en un pour en ajouter un autre.`,
    emptyTitle: "Aucun abonnement pour l’instant",
    emptyText:
      "Indiquez l’URL de votre serveur : chaque nouveau lead, chaque exécution et chaque changement d’état d’une automatisation lui sera envoyé, signé, en quelques secondes.",
    pending: (n) => `En attente : ${n}`,
    lastAttempt: "Dernière tentative :",
    failingSince: (time) => `En échec depuis le ${time}`,
    disabledAt: (time) => `Désactivé le ${time}`,
  },

  subscription: {
    id: "Identifiant",
    created: "Créé le",
    createdBy: "Créé avec",
    portal: "Le portail",
    events: "Événements",
    pending: "En attente",
    nextAttempt: "Prochaine tentative",
    lastAttempt: "Dernière tentative",
    asap: "Dès que possible",
    failing: (failures, since) =>
      `${count(failures, "échec consécutif", "échecs consécutifs")} depuis le ${since}. Les livraisons sont retentées à intervalles croissants ; après ${DISABLE_AFTER_MS / HOUR_MS} heures sans succès, l’abonnement est désactivé.`,
    slow: `Votre serveur tarde à répondre : les livraisons sont envoyées une par une, et toute réponse au-delà de ${POST_TIMEOUT_MS / 1000} secondes compte comme un échec. Il devrait d’abord répondre, puis traiter les événements. Quelques réponses rapides suffisent à rétablir l’envoi normal.`,
    rejecting: (kind, since) =>
      `Votre serveur n’accepte plus les événements « ${kind} » depuis le ${since}, alors qu’il en accepte d’autres.`,
    backlog:
      "Des livraisons sont en attente ; elles sont envoyées au rythme que votre serveur peut suivre.",
    headers: "En-têtes personnalisés",
    disabled: (time) =>
      `Désactivé le ${time}. Rien n’est envoyé tant que vous ne le réactivez pas.`,
    disabledFailing: (time) =>
      `Désactivé le ${time}, après des échecs prolongés. Rien n’est envoyé tant que vous ne le réactivez pas.`,
    byDay: "Tentatives de livraison par jour",
    day: "Jour",
  },

  deliveries: {
    title: "Livraisons",
    state: "État",
    kind: "Événement",
    status: "Dernière réponse",
    noAnswer: "Sans réponse",
    since: "Du",
    until: "Au",
    find: "Rechercher",
    findHint: "evt_… ou lea_…",
    all: "Tous",
    allStatuses: "Toutes",
    recorded: "Enregistré le",
    attempts: "Tentatives",
    lastAnswer: "Dernière réponse",
    next: "prochaine tentative",
    pages: "Pages des livraisons",
    empty: "Aucune livraison pour l’instant",
    emptyText:
      "Le prochain événement de cet espace de travail apparaîtra ici. Envoyez un événement de test pour vérifier votre serveur dès maintenant.",
    noneAtAll: "Aucune livraison ne correspond à ces filtres",
    noneOlder: "Aucune livraison plus ancienne ne correspond à ces filtres",
    noneSoFar: "Aucun résultat pour l’instant",
    lookOn: "Chercher parmi les plus anciennes",
    untilFirst: "La date « Au » doit être postérieure à la date « Du ».",
    looking: "Recherche parmi les livraisons plus anciennes.",
    lookedBackTo: (time) => `Livraisons parcourues jusqu’au ${time}.`,
    findFault: "Saisissez l’identifiant d’un événement (evt_…) ou d’un lead (lea_…).",
    showAll: "Afficher toutes les livraisons",
    sendAgain: "Renvoyer",
    sendAgainOf: (kind, time) => `Renvoyer : ${kind}, ${time}`,
    sendNow: "Envoyer maintenant",
    sendNowOf: (kind, time) => `Envoyer maintenant : ${kind}, ${time}`,
  },

  delivery: {
    back: "Toutes les livraisons",
    id: "Événement",
    url: "URL actuelle",
    recorded: "Enregistré le",
    settled: "Terminée le",
    noAttempt: "Aucune tentative.",
    body: "Contenu",
    pretty: "Mis en forme",
    exact: "Exact",
    exactHint: "Ce sont les octets sur lesquels porte la signature.",
    kept: (days) => `Les événements sont conservés pendant ${count(days, "jour", "jours")}.`,
  },

  exchange: {
    request: "En-têtes envoyés",
    curl: "Copier la commande curl",
    curlHint:
      "La commande utilise l’URL actuelle et la signature de cette tentative, qu’un serveur refuse au bout de cinq minutes. Vos en-têtes personnalisés n’y figurent pas.",
    retryAfter: `Avec un statut 429 ou 503, l’en-tête Retry-After allonge l’attente, jusqu’à ${RETRY_AFTER_MAX_MULTIPLE} fois sa durée initiale.`,
    response: "Réponse de votre serveur :",
    cut: "Début de la réponse de votre serveur :",
    empty: "La réponse n’avait pas de corps.",
    location: "Redirige vers",
  },

  follow: {
    button: "Utiliser cette URL…",
    title: "Utiliser désormais cette URL ?",
    text: "Tous les événements de l’abonnement y seront envoyés, y compris ceux en attente :",
    hint: "Est-ce bien votre récepteur ? Une redirection mène souvent à une page de connexion.",
    submit: "Utiliser cette URL",
    result: "L’abonnement utilise désormais cette URL, y compris pour les livraisons en attente.",
  },

  sendAgain: {
    one: "L’envoi aura lieu dans la minute.",
    none: "La livraison est déjà en cours.",
    faults: {
      webhookId: "Rien n’est envoyé tant que l’abonnement est désactivé.",
      eventIds: "Envoi impossible : l’abonnement n’inclut pas ce type d’événement.",
    },
    button: "Renvoyer les échecs…",
    title: "Renvoyer les livraisons échouées",
    text: "Elles conservent leur identifiant et leur contenu, et sont envoyées de la plus ancienne à la plus récente, dix par seconde.",
    which: "Livraisons à renvoyer",
    exhausted: "Échouées : toutes les tentatives sont épuisées",
    cancelled: "Annulées : l’abonnement a été désactivé avant l’envoi",
    missed: "Manquées : enregistrées pendant que l’abonnement était désactivé",
    retrying: "À retenter : en attente après une tentative échouée",
    scheduled: (n, time) => `À envoyer : ${n}. Événements parcourus jusqu’au ${time}.`,
    submit: "Renvoyer",
    result: (n) =>
      n === 0
        ? "Il n’y a rien à renvoyer."
        : n === 1
          ? "1 livraison sera renvoyée."
          : `${count(n, "", "livraisons")} seront renvoyées.`,
  },

  since: {
    label: "Depuis",
    first: (time) => `Le premier non livré (${time})`,
    hour: "Une heure",
    day: "24 heures",
    week: "7 jours",
    other: "Un autre moment…",
    time: "Date et heure",
    hint: `${REDELIVERY_MAX_AGE_MS / DAY_MS} jours au maximum.`,
    required: `Choisissez un moment au cours des ${REDELIVERY_MAX_AGE_MS / DAY_MS} derniers jours.`,
  },

  test: {
    button: "Événement de test…",
    title: "Envoyer un événement de test",
    text: "Un exemple est envoyé maintenant, une seule fois, signé comme les autres, avec l’en-tête X-Service-Test: true. Vous retrouverez l’envoi et sa réponse parmi les livraisons.",
    submit: "Envoyer",
    again: "En envoyer un autre",
    details: "Voir l’envoi et la réponse",
    once: "Un événement de test est envoyé une seule fois, quelle que soit la réponse, et n’est pas compté.",
    sending: "En attente de la réponse du serveur…",
    accepted: "Votre serveur l’a accepté.",
  },

  catalogue: {
    title: "Événements",
    lead: "Ce qu’un abonnement peut recevoir. Chaque événement est envoyé en JSON, signé.",
    docs: "Comment les recevoir et les vérifier",
    when: ofEachKind(({ french }) => french.when),
    example: "Exemple",
  },

  edit: {
    button: "Modifier…",
    title: "Modifier l’abonnement",
    description: "Description",
    descriptionHint: "Visible uniquement ici.",
    text: "Les livraisons en attente seront envoyées à la nouvelle URL. Un changement d’événements ne s’applique qu’aux événements à venir.",
    submit: "Enregistrer",
    result: "Les modifications ont été enregistrées.",
  },

  headers: {
    button: "En-têtes…",
    title: "En-têtes personnalisés",
    text: "Ils accompagnent chaque envoi : par exemple, un jeton destiné à une passerelle. Ils remplacent les en-têtes actuels, et leurs valeurs ne seront plus affichées.",
    label: "En-têtes",
    hint: (max) =>
      `Un par ligne, par exemple « Authorization: Bearer jeton » ; ${max} au maximum. Laissez vide pour n’en envoyer aucun.`,
    refused:
      "Non enregistré : chaque ligne se compose d’un nom, de deux-points et d’une valeur en caractères ASCII visibles, et chaque nom est unique. Des noms comme Host, Content-Type, User-Agent ou Webhook-Id sont définis par le service.",
    submit: "Enregistrer",
    result: "Les en-têtes ont été enregistrés.",
  },

  disable: {
    button: "Désactiver…",
    title: "Désactiver cet abonnement ?",
    text: "Rien ne sera envoyé tant que vous ne le réactiverez pas. Les événements survenus entre-temps sont conservés et pourront être envoyés à ce moment-là.",
    submit: "Désactiver",
    result: "L’abonnement est désactivé.",
  },

  enable: {
    button: "Réactiver…",
    title: "Réactiver l’abonnement",
    text: "Les livraisons reprennent dès le prochain événement.",
    missed: "Envoyer aussi ce qui a été manqué",
    submit: "Réactiver",
    result: (n) =>
      n === 0
        ? "L’abonnement est réactivé."
        : n === 1
          ? "L’abonnement est réactivé ; 1 événement manqué sera envoyé."
          : `L’abonnement est réactivé ; ${count(n, "", "événements manqués")} seront envoyés.`,
  },

  secret: {
    button: "Nouveau secret…",
    title: "Créer un nouveau secret",
    text: "Les livraisons sont immédiatement signées avec le nouveau secret. Le secret actuel peut rester valable pendant un certain temps, afin que vous puissiez mettre votre serveur à jour sans perdre d’événement.",
    overlap: "Durée de validité du secret actuel",
    overlaps: {
      now: "Aucune",
      hour: "1 heure",
      day: "24 heures",
      week: "7 jours",
    },
    submit: "Créer un nouveau secret",
    label: "Secret de signature",
    once: "Copiez ce secret maintenant : il ne sera plus affiché. Votre serveur en a besoin pour vérifier la signature de chaque livraison.",
    howTo: "Comment vérifier les signatures",
    tooMany:
      "Trop d’anciens secrets sont encore valables. Choisissez « Aucune », ou attendez que l’un d’eux ait expiré.",
    ended: "L’ancien secret n’est plus utilisé.",
    stored: "Je l’ai enregistré",
    leave: "Le secret ne sera plus affiché. L’avez-vous enregistré ?",
  },

  endOverlap: {
    until: (time) =>
      `Les livraisons sont aussi signées avec un secret précédent, jusqu’au ${time}.`,
    button: "Cesser dès maintenant…",
    title: "Signer avec le seul secret actuel ?",
    text: "Un serveur qui n’a encore qu’un secret précédent refusera toutes les livraisons. Cette action est définitive.",
    submit: "Cesser dès maintenant",
    result: "Seul le secret actuel est désormais utilisé.",
  },

  remove: {
    button: "Supprimer…",
    title: "Supprimer cet abonnement ?",
    text: (url) =>
      `Cet abonnement n’enverra plus rien à ${url}. L’historique de ses livraisons sera lui aussi supprimé. Cette action est irréversible.`,
    pending: (n) => `Livraisons en attente qui seront annulées : ${n}.`,
    submit: "Supprimer",
    result: "L’abonnement est supprimé.",
  },

  subscribe: {
    title: "Ajouter un abonnement",
    lead: `Chaque événement est envoyé à votre URL en JSON, signé. Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de ${POST_TIMEOUT_MS / 1000} secondes.`,
    url: "URL de votre serveur",
    urlHint: "Elle doit être accessible depuis Internet et commencer par https://.",
    urlHintLocal:
      "Sur ce service local, http://, les adresses privées et les hôtes inconnus sont acceptés. Un service déployé les refuse.",
    events: "Événements à recevoir",
    eventsRequired: "Choisissez au moins un événement.",
    urlRequired: "Saisissez l’URL de votre serveur.",
    submit: "S’abonner",
    doneTitle: "Abonnement créé",
    open: "Je l’ai enregistré : ouvrir l’abonnement",
  },

  usagePage: {
    unnamed: "Clé",
    lead: "Les requêtes de chaque clé d’API au cours des dernières 24 heures, comparées à son quota.",
    empty: "Aucune clé d’API pour l’instant",
    emptyText:
      "Créez une clé dans les paramètres de votre produit ; ses requêtes seront comptées ici.",
    created: "Créée le",
    lastUsed: "Dernière utilisation",
    thisHour: "Il y a moins d’une heure",
    quota: "Quota",
    quotaValue: (requests, seconds) =>
      seconds === 60
        ? `${count(requests, "requête", "requêtes")} par minute`
        : `${count(requests, "requête", "requêtes")} par tranche de ${count(seconds, "seconde", "secondes")}`,
    peak: (seconds) =>
      seconds === 60 ? "Minute la plus chargée" : `${seconds} secondes les plus chargées`,
    peakValue: (requests, share) =>
      `${count(requests, "requête", "requêtes")}, soit ${share} du quota`,
    revoked: (time) => `Révoquée le ${time}`,
    expires: (time) => `Expire le ${time}`,
    expired: (time) => `Expirée le ${time}`,
    active: "Active",
    unused: "Aucune requête au cours des dernières 24 heures.",
    requests: "Traitées",
    refused: "Refusées (429)",
    hour: "Heure",
    byHour: "Requêtes par heure",
    pages: "Pages des clés",
  },
};

import { REASONS } from "../../../src/contract/errors.ts";
import { mapEventTypes } from "../../../src/contract/event-types.ts";
import {
  KEY_CHANGES_PER_DAY,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  POST_TIMEOUT_MS,
  REDELIVERY_MAX_AGE_MS,
  RESPONSES_PER_DAY,
  RETRY_AFTER_MAX_SECONDS,
} from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { explainFailure } from "../../../src/history/failures.ts";
import { counter } from "./count.ts";
import type { Texts } from "./en.ts";

const count = counter("fr");
const { format: number } = new Intl.NumberFormat("fr");

/** Every text of the portal in French. */
export const fr: Texts = {
  errors: {
    invalid_request: "La requête n’est pas valide.",
    invalid_api_key: "La session n’est plus valide.",
    workspace_access_denied: "L’espace de travail n’a pas accès à ce service.",
    webhook_not_found: "Ce webhook n’existe pas dans l’espace de travail.",
    route_not_found: "Cette fonctionnalité n’est pas disponible.",
    rate_limited: "Trop de requêtes.",
    internal_error: "Une erreur est survenue de notre côté. Réessayez dans un instant.",
  },
  reasons: {
    ...REASONS,
    changed_meanwhile:
      "Quelqu’un d’autre a modifié cela entre-temps. Rien n’a été enregistré : fermez cette fenêtre pour voir la modification.",
    read_only_session: "Cette session est en lecture seule.",
  },
  types: mapEventTypes(({ french }) => french.name),
  languageName: "Français",
  skip: "Aller au contenu",
  product: "API et webhooks",
  sections: "Rubriques",
  webhooks: "Webhooks",
  usage: "Clés d’API",
  docs: "Docs (en anglais)",
  backToApp: "Retour à l’application",
  theme: "Thème",
  themes: { auto: "Auto", light: "Clair", dark: "Sombre" },
  language: "Langue",
  readOnly: "Cette session est en lecture seule : vous pouvez tout consulter, mais rien modifier.",
  timeZone: (zone) => `Heures et filtres exprimés dans le fuseau ${zone}.`,
  sessionUntil: (time) => `Session ouverte jusqu’au ${time}`,
  loading: "Chargement…",
  never: "Jamais",
  none: "Aucune",
  noDescription: "Aucune",
  at: (day, time) => `${day} à ${time}`,
  when: {
    today: (time) => `à ${time}`,
    day: (day, time) => `le ${day} à ${time}`,
  },
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
  milliseconds: (n) => `${number(n)} ms`,

  session: {
    ending: (time) =>
      `Cette session se termine à ${time}. Pour continuer, ouvrez le portail dans un autre onglet, depuis l’application.`,
    kept: "Ce que vous aviez saisi est conservé dans cet onglet pendant 15\u00a0minutes et sera de nouveau affiché.",
    missing: {
      title: "Ouvrez le portail depuis l’application",
      text: "Cette page s’ouvre à partir d’un lien temporaire. Obtenez-en un dans les paramètres de votre application.",
    },
    outdated: {
      title: "Ce lien a expiré",
      text: "Les liens vers le portail ne sont valables que deux minutes. Obtenez un nouveau lien dans les paramètres de votre application.",
    },
    ended: {
      title: "Votre session est terminée",
      text: "Le portail reste ouvert pendant une durée limitée. Ouvrez-le à nouveau depuis les paramètres de votre application.",
    },
    withdrawn: {
      title: "Cet espace de travail n’a pas accès au service",
      text: "L’accès à l’API et à ses webhooks a été retiré à cet espace de travail. Adressez-vous à la personne qui gère votre offre, puis réessayez.",
    },
    toApp: "Aller à l’application",
  },

  discard: {
    title: "Abandonner votre saisie ?",
    keep: "La conserver",
    submit: "L’abandonner",
  },

  arrival: {
    title: (name) => `Ouvrir ${name} ?`,
    text: (name, current) => `Ce lien mène à ${name}, alors que cet onglet affiche ${current}.`,
    accept: (name) => `Ouvrir ${name}`,
    stay: (current) => `Rester dans ${current}`,
    expired: {
      title: "Le lien a expiré",
      text: "Les liens vers le portail ne sont valables que deux minutes. Obtenez un nouveau lien dans les paramètres de votre application.",
    },
    withdrawn: {
      title: "L’espace de travail visé par ce lien n’a plus accès au service",
      text: "L’accès à l’API et à ses webhooks a été retiré à cet espace de travail.",
    },
    still: (current) => `Cet onglet affiche toujours ${current}.`,
  },

  faults: {
    offline: "Le serveur est injoignable. Vérifiez votre connexion.",
    rateLimited: (seconds) =>
      `Trop de requêtes. Nouvel essai automatique dans ${count(seconds, "seconde", "secondes")}.`,
    waitBefore: (seconds) =>
      seconds < 120
        ? `Trop de requêtes. Réessayez dans ${count(seconds, "seconde", "secondes")}.`
        : `La limite de cette heure est atteinte. Réessayez dans ${count(Math.ceil(seconds / 60), "minute", "minutes")}.`,
    stale: "Les données affichées ne sont peut-être plus à jour.",
    reference: (id) => `Référence : ${id}`,
    notFound: "Page introuvable",
    notFoundText: "L’élément a été supprimé, ou l’adresse est erronée.",
    notHere: (workspace) => `Ce webhook ne se trouve pas dans ${workspace}`,
    notHereText: (workspace) =>
      `Il appartient à un autre espace de travail, ou il a été supprimé. Cet onglet affiche ${workspace} : pour un autre espace de travail, ouvrez son portail depuis l’application, puis suivez de nouveau le lien.`,
    toWebhooks: "Voir tous les webhooks",
    toHistory: "Voir ce qui a été supprimé",
  },

  untried: "En attente d’un premier événement",
  states: {
    healthy: "Opérationnel",
    backlog: "En rattrapage",
    slow: "Lent",
    rejecting: "Refus partiels",
    failing: "En échec",
    disabled: "Désactivé",
  },
  disabledByFailures: "Désactivé après des échecs",
  deliveryStates: {
    pending: "Nouvelle",
    retrying: "En échec, nouvel essai prévu",
    delivered: "Livrée",
    exhausted: "Échec définitif",
    cancelled: "Annulée",
    test: "Test",
  },
  chartOutcomes: {
    delivered: "Réussies",
    failed: "En échec, nouvel essai prévu",
    exhausted: "Échecs définitifs",
  },
  explain: (attempt) => explainFailure(attempt, "fr"),
  outcomes: {
    answered: (status) => `Réponse ${status}`,
    timed_out: "Délai de réponse dépassé",
    unreachable: "Injoignable",
    refused: "Rien n’a été envoyé : URL bloquée",
    unreadable: "Rien n’a été envoyé : les données du lead sont endommagées",
    overflow: "Échec définitif : trop de livraisons attendaient",
  },

  home: {
    well: (active, all) => {
      if (active === 0)
        return all === 1 ? "Votre webhook est désactivé" : "Tous les webhooks sont désactivés";
      if (all === 1) return "Votre webhook fonctionne";
      if (active === all && all === 2) return "Les deux webhooks fonctionnent";
      if (active === all) return `Les ${all} webhooks fonctionnent`;
      return `${active} webhook${active === 1 ? "" : "s"} sur ${all} fonctionne${active === 1 ? "" : "nt"}, les autres sont désactivés`;
    },
    failing: (failing, all) =>
      all === 1
        ? "Votre webhook est en échec"
        : `${failing} webhook${failing === 1 ? "" : "s"} sur ${all} en échec`,
    troubled: (troubled, all) =>
      all === 1
        ? "Votre webhook demande votre attention"
        : `${troubled} webhook${troubled === 1 ? "" : "s"} sur ${all} à vérifier`,
    full: (max) =>
      `Cet espace de travail a atteint le maximum de ${max} webhooks. Supprimez-en un pour en ajouter un autre.`,
    emptyTitle: "Aucun webhook pour l’instant",
    emptyText:
      "Indiquez l’URL de votre serveur : chaque nouveau lead, chaque exécution et chaque changement d’état d’une automatisation lui sera envoyé en quelques secondes, avec une signature.",
    webhook: "Webhook",
    health: "État",
    success: "7 jours",
    lastFailure: "Dernier échec",
    failingSince: (time) => `En échec depuis le ${time}`,
  },

  failures: {
    title: "Échecs",
    lead: "Les livraisons de tous les webhooks qui sont en échec avec un nouvel essai prévu, ou en échec définitif.",
    empty: "Aucun échec",
    emptyText: "Aucune livraison n’est en échec.",
    pages: "Pages des échecs",
    count: (n, hasMore) => (hasMore ? `${number(n)}+` : number(n)),
    retrying: (n) => `${n} en échec, nouvel essai prévu`,
    exhausted: (n, count) => (count > 1 ? `${n} échecs définitifs` : `${n} échec définitif`),
    webhooks: (n) => count(n, "webhook", "webhooks"),
  },

  tabs: {
    label: "Rubriques du webhook",
    overview: "Aperçu",
    deliveries: "Livraisons",
    settings: "Paramètres",
    history: "Historique",
    waiting: (n) => `${n} en attente`,
  },

  trouble: {
    said: (outcome, time) => `${outcome}, le ${time}. Votre serveur a répondu :`,
    nothingSaid: (outcome, time) => `${outcome}, le ${time}.`,
    notStored: "Le texte de la réponse n’a pas été enregistré.",
    headers: "Modifier les en-têtes…",
    url: "Modifier l’URL…",
  },

  webhook: {
    id: "Identifiant",
    created: "Créé le",
    createdBy: "Créé via",
    portal: "Le portail",
    events: "Types d’événements",
    waiting: "En attente",
    noneWaiting: "Aucune livraison",
    counts: (waiting, retrying) =>
      retrying === 0 ? waiting : `${waiting}, dont ${number(retrying)} en échec`,
    deliveriesWait: (waiting, n) =>
      `${waiting}\u00a0${n === 1 ? "livraison est" : "livraisons sont"} en attente.`,
    nextAttempt: "Prochaine tentative",
    lastAttempt: "Dernière tentative",
    asap: "Dès que possible",
    failing: (failures, since) =>
      `En échec depuis le ${since} : ${count(failures, "tentative infructueuse", "tentatives infructueuses de suite")}`,
    next: (time) =>
      time === null
        ? "La prochaine tentative va commencer."
        : `La prochaine tentative aura lieu ${time}.`,
    overflow: (time) =>
      `Plus de ${count(PENDING_MAX, "livraison", "livraisons")} attendent depuis le ${time} : les plus anciennes sont en échec définitif. Vous pourrez les renvoyer.`,
    responseLimit: `Les réponses à ${number(RESPONSES_PER_DAY)} échecs d’aujourd’hui (UTC) sont enregistrées. Les suivantes ne le sont pas : consultez les journaux de votre serveur.`,
    retried:
      "De nouvelles tentatives ont lieu à intervalles croissants : une fois le problème corrigé, les livraisons en attente repartiront automatiquement.",
    outlook: (time) =>
      time === null
        ? "Si les échecs se poursuivent, le webhook sera désactivé."
        : `Sans succès, le webhook sera désactivé, au plus tôt le ${time}.`,
    slow: `Votre serveur tarde à répondre : moins de livraisons sont envoyées à la fois. Toute réponse au-delà de ${POST_TIMEOUT_MS / 1000} secondes compte comme un échec. Répondez d’abord, puis traitez les événements. Quelques réponses rapides suffisent à rétablir l’envoi normal.`,
    rejecting: (type, since) =>
      `Votre serveur n’accepte plus les événements « ${type} » depuis le ${since}, alors qu’il en accepte d’autres.`,
    rejectingOutlook:
      "Les autres événements continuent d’être livrés, et le webhook reste actif. Les livraisons refusées sont retentées à intervalles croissants. Si vous ne voulez plus recevoir un type d’événement, retirez-le du webhook.",
    backlog:
      "Des livraisons sont en attente ; elles sont envoyées au rythme que votre serveur peut suivre.",
    disabled: (time) =>
      `Désactivé le ${time}. Rien n’est envoyé tant que vous ne le réactivez pas.`,
    disabledFailing: (time) =>
      `Désactivé le ${time}, après une longue série d’échecs. Rien n’est envoyé tant que vous ne le réactivez pas.`,
    undelivered:
      "Les événements non livrés sont conservés et pourront être envoyés lors de la réactivation.",
    byDay: "Tentatives par jour (UTC)",
    median: "Temps de réponse médian",
    p95: "95e centile",
    responseTime: (day) => `Temps de réponse du ${day}`,
    responseTimes: (median, p95) => `Médiane de ${median}, 95 % en moins de ${p95}`,
    success: "Tentatives réussies en 7 jours",
    noAttempts: "Aucune tentative",
    day: "Jour",
    newest: "Dernières livraisons",
    failed: "Livraisons en échec",
    allFailed: "Afficher tous les échecs",
    noneFailed: "Aucune livraison en échec",
    noneFailedText: "Celles qui ont échoué attendent d’être renvoyées.",
    seeChanges: "Voir qui l’a désactivé",
  },

  settings: {
    endpoint: "Destination",
    endpointText: "Où les événements sont envoyés, et lesquels.",
    secretText:
      "Votre serveur s’en sert pour vérifier la signature de chaque livraison. Il n’a été affiché qu’une fois.",
    show: "Afficher l’URL complète",
    hide: "Masquer",
    switch: "Activer ou désactiver",
    remove: "Suppression",
    removeText: "Met fin au webhook et supprime son historique. Cette action est irréversible.",
  },

  deliveries: {
    state: "État",
    event: "Événement",
    type: "Type d’événement",
    status: "Dernière réponse",
    noAnswer: "Sans réponse",
    when: "Période",
    anyTime: "Toutes",
    today: "Aujourd’hui",
    yesterday: "Hier",
    week: "7 derniers jours",
    custom: "Du … au …",
    since: "Du",
    until: "Au",
    find: "Rechercher",
    findHint: "Nom, e-mail, téléphone ou id",
    waiting: "En attente : nouvelles ou en échec",
    filter: (n) => (n === 0 ? "Filtrer" : `Filtrer (${n})`),
    all: "Tous",
    allStatuses: "Toutes",
    recorded: "Enregistré le",
    attempts: "Tentatives",
    lastAnswer: "Dernière réponse",
    next: (time) => `Prochain essai ${time}`,
    soonBecause: (cause) => `Prochain essai sous peu : ${cause}`,
    nextBecause: (time, cause) => `Prochain essai ${time} : ${cause}`,
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
    noLead: (text) =>
      `Aucun lead n’a « ${text} » dans son nom, son adresse e-mail ou son numéro de téléphone.`,
    showAll: "Afficher toutes les livraisons",
    sendAgain: "Renvoyer",
    sendAgainOf: (type, time) => `Renvoyer : ${type}, ${time}`,
    sendNow: "Envoyer maintenant",
    sendNowOf: (type, time) => `Envoyer maintenant : ${type}, ${time}`,
  },

  delivery: {
    title: "Livraison",
    back: "Toutes les livraisons",
    id: "Événement",
    recorded: "Enregistré le",
    settled: "Terminée le",
    noAttempt: "Aucune tentative pour l’instant.",
    pretty: "Mis en forme",
    exact: "Brut",
    exactHint: "La signature porte exactement sur ces octets.",
    kept: (days) => `Les événements sont conservés pendant ${count(days, "jour", "jours")}.`,
  },

  exchange: {
    request: "En-têtes envoyés",
    curl: "Copier la commande curl",
    curlHint:
      "La commande utilise l’URL actuelle et la signature de cette tentative ; passé cinq minutes, un serveur doit la refuser. Vos en-têtes personnalisés n’y figurent pas.",
    retryAfter: `Avec un statut 429 ou 503, l’en-tête Retry-After retarde notre prochaine requête, de ${RETRY_AFTER_MAX_SECONDS / 60}\u00a0minutes au plus.`,
    response: "Réponse de votre serveur :",
    cut: "Début de la réponse de votre serveur :",
    empty: "La réponse n’avait pas de corps.",
    notStored: `La réponse n’a pas été enregistrée : seules celles des ${number(RESPONSES_PER_DAY)} premiers échecs d’une journée le sont.`,
    location: "Redirige vers",
  },

  follow: {
    button: "Utiliser cette URL…",
    title: "Utiliser désormais cette URL ?",
    text: "Tous les événements du webhook y seront envoyés, y compris ceux en attente :",
    hint: "Est-ce bien votre serveur ? Une redirection mène souvent à une page de connexion.",
    submit: "Utiliser cette URL",
    result: "Le webhook utilise désormais cette URL, y compris pour les livraisons en attente.",
  },

  sendAgain: {
    queued: "En file d’attente…",
    ended: (outcome) => `Envoyée : ${outcome}`,
    faults: {
      webhookId: "Rien n’est envoyé tant que le webhook est désactivé.",
      eventIds: "Envoi impossible : le webhook n’inclut pas ce type d’événement.",
    },
    button: "Renvoyer une période…",
    title: "Renvoyer les événements d’une période",
    text: "Les événements conservent leur identifiant et leur contenu, et sont envoyés après les nouveaux.",
    stillFailing:
      "Les derniers envois ont échoué : vérifiez d’abord votre serveur avec un événement de test.",
    which: "Livraisons à renvoyer",
    exhausted: "Échecs définitifs : toutes les tentatives sont épuisées",
    cancelled: "Annulées : le webhook a été désactivé avant l’envoi",
    missed:
      "Événements manqués : survenus alors que le webhook était désactivé ou n’incluait pas leur type. Les événements dont aucun webhook n’incluait le type n’ont pas été conservés",
    retrying: "En échec : en attente d’un nouvel essai",
    delivered: "Livrées : déjà acceptées par votre serveur",
    submit: "Renvoyer",
    submitCount: (n) => `Renvoyer ${count(n, "livraison", "livraisons")}`,
    counting: "Décompte en cours…",
    period: (since, until) => (until === null ? `Depuis le ${since}` : `Du ${since} au ${until}`),
    shown: {
      button: "Renvoyer ces livraisons…",
      title: "Renvoyer les livraisons de cette liste",
      submit: "Renvoyer",
      submitCount: (n) => `Renvoyer ${count(n, "livraison", "livraisons")}`,
    },
    nothing: "Il n’y a rien à renvoyer.",
  },

  replays: {
    title: "Renvoi",
    begun: "Le renvoi a commencé.",
    missed: "Manqués",
    waiting: "À renvoyer",
    fact: (name, value) => `${name} : ${value}`,
    examining: (n) => `Recherche des livraisons, ${n} trouvées.`,
    sent: (n, all) => `${n} sur ${all} envoyées.`,
    running: (n, all) => `En cours : ${n} sur ${all} envoyées`,
    held: "Ce que votre serveur n’accepte pas pour le moment attend qu’il l’accepte.",
    left: (minutes) =>
      minutes <= 1
        ? "Moins d’une minute restante."
        : `Environ ${count(minutes, "minute", "minutes")}.`,
    delivered: (n) => `${count(n, "livrée", "livrées")}.`,
    failed: (n) => `${number(n)} en échec.`,
    notSent: (n) => `${count(n, "non envoyée", "non envoyées")}.`,
    endedAt: (time) => `Terminé le ${time}.`,
    results: {
      done: "Terminé.",
      stopped: "Arrêté.",
      interrupted: "Interrompu, car le webhook a été désactivé.",
    },
  },

  since: {
    label: "Depuis",
    first: (time) => `1er non livré (${time})`,
    hour: "Une heure",
    day: "24 heures",
    week: "7 jours",
    other: "Un autre moment…",
    time: "Date et heure",
    hint: `${REDELIVERY_MAX_AGE_MS / DAY_MS} jours au maximum, à l’heure de votre appareil.`,
    required: `Choisissez un moment au cours des ${REDELIVERY_MAX_AGE_MS / DAY_MS} derniers jours.`,
  },

  test: {
    button: "Tester…",
    title: "Envoyer un événement de test",
    text: "Un événement d’exemple est envoyé immédiatement, une seule fois, signé comme les autres, avec l’en-tête X-Service-Test: true. Vous retrouverez la requête et la réponse parmi les livraisons.",
    submit: "Envoyer",
    again: "En envoyer un autre",
    details: "Voir la requête et la réponse",
    once: "Un événement de test est envoyé une seule fois, quelle que soit la réponse, et n’entre pas dans les statistiques.",
    sending: "En attente de la réponse du serveur…",
    accepted: "Votre serveur l’a accepté.",
  },

  catalogue: {
    title: "Types d’événements",
    lead: "Les événements qu’un webhook peut recevoir. Chacun est envoyé en JSON, avec une signature.",
    docs: "Comment les recevoir et les vérifier (en anglais)",
    when: mapEventTypes(({ french }) => french.when),
    example: "Exemple",
    fieldsOf: (type) => `Champs de ${type}`,
    field: "Champ",
    about: "Signification (en anglais)",
  },

  edit: {
    button: "Modifier…",
    title: "Modifier le webhook",
    description: "Description",
    descriptionHint: "Visible uniquement ici.",
    text: "Les livraisons en attente seront envoyées à la nouvelle URL. Celles des types d’événements retirés seront annulées.",
    submit: "Enregistrer",
    result: "Les modifications ont été enregistrées.",
    unchanged: "Rien n’a été modifié.",
    headersStay:
      "Les en-têtes personnalisés ne suivent pas le webhook vers un autre hôte ou un autre port : ajoutez-les à nouveau.",
    headersDropped: (names) =>
      `Les modifications ont été enregistrées. Ces en-têtes ont été retirés, car l’hôte ou le port a changé : ${names}.`,
  },

  headers: {
    title: "En-têtes personnalisés",
    text: "Ces en-têtes sont joints à chaque requête, par exemple un jeton exigé par une passerelle. Leurs valeurs ne sont plus jamais affichées.",
    none: "Aucun",
    button: "Ajouter un en-tête…",
    addRow: "Ajouter un en-tête",
    replace: "Remplacer…",
    remove: "Retirer…",
    full: (max) => `Un webhook a ${max} en-têtes au maximum.`,
    add: { title: "Ajouter un en-tête", submit: "Ajouter" },
    change: { title: "Remplacer la valeur d’un en-tête", submit: "Remplacer" },
    drop: { title: "Retirer cet en-tête ?", submit: "Retirer" },
    dropText: (name) => `${name} ne sera plus joint aux requêtes. Les autres en-têtes restent.`,
    name: "Nom",
    value: "Valeur",
    hint: "Lettres sans accent, chiffres et ponctuation, par exemple « Bearer jeton ».",
    required: "Saisissez un nom et une valeur ; chaque nom ne peut figurer qu’une fois.",
    refused:
      "Non enregistré : le nom ou la valeur n’est pas valide. Les noms tels que Host, Content-Type, User-Agent ou Webhook-Id sont réservés.",
    result: "Les en-têtes ont été enregistrés.",
  },

  history: {
    title: "Historique",
    lead: `Ce qui a été modifié dans cet espace de travail, où et par qui : webhooks, clés d’API, accès et liens vers ce portail. Les entrées sont conservées un an. Pour les modifications de webhooks par une même clé d’API, les ${KEY_CHANGES_PER_DAY} premières de chaque jour sont listées. Pour celles de ce portail qui ne concernent ni une URL, ni un secret, ni un en-tête, au moins les ${number(PORTAL_CHANGES_KEPT)} plus récentes sont listées.`,
    empty: "Aucune modification",
    emptyText: "Rien n’a été modifié à la période de cette page.",
  },

  changes: {
    empty: "Aucune modification pour l’instant",
    emptyText: "Chaque modification de ce webhook figure ici, avec son auteur.",
    pages: "Pages des modifications",
    automatic: (time) => `Désactivé automatiquement le ${time}, après une longue série d’échecs.`,
    someone: "Auteur non précisé par l’application",
    via: { portal: "dans le portail", api: "par l’API", app: "dans l’application" },
    failed: "L’opération a échoué, ou son résultat est inconnu.",
    nothing: "rien",
    done: {
      createWebhook: "Ajout du webhook",
      deleteWebhook: "Suppression du webhook",
      updateWebhook: "Modification du webhook",
      disableWebhook: "Désactivation du webhook",
      enableWebhook: "Réactivation du webhook",
      rotateWebhookSecret: "Création d’un nouveau secret",
      endSecretOverlap: "Fin de validité des anciens secrets",
      sendTestEvent: "Envoi d’un événement de test",
      redeliver: "Renvoi de livraisons",
      stopReplay: "Arrêt d’un renvoi",
      createWorkspace: "Création de l’espace de travail",
      updateWorkspace: "Modification de l’espace de travail",
      setWorkspaceAccess: "Modification de l’accès de l’espace de travail",
      createApiKey: "Création d’une clé d’API",
      updateApiKey: "Modification d’une clé d’API",
      rollApiKey: "Remplacement d’une clé d’API",
      revokeApiKey: "Révocation d’une clé d’API",
      createPortalLink: "Création d’un lien vers le portail",
      openPortalSession: "Ouverture du portail",
      endPortalSessions: "Fermeture de toutes les sessions du portail",
      eraseLeads: "Effacement de leads",
      omitChanges: "Autres modifications de webhooks ce jour-là, non listées",
    },
    fields: {
      url: "URL",
      events: "Types d’événements",
      description: "Description",
      headers: "En-têtes personnalisés",
      disabledAt: "Désactivé",
      rotatedAt: "Nouveau secret",
    },
  },

  disable: {
    button: "Désactiver…",
    title: "Désactiver ce webhook ?",
    text: "Rien ne sera envoyé tant que vous ne le réactiverez pas. Les événements survenus entre-temps sont conservés et pourront être envoyés à ce moment-là.",
    offer:
      "La désactivation suspend toutes les livraisons, jusqu’à la réactivation. Les événements survenus entre-temps sont conservés et pourront être envoyés à ce moment-là.",
    submit: "Désactiver",
    result: "Le webhook est désactivé.",
  },

  enable: {
    button: "Réactiver…",
    title: "Réactiver le webhook",
    text: "Les livraisons reprennent dès le prochain événement.",
    missed: "Envoyer aussi les événements manqués",
    submit: "Réactiver",
    result: (n, hasMore) => {
      if (hasMore) return "Le webhook est réactivé ; les événements manqués seront envoyés.";
      if (n === 0) return "Le webhook est réactivé.";
      return n === 1
        ? "Le webhook est réactivé ; 1 événement manqué sera envoyé."
        : `Le webhook est réactivé ; ${count(n, "", "événements manqués")} seront envoyés.`;
    },
  },

  secret: {
    text: "Les livraisons seront immédiatement signées avec le nouveau secret. Le secret actuel peut rester valide pendant un certain temps, afin que vous puissiez mettre votre serveur à jour sans perdre d’événement.",
    overlap: "Conserver le secret actuel",
    overlaps: {
      now: "Non, le révoquer immédiatement",
      hour: "Pendant 1 heure",
      day: "Pendant 24 heures",
      week: "Pendant 7 jours",
    },
    submit: "Créer et copier un nouveau secret",
    label: "Secret de signature",
    once: "Enregistrez ce secret maintenant : il ne sera plus affiché. Votre serveur en a besoin pour vérifier la signature de chaque livraison.",
    howTo: "Comment vérifier les signatures (en anglais)",
    tooMany:
      "Trop d’anciens secrets sont encore valides. Choisissez « Non, le révoquer immédiatement », ou attendez que l’un d’eux ait expiré.",
    doneTitle: "Nouveau secret",
    late: (name) =>
      `Le secret de ${name} a été remplacé après que vous avez quitté le formulaire. Voici le nouveau.`,
    lost: "Le serveur n’a pas répondu. Il a peut-être créé un secret que personne n’a vu : créez-en un autre, qui sera alors valable.",
    ended: "L’ancien secret n’est plus utilisé.",
    copied: "Le nouveau secret est dans votre presse-papiers.",
    stored: "Je l’ai enregistré",
  },

  endOverlap: {
    until: (time) => `Les livraisons sont aussi signées avec un ancien secret, jusqu’au ${time}.`,
    button: "Ne plus utiliser les anciens secrets…",
    title: "Signer uniquement avec le secret actuel ?",
    text: "Un serveur qui n’a encore qu’un ancien secret refusera toutes les livraisons. Cette action est irréversible.",
    submit: "Ne plus utiliser les anciens secrets",
    result: "Seul le secret actuel est désormais utilisé.",
  },

  remove: {
    button: "Supprimer…",
    title: "Supprimer ce webhook ?",
    text: (name) =>
      `${name} n’enverra plus rien. L’historique de ses livraisons sera lui aussi supprimé. Cette action est irréversible.`,
    pending: (n) => `Livraisons en attente qui seront annulées : ${n}.`,
    submit: "Supprimer",
    result: "Le webhook est supprimé.",
  },

  subscribe: {
    title: "Ajouter un webhook",
    lead: `Chaque événement est envoyé à votre URL en JSON, avec une signature. Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de ${POST_TIMEOUT_MS / 1000} secondes.`,
    url: "URL de votre serveur",
    urlHint: "Elle doit être accessible depuis Internet et commencer par https://.",
    ipAddress: "Rien ne peut être livré à une adresse IP : utilisez un nom d’hôte.",
    urlHintLocal:
      "En local, http://, les adresses privées et les hôtes inconnus sont acceptés. En production, ils sont refusés.",
    events: "Types d’événements à recevoir",
    eventsRequired: "Choisissez au moins un type d’événement.",
    urlRequired: "Saisissez l’URL de votre serveur.",
    submit: "Ajouter le webhook",
    doneTitle: "Webhook ajouté",
    late: "Il a été ajouté après que vous avez quitté le formulaire. Si vous n’en voulez pas, supprimez-le depuis sa page, qui va s’ouvrir.",
  },

  usagePage: {
    unnamed: "Clé sans nom",
    lead: "Les requêtes de chaque clé d’API au cours des dernières 24 heures, comparées à sa limite.",
    empty: "Aucune clé d’API pour l’instant",
    emptyText:
      "Créez une clé dans les paramètres de votre application ; ses requêtes seront comptées ici.",
    created: "Créée le",
    lastUsed: "Dernière utilisation",
    thisHour: "Il y a moins d’une heure",
    quota: "Limite",
    quotaValue: (requests, seconds) =>
      seconds === 60
        ? `${count(requests, "requête", "requêtes")} par minute`
        : `${count(requests, "requête", "requêtes")} par tranche de ${count(seconds, "seconde", "secondes")}`,
    peak: (seconds) =>
      seconds === 60
        ? "Minute la plus chargée"
        : `Tranche de ${count(seconds, "seconde", "secondes")} la plus chargée`,
    peakValue: (requests, share) =>
      `${count(requests, "requête", "requêtes")}, soit ${share} de la limite`,
    revoked: (time) => `Révoquée le ${time}`,
    expires: (time) => `Expire le ${time}`,
    expired: (time) => `Expirée le ${time}`,
    active: "Active",
    unused: "Aucune requête au cours des dernières 24 heures.",
    requests: "Traitées",
    refused: "Limitées (429)",
    hour: "Heure",
    byHour: "Requêtes par heure",
    pages: "Pages des clés",
  },
};

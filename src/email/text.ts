import type { WebhookEvent } from "../contract/enumerations.ts";
import { EVENT_TYPES, type EventTypeTexts } from "../contract/event-types.ts";
import { DISABLE_AFTER_MS, POST_TIMEOUT_MS } from "../contract/limits.ts";
import type { EmailKind, Language } from "../db/schema.ts";
import { explainFailure } from "../history/failures.ts";
import type { Missed, Notification } from "./notification.ts";

type Branding = Pick<Env, "PORTAL" | "PORTAL_ORIGIN" | "PORTAL_NAME">;

/** After a rollback, a webhook may list an event type that this code does not know. */
const TEXTS: Record<string, EventTypeTexts> = EVENT_TYPES;

/** Composes an e-mail in the language of its recipient. */
export function composeEmail(
  notification: Notification,
  language: Language,
  branding: Branding,
): { subject: string; text: string } {
  const words = language === "fr" ? FRENCH : ENGLISH;
  const { kind, host, isReminder } = notification;
  const { subject, happened, advice, outlook } = words.kinds[kind](notification);
  const fails = kind !== "recovered" && kind !== "overflow";
  const { means, todo } = explainFailure(
    notification.last ?? { outcome: null, status: null },
    language,
  );
  const fact = [
    `${words.subscription(notification)} ${happened}`,
    ...(fails ? [`${words.lastResult}${words.result(notification.last)}. ${means}`] : []),
  ];
  const actions = [...(fails ? [todo] : []), ...advice];
  const paragraphs = [
    words.greeting,
    fact.join("\n"),
    ...(actions.length > 0 ? [`${words.whatToDo} ${actions.join(" ")}`] : []),
    ...portalLink(words.portal, notification, branding),
    ...outlook,
    `${words.eventTypes}${notification.events.map(words.eventType).join(", ")}`,
    ...listOf(words.subscriptions, notification.subscriptionIds),
    `${words.regards}\n${words.team(branding.PORTAL_NAME)}`,
  ];
  return {
    subject: words.typeset(`${isReminder ? words.reminder : ""}${subject}${words.about}${host}`),
    text: words.typeset(`${paragraphs.join("\n\n")}\n`),
  };
}

function portalLink(
  label: string,
  { subscriptionIds: [id, ...others] }: Notification,
  { PORTAL, PORTAL_ORIGIN }: Branding,
): string[] {
  if (PORTAL === "off" || PORTAL_ORIGIN === "") return [];
  const page = others.length === 0 ? `#/webhooks/${id}` : "";
  return [`${label}${new URL(PORTAL_ORIGIN).origin}/portal${page}`];
}

/** Maximum ids of subscriptions that an e-mail lists. */
const LISTED_MAX = 20;

function listOf(label: string, ids: string[]): string[] {
  if (ids.length === 1) return [];
  const listed = ids.slice(0, LISTED_MAX).join("\n");
  return [`${label}\n${listed}${ids.length > LISTED_MAX ? "\n…" : ""}`];
}

/** The texts of one kind of e-mail. */
interface KindTexts {
  subject: string;
  /** The rest of a sentence whose subject is the webhook or webhooks. */
  happened: string;
  /** The actions to take, besides those that the last failure requires. */
  advice: string[];
  outlook: string[];
}

interface Words {
  greeting: string;
  whatToDo: string;
  portal: string;
  lastResult: string;
  eventTypes: string;
  subscriptions: string;
  regards: string;
  reminder: string;
  /** The separator between the subject and the host. */
  about: string;
  team(name: string): string;
  subscription(notification: Notification): string;
  eventType(type: WebhookEvent): string;
  result(last: Notification["last"]): string;
  kinds: Record<EmailKind, (notification: Notification) => KindTexts>;
  typeset(text: string): string;
}

const SECONDS = POST_TIMEOUT_MS / 1000;
const isOne = ({ subscriptionIds }: Notification) => subscriptionIds.length === 1;

const FRENCH_EXPECTED = `Votre serveur doit répondre avec un statut compris entre 200 et 299 en moins de ${SECONDS} secondes.`;

const FRENCH: Words = {
  greeting: "Bonjour,",
  whatToDo: "Que faire ?",
  portal: "Portail : ",
  lastResult: "Dernier résultat : ",
  eventTypes: "Types d’événements concernés : ",
  subscriptions: "Webhooks concernés :",
  regards: "Cordialement,",
  reminder: "Rappel : ",
  about: " : ",
  team: (name) => (name === "" ? "L’équipe technique" : `L’équipe ${name}`),
  subscription: (notification) => {
    const { subscriptionIds, workspaceName, host } = notification;
    const name = isOne(notification)
      ? `Le webhook ${subscriptionIds[0]}`
      : `${subscriptionIds.length} webhooks`;
    return `${name} de l’espace de travail « ${workspaceName} » vers ${host}`;
  },
  eventType: (type) => TEXTS[type]?.french.name ?? type,
  result: (last) => {
    switch (last?.outcome) {
      case "answered":
        return `réponse HTTP ${last.status}`;
      case "timed_out":
        return `aucune réponse en ${SECONDS} secondes`;
      case "refused":
        return "URL bloquée par nos règles de sécurité";
      default:
        return `connexion impossible${last?.status ? ` (${last.status})` : ""}`;
    }
  },
  kinds: {
    failing: (notification) => ({
      subject: "Webhook en échec",
      happened: `${isOne(notification) ? "est" : "sont"} en échec : aucune livraison n’a abouti depuis le ${frenchTime(notification.since)}.`,
      advice: [
        FRENCH_EXPECTED,
        "Une fois le problème corrigé, les livraisons en attente repartiront automatiquement.",
      ],
      outlook: [
        `À défaut, ${isOne(notification) ? "le webhook sera désactivé" : "ces webhooks seront désactivés"}, au plus tôt le ${frenchTime(notification.since + DISABLE_AFTER_MS)}.`,
      ],
    }),
    recovered: (notification) => ({
      subject: "Webhook rétabli",
      happened: `${isOne(notification) ? "fonctionne" : "fonctionnent"} à nouveau : une livraison a abouti le ${frenchTime(notification.since)}.`,
      advice: ["Vous n’avez rien à faire : les livraisons en attente repartent automatiquement."],
      outlook: [],
    }),
    disabled: (notification) => ({
      subject: "Webhook désactivé",
      happened: `${isOne(notification) ? "a été désactivé" : "ont été désactivés"} : toutes les livraisons échouent depuis le ${frenchTime(notification.since)}.`,
      advice: [
        FRENCH_EXPECTED,
        `Réactivez ensuite ${isOne(notification) ? "le webhook" : "ces webhooks"} dans le portail ou demandez-le au support : les livraisons en attente ont été annulées, mais les événements manqués pourront alors être renvoyés. Un nouveau webhook ne recevrait que les événements à venir.`,
      ],
      outlook: frenchMissed(notification.missed),
    }),
    rejecting: (notification) => ({
      subject: "Votre serveur refuse certains événements",
      happened: `${isOne(notification) ? "voit" : "voient"} certains types d’événements refusés depuis le ${frenchTime(notification.since)}, alors que votre serveur en accepte d’autres.`,
      advice: [
        FRENCH_EXPECTED,
        `Les autres événements continuent d’être livrés, et ${isOne(notification) ? "le webhook reste actif" : "ces webhooks restent actifs"}. Si vous ne voulez plus recevoir ces types d’événements, retirez-les ${isOne(notification) ? "du webhook" : "de ces webhooks"}.`,
      ],
      outlook: [],
    }),
    overflow: (notification) => ({
      subject: "Trop de livraisons en attente",
      happened: `${isOne(notification) ? "a" : "ont"} trop de livraisons en attente depuis le ${frenchTime(notification.since)} : les plus anciennes sont en échec définitif.`,
      advice: [
        "Vérifiez que votre serveur répond, et qu’il répond assez vite pour le nombre d’événements de cet espace de travail. Vous pourrez ensuite renvoyer ces événements depuis le portail, tant qu’ils sont conservés.",
      ],
      outlook: [],
    }),
  },
  /** Sets no-break spaces, so that no line break separates punctuation from its word or a number from its unit. */
  typeset: (text) => text.replaceAll(/ (?=[:;!?»])|(?<=«) |(?<=\d) (?=secondes)/g, "\u00a0"),
};

function frenchMissed(missed: Missed | null): string[] {
  if (!missed || missed.until === null) return [];
  const number = missed.count.toLocaleString("fr-FR");
  return [
    `Événements manqués : ${missed.more ? `au moins ${number}` : number}. Le plus ancien peut être renvoyé jusqu’au ${frenchTime(missed.until)}.`,
  ];
}

/** Formats a time with minute precision. */
function frenchTime(time: number): string {
  return timeIn("fr-FR", time);
}

function timeIn(locale: string, time: number): string {
  const text = new Date(time).toLocaleString(locale, {
    dateStyle: "long",
    timeStyle: "short",
    timeZone: "UTC",
  });
  return `${text} (UTC)`;
}

const ENGLISH_EXPECTED = `Your server must respond with a status between 200 and 299 within ${SECONDS} seconds.`;

const ENGLISH: Words = {
  greeting: "Hello,",
  whatToDo: "What to do:",
  portal: "Portal: ",
  lastResult: "Last result: ",
  eventTypes: "Event types: ",
  subscriptions: "Webhooks:",
  regards: "Kind regards,",
  reminder: "Reminder: ",
  about: ": ",
  team: (name) => (name === "" ? "The technical team" : `The ${name} team`),
  subscription: (notification) => {
    const { subscriptionIds, workspaceName, host } = notification;
    const name = isOne(notification)
      ? `The webhook ${subscriptionIds[0]}`
      : `${subscriptionIds.length} webhooks`;
    return `${name} of the workspace “${workspaceName}” to ${host}`;
  },
  eventType: (type) => TEXTS[type]?.name ?? type,
  result: (last) => {
    switch (last?.outcome) {
      case "answered":
        return `HTTP ${last.status}`;
      case "timed_out":
        return `no response within ${SECONDS} seconds`;
      case "refused":
        return "URL blocked by our security rules";
      default:
        return `no connection${last?.status ? ` (${last.status})` : ""}`;
    }
  },
  kinds: {
    failing: (notification) => ({
      subject: "Webhook failing",
      happened: `${isOne(notification) ? "is" : "are"} failing: no delivery has succeeded since ${englishTime(notification.since)}.`,
      advice: [
        ENGLISH_EXPECTED,
        "Once the problem is fixed, pending deliveries are sent automatically.",
      ],
      outlook: [
        `Otherwise, ${isOne(notification) ? "the webhook" : "these webhooks"} will be disabled on ${englishTime(notification.since + DISABLE_AFTER_MS)} at the earliest.`,
      ],
    }),
    recovered: (notification) => ({
      subject: "Webhook recovered",
      happened: `${isOne(notification) ? "works" : "work"} again: a delivery succeeded on ${englishTime(notification.since)}.`,
      advice: ["There is nothing left for you to do: pending deliveries are sent automatically."],
      outlook: [],
    }),
    disabled: (notification) => ({
      subject: "Webhook disabled",
      happened: `${isOne(notification) ? "was" : "were"} disabled: all deliveries have failed since ${englishTime(notification.since)}.`,
      advice: [
        ENGLISH_EXPECTED,
        `Then enable ${isOne(notification) ? "the webhook" : "these webhooks"} in the portal, or ask support to do it. Pending deliveries were cancelled, but the events that you missed can be sent then. A new webhook would receive future events only.`,
      ],
      outlook: englishMissed(notification.missed),
    }),
    rejecting: (notification) => ({
      subject: "Your server rejects some events",
      happened: `${isOne(notification) ? "has" : "have"} had some event types rejected since ${englishTime(notification.since)}, while your server accepts others.`,
      advice: [
        ENGLISH_EXPECTED,
        `Other events are still delivered, and ${isOne(notification) ? "the webhook stays" : "these webhooks stay"} active. If you no longer want these event types, remove them from ${isOne(notification) ? "the webhook" : "these webhooks"}.`,
      ],
      outlook: [],
    }),
    overflow: (notification) => ({
      subject: "Too many pending deliveries",
      happened: `${isOne(notification) ? "has" : "have"} had too many pending deliveries since ${englishTime(notification.since)}: the oldest have failed for good.`,
      advice: [
        "Check that your server responds, and that it responds quickly enough for the number of events in this workspace. You can then resend these events from the portal, as long as they are stored.",
      ],
      outlook: [],
    }),
  },
  typeset: (text) => text,
};

function englishMissed(missed: Missed | null): string[] {
  if (!missed || missed.until === null) return [];
  const number = missed.count.toLocaleString("en-GB");
  return [
    `Missed events: ${missed.more ? `at least ${number}` : number}. The oldest can be sent until ${englishTime(missed.until)}.`,
  ];
}

function englishTime(time: number): string {
  return timeIn("en-GB", time);
}

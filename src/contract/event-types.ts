/** What is said about a kind of event, in the document, in the portal and in e-mails. */
interface Kind {
  /** What happened, as a short sentence without its full stop. */
  summary: string;
  /** When it is posted, as a clause that begins with `when`. */
  when: string;
  /** What `data` is. */
  data: string;
  /** Its name in English. */
  name: string;
  /** Its name and description in French. */
  french: { name: string; when: string };
}

/**
 * The kinds of events. The enumeration, the document and all texts derive from here; the shape of `data`
 * (`events/bodies.ts`), the sample (`events/samples.ts`) and `npm run trigger` do not compile
 * without an entry for each.
 */
export const EVENT_TYPES = {
  "run.completed": {
    summary: "An automation run finished",
    when: "when an automation finishes a run, successfully or not",
    data: "the run",
    name: "Run completed",
    french: {
      name: "Exécution terminée",
      when: "Une automatisation termine une exécution, avec ou sans succès. « data » contient l’exécution.",
    },
  },
  "lead.created": {
    summary: "A new lead was captured",
    when: "when a lead is captured, from any source",
    data: "the lead",
    name: "New lead",
    french: {
      name: "Nouveau lead",
      when: "Un nouveau lead est capté, quelle que soit la source. « data » contient le lead.",
    },
  },
  "automation.status_changed": {
    summary: "An automation was activated or paused",
    when: "when an automation is activated or paused, in the app or through this API (other status changes emit no event)",
    data: "the automation after the change",
    name: "Automation status changed",
    french: {
      name: "Changement d’état d’une automatisation",
      when: "Une automatisation est activée ou mise en pause, dans l’application ou par cette API ; les autres changements d’état ne sont pas annoncés. « data » contient l’automatisation après le changement.",
    },
  },
} as const satisfies Record<string, Kind>;

type EventKind = keyof typeof EVENT_TYPES;

/** Something about each kind of event. */
export function ofEachKind<T>(of: (kind: Kind, type: EventKind) => T): Record<EventKind, T> {
  const entries = Object.entries(EVENT_TYPES) as [EventKind, Kind][];
  return Object.fromEntries(entries.map(([type, kind]) => [type, of(kind, type)])) as Record<
    EventKind,
    T
  >;
}

/** The name of a kind's schema, such as `LeadCreated`. */
export function schemaName(type: string): string {
  return type.replace(/(?:^|\W|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

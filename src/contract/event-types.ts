/** The texts about an event type, for the OpenAPI document, the portal and e-mails. */
interface EventTypeTexts {
  /** The event in a short sentence without its full stop. */
  summary: string;
  /** When the event is sent, as a clause that begins with `when`. */
  when: string;
  /** The content of `data`. */
  data: string;
  /** The name of the type in English. */
  name: string;
  /** The name and description in French. */
  french: { name: string; when: string };
}

/**
 * The event types. The enumeration, the OpenAPI document and all texts derive from this list. The schema of `data`
 * (`events/bodies.ts`), the sample (`events/samples.ts`), the automation that an event is about (`delivery/round.ts`)
 * and `npm run trigger` do not compile without an entry for each type.
 */
export const EVENT_TYPES = {
  "run.completed": {
    summary: "An automation run finished",
    when: "when a run finishes, successfully or not",
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
    when: "when an automation is activated or paused, in the app or through this API; other changes emit no event",
    data: "the automation after the change",
    name: "Automation status changed",
    french: {
      name: "Changement d’état d’une automatisation",
      when: "Une automatisation est activée ou mise en pause, dans l’application ou par cette API ; les autres changements d’état ne sont pas annoncés. « data » contient l’automatisation après le changement.",
    },
  },
} as const satisfies Record<string, EventTypeTexts>;

type EventType = keyof typeof EVENT_TYPES;

/** Maps each event type to a value. */
export function mapEventTypes<T>(
  toValue: (texts: EventTypeTexts, type: EventType) => T,
): Record<EventType, T> {
  const entries = Object.entries(EVENT_TYPES) as [EventType, EventTypeTexts][];
  const values = entries.map(([type, texts]) => [type, toValue(texts, type)]);
  return Object.fromEntries(values) as Record<EventType, T>;
}

/** Returns the name of the schema of an event type, such as `LeadCreated`. */
export function schemaName(type: string): string {
  return type.replace(/(?:^|\W|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

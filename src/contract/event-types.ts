/*
 * To add an event type:
 *
 * 1. Its entry here. The enumeration, the document, the portal and the e-mails derive from it.
 * 2. `npm run check:types` asks for the rest: the schema of `data` (`src/events/bodies.ts`), a sample (`samples.ts`), and
 *    a trigger (`scripts/trigger.ts`). Read the errors TS2741 first, because the others follow from them.
 * 3. Call `announce(…)` before the write, in the same transaction. A write that never announced must also wake the
 *    subscriptions, as `record` does. One call takes one type. For changes of automations, `storeChanges`
 *    (`src/recording/automation-changes.ts`) makes the only call.
 * 4. Record one such event in `test/worker/http/document/examples.test.ts`, unless it does so already. Tests that count
 *    all events of a workspace must then name their types.
 * 5. `test/node/documentation.test.ts` fails until the client, the contract's tests and the guides name the type. Then
 *    `npm run test:contract -- 06-webhook 15-delivery` fails until both files record an event of it.
 * 6. Correct the sentences that no test checks: `sync.md` and `processing.md`, which say how a client applies each type,
 *    `personal-data.md`, "What emits no event" in `events.md`, and `docs/recording.md`.
 * 7. `npm run simulate -- --seeds 12`, whose invariants expect one event for each lead and run. Then `npm run openapi`, and
 *    a line in the changelog. It is an addition, so the version stays. A rollback needs no preparation, because older
 *    code runs on rows of the type, and does not send them.
 *
 * If its `data` is a lead, the body is made from the lead's row (`bodies.ts`), and a trigger rejects updates of that row
 * (`src/moving/triggers.ts`). A lead has one event: a second one would stay when the lead is erased, because `eraseLeads`
 * and `listDeliveries` find it by `leads.eventId`.
 */

/** The texts about an event type, for the OpenAPI document, the portal and e-mails. */
export interface EventTypeTexts {
  /** The event in a short sentence without its full stop. */
  summary: string;
  /** When the event is sent, as a clause that begins with `when`. */
  when: string;
  /** The content of `data`. */
  data: string;
  /** The name of the type in English. */
  name: string;
  /** The name and description in French, with no-break spaces (U+00A0) inside « » and before : ; ? and !. */
  french: { name: string; when: string };
}

/**
 * The event types. The enumeration, the OpenAPI document and all texts derive from this list. The schema of `data`
 * (`events/bodies.ts`), the sample (`events/samples.ts`) and `npm run trigger` do not compile without an entry for each type.
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

export type EventType = keyof typeof EVENT_TYPES;

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

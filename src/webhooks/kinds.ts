import type { WebhookEvent } from "../contract/enumerations.ts";

/** The kinds of events in the words that the portal and the e-mails share. */
export const KINDS: Record<WebhookEvent, string> = {
  "lead.created": "Nouveau lead",
  "run.completed": "Exécution terminée",
  "automation.status_changed": "Changement d’état d’une automatisation",
};

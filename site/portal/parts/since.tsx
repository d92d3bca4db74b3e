import { useId, useState } from "preact/hooks";
import { REDELIVERY_MAX_AGE_MS } from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import type { WebhookDetails as Webhook } from "../../../src/history/views.ts";
import { type Period, startOfDay } from "../filters.ts";
import { formatDayAndHour, toLocalField } from "../format.ts";
import { t } from "../text.ts";

/** The age of each choice, in milliseconds. */
const AGES_MS = { hour: HOUR_MS, day: DAY_MS, week: 7 * DAY_MS };

interface Props {
  webhook: Webhook;
  fault: string | null;
  /** Whether the period may end before now. */
  mayEnd?: boolean;
}

/** Asks for the time since when, or the period in which, to send events; the form reads it with `parsePeriod`. */
export function SinceField({ webhook, fault, mayEnd = false }: Props) {
  // As the dialog has opened: the page is refreshed behind it.
  const [first] = useState(webhook.undeliveredSince);
  const isRecent = first !== null && Date.parse(first) > Date.now() - REDELIVERY_MAX_AGE_MS;
  const [choice, setChoice] = useState(isRecent ? "first" : "day");
  const choices: [value: string, label: string][] = [];
  if (isRecent) choices.push(["first", t.since.first(formatDayAndHour(first))]);
  if (mayEnd) choices.push(["today", t.deliveries.today], ["yesterday", t.deliveries.yesterday]);
  choices.push(["hour", t.since.hour], ["day", t.since.day], ["week", t.since.week]);
  choices.push(["other", mayEnd ? t.deliveries.custom : t.since.other]);
  return (
    <>
      <fieldset class="periods">
        <legend>{mayEnd ? t.deliveries.when : t.since.label}</legend>
        {choices.map(([value, label]) => (
          <label class="check" key={value}>
            <input
              type="radio"
              name="since"
              value={value}
              checked={choice === value}
              onInput={() => setChoice(value)}
            />
            {label}
          </label>
        ))}
      </fieldset>
      {first !== null && <input type="hidden" name="first" value={first} />}
      {choice === "other" && (
        <Moment name="from" label={mayEnd ? t.deliveries.since : t.since.time} fault={fault} />
      )}
      {choice === "other" && mayEnd && <Moment name="to" label={t.deliveries.until} fault={null} />}
    </>
  );
}

function Moment({ name, label, fault }: { name: string; label: string; fault: string | null }) {
  const faultId = useId();
  return (
    <label class="field">
      {label}
      <input
        type="datetime-local"
        name={name}
        min={toLocalField(Date.now() - REDELIVERY_MAX_AGE_MS + HOUR_MS)}
        max={toLocalField(Date.now())}
        aria-invalid={fault !== null}
        aria-describedby={faultId}
      />
      <small id={faultId} class={fault ? "fault" : ""}>
        {fault ?? (name === "from" && t.since.hint)}
      </small>
    </label>
  );
}

/** A period with a beginning. */
export interface BegunPeriod extends Period {
  since: string;
}

/** Parses the period in a form's `SinceField`, in ISO 8601; null if there is no valid one. */
export function parsePeriod(form: FormData, now: number): BegunPeriod | null {
  const choice = String(form.get("since"));
  const from = (since: string | null, until: string | null = null) =>
    since === null ? null : { since, until };
  if (choice === "first") return from(String(form.get("first")));
  if (choice === "today") return from(startOfDay(now));
  if (choice === "yesterday") return from(startOfDay(now, -1), startOfDay(now));
  if (choice !== "other")
    return from(new Date(now - AGES_MS[choice as keyof typeof AGES_MS]).toISOString());
  const time = Date.parse(String(form.get("from")));
  if (!(time <= now && time > now - REDELIVERY_MAX_AGE_MS)) return null;
  const end = Date.parse(String(form.get("to") ?? ""));
  if (end <= time) return null;
  return from(new Date(time).toISOString(), Number.isNaN(end) ? null : new Date(end).toISOString());
}

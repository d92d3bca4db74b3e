import { useId, useState } from "preact/hooks";
import { REDELIVERY_MAX_AGE_MS } from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import type { WebhookDetails as Webhook } from "../../../src/history/views.ts";
import { formatDayAndHour, toLocalField } from "../format.ts";
import { t } from "../text.ts";

/** The age of each choice, in milliseconds. */
const AGES_MS = { hour: HOUR_MS, day: DAY_MS, week: 7 * DAY_MS };

/** Asks for the time since when to redeliver; the surrounding form reads it with `parseSince`. */
export function SinceField({ webhook, fault }: { webhook: Webhook; fault: string | null }) {
  const first = webhook.undeliveredSince;
  const isRecent = first !== null && Date.parse(first) > Date.now() - REDELIVERY_MAX_AGE_MS;
  const [choice, setChoice] = useState(isRecent ? "first" : "day");
  const faultId = useId();
  return (
    <>
      <label class="field">
        {t.since.label}
        <select
          name="since"
          value={choice}
          onInput={({ currentTarget }) => setChoice(currentTarget.value)}
        >
          {isRecent && <option value="first">{t.since.first(formatDayAndHour(first))}</option>}
          <option value="hour">{t.since.hour}</option>
          <option value="day">{t.since.day}</option>
          <option value="week">{t.since.week}</option>
          <option value="other">{t.since.other}</option>
        </select>
      </label>
      {choice === "other" && (
        <label class="field">
          {t.since.time}
          <input
            type="datetime-local"
            name="time"
            min={toLocalField(Date.now() - REDELIVERY_MAX_AGE_MS + HOUR_MS)}
            max={toLocalField(Date.now())}
            aria-invalid={fault !== null}
            aria-describedby={faultId}
          />
          <small id={faultId} class={fault ? "fault" : ""}>
            {fault ?? t.since.hint}
          </small>
        </label>
      )}
    </>
  );
}

/** Parses the time in a form's `SinceField` to ISO 8601; null if there is no valid one. */
export function parseSince(form: FormData, webhook: Webhook, now: number): string | null {
  const choice = String(form.get("since"));
  if (choice === "first") return webhook.undeliveredSince;
  if (choice !== "other")
    return new Date(now - AGES_MS[choice as keyof typeof AGES_MS]).toISOString();
  const time = Date.parse(String(form.get("time")));
  return time <= now && time > now - REDELIVERY_MAX_AGE_MS ? new Date(time).toISOString() : null;
}

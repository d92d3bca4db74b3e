import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { t } from "../text.ts";

interface Props {
  types: readonly WebhookEvent[];
  /** The types that are checked at first. */
  chosen: readonly WebhookEvent[];
  /** The fault in the choice. */
  fault: string | undefined;
}

/** Asks for event types; the surrounding form has them as `events`. */
export function TypeFields({ types, chosen, fault }: Props) {
  return (
    <fieldset>
      <legend>{t.subscribe.events}</legend>
      {types.map((type) => (
        <label class="check" key={type}>
          <input
            type="checkbox"
            name="events"
            value={type}
            defaultChecked={chosen.includes(type)}
          />
          <span>
            {t.types[type] ?? type} <span class="mono small">{type}</span>
          </span>
        </label>
      ))}
      <p class="fault" aria-live="polite">
        {fault}
      </p>
    </fieldset>
  );
}

import type { WebhookEvent as Kind } from "../../../src/contract/enumerations.ts";
import { t } from "../text.ts";

interface Props {
  kinds: Kind[];
  /** Those that are checked at first. */
  chosen: Kind[];
  /** What is wrong with the choice. */
  fault: string | undefined;
}

/** Asks for kinds of events; the surrounding form has them as `events`. */
export function KindFields({ kinds, chosen, fault }: Props) {
  return (
    <fieldset>
      <legend>{t.subscribe.events}</legend>
      {kinds.map((kind) => (
        <label class="check" key={kind}>
          <input
            type="checkbox"
            name="events"
            value={kind}
            defaultChecked={chosen.includes(kind)}
          />
          <span>
            {t.kinds[kind] ?? kind} <span class="mono small">{kind}</span>
          </span>
        </label>
      ))}
      <p class="fault" aria-live="polite">
        {fault}
      </p>
    </fieldset>
  );
}

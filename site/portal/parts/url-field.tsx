import { useId } from "preact/hooks";
import { allowsLocalWebhooks } from "../deployment.ts";
import { t } from "../text.ts";

/** Asks for the URL of a subscription; the surrounding form has it as `url`. */
export function UrlField({ url, fault }: { url?: string; fault: string | undefined }) {
  const describedBy = useId();
  return (
    <>
      <label class="field">
        {t.subscribe.url}
        <input
          type="url"
          name="url"
          class="mono"
          placeholder="https://hooks.example.com/events"
          autocomplete="off"
          spellcheck={false}
          defaultValue={url}
          aria-invalid={fault !== undefined}
          aria-describedby={describedBy}
        />
      </label>
      <p id={describedBy} class={fault ? "fault" : "hint"} aria-live="polite">
        {fault ?? (allowsLocalWebhooks ? t.subscribe.urlHintLocal : t.subscribe.urlHint)}
      </p>
    </>
  );
}

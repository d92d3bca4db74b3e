import { useId, useState } from "preact/hooks";
import { allowsLocalWebhooks } from "../deployment.ts";
import { t } from "../text.ts";

/** Asks for the URL of a webhook; the surrounding form has it as `url`. */
export function UrlField({ url = "", fault }: { url?: string; fault: string | undefined }) {
  const describedBy = useId();
  const [typed, setTyped] = useState(url);
  const warning = !allowsLocalWebhooks && namesAddress(typed) ? t.subscribe.ipAddress : null;
  const hint = allowsLocalWebhooks ? t.subscribe.urlHintLocal : t.subscribe.urlHint;
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
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      </label>
      <p id={describedBy} class={fault || warning ? "fault" : "hint"} aria-live="polite">
        {fault ?? warning ?? hint}
      </p>
    </>
  );
}

/** Whether a URL names an IP address instead of a host: Cloudflare does not connect to one. */
function namesAddress(url: string): boolean {
  return URL.canParse(url) && /^(\d+(\.\d+){3}|\[.*\])$/.test(new URL(url).hostname);
}

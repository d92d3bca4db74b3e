import { useId } from "preact/hooks";
import { HEADERS_MAX } from "../../../src/contract/limits.ts";
import { updateWebhook } from "../api.ts";
import { reloadAll } from "../load.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

/** Sets the headers that each post carries; those that are set cannot be shown. */
export function HeadersDialog({ webhook, onClose }: AboutWebhook) {
  const describedBy = useId();
  const save = async (form: FormData) => {
    await updateWebhook(webhook.webhookId, { headers: parse(String(form.get("headers"))) });
    reloadAll();
    return t.headers.result;
  };
  return (
    <FormDialog texts={t.headers} field="headers" act={save} onClose={onClose}>
      {(fault) => (
        <>
          <p>{t.headers.text}</p>
          <label class="field">
            {t.headers.label}
            <textarea
              name="headers"
              class="mono"
              rows={HEADERS_MAX}
              autocomplete="off"
              spellcheck={false}
              aria-invalid={fault !== undefined}
              aria-describedby={describedBy}
            />
          </label>
          <div id={describedBy}>
            <p class="fault" aria-live="polite">
              {fault === t.reasons.invalid_type ? t.headers.refused : fault}
            </p>
            <p class="hint">{t.headers.hint(HEADERS_MAX)}</p>
          </div>
        </>
      )}
    </FormDialog>
  );
}

/** Headers as they are written in a request, one per line. */
function parse(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return Object.fromEntries(
    lines.map((line) => {
      const [name = "", ...value] = line.split(":");
      return [name.trim(), value.join(":").trim()];
    }),
  );
}

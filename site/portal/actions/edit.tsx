import { useState } from "preact/hooks";
import type { WebhookEvent as Kind } from "../../../src/contract/enumerations.ts";
import { DESCRIPTION_MAX_LENGTH } from "../../../src/contract/limits.ts";
import { updateWebhook } from "../api.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { KindFields } from "../parts/kind-fields.tsx";
import { UrlField } from "../parts/url-field.tsx";
import { t } from "../text.ts";

interface Props extends AboutWebhook {
  /** What may be subscribed to. */
  kinds: Kind[];
}

/** Changes what a subscription is called, where it posts and which events it gets. */
export function EditDialog({ webhook, kinds, onClose, onDone }: Props) {
  const [fault, setFault] = useState<string>();
  const save = async (form: FormData) => {
    const events = form.getAll("events") as Kind[];
    setFault(events.length === 0 ? t.subscribe.eventsRequired : undefined);
    if (events.length === 0) return null;
    const [url = "", description = ""] = ["url", "description"].map((name) =>
      String(form.get(name)).trim(),
    );
    const changed = url === webhook.url ? {} : { url };
    await updateWebhook(webhook.webhookId, { ...changed, events, description });
    onDone();
    return t.edit.result;
  };
  return (
    <FormDialog texts={t.edit} field="url" act={save} onClose={onClose}>
      {(urlFault) => (
        <>
          <UrlField url={webhook.url} fault={urlFault} />
          <label class="field">
            {t.edit.description}
            <input
              name="description"
              maxLength={DESCRIPTION_MAX_LENGTH}
              autocomplete="off"
              defaultValue={webhook.description ?? ""}
            />
            <small>{t.edit.descriptionHint}</small>
          </label>
          <KindFields kinds={kinds} chosen={webhook.events} fault={fault} />
          <p class="hint">{t.edit.text}</p>
        </>
      )}
    </FormDialog>
  );
}

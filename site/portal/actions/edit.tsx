import { useState } from "preact/hooks";
import type { WebhookEvent as Kind } from "../../../src/contract/enumerations.ts";
import { DESCRIPTION_MAX_LENGTH } from "../../../src/contract/limits.ts";
import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { updateWebhook } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { KindFields } from "../parts/kind-fields.tsx";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  /** What may be subscribed to. */
  kinds: Kind[];
  onClose(): void;
  onDone(): void;
}

/** Changes what a subscription is called and which events it gets. */
export function EditDialog({ webhook, kinds, onClose, onDone }: Props) {
  const action = useAction();
  const [fault, setFault] = useState<string>();
  const submit = (form: FormData, close: () => void) => {
    const events = form.getAll("events") as Kind[];
    setFault(events.length === 0 ? t.subscribe.eventsRequired : undefined);
    if (events.length === 0) return;
    void action.run(async () => {
      const description = String(form.get("description")).trim();
      await updateWebhook(webhook.webhookId, { events, description });
      close();
      announce(t.edit.result);
      onDone();
    });
  };
  return (
    <Dialog title={t.edit.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ action, close }}
          submit={t.edit.submit}
          onSubmit={(form) => submit(form, close)}
        >
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
        </DialogForm>
      )}
    </Dialog>
  );
}

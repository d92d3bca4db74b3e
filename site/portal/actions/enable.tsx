import { useState } from "preact/hooks";
import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { enableWebhook } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { parseSince, SinceField } from "../parts/since.tsx";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  onClose(): void;
  onDone(): void;
}

/** Re-enables a disabled subscription and, if wanted, sends what it has missed. */
export function EnableDialog({ webhook, onClose, onDone }: Props) {
  const action = useAction();
  const [withMissed, setWithMissed] = useState(true);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const submit = (form: FormData, close: () => void) => {
    const since = withMissed ? parseSince(form, webhook, Date.now()) : null;
    setSinceFault(withMissed && since === null ? t.since.required : null);
    if (withMissed && since === null) return;
    void action.run(async () => {
      const { count, more } = await enableWebhook(
        webhook.webhookId,
        since ? { redeliverSince: since } : {},
      );
      close();
      announce(more ? t.enable.more : t.enable.result(count));
      onDone();
    });
  };
  return (
    <Dialog title={t.enable.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ action, close }}
          submit={t.enable.submit}
          onSubmit={(form) => submit(form, close)}
        >
          <p>{t.enable.text}</p>
          <label class="check">
            <input
              type="checkbox"
              checked={withMissed}
              onInput={({ currentTarget }) => setWithMissed(currentTarget.checked)}
            />
            {t.enable.missed}
          </label>
          {withMissed && <SinceField webhook={webhook} fault={sinceFault} />}
        </DialogForm>
      )}
    </Dialog>
  );
}

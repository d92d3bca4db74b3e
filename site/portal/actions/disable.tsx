import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { disableWebhook } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  onClose(): void;
  onDone(): void;
}

/** Disables a subscription after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose, onDone }: Props) {
  const action = useAction();
  const disable = (close: () => void) =>
    void action.run(async () => {
      await disableWebhook(webhook.webhookId);
      close();
      announce(t.disable.result);
      onDone();
    });
  return (
    <Dialog title={t.disable.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ action, close }}
          submit={t.disable.submit}
          isDangerous
          onSubmit={() => disable(close)}
        >
          <p>{t.disable.text}</p>
          {webhook.pending > 0 && <p>{t.remove.pending(webhook.pending)}</p>}
        </DialogForm>
      )}
    </Dialog>
  );
}

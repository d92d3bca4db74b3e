import { disableWebhook } from "../api.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

/** Disables a subscription after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose, onDone }: AboutWebhook) {
  const disable = async () => {
    await disableWebhook(webhook.webhookId);
    onDone();
    return t.disable.result;
  };
  return (
    <FormDialog texts={t.disable} isDangerous act={disable} onClose={onClose}>
      <p>{t.disable.text}</p>
      {webhook.pending > 0 && <p>{t.remove.pending(webhook.pending)}</p>}
    </FormDialog>
  );
}

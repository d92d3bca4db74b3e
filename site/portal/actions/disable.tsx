import { disableWebhook } from "../api.ts";
import { formatPending } from "../format.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

/** Disables a subscription after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose, onDone }: AboutWebhook) {
  const disable = async () => {
    await disableWebhook(webhook.webhookId);
    onDone();
    return t.disable.result;
  };
  const pending = formatPending(webhook);
  return (
    <FormDialog texts={t.disable} isDangerous act={disable} onClose={onClose}>
      <p>{t.disable.text}</p>
      {pending && <p>{t.remove.pending(pending)}</p>}
    </FormDialog>
  );
}

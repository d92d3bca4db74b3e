import { disableWebhook } from "../api.ts";
import { reloadAll } from "../load.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";
import { countWaiting, formatWaiting } from "../webhook.ts";

/** Disables a webhook after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose }: AboutWebhook) {
  const disable = async () => {
    await disableWebhook(webhook.webhookId);
    reloadAll();
    return t.disable.result;
  };
  return (
    <FormDialog texts={t.disable} act={disable} onClose={onClose}>
      <p>{t.disable.text}</p>
      {countWaiting(webhook) > 0 && <p>{t.remove.pending(formatWaiting(webhook))}</p>}
    </FormDialog>
  );
}

import { disableWebhook } from "../api.ts";
import { formatNumber } from "../format.ts";
import { reloadAll } from "../load.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";
import { countWaiting } from "../webhook.ts";

/** Disables a webhook after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose }: AboutWebhook) {
  const disable = async () => {
    await disableWebhook(webhook.webhookId);
    reloadAll();
    return t.disable.result;
  };
  const waiting = countWaiting(webhook);
  return (
    <FormDialog texts={t.disable} act={disable} onClose={onClose}>
      <p>{t.disable.text}</p>
      {waiting > 0 && <p>{t.remove.pending(formatNumber(waiting))}</p>}
    </FormDialog>
  );
}

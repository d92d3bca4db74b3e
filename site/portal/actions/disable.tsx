import { disableWebhook } from "../api.ts";
import { formatNumber } from "../format.ts";
import { reloadAll } from "../load.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

/** Disables a webhook after confirmation, until it is enabled again. */
export function DisableDialog({ webhook, onClose }: AboutWebhook) {
  const open = webhook.pending + webhook.retrying;
  const disable = async () => {
    await disableWebhook(webhook.webhookId);
    reloadAll();
    return t.disable.result;
  };
  return (
    <FormDialog texts={t.disable} act={disable} onClose={onClose}>
      <p>{t.disable.text}</p>
      {open > 0 && <p>{t.remove.pending(formatNumber(open))}</p>}
    </FormDialog>
  );
}

import { deleteWebhook } from "../api.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { goTo } from "../route.ts";
import { t } from "../text.ts";
import { countWaiting, formatWaiting, nameOf } from "../webhook.ts";

/** Deletes a webhook after confirmation. */
export function RemoveDialog({ webhook, onClose }: AboutWebhook) {
  const remove = async () => {
    await deleteWebhook(webhook.webhookId);
    goTo("#/webhooks");
    return t.remove.result;
  };
  return (
    <FormDialog texts={t.remove} isDangerous act={remove} onClose={onClose}>
      <p>{t.remove.text(nameOf(webhook))}</p>
      {countWaiting(webhook) > 0 && <p>{t.remove.pending(formatWaiting(webhook))}</p>}
    </FormDialog>
  );
}

import { deleteWebhook } from "../api.ts";
import { formatPending } from "../format.ts";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { goTo } from "../route.ts";
import { t } from "../text.ts";

/** Deletes a subscription after confirmation. */
export function RemoveDialog({ webhook, onClose }: Omit<AboutWebhook, "onDone">) {
  const remove = async () => {
    await deleteWebhook(webhook.webhookId);
    goTo("#/webhooks");
    return t.remove.result;
  };
  const pending = formatPending(webhook);
  return (
    <FormDialog texts={t.remove} isDangerous act={remove} onClose={onClose}>
      <p>{t.remove.text(webhook.url)}</p>
      {pending && <p>{t.remove.pending(pending)}</p>}
    </FormDialog>
  );
}

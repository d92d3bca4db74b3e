import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { deleteWebhook } from "../api.ts";
import { splitUrl } from "../format.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { goTo } from "../route.ts";
import { t } from "../text.ts";

/** Deletes a subscription after confirmation. */
export function RemoveDialog({ webhook, onClose }: { webhook: Webhook; onClose(): void }) {
  const action = useAction();
  const remove = () =>
    void action.run(async () => {
      await deleteWebhook(webhook.webhookId);
      goTo("#/webhooks");
      announce(t.remove.result);
    });
  return (
    <Dialog title={t.remove.title} onClose={onClose}>
      {(close) => (
        <DialogForm {...{ action, close }} submit={t.remove.submit} isDangerous onSubmit={remove}>
          <p>{t.remove.text(splitUrl(webhook.url).host)}</p>
          {webhook.pending > 0 && <p>{t.remove.pending(webhook.pending)}</p>}
        </DialogForm>
      )}
    </Dialog>
  );
}

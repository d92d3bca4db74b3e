import { deleteWebhook } from "../api.ts";
import { splitUrl } from "../format.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ActionFault } from "../parts/faults.tsx";
import { goTo } from "../route.ts";
import type { Webhook } from "../shapes.ts";
import { t } from "../text.ts";

/** Deletes a subscription once that is confirmed. */
export function RemoveDialog({ webhook, onClose }: { webhook: Webhook; onClose(): void }) {
  const { isBusy, fault, run } = useAction();
  const remove = () =>
    run(async () => {
      await deleteWebhook(webhook.id);
      goTo("#/webhooks");
      announce(t.remove.result);
    });
  return (
    <Dialog title={t.remove.title} onClose={onClose}>
      {(close) => (
        <>
          <p>{t.remove.text(splitUrl(webhook.url).host)}</p>
          {webhook.pending > 0 && <p>{t.remove.pending(webhook.pending)}</p>}
          <ActionFault fault={fault} />
          <div class="buttons">
            <button type="button" class="danger" disabled={isBusy} onClick={remove}>
              {t.remove.submit}
            </button>
            <button type="button" onClick={close}>
              {t.cancel}
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}

import { useState } from "preact/hooks";
import { enableWebhook } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ActionFault } from "../parts/faults.tsx";
import { readSince, SinceField } from "../parts/since.tsx";
import type { Webhook } from "../shapes.ts";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  onClose(): void;
  onDone(): void;
}

/** Enables a disabled subscription, and sends what it has missed if that is wanted. */
export function EnableDialog({ webhook, onClose, onDone }: Props) {
  const { isBusy, fault, run } = useAction();
  const [withMissed, setWithMissed] = useState(true);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const submit = (form: FormData, close: () => void) => {
    const since = withMissed ? readSince(form, webhook, Date.now()) : null;
    setSinceFault(withMissed && since === null ? t.since.required : null);
    if (withMissed && since === null) return;
    void run(async () => {
      const { count } = await enableWebhook(webhook.id, since ? { redeliver_since: since } : {});
      close();
      announce(t.enable.result(count));
      onDone();
    });
  };
  return (
    <Dialog title={t.enable.title} onClose={onClose}>
      {(close) => (
        <form
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            submit(new FormData(event.currentTarget), close);
          }}
        >
          <p>{t.enable.text}</p>
          <label class="check">
            <input
              type="checkbox"
              checked={withMissed}
              onInput={({ currentTarget }) => setWithMissed(currentTarget.checked)}
            />
            {t.enable.missed}
          </label>
          {withMissed && <SinceField webhook={webhook} fault={sinceFault} />}
          <ActionFault fault={fault} />
          <div class="buttons">
            <button type="submit" class="primary" disabled={isBusy}>
              {t.enable.submit}
            </button>
            <button type="button" onClick={close}>
              {t.cancel}
            </button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

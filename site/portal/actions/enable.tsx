import { useState } from "preact/hooks";
import { enableWebhook } from "../api.ts";
import type { AboutWebhook } from "../parts/dialog-form.tsx";
import { type Range, RangeDialog } from "../parts/range-dialog.tsx";
import { parsePeriod, SinceField } from "../parts/since.tsx";
import { beginReplay } from "../replaying.ts";
import { t } from "../text.ts";

/** Enables a disabled webhook again and, on request, sends the events that it has missed. */
export function EnableDialog({ webhook, onClose }: AboutWebhook) {
  const [withMissed, setWithMissed] = useState(true);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const read = (form: FormData): Range | null => {
    const period = withMissed ? parsePeriod(form, Date.now()) : null;
    if (withMissed && period === null) return null;
    const missed = period ? { redeliverSince: period.since } : {};
    return {
      begin: async () => {
        const { count, nextCursor } = await beginReplay((cursor) =>
          enableWebhook(webhook.webhookId, { ...missed, cursor }),
        );
        return t.enable.result(count, nextCursor !== null);
      },
    };
  };
  return (
    <RangeDialog
      texts={t.enable}
      read={read}
      onClose={onClose}
      onChecked={(isValid) => setSinceFault(isValid ? null : t.since.required)}
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
    </RangeDialog>
  );
}

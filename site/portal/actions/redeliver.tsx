import { useState } from "preact/hooks";
import { redeliver } from "../api.ts";
import type { AboutWebhook } from "../parts/dialog-form.tsx";
import { type Range, RangeDialog } from "../parts/range-dialog.tsx";
import { parseSince, SinceField } from "../parts/since.tsx";
import { t } from "../text.ts";

const STATES = ["retrying", "exhausted", "cancelled", "missed"] as const;

/** Redelivers what has failed since a given time. */
export function RedeliverDialog({ webhook, onClose }: AboutWebhook) {
  const [isIncomplete, setIncomplete] = useState(false);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const begin = (form: FormData): Range | null => {
    const since = parseSince(form, webhook, Date.now());
    setSinceFault(since === null ? t.since.required : null);
    if (since === null) return null;
    const states = form.getAll("states") as string[];
    return {
      since,
      send: (cursor) => redeliver(webhook.webhookId, { since, states, cursor }),
      result: t.sendAgain.result,
    };
  };
  return (
    <RangeDialog texts={t.sendAgain} {...{ isIncomplete, begin, onClose }}>
      <p>{t.sendAgain.text}</p>
      <SinceField webhook={webhook} fault={sinceFault} />
      <fieldset
        onInput={({ currentTarget }) => setIncomplete(!currentTarget.querySelector(":checked"))}
      >
        <legend>{t.sendAgain.which}</legend>
        {STATES.map((state) => (
          <label class="check" key={state}>
            <input type="checkbox" name="states" value={state} defaultChecked />
            {t.sendAgain[state]}
          </label>
        ))}
      </fieldset>
    </RangeDialog>
  );
}

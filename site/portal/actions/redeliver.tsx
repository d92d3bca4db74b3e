import { useState } from "preact/hooks";
import { redeliver } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { ActionFault } from "../parts/faults.tsx";
import { readSince, SinceField } from "../parts/since.tsx";
import type { Webhook } from "../shapes.ts";
import { t } from "../text.ts";

const STATES = ["exhausted", "cancelled", "missed"] as const;

interface Props {
  webhook: Webhook;
  onClose(): void;
  onDone(): void;
}

/** Sends again what has failed since a time. */
export function RedeliverDialog({ webhook, onClose, onDone }: Props) {
  const { isBusy, fault, run } = useAction();
  const [states, setStates] = useState<string[]>([...STATES]);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const submit = (form: FormData, close: () => void) => {
    const since = readSince(form, webhook, Date.now());
    setSinceFault(since === null ? t.since.required : null);
    if (since === null) return;
    void run(async () => {
      const { count } = await redeliver(webhook.id, { since, states });
      close();
      announce(t.sendAgain.result(count));
      onDone();
    });
  };
  return (
    <Dialog title={t.sendAgain.title} onClose={onClose}>
      {(close) => (
        <form
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            submit(new FormData(event.currentTarget), close);
          }}
        >
          <p>{t.sendAgain.text}</p>
          <SinceField webhook={webhook} fault={sinceFault} />
          <fieldset>
            <legend>{t.sendAgain.which}</legend>
            {STATES.map((state) => (
              <label class="check" key={state}>
                <input
                  type="checkbox"
                  checked={states.includes(state)}
                  onInput={({ currentTarget }) =>
                    setStates((before) =>
                      STATES.filter((other) =>
                        other === state ? currentTarget.checked : before.includes(other),
                      ),
                    )
                  }
                />
                {t.sendAgain[state]}
              </label>
            ))}
          </fieldset>
          <ActionFault fault={fault} />
          <div class="buttons">
            <button type="submit" class="primary" disabled={isBusy || states.length === 0}>
              {t.sendAgain.submit}
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

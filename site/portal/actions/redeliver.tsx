import { useState } from "preact/hooks";
import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { redeliver } from "../api.ts";
import { useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { parseSince, SinceField } from "../parts/since.tsx";
import { t } from "../text.ts";

const STATES = ["exhausted", "cancelled", "missed"] as const;

interface Props {
  webhook: Webhook;
  onClose(): void;
  onDone(): void;
}

/** Redelivers what has failed since a given time. */
export function RedeliverDialog({ webhook, onClose, onDone }: Props) {
  const action = useAction();
  const [states, setStates] = useState<string[]>([...STATES]);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const submit = (form: FormData, close: () => void) => {
    const since = parseSince(form, webhook, Date.now());
    setSinceFault(since === null ? t.since.required : null);
    if (since === null) return;
    void action.run(async () => {
      const { count, more } = await redeliver(webhook.webhookId, { since, states });
      close();
      announce(more ? t.sendAgain.more : t.sendAgain.result(count));
      onDone();
    });
  };
  return (
    <Dialog title={t.sendAgain.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ action, close }}
          submit={t.sendAgain.submit}
          isIncomplete={states.length === 0}
          onSubmit={(form) => submit(form, close)}
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
        </DialogForm>
      )}
    </Dialog>
  );
}

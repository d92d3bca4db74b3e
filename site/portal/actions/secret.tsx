import { useState } from "preact/hooks";
import type { NewSecret, WebhookView as Webhook } from "../../../src/history/views.ts";
import type { Fault } from "../api.ts";
import { renewSecret } from "../api.ts";
import { formatTime } from "../format.ts";
import { useAction } from "../load.ts";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { Secret } from "../parts/secret.tsx";
import { t } from "../text.ts";

/** How long the previous secret may sign alongside the new one, in seconds. */
const OVERLAPS = [
  ["now", 0],
  ["hour", 3_600],
  ["day", 86_400],
  ["week", 604_800],
] as const;

/** Creates a new secret and shows it once. */
export function SecretDialog({ webhook, onClose }: { webhook: Webhook; onClose(): void }) {
  const action = useAction();
  const [made, setMade] = useState<NewSecret | null>(null);
  return (
    <Dialog title={t.secret.title} isHeld={made !== null} onClose={onClose}>
      {(close) =>
        made ? (
          <>
            <p>
              {made.overlapEndsAt
                ? t.endOverlap.until(formatTime(made.overlapEndsAt))
                : t.secret.ended}
            </p>
            <Secret secret={made.secret} stored={t.secret.stored} onStored={close} />
          </>
        ) : (
          <DialogForm
            action={action}
            close={close}
            submit={t.secret.submit}
            fault={
              isTooMany(action.fault) && (
                <p class="note bad" role="alert">
                  {t.secret.tooMany}
                </p>
              )
            }
            onSubmit={(form) =>
              void action.run(async () =>
                setMade(await renewSecret(webhook.webhookId, Number(form.get("overlap")))),
              )
            }
          >
            <p>{t.secret.text}</p>
            <fieldset>
              <legend>{t.secret.overlap}</legend>
              {OVERLAPS.map(([name, seconds]) => (
                <label class="check" key={name}>
                  <input
                    type="radio"
                    name="overlap"
                    value={seconds}
                    defaultChecked={name === "day"}
                  />
                  {t.secret.overlaps[name]}
                </label>
              ))}
            </fieldset>
          </DialogForm>
        )
      }
    </Dialog>
  );
}

/** Whether too many earlier secrets would sign alongside the new one. */
function isTooMany(fault: Fault | null): boolean {
  return fault?.body?.details.parameter === "webhookId";
}

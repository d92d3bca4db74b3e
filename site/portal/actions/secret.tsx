import type { WebhookView as Webhook } from "../../../src/history/views.ts";
import type { Fault } from "../api.ts";
import { renewSecret } from "../api.ts";
import { formatTime } from "../format.ts";
import { reloadAll } from "../load.ts";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm, useOutlivingAction } from "../parts/dialog-form.tsx";
import { showSecret } from "../parts/secret.tsx";
import { t } from "../text.ts";
import { nameOf } from "../webhook.ts";

/** How long the previous secret may sign alongside the new one, in seconds. */
const OVERLAPS = [
  ["now", 0],
  ["hour", 3_600],
  ["day", 86_400],
  ["week", 604_800],
] as const;

/** Creates a new secret, which is then shown once, even if the reader has closed this dialog meanwhile. */
export function SecretDialog({ webhook, onClose }: { webhook: Webhook; onClose(): void }) {
  const action = useOutlivingAction();
  const renew = async (overlapSeconds: number, close: () => void) => {
    const { secret, overlapEndsAt } = await renewSecret(webhook.webhookId, overlapSeconds);
    const until = overlapEndsAt ? t.endOverlap.until(formatTime(overlapEndsAt)) : t.secret.ended;
    const about = [...(action.isGone() ? [t.secret.late(nameOf(webhook))] : []), until];
    close();
    showSecret({ title: t.secret.doneTitle, about, secret, stored: t.secret.stored });
    reloadAll();
  };
  const explained = explain(action.fault);
  return (
    <Dialog title={t.secret.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          action={action}
          close={close}
          submit={t.secret.submit}
          fault={
            explained && (
              <p class="note bad" role="alert">
                {explained}
              </p>
            )
          }
          onSubmit={(form) => void action.run(() => renew(Number(form.get("overlap")), close))}
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
      )}
    </Dialog>
  );
}

/** Explains a fault that needs more than the usual words: too many earlier secrets would sign, or the new one is lost. */
function explain(fault: Fault | null): string | null {
  if (fault?.body?.details.parameter === "webhookId") return t.secret.tooMany;
  return fault && fault.status === null ? t.secret.lost : null;
}

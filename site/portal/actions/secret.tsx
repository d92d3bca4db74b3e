import type { WebhookView as Webhook } from "../../../src/history/views.ts";
import type { Fault } from "../api.ts";
import { renewSecret } from "../api.ts";
import { formatTime } from "../format.ts";
import { reloadAll } from "../load.ts";
import { copyText } from "../parts/basics.tsx";
import { useOutlivingAction } from "../parts/dialog-form.tsx";
import { ActionFault } from "../parts/faults.tsx";
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

/** Creates a new secret, which is then copied and shown once, even if the reader has left the form meanwhile. */
export function SecretForm({ webhook }: { webhook: Webhook }) {
  const { isBusy, fault, run, isGone } = useOutlivingAction();
  const renew = async (overlapSeconds: number) => {
    const { secret, overlapEndsAt } = await renewSecret(webhook.webhookId, overlapSeconds);
    const until = overlapEndsAt ? t.endOverlap.until(formatTime(overlapEndsAt)) : t.secret.ended;
    const about = isGone() ? [t.secret.late(nameOf(webhook))] : [];
    if (!isGone() && (await copyText(secret))) about.push(t.secret.copied);
    about.push(until);
    showSecret({ title: t.secret.doneTitle, about, secret, stored: t.secret.stored });
    reloadAll();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const form = event.currentTarget;
        const overlap = Number(new FormData(form).get("overlap"));
        // The next secret gets the usual overlap again.
        void run(() => renew(overlap).then(() => form.reset()));
      }}
    >
      <p>{t.secret.text}</p>
      <fieldset>
        <legend>{t.secret.overlap}</legend>
        {OVERLAPS.map(([name, seconds]) => (
          <label class="check" key={name}>
            <input type="radio" name="overlap" value={seconds} defaultChecked={name === "day"} />
            {t.secret.overlaps[name]}
          </label>
        ))}
      </fieldset>
      <ActionFault fault={fault} text={explain(fault)} />
      {/* It stays focused, which a disabled button does not. */}
      <button type="submit" aria-disabled={isBusy}>
        {t.secret.submit}
      </button>
    </form>
  );
}

/** Explains a fault that needs more than the usual words: too many earlier secrets would sign, or the new one is lost. */
function explain(fault: Fault | null): string | undefined {
  if (fault?.body?.details.parameter === "webhookId") return t.secret.tooMany;
  return fault?.status === null ? t.secret.lost : undefined;
}

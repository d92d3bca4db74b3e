import { useState } from "preact/hooks";
import type { WebhookEvent as Kind } from "../../../src/contract/enumerations.ts";
import type { TestResult, WebhookView as Webhook } from "../../../src/history/views.ts";
import { sendTest } from "../api.ts";
import { explain, formatOutcome } from "../format.ts";
import { useAction } from "../load.ts";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { deliveryHref } from "../route.ts";
import { t } from "../text.ts";

/** Sends a test event and shows the receiver's answer. */
export function TestDialog(props: { webhook: Webhook; onClose(): void; onDone(): void }) {
  const { webhook, onClose, onDone } = props;
  const action = useAction();
  const [result, setResult] = useState<TestResult | null>(null);
  const send = (kind: Kind) =>
    action.run(async () => {
      setResult(null);
      setResult(await sendTest(webhook.webhookId, kind));
      onDone();
    });
  return (
    <Dialog title={t.test.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ action, close }}
          submit={result ? t.test.again : t.test.submit}
          cancel={t.close}
          onSubmit={(form) => void send(form.get("kind") as Kind)}
        >
          <p>{t.test.text}</p>
          <label class="field">
            {t.deliveries.kind}
            <select name="kind">
              {webhook.events.map((kind) => (
                <option key={kind} value={kind}>
                  {t.kinds[kind]} ({kind})
                </option>
              ))}
            </select>
          </label>
          <div role="status">
            {action.isBusy && <p class="note">{t.test.sending}</p>}
            {result && <Result webhook={webhook} result={result} />}
          </div>
        </DialogForm>
      )}
    </Dialog>
  );
}

function Result({ webhook, result }: { webhook: Webhook; result: TestResult }) {
  const trouble = explain(result);
  return (
    <div class={`note ${trouble === null ? "good" : "bad"}`}>
      <p>
        <b>{formatOutcome(result)}</b> · {t.milliseconds(result.durationMs)}
      </p>
      <p>{trouble ?? t.test.accepted}</p>
      <p>
        <a href={deliveryHref(webhook.webhookId, result.eventId)}>{t.test.details}</a>
      </p>
    </div>
  );
}

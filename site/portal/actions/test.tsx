import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { TestResult, WebhookView as Webhook } from "../../../src/history/views.ts";
import { sendTest } from "../api.ts";
import { explain, formatOutcome } from "../format.ts";
import { reloadAll, useAction } from "../load.ts";
import { Dialog } from "../parts/dialog.tsx";
import { DialogForm } from "../parts/dialog-form.tsx";
import { ActionFault } from "../parts/faults.tsx";
import { deliveryHref } from "../route.ts";
import { t } from "../text.ts";

/** Sends a test event and shows the server's response. */
export function TestDialog(props: { webhook: Webhook; onClose(): void }) {
  const { webhook, onClose } = props;
  const action = useAction();
  const [result, setResult] = useState<TestResult | null>(null);
  const send = (type: WebhookEvent) =>
    action.run(async () => {
      setResult(null);
      setResult(await sendTest(webhook.webhookId, type));
      reloadAll();
    });
  return (
    <Dialog title={t.test.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          action={action}
          close={close}
          submit={result ? t.test.again : t.test.submit}
          cancel={t.close}
          onSubmit={(form) => void send(form.get("type") as WebhookEvent)}
        >
          <p>{t.test.text}</p>
          <label class="field">
            {t.deliveries.type}
            <select name="type">
              {webhook.events.map((type) => (
                <option key={type} value={type}>
                  {t.types[type]}
                </option>
              ))}
            </select>
          </label>
          <div role="status">
            {action.isBusy && <p class="note">{t.test.sending}</p>}
            {result && <Result webhook={webhook} result={result} onFollow={close} />}
          </div>
        </DialogForm>
      )}
    </Dialog>
  );
}

interface TestButtonProps {
  webhook: Webhook;
  type: WebhookEvent;
  class?: string;
  /** Further buttons beside it. */
  children: ComponentChildren;
}

/** Sends a test event of this type at once, and shows the server's response below. */
export function TestButton({ webhook, type, class: look, children }: TestButtonProps) {
  const action = useAction();
  const [result, setResult] = useState<TestResult | null>(null);
  const send = () =>
    action.run(async () => {
      setResult(null);
      setResult(await sendTest(webhook.webhookId, type));
      reloadAll();
    });
  return (
    <>
      <div class="buttons">
        {children}
        <button type="button" class={look} aria-disabled={action.isBusy} onClick={send}>
          {t.test.title}
        </button>
      </div>
      <div role="status" class="tested">
        {action.isBusy && <p>{t.test.sending}</p>}
        {result && <Result webhook={webhook} result={result} />}
      </div>
      <ActionFault fault={action.fault} />
    </>
  );
}

interface ResultProps {
  webhook: Webhook;
  result: TestResult;
  /** Called when the reader follows the link to the delivery, which a dialog would cover. */
  onFollow?(): void;
}

function Result({ webhook, result, onFollow }: ResultProps) {
  const cause = explain(result);
  return (
    <div class={`note ${cause === null ? "good" : "bad"}`}>
      <p>
        <b>{formatOutcome(result)}</b> · {t.milliseconds(result.durationMs)}
      </p>
      <p>{cause ? `${cause.means} ${cause.todo}` : t.test.accepted}</p>
      <p>
        <a href={deliveryHref(webhook.webhookId, result.eventId)} onClick={onFollow}>
          {t.test.details}
        </a>
      </p>
    </div>
  );
}

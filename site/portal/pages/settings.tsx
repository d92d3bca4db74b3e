import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { DisableDialog } from "../actions/disable.tsx";
import { EditDialog } from "../actions/edit.tsx";
import { EnableDialog } from "../actions/enable.tsx";
import { Headers } from "../actions/headers.tsx";
import { RemoveDialog } from "../actions/remove.tsx";
import { SecretForm } from "../actions/secret.tsx";
import { endOverlap } from "../api.ts";
import { formatTime } from "../format.ts";
import { reloadAll } from "../load.ts";
import { Facts, Id, Types } from "../parts/basics.tsx";
import { DialogButton } from "../parts/dialog.tsx";
import { FormDialog } from "../parts/dialog-form.tsx";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { maskUrl } from "../webhook.ts";

interface Props {
  webhook: WebhookDetails;
  /** The event types that may be subscribed to. */
  types: readonly WebhookEvent[];
}

/** Shows the settings of a webhook: URL, event types, secret and headers. Offers to disable or delete it. */
export function Settings({ webhook, types }: Props) {
  const mayChange = !isReadOnly();
  return (
    <div class="settings">
      <Setting title={t.settings.endpoint} text={t.settings.endpointText}>
        <Endpoint webhook={webhook} />
        {mayChange && (
          <DialogButton label={t.edit.button} draft="settings">
            {(onClose) => (
              <EditDialog webhook={webhook} types={types} draft="settings" onClose={onClose} />
            )}
          </DialogButton>
        )}
      </Setting>
      <Setting title={t.secret.label} text={t.settings.secretText}>
        <Overlap webhook={webhook} />
        {mayChange && <SecretForm webhook={webhook} />}
      </Setting>
      <Setting title={t.headers.title} text={t.headers.text}>
        <Headers webhook={webhook} />
      </Setting>
      {mayChange && <Ending webhook={webhook} />}
    </div>
  );
}

interface SettingProps {
  title: string;
  text: string;
  children: ComponentChildren;
}

function Setting({ title, text, children }: SettingProps) {
  return (
    <section class="setting">
      <div>
        <h2>{title}</h2>
        <p class="hint">{text}</p>
      </div>
      <div>{children}</div>
    </section>
  );
}

function Endpoint({ webhook }: { webhook: WebhookDetails }) {
  const [isShown, setShown] = useState(false);
  const { url, createdAt, keyId, keyLabel } = webhook;
  const isMasked = maskUrl(url) !== url && new URL(url).search !== "";
  return (
    <Facts
      of={[
        [
          t.subscribe.url,
          <span key="" class="id">
            <span class="mono">{isShown ? url : maskUrl(url)}</span>
            {isMasked && (
              <button type="button" class="quiet" onClick={() => setShown(!isShown)}>
                {isShown ? t.settings.hide : t.settings.show}
              </button>
            )}
          </span>,
        ],
        [t.edit.description, webhook.description ?? t.noDescription],
        [t.webhook.events, <Types key="" types={webhook.events} />],
        [t.webhook.created, formatTime(createdAt)],
        [t.webhook.createdBy, keyLabel ?? keyId ?? t.webhook.portal],
        [t.webhook.id, <Id key="">{webhook.webhookId}</Id>],
      ]}
    />
  );
}

/** Shows until when previous secrets sign, if any do, and offers to end that. */
function Overlap({ webhook }: { webhook: WebhookDetails }) {
  if (webhook.overlapEndsAt === null) return null;
  const end = async () => {
    await endOverlap(webhook.webhookId);
    reloadAll();
    return t.endOverlap.result;
  };
  return (
    <div class="note">
      <p>{t.endOverlap.until(formatTime(webhook.overlapEndsAt))}</p>
      {!isReadOnly() && (
        <DialogButton label={t.endOverlap.button}>
          {(onClose) => (
            <FormDialog texts={t.endOverlap} act={end} onClose={onClose}>
              <p>{t.endOverlap.text}</p>
            </FormDialog>
          )}
        </DialogButton>
      )}
    </div>
  );
}

/** Offers to disable the webhook, which can be undone, and to delete it, which cannot. */
function Ending({ webhook }: { webhook: WebhookDetails }) {
  const isDisabled = webhook.state === "disabled";
  return (
    <>
      <Setting title={t.settings.switch} text={isDisabled ? t.disable.text : t.disable.offer}>
        <DialogButton label={isDisabled ? t.enable.button : t.disable.button}>
          {(onClose) =>
            isDisabled ? (
              <EnableDialog webhook={webhook} onClose={onClose} />
            ) : (
              <DisableDialog webhook={webhook} onClose={onClose} />
            )
          }
        </DialogButton>
      </Setting>
      <Setting title={t.settings.remove} text={t.settings.removeText}>
        <DialogButton label={t.remove.button} class="danger-quiet">
          {(onClose) => <RemoveDialog webhook={webhook} onClose={onClose} />}
        </DialogButton>
      </Setting>
    </>
  );
}

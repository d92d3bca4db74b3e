import { useState } from "preact/hooks";
import { HEADERS_MAX } from "../../../src/contract/limits.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { updateWebhook } from "../api.ts";
import { reloadAll } from "../load.ts";
import { DialogButton } from "../parts/dialog.tsx";
import { FormDialog } from "../parts/dialog-form.tsx";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";

/** Lists the custom headers of a webhook with actions. Their values are never shown. */
export function Headers({ webhook }: { webhook: WebhookDetails }) {
  const { headers } = webhook;
  const mayChange = !isReadOnly();
  return (
    <>
      {headers.length === 0 ? (
        <p>{t.headers.none}</p>
      ) : (
        <ul class="headers">
          {headers.map((name) => (
            <li key={name}>
              <span class="mono">{name}</span> <span class="hint">••••••••</span>
              {mayChange && (
                <span class="buttons">
                  <DialogButton
                    class="quiet"
                    label={t.headers.replace}
                    about={name}
                    draft={draftOf(name)}
                  >
                    {(onClose) => <HeaderDialog webhook={webhook} name={name} onClose={onClose} />}
                  </DialogButton>
                  <DialogButton class="quiet" label={t.headers.remove} about={name}>
                    {(onClose) => (
                      <RemoveHeaderDialog webhook={webhook} name={name} onClose={onClose} />
                    )}
                  </DialogButton>
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
      {mayChange && headers.length < HEADERS_MAX && (
        <DialogButton label={t.headers.button} draft={draftOf()}>
          {(onClose) => <HeaderDialog webhook={webhook} onClose={onClose} />}
        </DialogButton>
      )}
      {headers.length >= HEADERS_MAX && <p class="hint">{t.headers.full(HEADERS_MAX)}</p>}
    </>
  );
}

/** The name of the form that adds a header, or replaces the value of one. */
function draftOf(name = ""): string {
  return `header ${name}`;
}

interface HeaderProps {
  webhook: WebhookDetails;
  /** The name of the header to replace; absent for a new one. */
  name?: string;
  onClose(): void;
}

/** Adds a header, or replaces the value of one. The others stay. */
function HeaderDialog({ webhook, name, onClose }: HeaderProps) {
  const [missing, setMissing] = useState<string>();
  const save = async (form: FormData) => {
    const given = name ?? String(form.get("name")).trim();
    const value = String(form.get("value")).trim();
    const isMissing = given === "" || value === "";
    setMissing(isMissing ? t.headers.required : undefined);
    if (isMissing) return null;
    await updateWebhook(webhook.webhookId, { setHeaders: { [given]: value } });
    reloadAll();
    return t.headers.result;
  };
  const texts = name === undefined ? t.headers.add : t.headers.change;
  return (
    <FormDialog texts={texts} field="setHeaders" draft={draftOf(name)} act={save} onClose={onClose}>
      {(refused) => {
        const fault = missing ?? (refused && t.headers.refused);
        return (
          <>
            <p>{t.headers.text}</p>
            {name === undefined ? (
              <label class="field">
                {t.headers.name}
                <input
                  name="name"
                  class="mono"
                  placeholder="Authorization"
                  autocomplete="off"
                  spellcheck={false}
                  aria-invalid={fault !== undefined}
                />
              </label>
            ) : (
              <p class="mono">{name}</p>
            )}
            <label class="field">
              {t.headers.value}
              <input
                name="value"
                class="mono"
                autocomplete="off"
                spellcheck={false}
                aria-invalid={fault !== undefined}
              />
              <small>{t.headers.hint}</small>
            </label>
            <p class="fault" aria-live="polite">
              {fault}
            </p>
          </>
        );
      }}
    </FormDialog>
  );
}

function RemoveHeaderDialog({ webhook, name, onClose }: Required<HeaderProps>) {
  const remove = async () => {
    await updateWebhook(webhook.webhookId, { removeHeaders: [name] });
    reloadAll();
    return t.headers.result;
  };
  return (
    <FormDialog texts={t.headers.drop} act={remove} onClose={onClose}>
      <p>{t.headers.dropText(name)}</p>
    </FormDialog>
  );
}

import { useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { type Changes, updateWebhook } from "../api.ts";
import { reloadAll } from "../load.ts";
import { DescriptionField } from "../parts/description-field.tsx";
import { type AboutWebhook, FormDialog } from "../parts/dialog-form.tsx";
import { TypeFields } from "../parts/type-fields.tsx";
import { UrlField } from "../parts/url-field.tsx";
import { t } from "../text.ts";

interface Props extends AboutWebhook {
  /** The event types that may be subscribed to. */
  types: readonly WebhookEvent[];
  /** The name of the form. */
  draft: string;
}

/** Changes the description, the URL and the event types of a webhook. */
export function EditDialog({ webhook, types, draft, onClose }: Props) {
  // The values when the dialog was opened are kept, because the page behind it goes on refreshing.
  const [before] = useState(webhook);
  const [fault, setFault] = useState<string>();
  const save = async (form: FormData) => {
    const changes = changesIn(form, before);
    setFault(changes.events?.length === 0 ? t.subscribe.eventsRequired : undefined);
    if (changes.events?.length === 0) return null;
    if (Object.keys(changes).length === 0) return t.edit.unchanged;
    const expected = expectedBy(changes, before);
    const { headersDropped = [] } = await updateWebhook(webhook.webhookId, {
      ...changes,
      expected,
    });
    reloadAll();
    return headersDropped.length === 0
      ? t.edit.result
      : t.edit.headersDropped(headersDropped.join(", "));
  };
  return (
    <FormDialog texts={t.edit} field="url" draft={draft} act={save} onClose={onClose}>
      {(urlFault) => (
        <>
          <UrlField url={before.url} fault={urlFault} />
          <DescriptionField description={before.description} />
          <TypeFields types={types} chosen={before.events} fault={fault} />
          <p class="hint">{t.edit.text}</p>
          {before.headers.length > 0 && <p class="hint">{t.edit.headersStay}</p>}
        </>
      )}
    </FormDialog>
  );
}

/** Returns the changed fields. The others are not sent, because another administrator may have changed them. */
function changesIn(form: FormData, before: WebhookDetails): Changes {
  const url = String(form.get("url")).trim();
  const description = String(form.get("description")).trim();
  const events = form.getAll("events") as WebhookEvent[];
  const changes: Changes = {};
  if (url !== before.url) changes.url = url;
  if (description !== (before.description ?? "")) changes.description = description;
  if (events.toSorted().join() !== before.events.toSorted().join()) changes.events = events;
  return changes;
}

/** Returns the previous values of the changed fields, so that the server notices a change by another person. */
function expectedBy(changes: Changes, before: WebhookDetails): NonNullable<Changes["expected"]> {
  const expected: NonNullable<Changes["expected"]> = {};
  if (changes.url !== undefined) expected.url = before.url;
  if (changes.events !== undefined) expected.events = before.events;
  if (changes.description !== undefined) expected.description = before.description;
  return expected;
}

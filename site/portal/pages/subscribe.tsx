import { useRef, useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { createWebhook, type NewWebhook } from "../api.ts";
import { useAction } from "../load.ts";
import { ActionFault, faultOf } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { Secret } from "../parts/secret.tsx";
import { TypeFields } from "../parts/type-fields.tsx";
import { UrlField } from "../parts/url-field.tsx";
import { goTo, webhookHref } from "../route.ts";
import { t } from "../text.ts";

type Field = "url" | "events";
type FieldFaults = Partial<Record<Field, string>>;

/** Subscribes a URL to event types, and shows the secret once. */
export function Subscribe({ workspace }: { workspace: Workspace }) {
  const [made, setMade] = useState<NewWebhook | null>(null);
  return (
    <>
      <p class="crumb">
        <a href="#/webhooks">← {t.webhooks}</a>
      </p>
      {made ? (
        <div class="narrow" key="made">
          <Heading title={t.subscribe.doneTitle}>{t.subscribe.doneTitle}</Heading>
          <p class="lead breakable">{made.url}</p>
          <Secret
            secret={made.secret}
            stored={t.subscribe.open}
            onStored={() => goTo(webhookHref(made.id))}
          />
        </div>
      ) : (
        <div class="narrow" key="form">
          <Heading title={t.subscribe.title}>{t.subscribe.title}</Heading>
          <p class="lead">{t.subscribe.lead}</p>
          <Form types={workspace.events} onMade={setMade} />
        </div>
      )}
    </>
  );
}

interface FormProps {
  types: readonly WebhookEvent[];
  onMade(webhook: NewWebhook): void;
}

function Form({ types, onMade }: FormProps) {
  const { isBusy, fault, run } = useAction();
  const [missing, setMissing] = useState<FieldFaults>({});
  // A form that is sent again after a lost response subscribes once: its key is the same.
  const sent = useRef<{ text: string; key: string } | null>(null);
  const url = missing.url ?? faultOf(fault, "url");
  const events = missing.events ?? faultOf(fault, "events");
  const submit = (form: HTMLFormElement) => {
    const entries = new FormData(form);
    const url = String(entries.get("url")).trim();
    const events = entries.getAll("events") as WebhookEvent[];
    const next: FieldFaults = {};
    if (url === "") next.url = t.subscribe.urlRequired;
    if (events.length === 0) next.events = t.subscribe.eventsRequired;
    setMissing(next);
    const first = Object.keys(next)[0];
    if (first) return form.querySelector<HTMLElement>(`[name=${first}]`)?.focus();
    const body = { url, events };
    const text = JSON.stringify(body);
    if (sent.current?.text !== text) sent.current = { text, key: crypto.randomUUID() };
    const { key } = sent.current;
    void run(async () => onMade(await createWebhook(body, key)));
  };
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        submit(event.currentTarget);
      }}
    >
      <UrlField fault={url} />
      <TypeFields types={types} chosen={types} fault={events} />
      <ActionFault fault={url || events ? null : fault} />
      <div class="buttons">
        <a class="button" href="#/webhooks">
          {t.cancel}
        </a>
        <button type="submit" class="primary" aria-disabled={isBusy}>
          {t.subscribe.submit}
        </button>
      </div>
    </form>
  );
}

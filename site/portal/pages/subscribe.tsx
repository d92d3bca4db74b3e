import { useRef, useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { type Creation, createWebhook } from "../api.ts";
import { useDraft } from "../drafts.ts";
import { reloadAll } from "../load.ts";
import { DescriptionField } from "../parts/description-field.tsx";
import { useOutlivingAction } from "../parts/dialog-form.tsx";
import { ActionFault, faultOf } from "../parts/faults.tsx";
import { HeaderFields, parseHeaders } from "../parts/header-fields.tsx";
import { Heading } from "../parts/heading.tsx";
import { showSecret } from "../parts/secret.tsx";
import { TypeFields } from "../parts/type-fields.tsx";
import { UrlField } from "../parts/url-field.tsx";
import { goTo, webhookHref } from "../route.ts";
import { t } from "../text.ts";
import { maskUrl } from "../webhook.ts";

/** Asks for the URL of a new webhook, its event types, description and headers. */
export function Subscribe({ workspace }: { workspace: Workspace }) {
  return (
    <>
      <p class="crumb">
        <a href="#/webhooks">← {t.webhooks}</a>
      </p>
      <div class="narrow">
        <Heading title={t.subscribe.title}>{t.subscribe.title}</Heading>
        <p class="lead">{t.subscribe.lead}</p>
        <Form types={workspace.events} />
      </div>
    </>
  );
}

/** The name of the form. */
const FORM = "subscribe";

/** The fields that the page checks itself, in their order. */
const FIELDS = ["url", "headerName", "events"] as const;
type Faults = Partial<Record<(typeof FIELDS)[number], string>>;

function Form({ types }: { types: readonly WebhookEvent[] }) {
  const { isBusy, fault, run, isGone } = useOutlivingAction();
  const [missing, setMissing] = useState<Faults>({});
  const form = useDraft(FORM);
  // A form that is sent again after a lost response subscribes once: its key is the same.
  const sent = useRef<{ text: string; key: string } | null>(null);
  const url = missing.url ?? faultOf(fault, "url");
  const events = missing.events ?? faultOf(fault, "events");
  const headers = missing.headerName ?? (faultOf(fault, "headers") && t.headers.refused);
  const submit = (form: HTMLFormElement) => {
    const { body, faults } = parse(new FormData(form));
    setMissing(faults);
    const first = FIELDS.find((field) => faults[field]);
    if (first) return form.querySelector<HTMLElement>(`[name=${first}]`)?.focus();
    const text = JSON.stringify(body);
    if (sent.current?.text !== text) sent.current = { text, key: crypto.randomUUID() };
    const { key } = sent.current;
    void run(() => create(body, key, isGone));
  };
  return (
    <form
      ref={form}
      data-draft={FORM}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        submit(event.currentTarget);
      }}
    >
      <UrlField fault={url} />
      <DescriptionField />
      <TypeFields types={types} chosen={types} fault={events} />
      <HeaderFields form={FORM} fault={headers} />
      <ActionFault fault={url || events || headers ? null : fault} />
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

/** Parses the form. Empty fields that may be empty are left out. */
function parse(form: FormData): { body: Creation; faults: Faults } {
  const url = String(form.get("url")).trim();
  const description = String(form.get("description")).trim();
  const events = form.getAll("events") as WebhookEvent[];
  const headers = parseHeaders(form);
  const faults: Faults = {};
  if (url === "") faults.url = t.subscribe.urlRequired;
  if (headers === null) faults.headerName = t.headers.required;
  if (events.length === 0) faults.events = t.subscribe.eventsRequired;
  const body: Creation = { url, events };
  if (description !== "") body.description = description;
  if (headers !== null && Object.keys(headers).length > 0) body.headers = headers;
  return { body, faults };
}

/** Creates a webhook and shows its secret, even if the reader has left the form meanwhile. */
async function create(body: Creation, key: string, isGone: () => boolean): Promise<void> {
  const { id, url, secret } = await createWebhook(body, key);
  const isLate = isGone();
  const open = () => goTo(webhookHref(id));
  if (!isLate) open();
  showSecret({
    title: t.subscribe.doneTitle,
    about: [maskUrl(url), ...(isLate ? [t.subscribe.late] : [])],
    secret,
    stored: t.secret.stored,
    ...(isLate && { onStored: open }),
  });
  reloadAll();
}

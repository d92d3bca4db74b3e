import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { DELIVERIES } from "../../../src/events/samples.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { eventFields } from "../event-fields.ts";
import { Body } from "../parts/body.tsx";
import { Heading } from "../parts/heading.tsx";
import { t } from "../text.ts";

/** The event types that the workspace may subscribe to, each with its fields and an example. */
export function Events({ workspace }: { workspace: Workspace }) {
  return (
    <>
      <Heading title={t.catalogue.title}>{t.catalogue.title}</Heading>
      <p class="lead">
        {t.catalogue.lead}{" "}
        <a href="/docs/guides/events" target="_blank" rel="noopener noreferrer" hreflang="en">
          {t.catalogue.docs}
        </a>
      </p>
      {workspace.events.map((type) => (
        <section key={type}>
          <h2>
            {t.types[type]} <span class="mono small">{type}</span>
          </h2>
          <p>{t.catalogue.when[type]}</p>
          <div class="event-type">
            <Fields type={type} />
            <Body body={JSON.stringify(DELIVERIES[type])} isExample />
          </div>
        </section>
      ))}
    </>
  );
}

/** Lists the fields of an event type. Their descriptions are those of the docs, in English. */
function Fields({ type }: { type: WebhookEvent }) {
  return (
    <table class="fields">
      <caption class="hidden">{t.catalogue.fieldsOf(type)}</caption>
      <thead>
        <tr>
          <th scope="col">{t.catalogue.field}</th>
          <th scope="col">{t.catalogue.about}</th>
        </tr>
      </thead>
      <tbody>
        {(eventFields[type] ?? []).map(({ path, type: kind, values, isRequired, about }) => (
          <tr key={path}>
            <th scope="row">
              <span class="mono">{path}</span>
              <span class="small" lang="en">
                {isRequired ? kind : `${kind}, optional`}
              </span>
            </th>
            <td lang="en">
              <About text={about} />
              {values.length > 0 && !about.includes("\n") && (
                <span class="mono small">{values.join(", ")}</span>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Shows a description of the document: a sentence, and a list if there are several values. */
function About({ text }: { text: string }) {
  const [first = "", ...items] = text.split(/\n+(?:- )?/);
  return (
    <>
      {withCode(first)}
      {items.length > 0 && (
        <ul>
          {items.map((item) => (
            <li key={item}>{withCode(item)}</li>
          ))}
        </ul>
      )}
    </>
  );
}

function withCode(text: string) {
  return text.split("`").map((part, i) => (i % 2 === 0 ? part : <code class="mono">{part}</code>));
}

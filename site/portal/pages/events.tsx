import { DELIVERIES } from "../../../src/events/samples.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { Body } from "../parts/body.tsx";
import { Heading } from "../parts/heading.tsx";
import { t } from "../text.ts";

/** The event types that the workspace may subscribe to, each with an example. */
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
          <Body body={JSON.stringify(DELIVERIES[type])} isExample />
        </section>
      ))}
    </>
  );
}

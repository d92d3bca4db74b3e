import { DELIVERIES } from "../../../src/events/samples.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { Body } from "../parts/body.tsx";
import { Heading } from "../parts/heading.tsx";
import { t } from "../text.ts";

/** The kinds of events that the workspace may subscribe to, each with an example. */
export function Events({ workspace }: { workspace: Workspace }) {
  return (
    <>
      <Heading>{t.catalogue.title}</Heading>
      <p class="lead">
        {t.catalogue.lead}{" "}
        <a href="/docs/guides/events" target="_blank" rel="noopener noreferrer">
          {t.catalogue.docs}
        </a>
      </p>
      {workspace.events.map((kind) => (
        <section key={kind}>
          <h2>
            {t.kinds[kind]} <span class="mono small">{kind}</span>
          </h2>
          <p>{t.catalogue.when[kind]}</p>
          <Body body={JSON.stringify(DELIVERIES[kind])} isExample />
        </section>
      ))}
    </>
  );
}

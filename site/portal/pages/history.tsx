import type { WebhookView } from "../../../src/history/views.ts";
import type { WorkspaceChangeView as Change } from "../../../src/workspaces/views.ts";
import { listHistory, listWebhooks } from "../api.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/basics.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { Name } from "../parts/name.tsx";
import { Pages } from "../parts/pages.tsx";
import { webhookHref, workspaceHistoryHref } from "../route.ts";
import { t } from "../text.ts";
import { Entry } from "./changes.tsx";

/** Lists what was changed in the workspace and by whom, newest first: deletions, links and sessions included. */
export function WorkspaceHistory({ cursor }: { cursor: string | null }) {
  const loaded = useLoad(() => listHistory(cursor), `history ${cursor ?? ""}`);
  const webhooks = useLoad(listWebhooks, "webhooks").data ?? [];
  const changes = loaded.data?.items;
  return (
    <>
      <Heading title={t.history.title}>{t.history.title}</Heading>
      <p class="lead">{t.history.lead}</p>
      <LoadState loaded={loaded} />
      {changes?.length === 0 && <Empty title={t.history.empty} text={t.history.emptyText} />}
      {changes && changes.length > 0 && (
        <ol class="changes">
          {changes.map((change) => (
            <Entry key={`${change.at} ${change.method} ${change.webhookId}`} of={change}>
              <Subject of={change} webhooks={webhooks} among={changes} />
            </Entry>
          ))}
        </ol>
      )}
      {loaded.data && (
        <Pages
          label={t.changes.pages}
          cursor={cursor}
          next={loaded.data.nextCursor}
          href={workspaceHistoryHref}
        />
      )}
    </>
  );
}

interface SubjectProps {
  of: Change;
  webhooks: WebhookView[];
  /** The changes on the page: that of its deletion names a webhook that is gone. */
  among: Change[];
}

/** Names the webhook of a change, and leads to it if it still exists. */
function Subject({ of: { webhookId }, webhooks, among }: SubjectProps) {
  if (webhookId === null) return null;
  const webhook = webhooks.find((one) => one.webhookId === webhookId);
  if (webhook)
    return (
      <>
        {" · "}
        <a href={webhookHref(webhookId)}>
          <Name of={webhook} />
        </a>
      </>
    );
  const own = among.filter((change) => change.webhookId === webhookId);
  const { url, description = null } =
    own.map(({ before, after }) => ({ ...after, ...before })).find((fields) => fields.url) ?? {};
  return (
    <>
      {" · "}
      {url ? <Name of={{ url, description }} /> : <span class="mono">{webhookId}</span>}
    </>
  );
}

import type { WebhookView as Webhook } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { listWebhooks } from "../api.ts";
import { formatOutcome, formatPending, formatTime } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty, Kinds, State, Time, Url } from "../parts/basics.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { webhookHref } from "../route.ts";
import { t } from "../text.ts";

/** All subscriptions, with their health at a glance. */
export function Webhooks({ workspace }: { workspace: Workspace }) {
  const loaded = useLoad(listWebhooks);
  const webhooks = loaded.data;
  const isFull = webhooks !== null && webhooks.length >= workspace.webhooksMax;
  return (
    <>
      <div class="head">
        <div>
          <Heading>{t.subscriptions}</Heading>
          <p class="lead">{t.list.lead}</p>
        </div>
        {webhooks !== null && webhooks.length > 0 && !isFull && <SubscribeLink />}
      </div>
      <LoadState loaded={loaded} />
      {webhooks?.length === 0 && (
        <Empty title={t.list.emptyTitle} text={t.list.emptyText}>
          <SubscribeLink />
        </Empty>
      )}
      {webhooks !== null && webhooks.length > 0 && (
        <ul class="cards">
          {webhooks.map((webhook) => (
            <Card key={webhook.webhookId} webhook={webhook} />
          ))}
        </ul>
      )}
      {isFull && <p class="hint">{t.list.full(workspace.webhooksMax)}</p>}
    </>
  );
}

function SubscribeLink() {
  return (
    <a class="button primary" href="#/subscribe">
      {t.subscribe.title}
    </a>
  );
}

function Card({ webhook }: { webhook: Webhook }) {
  const { disabledAt, failingSince, lastAttempt } = webhook;
  const pending = formatPending(webhook);
  return (
    <li class="card">
      <div class="head">
        <h2>
          <a href={webhookHref(webhook.webhookId)}>
            <Url of={webhook.url} />
          </a>
        </h2>
        <State webhook={webhook} />
      </div>
      {webhook.description && <p class="card-text">{webhook.description}</p>}
      <Kinds kinds={webhook.events} />
      <p class="card-foot">
        {lastAttempt && (
          <span>
            {t.list.lastAttempt} {formatOutcome(lastAttempt)}, <Time at={lastAttempt.at} />
          </span>
        )}
        {pending && <span>{t.list.pending(pending)}</span>}
        {disabledAt !== null ? (
          <span class="bad-text">{t.list.disabledAt(formatTime(disabledAt))}</span>
        ) : (
          failingSince !== null && (
            <span class="bad-text">{t.list.failingSince(formatTime(failingSince))}</span>
          )
        )}
      </p>
    </li>
  );
}

import { listWebhooks } from "../api.ts";
import { formatOutcome, formatTime, splitUrl } from "../format.ts";
import { useLoad } from "../load.ts";
import { Badge, Empty, Kinds, Loading, Time } from "../parts/basics.tsx";
import { LoadFault } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { webhookHref } from "../route.ts";
import type { Webhook, Workspace } from "../shapes.ts";
import { t } from "../text.ts";

/** All subscriptions, with their health at a glance. */
export function Webhooks({ workspace }: { workspace: Workspace }) {
  const loaded = useLoad(listWebhooks);
  const webhooks = loaded.data;
  const isFull = webhooks !== null && webhooks.length >= workspace.webhooks_max;
  return (
    <>
      <div class="head">
        <div>
          <Heading>{t.subscriptions}</Heading>
          <p class="lead">{t.list.lead}</p>
        </div>
        {webhooks !== null && webhooks.length > 0 && !isFull && <SubscribeLink />}
      </div>
      <LoadFault loaded={loaded} />
      {webhooks === null && !loaded.fault && <Loading />}
      {webhooks?.length === 0 && (
        <Empty title={t.list.emptyTitle} text={t.list.emptyText}>
          <SubscribeLink />
        </Empty>
      )}
      {webhooks !== null && webhooks.length > 0 && (
        <ul class="cards">
          {webhooks.map((webhook) => (
            <Card key={webhook.id} webhook={webhook} />
          ))}
        </ul>
      )}
      {isFull && <p class="hint">{t.list.full(workspace.webhooks_max)}</p>}
    </>
  );
}

function SubscribeLink() {
  return (
    <a class="button primary" href="#/subscribe">
      {t.list.subscribe}
    </a>
  );
}

function Card({ webhook }: { webhook: Webhook }) {
  const { host, path } = splitUrl(webhook.url);
  const { state, disabled_at, failing_since, last_attempt, pending } = webhook;
  return (
    <li class="card">
      <div class="card-head">
        <h2>
          <a href={webhookHref(webhook.id)}>
            {host}
            <span class="path">{path}</span>
          </a>
        </h2>
        <Badge tone={state}>{t.states[state]}</Badge>
      </div>
      <Kinds kinds={webhook.events} />
      <p class="card-foot">
        {last_attempt ? (
          <span>
            {t.list.lastAttempt} {formatOutcome(last_attempt)}
            {last_attempt.at && (
              <>
                , <Time at={last_attempt.at} />
              </>
            )}
          </span>
        ) : (
          <span>{t.list.noAttempt}</span>
        )}
        {pending > 0 && <span>{t.list.pending(pending)}</span>}
        {disabled_at !== null ? (
          <span class="bad-text">{t.list.disabledAt(formatTime(disabled_at))}</span>
        ) : (
          failing_since !== null && (
            <span class="bad-text">{t.list.failingSince(formatTime(failing_since))}</span>
          )
        )}
      </p>
    </li>
  );
}

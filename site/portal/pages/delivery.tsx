import type { ComponentChildren } from "preact";
import type { DeliveryDetails } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { readDelivery, redeliver } from "../api.ts";
import { formatExactTime } from "../format.ts";
import { useAction, useLoad } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Attempts } from "../parts/attempts.tsx";
import { DeliveryState, Facts, Id, Url } from "../parts/basics.tsx";
import { Body } from "../parts/body.tsx";
import { LoadState, SendFault } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { webhookHref } from "../route.ts";
import { t } from "../text.ts";

/** One delivery with its attempts and its body. */
export function Delivery(props: { workspace: Workspace; id: string; eventId: string }) {
  const { workspace, id, eventId } = props;
  const loaded = useLoad(() => readDelivery(id, eventId));
  const { isBusy, fault, run } = useAction();
  const delivery = loaded.data;
  const sendAgain = () =>
    run(async () => {
      const { count } = await redeliver(id, { eventIds: [eventId] });
      announce(count > 0 ? t.sendAgain.one : t.sendAgain.none);
      loaded.reload();
    });
  return (
    <>
      <p class="crumb">
        <a href={webhookHref(id)}>← {t.delivery.back}</a>
      </p>
      {delivery === null ? (
        <>
          <Heading>{loaded.fault ? t.deliveries.title : t.loading}</Heading>
          <LoadState loaded={loaded} />
        </>
      ) : (
        <>
          <div class="head">
            <div class="titled">
              <Heading>{t.kinds[delivery.type] ?? delivery.type}</Heading>
              <DeliveryState delivery={delivery} />
            </div>
            {delivery.state !== "test" && !delivery.isDisabled && (
              <button type="button" disabled={isBusy} onClick={sendAgain}>
                {delivery.state === "pending" ? t.deliveries.sendNow : t.deliveries.sendAgain}
              </button>
            )}
          </div>
          {delivery.state === "test" && <p class="hint">{t.test.once}</p>}
          {delivery.isDisabled && <p class="hint">{t.sendAgain.faults.webhookId}</p>}
          <LoadState loaded={loaded} />
          <SendFault fault={fault} />
          <About delivery={delivery} />
          <Attempts webhookId={id} delivery={delivery} onDone={loaded.reload} />
          <section>
            <h2>{t.delivery.body}</h2>
            <Body body={delivery.body} />
            <p class="hint">{t.delivery.kept(workspace.retentionDays)}</p>
          </section>
        </>
      )}
    </>
  );
}

function About({ delivery }: { delivery: DeliveryDetails }) {
  const { dueAt, settledAt, createdAt, attempts, eventId, url } = delivery;
  const facts: [string, ComponentChildren][] = [
    [t.delivery.id, <Id key="">{eventId}</Id>],
    [
      t.delivery.url,
      <span key="" class="mono">
        <Url of={url} />
      </span>,
    ],
    [t.delivery.recorded, formatExactTime(createdAt)],
    [t.deliveries.attempts, String(attempts)],
  ];
  if (settledAt) facts.push([t.delivery.settled, formatExactTime(settledAt)]);
  if (dueAt)
    facts.push([
      t.subscription.nextAttempt,
      Date.parse(dueAt) > Date.now() ? formatExactTime(dueAt) : t.subscription.asap,
    ]);
  return <Facts of={facts} />;
}

import type { DeliveryDetails } from "../../../src/webhooks/views.ts";
import { updateWebhook } from "../api.ts";
import { explain, formatExactTime, formatOutcome, isAccepted } from "../format.ts";
import { useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Badge } from "./basics.tsx";
import { ActionFault } from "./faults.tsx";

type Attempt = DeliveryDetails["attemptLog"][number];

/** The attempts of a delivery, oldest first, each with what was sent and what the receiver said. */
export function Attempts({ webhookId, log }: { webhookId: string; log: Attempt[] }) {
  return (
    <section>
      <h2>{t.deliveries.attempts}</h2>
      {log.length === 0 ? (
        <p class="hint">{t.delivery.noAttempt}</p>
      ) : (
        <ol class="attempts-log">
          {log.map((attempt, i) => (
            <li key={`${i} ${attempt.at}`}>
              <p class="attempt">
                <Badge tone={isAccepted(attempt) ? "delivered" : "exhausted"}>
                  {formatOutcome(attempt)}
                </Badge>
                <span>{formatExactTime(attempt.at)}</span>
                <span class="small">
                  {attempt.durationMs !== null && t.milliseconds(attempt.durationMs)}
                </span>
              </p>
              <Exchange webhookId={webhookId} attempt={attempt} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** What the receiver said, and the headers it was sent. */
function Exchange({ webhookId, attempt }: { webhookId: string; attempt: Attempt }) {
  const { status, request, response } = attempt;
  const trouble = explain(attempt);
  return (
    <div class="exchange">
      {trouble && <p>{trouble}</p>}
      {response?.error && <Text>{response.error}</Text>}
      {response?.location && <Redirect webhookId={webhookId} to={response.location} />}
      {status !== null && (response || !isAccepted(attempt)) && <Response response={response} />}
      {request && (
        <details>
          <summary>{t.exchange.request}</summary>
          <Text>
            {Object.entries(request.headers)
              .map(([name, value]) => `${name}: ${value}`)
              .join("\n")}
          </Text>
        </details>
      )}
    </div>
  );
}

/** Where a redirect leads, and a way to post there from now on. */
function Redirect({ webhookId, to }: { webhookId: string; to: string }) {
  const { isBusy, fault, run } = useAction();
  const follow = () =>
    run(async () => {
      await updateWebhook(webhookId, { url: to });
      announce(t.exchange.followed);
    });
  return (
    <>
      <p>
        {t.exchange.location} <span class="mono">{to}</span>{" "}
        <button type="button" class="quiet" disabled={isBusy} onClick={follow}>
          {t.exchange.follow}
        </button>
      </p>
      <ActionFault fault={fault} />
    </>
  );
}

function Response({ response }: Pick<Attempt, "response">) {
  if (!response || (response.contentType ?? response.body) === null)
    return <p class="hint">{t.exchange.empty}</p>;
  const { contentType, body, truncated } = response;
  if (body === null) return <p class="hint">{t.exchange.notText(contentType ?? "?")}</p>;
  return (
    <>
      <p class="hint">
        {t.exchange.response(contentType)}
        {truncated && `. ${t.exchange.cut}`}
      </p>
      <Text>{body}</Text>
    </>
  );
}

function Text({ children }: { children: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard.
    <pre tabIndex={0} class="wrapped">
      <code>{children}</code>
    </pre>
  );
}

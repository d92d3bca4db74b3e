import type { DeliveryDetails } from "../../../src/webhooks/views.ts";
import { explain, formatExactTime, formatOutcome, isAccepted } from "../format.ts";
import { t } from "../text.ts";
import { Badge } from "./basics.tsx";

type Attempt = DeliveryDetails["attemptLog"][number];

/** The attempts of a delivery, oldest first, each with what was sent and what the receiver said. */
export function Attempts({ log }: { log: Attempt[] }) {
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
              <Exchange {...attempt} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** What the receiver said, and the headers it was sent. */
function Exchange(attempt: Attempt) {
  const { status, request, response } = attempt;
  const trouble = explain(attempt);
  return (
    <div class="exchange">
      {trouble && <p>{trouble}</p>}
      {status !== null && <Response response={response} />}
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

function Response({ response }: Pick<Attempt, "response">) {
  if (!response) return <p class="hint">{t.exchange.empty}</p>;
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

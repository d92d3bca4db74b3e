import type { DeliveryDetails } from "../../../src/history/views.ts";
import { FollowButton } from "../actions/follow.tsx";
import { explain, formatMoment, formatOutcome, isAccepted } from "../format.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { Badge, Copy } from "./basics.tsx";

type Attempt = DeliveryDetails["attemptLog"][number];

/** Shows the attempts of a delivery, newest first. The newest one is open, the others are collapsed. */
export function Attempts(props: Omit<ExchangeProps, "attempt">) {
  const log = props.delivery.attemptLog;
  return (
    <div class="attempts-log">
      <h3>{t.deliveries.attempts}</h3>
      {log.length === 0 ? (
        <p class="hint">{t.delivery.noAttempt}</p>
      ) : (
        log.toReversed().map((attempt, i) => (
          <details key={`${log.length - i} ${attempt.at}`} open={i === 0}>
            <summary>
              <Badge tone={isAccepted(attempt) ? "delivered" : "exhausted"}>
                {formatOutcome(attempt)}
              </Badge>
              <span>{formatMoment(attempt.at)}</span>
              <span class="small">
                {attempt.durationMs !== null && t.milliseconds(attempt.durationMs)}
              </span>
            </summary>
            <Exchange {...props} attempt={attempt} />
          </details>
        ))
      )}
    </div>
  );
}

interface ExchangeProps {
  webhookId: string;
  delivery: DeliveryDetails;
  attempt: Attempt;
}

/** Shows the request headers and the response of an attempt. */
function Exchange(props: ExchangeProps) {
  const { attempt, delivery } = props;
  const { status, request, response } = attempt;
  const cause = explain(attempt);
  return (
    <div class="exchange">
      {cause && (
        <p>
          {cause.means} {cause.todo}
        </p>
      )}
      {response?.error && <Text>{response.error}</Text>}
      {response?.location && <Redirect {...props} to={response.location} />}
      {status !== null && (response || !isAccepted(attempt)) && <Response response={response} />}
      {response?.headers["retry-after"] !== undefined && (
        <p class="hint">{t.exchange.retryAfter}</p>
      )}
      {request && (
        <details>
          <summary>{t.exchange.request}</summary>
          <Text>{linesOf(request.headers)}</Text>
          <p class="hint">{t.exchange.curlHint}</p>
          <Copy text={toCurl(delivery, request.headers)} label={t.exchange.curl} />
        </details>
      )}
    </div>
  );
}

/** Shows where a redirect leads and, while the delivery fails, offers to send to that URL from now on. */
function Redirect({ webhookId, delivery, to }: ExchangeProps & { to: string }) {
  const isOffered = !isReadOnly() && delivery.state !== "delivered" && delivery.url !== to;
  return (
    <p>
      {t.exchange.location} <span class="mono">{to}</span>{" "}
      {isOffered && <FollowButton webhookId={webhookId} to={to} />}
    </p>
  );
}

/** Shows the stored part of the response: its headers and the beginning of its body. */
function Response({ response }: Pick<Attempt, "response">) {
  if (response === null) return <p class="hint">{t.exchange.notStored}</p>;
  const { headers, body, truncated } = response;
  const kept = [linesOf(headers), body].filter(Boolean).join("\n\n");
  return (
    <>
      <p class="hint">
        {body === "" && !truncated && t.exchange.empty}
        {truncated ? t.exchange.cut : body && t.exchange.response}
      </p>
      {kept !== "" && <Text>{kept}</Text>}
    </>
  );
}

function linesOf(headers: Record<string, string>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return lines.join("\n");
}

/** Writes a shell command that sends the same request. */
function toCurl({ url, body }: DeliveryDetails, headers: Record<string, string>): string {
  const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const sent = Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`);
  return ["curl", quote(url), ...sent, `--data-raw ${quote(body)}`].join(" ");
}

/** Text in its own lines, which scrolls. */
export function Text({ children }: { children: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard.
    <pre tabIndex={0} class="wrapped">
      <code>{children}</code>
    </pre>
  );
}

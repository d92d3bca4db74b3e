import type { ComponentChildren } from "preact";
import type { ApiKeyView as Key } from "../../../src/workspaces/views.ts";
import { listKeys } from "../api.ts";
import { formatDate, formatDayAndHour, formatHour, formatShare, formatTime } from "../format.ts";
import { useLoad } from "../load.ts";
import { Ago, Badge, Empty, Facts, Id } from "../parts/basics.tsx";
import { Chart } from "../parts/chart.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { Pages } from "../parts/pages.tsx";
import { usageHref } from "../route.ts";
import { t } from "../text.ts";

/** The usage of each key, compared with its rate limit, a page at a time. */
export function Usage({ cursor }: { cursor: string | null }) {
  const loaded = useLoad(() => listKeys(cursor), `keys ${cursor ?? ""}`);
  const keys = loaded.data?.items ?? null;
  return (
    <>
      <Heading title={t.usage}>{t.usage}</Heading>
      <p class="lead">{t.usagePage.lead}</p>
      <LoadState loaded={loaded} />
      {keys?.length === 0 && <Empty title={t.usagePage.empty} text={t.usagePage.emptyText} />}
      {keys?.map((key) => (
        <KeyUsage key={key.keyId} of={key} />
      ))}
      {loaded.data && (
        <Pages
          label={t.usagePage.pages}
          cursor={cursor}
          next={loaded.data.nextCursor}
          href={usageHref}
        />
      )}
    </>
  );
}

/** When a key was last used, which is recorded hourly: its requests may tell more. */
function lastUseOf({ lastUsedAt, hours }: Key): ComponentChildren {
  const last = hours.at(-1);
  if (last && last.requests + last.refused > 0) return t.usagePage.thisHour;
  return lastUsedAt ? <Ago at={lastUsedAt} /> : t.never;
}

function KeyUsage({ of: key }: { of: Key }) {
  const { requestsPerWindow, windowSeconds, hours } = key;
  const sum = (name: "requests" | "refused") =>
    hours.reduce((count, hour) => count + hour[name], 0);
  const all = sum("requests") + sum("refused");
  const facts: [string, ComponentChildren][] = [
    [t.webhook.id, <Id key="">{key.keyId}</Id>],
    [t.usagePage.lastUsed, lastUseOf(key)],
    [t.usagePage.quota, t.usagePage.quotaValue(requestsPerWindow, windowSeconds)],
  ];
  if (all > 0) facts.push([t.usagePage.peak(windowSeconds), <Peak key="" of={key} />]);
  facts.push([t.usagePage.created, formatTime(key.createdAt)]);
  return (
    <section class="key">
      <div class="head">
        <h2>
          {key.name ?? t.usagePage.unnamed} <span class="mono">…{key.lastFour}</span>
        </h2>
        <KeyStatus of={key} />
      </div>
      <Facts of={facts} />
      {all === 0 && <p class="hint">{t.usagePage.unused}</p>}
      {all > 0 && (
        <Chart
          title={t.usagePage.byHour}
          column={t.usagePage.hour}
          labels={hours.map(({ hour }) => formatDayAndHour(hour))}
          ticks={ticksOf(hours.map(({ hour }) => hour))}
          series={[
            {
              name: t.usagePage.requests,
              tone: "attempts",
              values: hours.map(({ requests }) => requests),
            },
            {
              name: t.usagePage.refused,
              tone: "exhausted",
              values: hours.map(({ refused }) => refused),
            },
          ]}
        />
      )}
    </section>
  );
}

/** Some of the hours, the first one of each day with its date. */
function ticksOf(hours: string[]): string[] {
  const shown = [0, 8, 16, hours.length - 1].map((i) => hours[i] ?? "");
  return shown.map((hour, i) => {
    const isSameDay = formatDate(hour) === formatDate(shown[i - 1] ?? 0);
    return isSameDay ? formatHour(hour) : formatDayAndHour(hour);
  });
}

/** The most requests in one window, in words and as a bar, compared with the quota. */
function Peak({ of: key }: { of: Key }) {
  const requests = Math.max(...key.hours.map(({ busiest }) => busiest));
  const share = requests / key.requestsPerWindow;
  return (
    <>
      {t.usagePage.peakValue(requests, formatShare(share))}
      <svg class="meter" aria-hidden="true" viewBox="0 0 100 4" preserveAspectRatio="none">
        <rect class="meter-all" width={100} height={4} />
        <rect
          class={share < 0.8 ? "attempts" : "exhausted"}
          width={100 * Math.min(1, share)}
          height={4}
        />
      </svg>
    </>
  );
}

function KeyStatus({ of: { revokedAt, expiresAt } }: { of: Key }) {
  if (revokedAt) return <Badge tone="disabled">{t.usagePage.revoked(formatTime(revokedAt))}</Badge>;
  if (!expiresAt) return <Badge tone="healthy">{t.usagePage.active}</Badge>;
  return Date.parse(expiresAt) <= Date.now() ? (
    <Badge tone="disabled">{t.usagePage.expired(formatTime(expiresAt))}</Badge>
  ) : (
    <Badge tone="healthy">{t.usagePage.expires(formatTime(expiresAt))}</Badge>
  );
}

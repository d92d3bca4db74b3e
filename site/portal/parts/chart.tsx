import { useId } from "preact/hooks";
import { formatNumber } from "../format.ts";
import { goTo } from "../route.ts";
import { t } from "../text.ts";

/** One series: its name, its colour, its count in each column. */
export interface Series {
  name: string;
  tone: string;
  values: number[];
}

const HEIGHT = 100;
const COLUMN = 10;
/** The width of a column's bar, as a share of the column. */
const BAR = 0.64;

interface Props {
  title: string;
  /** The heading of the columns' names, for the table. */
  column: string;
  /** The name of each column, for the table. */
  labels: string[];
  /** The labels under the chart, from left to right. */
  ticks: string[];
  /** The link of each column, if it has one. Its tick is that link, and a click on the column follows it. */
  hrefs?: string[];
  series: Series[];
  /** Further columns of the table, which the bars do not show. */
  further?: { name: string; values: string[] }[];
}

/**
 * Shows counts over time as stacked bars, with the numbers as a table for readers who want them or cannot
 * see the bars.
 */
export function Chart({ title, column, labels, ticks, hrefs = [], series, further = [] }: Props) {
  const id = useId();
  const valueAt = (one: Series, i: number) => one.values[i] ?? 0;
  const columns = labels.map((_, i) => series.reduce((sum, one) => sum + valueAt(one, i), 0));
  const highest = Math.max(1, ...columns);
  const total = ({ values }: Series) => formatNumber(values.reduce((sum, n) => sum + n, 0));
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title" id={id}>
          {title}
        </span>
        <ul class="legend">
          {series.map((one) => (
            <li key={one.tone}>
              <span class={`swatch ${one.tone}`} />
              {one.name} <b>{total(one)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="plot">
        <span class="scale" aria-hidden="true">
          {formatNumber(highest)}
        </span>
        <svg
          role="img"
          aria-label={`${title}. ${series.map((one) => `${one.name} ${total(one)}`).join(", ")}`}
          viewBox={`0 0 ${labels.length * COLUMN} ${HEIGHT}`}
          preserveAspectRatio="none"
        >
          {labels.map((label, i) => (
            <Column
              key={label}
              place={i}
              label={label}
              max={highest}
              series={series}
              href={hrefs[i]}
            />
          ))}
        </svg>
        <div
          class={ticks.length === labels.length ? "ticks each" : "ticks"}
          aria-hidden={hrefs.length === 0}
        >
          {ticks.map((tick, i) =>
            hrefs[i] ? (
              <a key={tick} href={hrefs[i]}>
                {tick}
              </a>
            ) : (
              <span key={tick}>{tick}</span>
            ),
          )}
        </div>
      </div>
      <details>
        <summary>
          {t.asTable}
          <span class="hidden"> ({title})</span>
        </summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard. */}
        <div class="numbers" tabIndex={0}>
          <table aria-labelledby={id}>
            <thead>
              <tr>
                <th scope="col">{column}</th>
                {[...series, ...further].map(({ name }) => (
                  <th scope="col" key={name}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {labels.map((label, i) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {series.map((one) => (
                    <td key={one.name}>{formatNumber(valueAt(one, i))}</td>
                  ))}
                  {further.map(({ name, values }) => (
                    <td key={name}>{values[i]}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

interface ColumnProps {
  place: number;
  label: string;
  max: number;
  series: Series[];
  href: string | undefined;
}

function Column({ place, label, max, series, href }: ColumnProps) {
  const x = (place + (1 - BAR) / 2) * COLUMN;
  let top = HEIGHT;
  const bars = series.map(({ name, tone, values }) => {
    const count = values[place] ?? 0;
    const height = (count / max) * HEIGHT;
    top -= height;
    return (
      <rect key={tone} class={tone} x={x} y={top} width={COLUMN * BAR} height={height}>
        <title>{`${label}, ${name}: ${formatNumber(count)}`}</title>
      </rect>
    );
  });
  if (!href) return <g>{bars}</g>;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the tick below is a link to the same place.
    <g class="choice" onClick={() => goTo(href)}>
      <rect class="target" x={place * COLUMN} y={0} width={COLUMN} height={HEIGHT} />
      {bars}
    </g>
  );
}

import { useId } from "preact/hooks";
import { type Count, formatCount } from "../format.ts";
import { t } from "../text.ts";

/** One series: its name, its colour, its count in each column. */
export interface Series {
  name: string;
  tone: string;
  values: number[];
}

const HEIGHT = 100;
const COLUMN = 10;
/** The height of a column's bar. */
const BAR = 0.64;

interface Props {
  title: string;
  /** What a column is, for the table. */
  column: string;
  /** The name of each column, for the table. */
  labels: string[];
  /** What stands under the chart, from left to right. */
  ticks: string[];
  /** Whether counting a column ended at a limit. */
  capped?: boolean[];
  series: Series[];
}

/**
 * Counts over time as stacked bars, with the numbers as a table for those who want them or cannot
 * see the bars.
 */
export function Chart({ title, column, labels, ticks, capped = [], series }: Props) {
  const id = useId();
  const countOf = (n: number, i: number): Count => ({ n, isCapped: capped[i] ?? false });
  const columns = labels.map((_, i) =>
    countOf(
      series.reduce((sum, { values }) => sum + (values[i] ?? 0), 0),
      i,
    ),
  );
  const highest = columns.reduce((max, one) => (one.n > max.n ? one : max), countOf(1, -1));
  const total = ({ values }: Series) =>
    formatCount({
      n: values.reduce((sum, value) => sum + value, 0),
      isCapped: capped.includes(true),
    });
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
          {formatCount(highest)}
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
              {...{ place: i, label, max: highest.n, series }}
              isCapped={capped[i] ?? false}
            />
          ))}
        </svg>
        <div class={ticks.length === labels.length ? "ticks each" : "ticks"} aria-hidden="true">
          {ticks.map((tick) => (
            <span key={tick}>{tick}</span>
          ))}
        </div>
      </div>
      <details>
        <summary>
          {t.asTable}
          <span class="hidden"> ({title})</span>
        </summary>
        <div class="numbers">
          <table aria-labelledby={id}>
            <thead>
              <tr>
                <th scope="col">{column}</th>
                {series.map(({ name }) => (
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
                  {series.map(({ name, values }) => (
                    <td key={name}>{formatCount(countOf(values[i] ?? 0, i))}</td>
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
  isCapped: boolean;
  series: Series[];
}

function Column({ place, label, max, isCapped, series }: ColumnProps) {
  const x = (place + (1 - BAR) / 2) * COLUMN;
  let top = HEIGHT;
  const bars = series.map(({ name, tone, values }) => {
    const n = values[place] ?? 0;
    const height = (n / max) * HEIGHT;
    top -= height;
    return (
      <rect key={tone} class={tone} x={x} y={top} width={COLUMN * BAR} height={height}>
        <title>{`${label}, ${name}: ${formatCount({ n, isCapped })}`}</title>
      </rect>
    );
  });
  return <g>{bars}</g>;
}

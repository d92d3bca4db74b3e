import type { ComponentChildren } from "preact";

interface Props {
  /** The name of the work, for readers who cannot see the bar. */
  label: string;
  /** The share of the work that is done, from 0 to 1. */
  done: number;
  /** The progress in words. */
  children: ComponentChildren;
}

/** Shows the progress of work that takes many calls. */
export function Progress({ label, done, children }: Props) {
  return (
    <div class="progress">
      <progress aria-label={label} value={done} max={1} />
      <p>{children}</p>
    </div>
  );
}

/** Returns the share of the way from one time to another at `time`, from 0 to 1. */
export function shareOf(time: number, from: number, to: number): number {
  return from === to ? 1 : Math.min(1, Math.max(0, (time - from) / (to - from)));
}

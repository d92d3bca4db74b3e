import type { ComponentChildren } from "preact";

interface Props {
  /** What is going on, for those who cannot see the bar. */
  label: string;
  /** How much of it is done, from 0 to 1. */
  done: number;
  /** How far it is, in words. */
  children: ComponentChildren;
}

/** How far something is that takes many calls. */
export function Progress({ label, done, children }: Props) {
  return (
    <div class="progress">
      <progress aria-label={label} value={done} max={1} />
      <p>{children}</p>
    </div>
  );
}

/** How far `time` is on the way from one time to another, from 0 to 1. */
export function shareOf(time: number, from: number, to: number): number {
  return from === to ? 1 : Math.min(1, Math.max(0, (time - from) / (to - from)));
}

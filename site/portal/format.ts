import type { AttemptView as Attempt } from "../../src/history/views.ts";
import { locale, t } from "./text.ts";

const whole = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });
const timeOfDay = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const exactTimeOfDay = new Intl.DateTimeFormat(locale, { timeStyle: "medium" });
const utcDay = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", timeZone: "UTC" });
const date = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" });
const number = new Intl.NumberFormat(locale);
const percent = new Intl.NumberFormat(locale, { style: "percent", maximumSignificantDigits: 2 });
const rate = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });

/** The reader's time zone, such as `Europe/Paris`. */
export const { timeZone } = whole.resolvedOptions();

/** Seconds of each unit, largest first. */
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
] as const;

/** Formats a time to the minute, in the reader's time zone. */
export function formatTime(at: string | number): string {
  return t.at(whole.format(new Date(at)), timeOfDay.format(new Date(at)));
}

/** Formats a time to the second, in the reader's time zone. */
export function formatExactTime(at: string): string {
  return t.at(whole.format(new Date(at)), exactTimeOfDay.format(new Date(at)));
}

/** Formats a time to the second with its short day: `25 Nov, 14:05:33`. */
export function formatMoment(at: string | number): string {
  return t.at(date.format(new Date(at)), exactTimeOfDay.format(new Date(at)));
}

/** Formats the time of day to the minute; with its day, unless that is today. */
export function formatSoon(at: string, now: number): string {
  const time = timeOfDay.format(new Date(at));
  const day = date.format(new Date(at));
  return day === date.format(now) ? time : t.at(day, time);
}

/** Formats the same as the end of a sentence: `at 14:05`, or `on 27 Nov at 05:05`. */
export function formatWhen(at: string, now: number): string {
  const time = timeOfDay.format(new Date(at));
  const day = date.format(new Date(at));
  return day === date.format(now) ? t.when.today(time) : t.when.day(day, time);
}

/** Formats a day of the API, such as `2026-11-21`, which is in UTC. */
export function formatUtcDay(day: string): string {
  return utcDay.format(new Date(day));
}

/** Formats a time for a field of the type `datetime-local`: in the reader's time zone, to the minute. */
export function toLocalField(time: number): string {
  const offsetMs = new Date(time).getTimezoneOffset() * 60_000;
  return new Date(time - offsetMs).toISOString().slice(0, 16);
}

/** Formats the day of a time, in the reader's time zone. */
export function formatDate(time: string | number): string {
  return date.format(new Date(time));
}

/** Formats the time of day to the minute, in the reader's time zone. */
export function formatTimeOfDay(at: number): string {
  return timeOfDay.format(at);
}

/** Formats the time of day of an hour of the API. */
export function formatHour(time: string): string {
  return timeOfDay.format(new Date(time));
}

/** Formats the day and the time of day of an hour of the API. */
export function formatDayAndHour(time: string): string {
  return `${formatDate(time)}, ${formatHour(time)}`;
}

export function formatNumber(n: number): string {
  return number.format(n);
}

/** Formats the share of successes, from 0 to 1. It is never 100% if an attempt has failed. */
export function formatRate(share: number): string {
  return rate.format(share === 1 ? 1 : Math.min(share, 0.999));
}

export function formatShare(share: number): string {
  return percent.format(share);
}

/** Formats how long ago a time was, or how long it is until then: `3 minutes ago`. */
export function formatRelative(time: string, now: number): string {
  const seconds = Math.round((Date.parse(time) - now) / 1000);
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? UNITS[3];
  return relative.format(Math.trunc(seconds / size), unit);
}

/** Formats the outcome of an attempt, such as `Response 500`. */
export function formatOutcome({ outcome, status }: Pick<Attempt, "outcome" | "status">): string {
  const { answered, ...others } = t.outcomes;
  if (outcome === "answered") return answered(status ?? 0);
  const name = others[outcome as keyof typeof others] ?? outcome;
  return status === null ? name : `${name} (${status})`;
}

/** Explains a failed attempt and what to do about it; null if it succeeded. */
export function explain(
  attempt: Pick<Attempt, "outcome" | "status">,
): { means: string; todo: string } | null {
  return isAccepted(attempt) ? null : t.explain(attempt);
}

/** Whether the server acknowledged the event with a 2xx. */
export function isAccepted({ outcome, status }: Pick<Attempt, "outcome" | "status">): boolean {
  return outcome === "answered" && status !== null && status >= 200 && status < 300;
}

/** Number of lines, and of characters, that `firstLines` returns at most. */
const FIRST_LINES = { lines: 6, characters: 400 };

/** Returns the beginning of a text, without empty lines. */
export function firstLines(text: string, { lines, characters } = FIRST_LINES): string {
  const some = text.split("\n").filter((line) => line.trim() !== "");
  const first = some.slice(0, lines).join("\n").slice(0, characters);
  return first.length < some.join("\n").length ? `${first}…` : first;
}

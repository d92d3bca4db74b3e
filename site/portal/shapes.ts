import type { WebhookEvent } from "../../src/contract/enumerations.ts";

/** The response shapes of the portal API; times are ISO 8601. */

export type Kind = WebhookEvent;

export interface OpenedSession {
  /** Sends requests until the session ends. */
  token: string;
  workspace: { id: string; name: string };
}

export interface Workspace {
  id: string;
  name: string;
  /** When the session ends. */
  expires_at: string;
  webhooks_max: number;
  retention_days: number;
  events: Kind[];
}

export interface Attempt {
  at: string | null;
  /** `answered`, `timed_out`, `unreachable` or `refused`. */
  outcome: string;
  status: number | null;
  duration_ms: number | null;
}

export interface Webhook {
  id: string;
  url: string;
  events: Kind[];
  created_at: string;
  state: "healthy" | "slow" | "failing" | "disabled";
  failing_since: string | null;
  failures: number;
  pending: number;
  next_attempt_at: string | null;
  disabled_at: string | null;
  last_attempt: Attempt | null;
}

export interface Day {
  /** `2026-11-21`, in UTC. */
  date: string;
  delivered: number;
  failed: number;
  cancelled: number;
  pending: number;
  attempts: number;
  /** Whether there are more than are counted. */
  truncated: boolean;
}

export interface WebhookWithDays extends Webhook {
  /** The last days, oldest first. */
  days: Day[];
}

export const DELIVERY_STATES = ["pending", "delivered", "exhausted", "cancelled"] as const;

type DeliveryState = (typeof DELIVERY_STATES)[number];

export interface Delivery {
  event_id: string;
  type: Kind;
  created_at: string;
  state: DeliveryState;
  attempts: number;
  due_at: string | null;
  settled_at: string | null;
  last_attempt: Attempt | null;
}

export interface DeliveryDetails extends Delivery {
  failed_attempts: Attempt[];
  /** The exact body that is signed. */
  body: string;
}

interface Page<Item> {
  data: Item[];
  has_more: boolean;
  next_cursor: string | null;
}

export type DeliveryPage = Page<Delivery>;

export interface TestResult {
  event_id: string;
  outcome: string;
  status: number | null;
  duration_ms: number;
}

export interface NewSecret {
  secret: string;
  /** When the previous secret stops signing; null if it already has. */
  overlap_ends_at: string | null;
}

export interface Redelivered {
  /** How many events are about to be sent. */
  count: number;
  /** Whether there may be more in the range. */
  has_more: boolean;
}

export interface KeyHour {
  hour: string;
  /** Requests within the quota. */
  requests: number;
  /** Requests beyond it. */
  refused: number;
}

export interface Key {
  id: string;
  created_at: string;
  last_used_at: string | null;
  revoked_at: string | null;
  expires_at: string | null;
  requests_per_window: number;
  window_seconds: number;
  /** The last 24 hours, oldest first; null while they are unavailable. */
  hours: KeyHour[] | null;
}

export type KeyPage = Page<Key>;

-- Leads, events and deliveries become tables without rowid, which writes each of their rows once and not
-- a second time for its primary key. What other tables refer to is put back before the transaction ends.
PRAGMA defer_foreign_keys = ON;
--> statement-breakpoint
CREATE TABLE `sweep_positions` (
	`part` text PRIMARY KEY NOT NULL,
	`position` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `__new_leads` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`source` text NOT NULL,
	`agent_id` text NOT NULL,
	`name` text,
	`email` text,
	`phone` text,
	`custom_fields` text NOT NULL,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_leads`("id", "workspace_id", "reference", "source", "agent_id", "name", "email", "phone", "custom_fields", "created_at") SELECT "id", "workspace_id", "reference", "source", "agent_id", "name", "email", "phone", "custom_fields", "created_at" FROM `leads`;
--> statement-breakpoint
DROP TABLE `leads`;
--> statement-breakpoint
ALTER TABLE `__new_leads` RENAME TO `leads`;
--> statement-breakpoint
CREATE INDEX `leads_newest` ON `leads` (`workspace_id`,`created_at`,`id`);
--> statement-breakpoint
ALTER TABLE `workspaces` ADD `swept_to` text DEFAULT '' NOT NULL;
--> statement-breakpoint
CREATE TABLE `__new_events` (
	`workspace_id` text NOT NULL,
	`id` text NOT NULL,
	`type` text NOT NULL,
	`body` text NOT NULL,
	`owed` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer,
	PRIMARY KEY(`workspace_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
-- The ids of these events are not ordered by time: each gets its expiry, 30 days from its creation.
INSERT INTO `__new_events`("id", "workspace_id", "type", "body", "owed", "created_at", "expires_at") SELECT e."id", e."workspace_id", e."type", e."body", (SELECT json_group_array(d."subscription_id") FROM `deliveries` d WHERE d."event_id" = e."id"), e."created_at", e."created_at" + 2592000000 FROM `events` e;
--> statement-breakpoint
DROP TABLE `events`;
--> statement-breakpoint
ALTER TABLE `__new_events` RENAME TO `events`;
--> statement-breakpoint
CREATE INDEX `events_expiring` ON `events` (`expires_at`) WHERE expires_at IS NOT NULL;
--> statement-breakpoint
DROP INDEX `subscriptions_newest`;
--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `deleted_at` integer;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `posts_at_once` integer DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `backoff` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `next_at` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `slow` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `held_by` text;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `held_until` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `held_through` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `generation` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `cancelling` integer DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX `subscriptions_newest` ON `subscriptions` (`workspace_id`,`created_at`,`id`) WHERE deleted_at IS NULL;
--> statement-breakpoint
CREATE TABLE `__new_deliveries` (
	`subscription_id` text NOT NULL,
	`event_id` text NOT NULL,
	`workspace_id` text NOT NULL,
	`state` text NOT NULL,
	`attempts` integer DEFAULT 0 NOT NULL,
	`due_at` integer NOT NULL,
	`generation` integer DEFAULT 0 NOT NULL,
	`last_outcome` text,
	`last_status` integer,
	`settled_at` integer,
	PRIMARY KEY(`subscription_id`, `event_id`)
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_deliveries`("subscription_id", "event_id", "workspace_id", "state", "attempts", "due_at", "last_outcome", "last_status", "settled_at") SELECT d."subscription_id", d."event_id", d."workspace_id", CASE WHEN d."state" = 'pending' AND s."id" IS NULL THEN 'cancelled' ELSE d."state" END, d."attempts", d."due_at", d."last_outcome", d."last_status", CASE WHEN d."state" = 'pending' AND s."id" IS NULL THEN d."due_at" ELSE d."settled_at" END FROM `deliveries` d LEFT JOIN `subscriptions` s ON s."id" = d."subscription_id";
--> statement-breakpoint
DROP TABLE `deliveries`;
--> statement-breakpoint
ALTER TABLE `__new_deliveries` RENAME TO `deliveries`;
--> statement-breakpoint
CREATE INDEX `deliveries_due_of_subscription` ON `deliveries` (`subscription_id`,`due_at`) WHERE state = 'pending';

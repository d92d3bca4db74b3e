CREATE TABLE `attempts` (
	`subscription_id` text NOT NULL,
	`event_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`at` integer NOT NULL,
	`outcome` text NOT NULL,
	`status` integer,
	`duration_ms` integer NOT NULL,
	PRIMARY KEY(`subscription_id`, `event_id`, `attempt`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `earlier_secrets` (
	`subscription_id` text NOT NULL,
	`sealed_secret` text NOT NULL,
	`until` integer NOT NULL,
	PRIMARY KEY(`subscription_id`, `sealed_secret`)
) WITHOUT ROWID;
--> statement-breakpoint
ALTER TABLE `deliveries` ADD `last_at` integer;--> statement-breakpoint
ALTER TABLE `deliveries` ADD `last_duration_ms` integer;--> statement-breakpoint
ALTER TABLE `leads` ADD `event_id` text;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `last_attempt` text;--> statement-breakpoint
CREATE INDEX `runs_of_lead` ON `runs` (`lead_id`) WHERE lead_id IS NOT NULL;
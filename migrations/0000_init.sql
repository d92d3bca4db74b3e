CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`key_hash` text NOT NULL,
	`requests_per_window` integer,
	`created_at` integer NOT NULL,
	`revoked_at` integer,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_key_hash_unique` ON `api_keys` (`key_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_by_workspace` ON `api_keys` (`workspace_id`);--> statement-breakpoint
CREATE TABLE `automations` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`type` text NOT NULL,
	`provider` text NOT NULL,
	`agent_id` text NOT NULL,
	`agent_name` text NOT NULL,
	`name` text NOT NULL,
	`status` text NOT NULL,
	`updated_at` integer NOT NULL,
	`created_at` integer NOT NULL,
	`revision` integer DEFAULT 1 NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE INDEX `automations_newest` ON `automations` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `deliveries` (
	`event_id` text NOT NULL,
	`subscription_id` text NOT NULL,
	`workspace_id` text NOT NULL,
	`state` text NOT NULL,
	`attempts` integer DEFAULT 0 NOT NULL,
	`due_at` integer NOT NULL,
	`claim` text,
	`last_outcome` text,
	`last_status` integer,
	`settled_at` integer,
	PRIMARY KEY(`event_id`, `subscription_id`)
);
--> statement-breakpoint
CREATE INDEX `deliveries_due_of_subscription` ON `deliveries` (`subscription_id`,`due_at`) WHERE state = 'pending';--> statement-breakpoint
CREATE TABLE `events` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`type` text NOT NULL,
	`body` text NOT NULL,
	`owed` integer NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `events_oldest` ON `events` (`workspace_id`,`created_at`);--> statement-breakpoint
CREATE TABLE `leads` (
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
);
--> statement-breakpoint
CREATE INDEX `leads_newest` ON `leads` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `notices` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`workspace_id` text NOT NULL,
	`subscription_id` text NOT NULL,
	`host` text NOT NULL,
	`events` text NOT NULL,
	`failing_since` integer NOT NULL,
	`last_outcome` text,
	`last_status` integer,
	`created_at` integer NOT NULL,
	`due_at` integer NOT NULL,
	`sent_at` integer
);
--> statement-breakpoint
CREATE INDEX `notices_unsent` ON `notices` (`due_at`) WHERE sent_at IS NULL;--> statement-breakpoint
CREATE TABLE `runs` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`automation_id` text NOT NULL,
	`status` text NOT NULL,
	`trigger_type` text NOT NULL,
	`occurred_at` integer NOT NULL,
	`actions` text NOT NULL,
	`lead_id` text,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action,
	FOREIGN KEY (`automation_id`) REFERENCES `automations`(`id`) ON UPDATE no action ON DELETE cascade,
	FOREIGN KEY (`lead_id`) REFERENCES `leads`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE INDEX `runs_newest` ON `runs` (`workspace_id`,`occurred_at`,`id`);--> statement-breakpoint
CREATE INDEX `runs_newest_of_automation` ON `runs` (`automation_id`,`occurred_at`,`id`);--> statement-breakpoint
CREATE TABLE `subscriptions` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`url` text NOT NULL,
	`events` text NOT NULL,
	`sealed_secret` text NOT NULL,
	`created_at` integer NOT NULL,
	`disabled_at` integer,
	`failing_since` integer,
	`failures` integer DEFAULT 0 NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE INDEX `subscriptions_newest` ON `subscriptions` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `workspaces` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`admin_emails` text NOT NULL,
	`access_granted` integer DEFAULT true NOT NULL,
	`created_at` integer NOT NULL
);

-- Made by drizzle-kit from src/db/schema.ts, with WITHOUT ROWID added, which Drizzle cannot express.
CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`key_hash` text NOT NULL,
	`name` text,
	`last_four` text NOT NULL,
	`requests_per_window` integer,
	`created_at` integer NOT NULL,
	`revoked_at` integer,
	`expires_at` integer,
	`last_used_at` integer,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_key_hash_unique` ON `api_keys` (`key_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_newest` ON `api_keys` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `attempts` (
	`subscription_id` text NOT NULL,
	`event_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`at` integer NOT NULL,
	`outcome` text NOT NULL,
	`status` integer,
	`duration_ms` integer NOT NULL,
	`response` blob,
	PRIMARY KEY(`subscription_id`, `event_id`, `attempt`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `audit_trail` (
	`at` integer NOT NULL,
	`id` text NOT NULL,
	`method` text NOT NULL,
	`workspace_id` text,
	`ids` text NOT NULL,
	`actor` text,
	`via` text NOT NULL,
	`result` text NOT NULL,
	`duration_ms` integer NOT NULL,
	`webhook_id` text,
	`before` text,
	`after` text,
	`lasting` integer DEFAULT false NOT NULL,
	PRIMARY KEY(`at`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `audit_trail_of_workspace` ON `audit_trail` (`workspace_id`,`at`,`id`) WHERE workspace_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX `audit_trail_changes` ON `audit_trail` (`workspace_id`,`via`,`lasting`,`at`,`id`) WHERE webhook_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX `audit_trail_history` ON `audit_trail` (`workspace_id`,`at`,`id`) WHERE (webhook_id IS NOT NULL OR method IN ('createWorkspace', 'updateWorkspace', 'setWorkspaceAccess', 'createApiKey', 'updateApiKey', 'rollApiKey', 'revokeApiKey', 'createPortalLink', 'openPortalSession', 'endPortalSessions', 'eraseLeads', 'omitChanges'));--> statement-breakpoint
CREATE INDEX `audit_trail_of_webhook` ON `audit_trail` (`webhook_id`,`at`,`id`) WHERE webhook_id IS NOT NULL;--> statement-breakpoint
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
	`reported_at` integer NOT NULL,
	`created_at` integer NOT NULL,
	`removed_at` integer,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `automations_newest` ON `automations` (`workspace_id`,`created_at`,`id`) WHERE removed_at IS NULL;--> statement-breakpoint
CREATE INDEX `automations_removed` ON `automations` (`workspace_id`,`created_at`,`id`) WHERE removed_at IS NOT NULL;--> statement-breakpoint
CREATE TABLE `deliveries` (
	`subscription_id` text NOT NULL,
	`event_id` text NOT NULL,
	`workspace_id` text NOT NULL,
	`type` text NOT NULL,
	`state` text NOT NULL,
	`priority` integer DEFAULT 1 NOT NULL,
	`steps_used` integer DEFAULT 0 NOT NULL,
	`due_at` integer NOT NULL,
	`first_at` integer,
	`pending_since_epoch` integer DEFAULT 0 NOT NULL,
	`last_outcome` text,
	`last_status` integer,
	`last_at` integer,
	`last_duration_ms` integer,
	`settled_at` integer,
	`attempts_made` integer DEFAULT 0 NOT NULL,
	`delivered_earlier` integer DEFAULT false NOT NULL,
	`replay_id` text,
	`state_before` text,
	PRIMARY KEY(`subscription_id`, `event_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `deliveries_due_of_subscription` ON `deliveries` (`subscription_id`,`type`,`priority`,`due_at`,`event_id`,`pending_since_epoch`) WHERE state = 'pending';--> statement-breakpoint
CREATE INDEX `deliveries_unsuccessful` ON `deliveries` (`subscription_id`,`state`,`event_id`) WHERE state IN ('exhausted', 'cancelled') OR (state = 'pending' AND priority = 2);--> statement-breakpoint
CREATE TABLE `erased_leads` (
	`workspace_id` text NOT NULL,
	`id` text NOT NULL,
	`erased_at` integer NOT NULL,
	PRIMARY KEY(`workspace_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `erased_leads_oldest` ON `erased_leads` (`erased_at`);--> statement-breakpoint
CREATE TABLE `events` (
	`workspace_id` text NOT NULL,
	`id` text NOT NULL,
	`type` text NOT NULL,
	`body` text NOT NULL,
	`lead_id` text,
	`owed` text NOT NULL,
	`created_at` integer NOT NULL,
	`test` integer DEFAULT false NOT NULL,
	PRIMARY KEY(`workspace_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `leads` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`source` text NOT NULL,
	`agent_id` text NOT NULL,
	`sealed` blob NOT NULL,
	`created_at` integer NOT NULL,
	`event_id` text NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `leads_newest` ON `leads` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `moves` (
	`workspace_id` text PRIMARY KEY NOT NULL,
	`id` text NOT NULL,
	`source` text NOT NULL,
	`target` text NOT NULL,
	`stage` text NOT NULL,
	`position` text,
	`rows` integer DEFAULT 0 NOT NULL,
	`copied` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`since` integer NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `replays` (
	`workspace_id` text NOT NULL,
	`subscription_id` text NOT NULL,
	`id` text NOT NULL,
	`filter` text NOT NULL,
	`created_at` integer NOT NULL,
	`cursor` text,
	`examined_at` integer NOT NULL,
	`scheduled` integer DEFAULT 0 NOT NULL,
	`delivered` integer DEFAULT 0 NOT NULL,
	`failed` integer DEFAULT 0 NOT NULL,
	`result` text,
	`ended_at` integer,
	PRIMARY KEY(`workspace_id`, `subscription_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `replays_unended` ON `replays` (`examined_at`) WHERE ended_at IS NULL;--> statement-breakpoint
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
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `runs_newest` ON `runs` (`workspace_id`,`occurred_at`,`id`);--> statement-breakpoint
CREATE INDEX `runs_newest_of_automation` ON `runs` (`automation_id`,`occurred_at`,`id`);--> statement-breakpoint
CREATE INDEX `runs_of_lead` ON `runs` (`lead_id`) WHERE lead_id IS NOT NULL;--> statement-breakpoint
CREATE TABLE `subscriptions` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`url` text NOT NULL,
	`events` text NOT NULL,
	`description` text,
	`key_id` text,
	`header_names` text DEFAULT '[]' NOT NULL,
	`sealed_headers` text,
	`sealed_secret` text NOT NULL,
	`earlier_secrets` text,
	`rotated_at` integer,
	`created_at` integer NOT NULL,
	`idempotency_key` text,
	`requested` text,
	`disabled_at` integer,
	`disabled_by_failures` integer DEFAULT false NOT NULL,
	`pending_exhausted_at` integer,
	`announced` text DEFAULT '{}' NOT NULL,
	`deleted_at` integer,
	`concurrency` integer DEFAULT 1 NOT NULL,
	`slow` integer DEFAULT false NOT NULL,
	`circuits` text DEFAULT '{}' NOT NULL,
	`failing_since` integer,
	`failures` integer DEFAULT 0 NOT NULL,
	`leased_by` text,
	`leased_until` integer DEFAULT 0 NOT NULL,
	`epoch` integer DEFAULT 0 NOT NULL,
	`cancelled_before` text DEFAULT '{}' NOT NULL,
	`has_to_end` integer DEFAULT false NOT NULL,
	`daily_counts` text DEFAULT '{}' NOT NULL,
	`last_attempt` text,
	`next_message_at` integer DEFAULT 0 NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
CREATE UNIQUE INDEX `subscriptions_idempotent` ON `subscriptions` (`workspace_id`,`idempotency_key`) WHERE idempotency_key IS NOT NULL;--> statement-breakpoint
CREATE INDEX `subscriptions_notable` ON `subscriptions` (`id`) WHERE failing_since IS NOT NULL OR circuits <> '{}' OR disabled_by_failures OR pending_exhausted_at IS NOT NULL OR announced ->> '$.failing' IS NOT NULL;--> statement-breakpoint
CREATE INDEX `subscriptions_newest` ON `subscriptions` (`workspace_id`,`created_at`,`id`) WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX `subscriptions_deleted` ON `subscriptions` (`workspace_id`,`created_at`,`id`) WHERE deleted_at IS NOT NULL;--> statement-breakpoint
CREATE TABLE `sweep_positions` (
	`part` text PRIMARY KEY NOT NULL,
	`position` text NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `workspaces` (
	`id` text PRIMARY KEY NOT NULL,
	`database` text,
	`write_lock` text,
	`move_id` text,
	`erasing` integer DEFAULT false NOT NULL,
	`name` text NOT NULL,
	`admin_emails` text NOT NULL,
	`access_granted` integer DEFAULT true NOT NULL,
	`sealed_data_key` text,
	`test_events` integer DEFAULT 0 NOT NULL,
	`test_events_since` integer DEFAULT 0 NOT NULL,
	`redelivered` integer DEFAULT 0 NOT NULL,
	`redelivered_since` integer DEFAULT 0 NOT NULL,
	`sessions_not_before` integer DEFAULT 0 NOT NULL,
	`revoked_keys` text DEFAULT '{}' NOT NULL,
	`webhooks_max` integer,
	`created_at` integer NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `workspaces_newest` ON `workspaces` (`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `workspaces_locked` ON `workspaces` (`move_id`) WHERE move_id IS NOT NULL;
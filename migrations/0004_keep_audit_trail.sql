-- Made by drizzle-kit, but for WITHOUT ROWID.
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
	PRIMARY KEY(`at`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `audit_trail_of_workspace` ON `audit_trail` (`workspace_id`,`at`,`id`) WHERE workspace_id IS NOT NULL;
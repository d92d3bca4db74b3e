CREATE TABLE `emails` (
	`notice_id` integer NOT NULL,
	`recipient` text NOT NULL,
	`state` text DEFAULT 'owed' NOT NULL,
	`tries` integer DEFAULT 0 NOT NULL,
	`due_at` integer NOT NULL,
	`settled_at` integer,
	PRIMARY KEY(`notice_id`, `recipient`)
);
--> statement-breakpoint
CREATE INDEX `emails_owed` ON `emails` (`due_at`) WHERE state = 'owed';--> statement-breakpoint
ALTER TABLE `notices` ADD `kind` text DEFAULT 'disabled' NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `notices_of_stretch` ON `notices` (`subscription_id`,`failing_since`,`kind`);
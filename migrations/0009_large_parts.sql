CREATE TABLE `large_bodies` (
	`workspace_id` text NOT NULL,
	`event_id` text NOT NULL,
	`body` text NOT NULL,
	PRIMARY KEY(`workspace_id`, `event_id`),
	FOREIGN KEY (`workspace_id`,`event_id`) REFERENCES `events`(`workspace_id`,`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `large_leads` (
	`lead_id` text PRIMARY KEY NOT NULL,
	`sealed` blob NOT NULL,
	FOREIGN KEY (`lead_id`) REFERENCES `leads`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
ALTER TABLE `events` ADD `large_bytes` integer;--> statement-breakpoint
ALTER TABLE `leads` ADD `large_bytes` integer;
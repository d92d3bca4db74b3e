CREATE TABLE `sizes` (
	`day` integer PRIMARY KEY NOT NULL,
	`bytes` integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE `workspaces` ADD `database` text;
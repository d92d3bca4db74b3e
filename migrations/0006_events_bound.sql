ALTER TABLE `workspaces` ADD `sized_to` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `workspaces` ADD `sized_bytes` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `workspaces` ADD `trimmed_to` text DEFAULT '' NOT NULL;
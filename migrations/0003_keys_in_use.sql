DROP INDEX `api_keys_by_workspace`;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `last_used_at` integer;--> statement-breakpoint
CREATE INDEX `api_keys_newest` ON `api_keys` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `workspaces_newest` ON `workspaces` (`created_at`,`id`);--> statement-breakpoint
-- Their gates may be keeping what they have read: to be told of changes, they must count as used.
UPDATE `api_keys` SET `last_used_at` = `created_at`;

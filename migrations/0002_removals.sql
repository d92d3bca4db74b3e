CREATE TABLE `removals` (
	`automation_id` text NOT NULL,
	`generation` integer NOT NULL,
	PRIMARY KEY(`automation_id`, `generation`)
) WITHOUT ROWID;
--> statement-breakpoint
DROP INDEX `automations_newest`;--> statement-breakpoint
ALTER TABLE `automations` ADD `generation` integer DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE `automations` ADD `removed_at` integer;--> statement-breakpoint
CREATE INDEX `automations_newest_social` ON `automations` (`workspace_id`,`created_at`,`id`) WHERE removed_at IS NULL AND type <> 'crm_source';--> statement-breakpoint
CREATE INDEX `automations_newest_crm` ON `automations` (`workspace_id`,`created_at`,`id`) WHERE removed_at IS NULL AND type = 'crm_source';--> statement-breakpoint
DROP INDEX `runs_newest`;--> statement-breakpoint
ALTER TABLE `runs` ADD `crm` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `runs` ADD `generation` integer DEFAULT 1 NOT NULL;--> statement-breakpoint
UPDATE `runs` SET `crm` = 1 WHERE `automation_id` IN (SELECT `id` FROM `automations` WHERE `type` = 'crm_source');--> statement-breakpoint
CREATE INDEX `runs_newest_social` ON `runs` (`workspace_id`,`occurred_at`,`id`) WHERE crm = 0;--> statement-breakpoint
CREATE INDEX `runs_newest_crm` ON `runs` (`workspace_id`,`occurred_at`,`id`) WHERE crm = 1;
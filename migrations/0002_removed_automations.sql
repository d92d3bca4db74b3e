DROP TABLE `removals`;--> statement-breakpoint
CREATE INDEX `automations_removed` ON `automations` (`id`) WHERE removed_at IS NOT NULL;--> statement-breakpoint
ALTER TABLE `automations` DROP COLUMN `revision`;--> statement-breakpoint
ALTER TABLE `automations` DROP COLUMN `generation`;--> statement-breakpoint
ALTER TABLE `runs` DROP COLUMN `generation`;
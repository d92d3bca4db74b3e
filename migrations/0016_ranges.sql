ALTER TABLE `subscriptions` ADD `ranges` text;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `named_until` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `subscriptions` ADD `ranged_until` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX `subscriptions_ranged` ON `subscriptions` (`id`) WHERE ranges IS NOT NULL;--> statement-breakpoint
CREATE INDEX `deliveries_failed` ON `deliveries` (`subscription_id`,`event_id`) WHERE state IN ('exhausted', 'cancelled');
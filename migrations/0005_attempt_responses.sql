ALTER TABLE `attempts` ADD `signatures` text;--> statement-breakpoint
ALTER TABLE `attempts` ADD `response` blob;--> statement-breakpoint
ALTER TABLE `deliveries` ADD `earlier_attempts` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `deliveries` ADD `delivered_earlier` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `deliveries` ADD `signatures` text;--> statement-breakpoint
ALTER TABLE `deliveries` ADD `response` blob;
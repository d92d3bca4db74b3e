ALTER TABLE `moves` ADD `move_id` text;--> statement-breakpoint
ALTER TABLE `moves` ADD `gates_told` text;--> statement-breakpoint
ALTER TABLE `moves` ADD `failures` integer DEFAULT 0 NOT NULL;
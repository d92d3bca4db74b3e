<?php
// Receives webhooks, with PHP alone: WEBHOOK_SECRET=whsec_… php -S 127.0.0.1:$PORT receiver.php
declare(strict_types=1);

// Whatever stops this script, a warning on the page or a crash: the event comes again later.
http_response_code(500);

$secret = getenv('WEBHOOK_SECRET') ?: throw new RuntimeException('WEBHOOK_SECRET is not set');
$body = file_get_contents('php://input');
if (!isGenuine($_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $body, $secret)) {
    http_response_code(401);
    exit;
}
$event = json_decode($body, true, flags: JSON_THROW_ON_ERROR);

// The ids of events that are done. Keep yours in your database, under a unique key.
$done = fopen(sys_get_temp_dir() . '/webhook-events-done', 'c+');
flock($done, LOCK_EX);
if (!in_array($event['id'], explode("\n", stream_get_contents($done)), true)) {
    work($event);
    fwrite($done, $event['id'] . "\n"); // After the work: a crash means once more, not never.
}
http_response_code(204);

/** Whether the header signs these very bytes, at a time within 5 minutes of now. */
function isGenuine(string $header, string $body, string $secret): bool
{
    $fields = array_map(fn ($field) => explode('=', $field) + ['', ''], explode(',', $header));
    $times = array_column(array_filter($fields, fn ($field) => $field[0] === 't'), 1);
    $time = $times[0] ?? '';
    if (!preg_match('/^[0-9]{1,12}$/D', $time) || abs(time() - (int) $time) > 300) {
        return false;
    }
    $expected = hash_hmac('sha256', "$time.$body", $secret);
    foreach ($fields as [$name, $value]) {
        if ($name === 'v1' && hash_equals($expected, $value)) {
            return true;
        }
    }
    return false;
}

function work(array $event): void
{
    file_put_contents('php://stdout', "{$event['type']} {$event['id']}\n");
}

<?php
// Receives webhooks with only PHP: WEBHOOK_SECRET=whsec_… php -S 127.0.0.1:$PORT receiver.php
declare(strict_types=1);

// If anything stops this script, such as a warning or a crash, the event is sent again later.
http_response_code(500);

$secret = getenv('WEBHOOK_SECRET') ?: throw new RuntimeException('WEBHOOK_SECRET is not set');

// Larger than any delivery, in bytes. The web server in front should have the same limit, and one
// for slow senders (nginx: client_max_body_size, client_body_timeout); php -S, for trying this out,
// has neither.
const BODY_MAX = 2_000_000;
if ((int) ($_SERVER['CONTENT_LENGTH'] ?? 0) > BODY_MAX) {
    answer(413);
}
$body = file_get_contents('php://input', length: BODY_MAX + 1);
if (strlen($body) > BODY_MAX) {
    answer(413);
}
if (!isGenuine($_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $body, $secret)) {
    answer(401);
}
if (isset($_SERVER['HTTP_X_SERVICE_TEST'])) {
    answer(204); // A test: its record is invented.
}
$event = json_decode($body, true, flags: JSON_THROW_ON_ERROR);

// A file for each processed event, readable only by this user; delete those older than six weeks. If
// you have a database, keep the ids there, under a unique key.
$folder = getenv('WEBHOOK_STATE') ?: getenv('HOME') . '/.local/state/webhook-events';
umask(0077);
is_dir($folder) || @mkdir($folder, recursive: true) || is_dir($folder)
    || throw new RuntimeException("$folder cannot be made: set WEBHOOK_STATE");
$done = fopen($folder . '/' . hash('sha256', $event['id']), 'c+');
flock($done, LOCK_EX); // Concurrent deliveries wait here.
if (fgetc($done) === false) {
    work($event);
    fwrite($done, '1'); // After the work: a crash repeats it instead of losing it.
}
http_response_code(204);

function answer(int $status): never
{
    http_response_code($status);
    exit;
}

/** Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now. */
function isGenuine(string $header, string $body, string $secret): bool
{
    $fields = array_map(fn ($field) => explode('=', $field) + ['', ''], explode(',', $header));
    $times = array_column(array_filter($fields, fn ($field) => $field[0] === 't'), 1);
    $time = $times[0] ?? '';
    if (!preg_match('/^[0-9]{1,12}$/D', $time)) {
        return false;
    }
    $age = time() - (int) $time;
    if (abs($age) > 300) {
        error_log("rejected: the timestamp is $age s old; is this server's clock right?");
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

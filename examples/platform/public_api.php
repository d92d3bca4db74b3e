<?php
// Calls the Platform API over HTTPS, with its address in API_URL and a key in PLATFORM_KEY:
//
//     platform("recordLeads", ["workspaceId" => $workspaceId, "leads" => $leads])
//
// PHP writes [] as a list. An empty object inside the input, such as customFields, is `(object) []`.

// How many times a call that records is tried while the service fails. Repeating it changes nothing.
const PLATFORM_TRIES = 4;

/** An error response. Its code is null if it came from something in between, such as a proxy. */
class PlatformError extends RuntimeException {
    public readonly ?string $errorCode;
    public readonly array $details;

    public function __construct(public readonly int $status, array $error) {
        parent::__construct($error["message"] ?? "HTTP status $status");
        $this->errorCode = $error["code"] ?? null;
        $this->details = $error["details"] ?? [];
    }
}

/** Calls a method and returns its result. Throws a PlatformError, or a RuntimeException if there is no response. */
function platform(string $method, array $input): array {
    for ($try = 1; ; $try++) {
        [$status, $retryAfter, $answer] = platformSend($method, $input);
        if ($status === 200 && is_array($answer)) return $answer;
        if ($status < 500 || $try === PLATFORM_TRIES || !str_starts_with($method, "record"))
            throw new PlatformError($status, $answer["error"] ?? []);
        sleep($retryAfter ?? 2 ** ($try - 1));
    }
}

/** Returns the status, the seconds of Retry-After, and the body; null for each of these two if there is none. */
function platformSend(string $method, array $input): array {
    $response = @fopen(getenv("API_URL") . "/platform/$method", "r", false, stream_context_create(["http" => [
        "method" => "POST",
        "header" => ["Authorization: Bearer " . getenv("PLATFORM_KEY"), "Content-Type: application/json"],
        "content" => json_encode((object) $input, JSON_THROW_ON_ERROR),
        "timeout" => 30,
        "follow_location" => 0,
        "ignore_errors" => true,
    ]]));
    if ($response === false) throw new RuntimeException("no response");
    $headers = implode("\n", stream_get_meta_data($response)["wrapper_data"]);
    preg_match('/^HTTP\/\S+ (\d+)/', $headers, $status);
    preg_match('/^Retry-After: (\d+)$/mi', $headers, $retryAfter);
    // A proxy may answer with HTML, which is decoded to null.
    $answer = json_decode(stream_get_contents($response), true);
    return [(int) $status[1], isset($retryAfter[1]) ? (int) $retryAfter[1] : null, is_array($answer) ? $answer : null];
}

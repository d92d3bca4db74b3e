<?php
// Calls the Platform API over HTTPS, with its address in API_URL and a key in PLATFORM_KEY:
//
//     platform("recordLeads", ["workspaceId" => $workspaceId, "leads" => $leads])

function platform(string $method, array $input): array {
    $body = file_get_contents(getenv("API_URL") . "/platform/$method", false, stream_context_create(["http" => [
        "method" => "POST",
        "header" => ["Authorization: Bearer " . getenv("PLATFORM_KEY"), "Content-Type: application/json"],
        "content" => json_encode((object) $input, JSON_THROW_ON_ERROR),
        "timeout" => 30,
        "ignore_errors" => true,
    ]]));
    if ($body === false) throw new RuntimeException("no answer");
    $answer = json_decode($body, true, flags: JSON_THROW_ON_ERROR);
    if (isset($answer["error"])) throw new RuntimeException($answer["error"]["message"]);
    return $answer;
}

<?php
// What is each request's own, whatever the application keeps, as text: the same after every test.
$state = [
    'cwd' => getcwd(),
    'umask' => umask(),
    'last error' => error_get_last(),
    'buffers' => ob_get_level(),
    'headers' => headers_list(),
    'code' => http_response_code(),
    'aborted' => connection_status(),
    'ignores abort' => ignore_user_abort(),
    'time limit' => ini_get('max_execution_time'),
    'session' => [session_status(), session_id(), isset($_SESSION)],
    'input' => [$_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST, file_get_contents('php://input')],
    'server' => array_diff_key($_SERVER, ['REQUEST_TIME' => 0, 'REQUEST_TIME_FLOAT' => 0]),
    'user' => [$_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null],
    'headers of the request' => getallheaders(),
    'filtered' => [filter_input_array(INPUT_GET), filter_input_array(INPUT_COOKIE), filter_input_array(INPUT_POST)],
    'tokens' => strtok(' '),
    'xml errors' => count(libxml_get_errors()),
    'json' => json_last_error(),
];
foreach ($state as $name => $value) {
    echo $name, ' ', json_encode($value, JSON_PARTIAL_OUTPUT_ON_ERROR), "\n";
}

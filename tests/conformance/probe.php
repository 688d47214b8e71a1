<?php
// What a request can leave behind in its process, as text. Nothing in it differs from one fresh request to the next.
$state = [
    'cwd' => getcwd(),
    'umask' => umask(),
    'locale' => setlocale(LC_ALL, '0'),
    'zone' => date_default_timezone_get(),
    'reporting' => error_reporting(),
    'last error' => error_get_last(),
    'included' => array_slice(get_included_files(), 1),
    'buffers' => ob_get_level(),
    'headers' => headers_list(),
    'code' => http_response_code(),
    'wrappers' => stream_get_wrappers(),
    'filters' => stream_get_filters(),
    'autoload' => count(spl_autoload_functions()),
    'constants' => get_defined_constants(true)['user'] ?? [],
    'functions' => get_defined_functions()['user'],
    'variables' => array_keys(get_defined_vars()),
    'environment' => getenv(),
    'settings' => ini_get_all(null, false),
    'collector' => gc_enabled(),
    'aborted' => connection_status(),
    'ignores abort' => ignore_user_abort(),
    'encoding' => function_exists('mb_internal_encoding') ? [mb_internal_encoding(), mb_language()] : null,
    'session' => function_exists('session_status') ? [session_status(), session_id(), session_name()] : null,
    'xml errors' => function_exists('libxml_use_internal_errors') ? libxml_use_internal_errors() : null,
    'classes' => array_filter(get_declared_classes(), fn ($name) => (new ReflectionClass($name))->isUserDefined()),
    'rusage' => array_keys(getrusage()),
    'files' => count(preg_grep('~^/(?!proc/)~', array_map(fn ($fd) => (string) @readlink($fd), glob('/proc/self/fd/*')))),
];
foreach ($state as $name => $value) {
    echo $name, ' ', json_encode($value, JSON_PARTIAL_OUTPUT_ON_ERROR), "\n";
}

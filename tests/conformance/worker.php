<?php
// What tests leave behind that is the application's to take back: settings, handlers, the environment. A test that asks for it has
// a worker of its own.
require __DIR__ . '/handler.php';

$settings = ini_get_all(null, false);
$environment = getenv();
$wrappers = stream_get_wrappers();
while (forkyard_handle_request('handle_request')) {
    if (isset($_SERVER['TEST_IS_LAST'])) {
        break;
    }
    while (set_error_handler(null) !== null) {
        restore_error_handler();
        restore_error_handler();
    }
    set_exception_handler(null);
    foreach (spl_autoload_functions() as $function) {
        spl_autoload_unregister($function);
    }
    foreach (ini_get_all(null, false) as $name => $value) {
        if ($value !== $settings[$name]) {
            @ini_restore($name);
        }
    }
    foreach (array_diff_key(getenv(), $environment) as $name => $value) {
        putenv($name);
    }
    foreach (array_diff(stream_get_wrappers(), $wrappers) as $name) {
        stream_wrapper_unregister($name);
    }
    foreach (array_diff($wrappers, stream_get_wrappers()) as $name) {
        stream_wrapper_restore($name);
    }
    setlocale(LC_ALL, 'C');
    date_default_timezone_set(ini_get('date.timezone') ?: 'UTC');
    mb_internal_encoding('UTF-8');
    libxml_use_internal_errors(false);
    error_reporting((int) ini_get('error_reporting'));
    gc_enable();
    gc_collect_cycles();
}

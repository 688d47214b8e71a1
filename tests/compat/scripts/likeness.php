<?php
// All that a script can find out about the PHP that it runs on.
$functions = get_defined_functions()['internal'];
$constants = get_defined_constants(true);
$classes = array_merge(get_declared_classes(), get_declared_interfaces(), get_declared_traits());
ob_start();
phpinfo(INFO_ALL & ~INFO_VARIABLES & ~INFO_ENVIRONMENT);
$info = [];
foreach (explode("\n", ob_get_clean()) as $line) {
    if (preg_match('~^<tr><td class="e">(.*?)</td>(.*)</tr>~', $line, $match)) {
        $info["$section: " . trim($match[1])] = trim(strip_tags(str_replace('</td><td class="v">', ' | ', $match[2])));
    } elseif (preg_match('~<h2>(?:<a [^>]*>)?([^<]*)~', $line, $match)) {
        $section = $match[1];
    } else {
        $section ??= 'PHP';
    }
}
sort($functions);
sort($classes);
$extensions = get_loaded_extensions();
sort($extensions);
$signatures = [];
foreach ($functions as $name) {
    $signatures[$name] = (string)new ReflectionFunction($name);
}
echo json_encode([
    'functions' => $signatures,
    'constants' => array_map(fn ($group) => array_map(fn ($value) => var_export($value, true), $group), $constants),
    'classes' => $classes,
    'extensions' => $extensions,
    'settings' => ini_get_all(),
    'info' => $info,
    'streams' => [stream_get_wrappers(), stream_get_transports(), stream_get_filters()],
    'files' => [php_ini_loaded_file(), array_map('trim', explode(',', (string)php_ini_scanned_files())), get_cfg_var('cfg_file_path')],
    'sapi' => [PHP_SAPI, php_sapi_name(), PHP_VERSION],
], JSON_PARTIAL_OUTPUT_ON_ERROR | JSON_UNESCAPED_SLASHES);

<?php
var_dump(php_sapi_name(), PHP_SAPI, extension_loaded('cgi-fcgi'), ini_get_all('cgi-fcgi'));
var_dump(get_extension_funcs('cgi-fcgi'));
foreach (get_extension_funcs('cgi-fcgi') as $name) {
    echo new ReflectionFunction($name);
}
var_dump(ignore_user_abort(), connection_status(), connection_aborted(), getcwd(), get_included_files());
var_dump(php_ini_loaded_file() !== false, count(explode(',', php_ini_scanned_files())));
$status = opcache_get_status(false);
var_dump($status['opcache_enabled'], array_keys($status));
$all = ini_get_all(null, false);
unset($all['opcache.lockfile_path']);
var_dump($all);
$extensions = get_loaded_extensions();
sort($extensions);
var_dump($extensions, get_loaded_extensions(true));

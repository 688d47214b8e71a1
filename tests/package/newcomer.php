<?php
// What a page of a newcomer's sees, and the command php: one line each.
foreach (['upload_max_filesize', 'memory_limit', 'display_errors'] as $name) {
    echo $name, ' ', ini_get($name), "\n";
}
$file = php_ini_loaded_file();
echo 'ini ', $file ? realpath($file) : '', "\n";
echo 'key ', getenv('APP_KEY'), "\n";
echo 'gd ', extension_loaded('gd') ? (int) gd_info()['JPEG Support'] . (int) gd_info()['FreeType Support'] . (int) gd_info()['WebP Support'] : '', "\n";
// Told where docker logs shows it.
error_log('told by error_log');
fwrite(fopen('php://stderr', 'w'), "told by php://stderr\n");
@mail('a@example.org', 'subject', 'text');
$names = array_map('strtolower', get_loaded_extensions());
sort($names);
echo 'extensions ', implode(' ', $names), "\n";

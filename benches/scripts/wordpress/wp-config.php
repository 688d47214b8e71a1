<?php
// Of a copy of WordPress, with a database of its own beside it.
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:' . dirname(__DIR__) . '/database/db.sock');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define("{$name}_KEY", "a key for $name");
    define("{$name}_SALT", "a salt for $name");
}
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
// What is made of the theme's styles lasts a minute otherwise, and then one page makes it anew.
foreach (['global_styles', 'global_styles_svg_filters'] as $name) {
    $wp_filter["expiration_of_transient_{$name}_twentytwentythree"][10][] = ['function' => fn () => 86400, 'accepted_args' => 1];
}
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';

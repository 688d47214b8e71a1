<?php
// For readers: front page, articles, archives, feeds.
define('WP_USE_THEMES', true);
require __DIR__ . '/wp-load.php';
forkyard_before_snapshot(fn () => $GLOBALS['wpdb']->close());
$handler = function () {
    foreach (array_keys($GLOBALS) as $name) {
        global $$name;
    }
    $wpdb->db_connect();
    wp_cache_flush();
    timer_start();
    wp_fix_server_vars();
    wp_magic_quotes();
    wp();
    require ABSPATH . WPINC . '/template-loader.php';
};
while (forkyard_handle_request($handler));

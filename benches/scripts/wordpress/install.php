<?php
// Makes the database and some articles.
define('WP_INSTALLING', true);
(new mysqli('localhost', 'root', '', '', 0, dirname(__DIR__) . '/database/db.sock'))->query('CREATE DATABASE wordpress');
require __DIR__ . '/wp-load.php';
require ABSPATH . 'wp-admin/includes/upgrade.php';
function wp_mail()
{
    return true;
}
wp_install('Notes', 'admin', 'admin@example.com', true, '', 'secret');
for ($i = 0; $i < 10; $i++) {
    wp_insert_post([
        'post_title' => "Article $i", 'post_content' => str_repeat("<p>Some text of article $i.</p>\n", 20), 'post_status' => 'publish',
        'post_author' => 1, 'post_date' => "2026-01-1$i 10:00:00",
    ]);
}
echo 'installed';

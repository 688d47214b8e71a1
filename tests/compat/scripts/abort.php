<?php
// Writes until the client is gone; says in a file how that went.
ignore_user_abort(($_GET['ignore'] ?? '0') === '1');
register_shutdown_function(function () {
    file_put_contents($_GET['file'] . '.tmp', 'status ' . connection_status() . ' aborted ' . connection_aborted() . ' ' . ($GLOBALS['end'] ?? 'cut'));
    rename($_GET['file'] . '.tmp', $_GET['file']);
});
echo 'begin';
flush();
for ($i = 0; $i < 200 && !($_GET['ignore'] ?? false ? connection_aborted() : false); $i++) {
    echo str_repeat('x', 65536);
    flush();
    usleep(1000);
}
$end = 'end';

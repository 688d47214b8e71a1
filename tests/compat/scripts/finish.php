<?php
// Answers early, then goes on; says in a file how that went.
ignore_user_abort(($_GET['ignore'] ?? '0') === '1');
register_shutdown_function(function () {
    file_put_contents($_GET['file'] . '.tmp', json_encode($GLOBALS['seen'] ?? null) . ' shutdown ' . connection_status());
    rename($_GET['file'] . '.tmp', $_GET['file']);
});
echo "answer\n";
$seen = [fastcgi_finish_request()];
$seen[] = fastcgi_finish_request();
echo 'lost';
$seen[] = headers_sent();
if ($_GET['much'] ?? false) {
    flush();
    echo str_repeat('lost too', 20000);
}
$seen[] = connection_status();
$seen[] = 'end';

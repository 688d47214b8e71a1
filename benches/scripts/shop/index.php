<?php
// A page of a shop: it computes for 60 ms of processor time, and waits for a query that takes 60 ms while the database is well.
// A POST is an order.
$root = dirname(__DIR__, 2);
file_put_contents("$root/executed-" . $_SERVER['HTTP_X_KIND'], '.', FILE_APPEND);

function processor_ms(): float
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1e3 + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) / 1e3;
}

$database = new PDO("mysql:unix_socket=$root/database/db.sock;dbname=shop", 'root', '');
// The catalogue: what a request has of its own in memory.
$items = range(1, 200000);
$end = processor_ms() + 60;
$text = '';
do {
    for ($i = 0; $i < 2000; $i++) {
        $text = md5($text . $i);
    }
} while (processor_ms() < $end);
$database->query('SELECT SLEEP(0.06 * factor) FROM pace')->fetchAll();
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $database->exec('INSERT INTO orders (id) VALUES (NULL)');
    echo "ordered\n";
} else {
    echo "<h1>Product</h1>$text\n";
}

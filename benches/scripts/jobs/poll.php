<?php
// A queue in a table of SQLite and workers that poll it, as Laravel's driver "database" does it: a transaction reserves the
// oldest job that is available, another deletes it when it is done. poll.php FILE push COUNT | poll.php FILE work
[, $file, $what] = $argv;
$db = new PDO("sqlite:$file", null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$db->exec("PRAGMA busy_timeout = 60000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
if ($what === "push") {
    $db->exec("CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, queue VARCHAR NOT NULL, payload TEXT NOT NULL,
        attempts INTEGER NOT NULL, reserved_at INTEGER, available_at INTEGER NOT NULL, created_at INTEGER NOT NULL)");
    $db->exec("CREATE INDEX IF NOT EXISTS jobs_queue ON jobs (queue)");
    $insert = $db->prepare("INSERT INTO jobs (queue, payload, attempts, available_at, created_at) VALUES ('default', ?, 0, ?, ?)");
    $db->beginTransaction();
    for ($number = 1; $number <= (int) $argv[3]; $number++) {
        $insert->execute([json_encode(["job" => "App\\Jobs\\Nothing", "data" => $number]), time(), time()]);
        if ($number % 100 == 0) {
            $db->commit();
            $db->beginTransaction();
        }
    }
    $db->commit();
    exit;
}
$select = $db->prepare("SELECT * FROM jobs WHERE queue = 'default' AND ((reserved_at IS NULL AND available_at <= ?)
    OR reserved_at <= ?) ORDER BY id LIMIT 1");
$reserve = $db->prepare("UPDATE jobs SET reserved_at = ?, attempts = attempts + 1 WHERE id = ?");
$delete = $db->prepare("DELETE FROM jobs WHERE id = ?");
while (true) {
    $db->exec("BEGIN IMMEDIATE");
    $select->execute([time(), time() - 90]);
    $job = $select->fetch(PDO::FETCH_ASSOC);
    $select->closeCursor();
    if ($job) {
        $reserve->execute([time(), $job["id"]]);
    }
    $db->exec("COMMIT");
    if (!$job) {
        break;
    }
    json_decode($job["payload"], true);
    $db->exec("BEGIN IMMEDIATE");
    $delete->execute([$job["id"]]);
    $db->exec("COMMIT");
}

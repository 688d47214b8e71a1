<?php
// About 20 MB in small pieces, as rows from a database are.
$rows = [];
for ($i = 0; $i < 42000; $i++) {
    $rows[] = ['id' => $i, 'name' => "name $i"];
}
echo count($rows), " ", memory_get_peak_usage() >> 20, "\n";

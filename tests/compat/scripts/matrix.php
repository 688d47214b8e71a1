<?php
// Values, who may change them, what a script can do about it, and what it is after that.
$all = ini_get_all();
foreach (explode(',', $_GET['names']) as $name) {
    $before = ini_get($name);
    $set = @ini_set($name, $_GET['to']);
    $now = ini_get($name);
    @ini_restore($name);
    echo "$name: ", json_encode([$before, $all[$name], $set, $now, ini_get($name)]), "\n";
}

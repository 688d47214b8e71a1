<?php
// Ini values, and whether scripts may change them.
foreach (explode(',', $_GET['names']) as $name) {
    $before = ini_get($name);
    $changed = @ini_set($name, $_GET['to'] ?? '7');
    var_dump($name, $before, $changed, ini_get($name));
}

<?php
foreach (explode(',', $_GET['names']) as $name) {
    var_dump($name, function_exists($name), class_exists($name, false));
    try {
        var_dump($name === 'getmypid' ? $name() > 0 : $name('x'));
    } catch (Error $error) {
        echo get_class($error), ': ', $error->getMessage(), "\n";
    }
}
function own() { return 'own function'; }
echo own(), "\n";

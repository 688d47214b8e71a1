<?php
// What a preloaded script calls.
foreach (['of_pool', 'inlined', 'of_request'] as $name) {
    try {
        echo "$name: " . $name('abc') . "\n";
    } catch (Error $error) {
        echo $name, ': ', $error->getMessage(), "\n";
    }
}

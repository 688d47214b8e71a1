<?php
// About 20 MB in pieces of 160 bytes, all given back at the end.
$pieces = [];
for ($i = 0; $i < 115000; $i++) {
    $pieces[] = str_repeat('x', 104);
}
echo count($pieces), " ", memory_get_peak_usage() >> 20, "\n";

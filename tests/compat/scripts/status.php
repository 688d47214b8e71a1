<?php
// The pool's status, without times, process ids and the length of the kernel's queue; and without counts of requests,
// since php-fpm counts connections without any.
$status = fpm_get_status();
foreach (['start-time', 'start-since', 'listen-queue-len', 'max-listen-queue', 'accepted-conn'] as $key) {
    $status[$key] = gettype($status[$key]);
}
foreach ($status['procs'] as &$proc) {
    foreach (['pid', 'start-time', 'start-since', 'request-duration', 'requests'] as $key) {
        $proc[$key] = gettype($proc[$key]);
    }
}
unset($proc);
var_dump($status);
// The status itself is not what takes memory.
var_dump(memory_get_peak_usage(true));
